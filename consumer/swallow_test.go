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

// A handler that swallows a held call does not get its result committed.
func TestSwallowedUnknownIsHeld(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.prov.script = func(string, int) (time.Duration, error) { return time.Second, errors.New("connection reset") }
		reg := new(job.Registry)
		job.Register(reg, job.Def[ask, string]{Name: "ask", Uses: job.Uses(r.call),
			Handle: func(ctx context.Context, j *job.Run, in ask) (string, error) {
				if _, err := r.call.Run(ctx, j, in); err == nil {
					t.Error("the call has an answer")
				}
				return "made up", nil
			}})
		r.send("1")
		n := r.start("a", func(cfg *consumer.Config) { cfg.Handlers = reg })
		time.Sleep(time.Hour)
		r.end(n)
		r.want("1", want{state: ledger.Unknown, open: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Sent}, errClass: "held"})
		r.queue(memory.Depth{})
	})
}

// Nor does one that swallows a refusal of the gate: nothing is open then, and the
// run itself must remember.
func TestSwallowedRefusalIsNotCommitted(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.call.Routes[0].Reserve = 2 * ledger.USD
		reg := new(job.Registry)
		job.Register(reg, job.Def[ask, string]{Name: "ask", Uses: job.Uses(r.call), Limits: job.Limits{USD: ledger.USD},
			Handle: func(ctx context.Context, j *job.Run, in ask) (string, error) {
				if _, err := r.call.Run(ctx, j, in); !errors.Is(err, job.ErrBudget) {
					t.Errorf("the call said %v, want ErrBudget", err)
				}
				return "made up", nil
			}})
		r.send("1")
		n := r.start("a", func(cfg *consumer.Config) { cfg.Handlers = reg })
		time.Sleep(time.Hour)
		r.end(n)
		r.want("1", want{state: ledger.Failed, runs: 1, errClass: "budget"})
		r.queue(memory.Depth{})
	})
}
