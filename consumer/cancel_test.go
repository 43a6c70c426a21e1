package consumer_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

func (r *rig) cancel(doc string) {
	r.Helper()
	if _, err := r.led.Resolve(r.Context(), ledger.Resolution{Key: key(doc), Action: ledger.Cancel, By: ledger.ByPerson, Who: "ann", Reason: "test"}); err != nil {
		r.Fatal(err)
	}
}

// A person cancels a running job long before the next renewal of the lease: the handler's context ends within a
// second, and with it the run.
func TestACancelReachesTheHandlerWithinASecond(t *testing.T) {
	bubble(t, memory.Options{Visibility: 10 * time.Minute}, func(r *rig) {
		var ended time.Time
		r.before = func(ctx context.Context, j *job.Run, _ ask) error {
			select {
			case <-ctx.Done():
			case <-time.After(time.Hour):
			}
			ended = time.Now()
			return context.Cause(ctx)
		}
		r.send("1")
		a := r.start("a", func(c *consumer.Config) { c.Lease = 10 * time.Minute })
		time.Sleep(3*time.Minute + 21*time.Second)
		asked := time.Now()
		r.cancel("1")
		time.Sleep(time.Minute)
		r.end(a)
		if took := ended.Sub(asked); ended.IsZero() || took > time.Second {
			t.Errorf("the handler's context ended %s after the cancel, want within a second", took)
		}
		r.want("1", want{state: ledger.Cancelled, runs: 1, errClass: "cancelled"})
		r.queue(memory.Depth{})
	})
}

// The call that was sent before is paid whatever happens: its answer is waited for and kept, and nothing is sent
// after it.
func TestACancelDoesNotCutASentCall(t *testing.T) {
	bubble(t, memory.Options{Visibility: 10 * time.Minute}, func(r *rig) {
		r.prov.script = func(string, int) (time.Duration, error) { return time.Minute, nil }
		var cause error
		r.after = func(ctx context.Context, j *job.Run, in ask) error {
			cause = context.Cause(ctx)
			_, err := r.second().Run(ctx, j, in)
			return err
		}
		r.send("1")
		a := r.start("a", func(c *consumer.Config) { c.Lease, c.Handlers = 10*time.Minute, r.handlers(r.second()) })
		time.Sleep(10 * time.Second)
		r.cancel("1")
		time.Sleep(2 * time.Minute)
		r.end(a)
		if !errors.Is(cause, job.ErrCancelled) {
			t.Errorf("after the answer the context's cause is %v, want that it was cancelled", cause)
		}
		r.want("1", want{state: ledger.Cancelled, runs: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Received}, errClass: "cancelled"})
		r.queue(memory.Depth{})
	})
}

// second is a call that comes after the first.
func (r *rig) second() job.Call[ask, string] {
	c := r.call
	c.Name, c.Routes = "second", slices.Clone(c.Routes)
	return c
}
