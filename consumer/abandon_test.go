package consumer_test

import (
	"context"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// slowRelease is a ledger that takes its time.
type slowRelease struct{ ledger.Store }

func (s slowRelease) Release(ctx context.Context, l ledger.Lease, o ledger.Outcome) (ledger.Released, error) {
	time.Sleep(4 * time.Second)
	return s.Store.Release(ctx, l, o)
}

// Many handlers ignore their context: all of their jobs are given back in the time
// that one of them takes.
func TestAbandonedRunsDoNotQueueUp(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.before = func(context.Context, *job.Run, ask) error {
			if r.runs.Load() <= 4 {
				time.Sleep(time.Hour)
			}
			return nil
		}
		r.send("1", "2", "3", "4")
		a := r.start("a", func(c *consumer.Config) { c.Store, c.Drain = slowRelease{r.led}, 20*time.Second })
		time.Sleep(10 * time.Second)
		began := time.Now()
		r.end(a)
		if took := time.Since(began); took > 25*time.Second {
			t.Errorf("Run returned %v after the drain began", took)
		}
		for _, d := range []string{"1", "2", "3", "4"} {
			r.want(d, want{state: ledger.Ready, errClass: "drain"})
		}
		time.Sleep(2 * time.Hour) // the handlers come to their ends, and may send nothing
		b := r.start("b")
		time.Sleep(time.Minute)
		r.end(b)
		for _, d := range []string{"1", "2", "3", "4"} {
			r.want(d, done1)
		}
		r.queue(memory.Depth{})
	})
}
