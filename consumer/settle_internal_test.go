package consumer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Writes have a settle context in common if they begin within a second, which lasts for ten for each of them, and ends by its time alone.
func TestCommonSettleContext(t *testing.T) {
	type name struct{}
	synctest.Test(t, func(t *testing.T) {
		c := new(Consumer)
		over, cut := context.WithCancel(context.WithValue(t.Context(), name{}, "w"))
		cut()
		first := c.common(over)
		time.Sleep(shareFor - 1)
		last := c.common(over)
		time.Sleep(time.Nanosecond)
		next := c.common(over)
		if first != last || next == last {
			t.Errorf("in common are %v, %v and %v", first, last, next)
		}
		time.Sleep(settleTimeout - 1) // of next; of last it was a little longer
		synctest.Wait()
		if first.Err() != nil || next.Err() != nil || next.Value(name{}) != "w" {
			t.Errorf("in time: %v, %v, %v", first.Err(), next.Err(), next.Value(name{}))
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if first.Err() != context.DeadlineExceeded || next.Err() != nil {
			t.Errorf("when the first is over: %v, %v", first.Err(), next.Err())
		}
		time.Sleep(shareFor)
		synctest.Wait()
		if next.Err() != context.DeadlineExceeded {
			t.Errorf("when the next is over: %v", next.Err())
		}
	})
}
