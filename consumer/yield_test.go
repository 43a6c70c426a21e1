package consumer_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
)

// countedSource counts the polls that ended before they began.
type countedSource struct {
	broker.Source
	dead *atomic.Int64
}

func (s countedSource) Receive(ctx context.Context, n int) ([]broker.Delivery, error) {
	if ctx.Err() != nil {
		s.dead.Add(1)
	}
	return s.Source.Receive(ctx, n)
}

// A job of the ledger that wants a slot gets it on a machine with one processor too, where whoever polls for messages could
// begin polls that end at once, without a pause, until the scheduler takes the processor away.
func TestYieldOnOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	bubble(t, memory.Options{}, func(r *rig) {
		var dead atomic.Int64
		n := r.start("a", func(c *consumer.Config) { c.Source = countedSource{c.Source, &dead} })
		for _, doc := range []string{"1", "2", "3", "4", "5"} {
			r.submitted(doc)
			time.Sleep(time.Minute)
		}
		r.end(n)
		for _, doc := range []string{"1", "2", "3", "4", "5"} {
			r.want(doc, done1)
		}
		if dead.Load() > 50 {
			t.Errorf("%d polls for messages ended as they began", dead.Load())
		}
	})
}
