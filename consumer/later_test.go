package consumer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// uncarried is a ledger that cannot run jobs by itself.
type uncarried struct{ ledger.Store }

func (uncarried) Carry(context.Context, ledger.Lease) error { return ledger.ErrNoInput }

// A job that waits for something else is put aside as often as it says so: its runs do not count, its call is made once,
// and its message is gone, unless the ledger cannot carry it.
func TestLater(t *testing.T) {
	const times = 30 // more than runs, and than hand-outs
	for name, c := range map[string]struct {
		store func(ledger.Store) ledger.Store
		depth memory.Depth // while it waits
		class string
	}{
		"the ledger carries": {func(s ledger.Store) ledger.Store { return s }, memory.Depth{}, "waiting"},
		"the broker carries": {func(s ledger.Store) ledger.Store { return uncarried{s} }, memory.Depth{Delayed: 1}, "waiting"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, memory.Options{MaxReceives: 5}, func(r *rig) {
				waits := 0
				r.after = func(context.Context, *job.Run, ask) error {
					if waits++; waits > times {
						return nil
					}
					return job.Later(10*time.Minute, errors.New("the batch is not over"))
				}
				r.send("1")
				a := r.start("a", func(c2 *consumer.Config) { c2.Store = c.store(c2.Store) })
				time.Sleep(5 * time.Minute)
				r.want("1", want{state: ledger.Ready, bill: 1, attempts: []ledger.AttemptState{ledger.Received}, errClass: c.class})
				r.queue(c.depth)
				time.Sleep(24 * time.Hour)
				r.end(a)
				r.want("1", done1)
				r.queue(memory.Depth{})
				if n := r.runs.Load(); n != times+1 {
					t.Errorf("the handler ran %d times, want %d", n, times+1)
				}
			})
		})
	}
}

// A call whose outcome is unknown holds the job, whatever else its handler waits for.
func TestLaterIsHeld(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.prov.script = firstIsLost
		r.before = func(ctx context.Context, j *job.Run, in ask) error {
			_, err := r.call.Run(ctx, j, in)
			return job.Later(time.Minute, err)
		}
		r.send("1")
		a := r.start("a")
		time.Sleep(time.Hour)
		r.end(a)
		r.want("1", want{state: ledger.Unknown, open: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Sent}, errClass: "held"})
	})
}
