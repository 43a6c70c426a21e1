package job

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// TestSentEnded: a caller whose context has ended is not let through, a gate that was asked is asked to its end, and what it has
// let through is on record as not sent.
func TestSentEnded(t *testing.T) {
	gone := errors.New("the caller has gone")
	for name, c := range map[string]struct {
		before, during bool // it ends
		sends          int
		states         []ledger.AttemptState
		class          string
	}{
		"before":  {before: true},
		"during":  {during: true, sends: 1, states: []ledger.AttemptState{ledger.NotSent}, class: "cancelled"},
		"neither": {sends: 1, states: []ledger.AttemptState{ledger.Received}, class: "done"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			got := ask(t, testRun(t, f, nil), "openai", time.Minute, func(ctx context.Context, a *Attempt) (string, error) {
				ctx, cancel := context.WithCancelCause(ctx)
				defer cancel(nil)
				f.onSend = func(gate context.Context) error {
					if c.during {
						cancel(gone)
					}
					return gate.Err()
				}
				if c.before {
					cancel(gone)
				}
				return "sent", a.Sent(ctx)
			})
			if ended := c.before || c.during; ended != errors.Is(got.err, gone) || ended != (got.err != nil) {
				t.Errorf("the call says %v", got.err)
			}
			if f.sends != c.sends || len(f.attempts) != len(c.states) {
				t.Fatalf("%d gates, %d attempts, want %d, %d", f.sends, len(f.attempts), c.sends, len(c.states))
			}
			for i, a := range f.attempts {
				if a.state != c.states[i] || a.evidence.Class != c.class || a.ClientRequestID != a.ID.String() {
					t.Errorf("on record: %s %q under %q", a.state, a.evidence.Class, a.ClientRequestID)
				}
			}
			if got.outcome.evidence.State != ledger.NotSent && (c.before || c.during) {
				t.Errorf("the outcome is %s", got.outcome.evidence.State)
			}
		})
	}
}

// TestSentTwiceEnded: a second mark whose context has ended says nothing of the first.
func TestSentTwiceEnded(t *testing.T) {
	f := &fake{}
	got := ask(t, testRun(t, f, nil), "openai", time.Minute, func(ctx context.Context, a *Attempt) (string, error) {
		if err := a.Sent(ctx); err != nil {
			return "", err
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if err := a.Sent(ended); !errors.Is(err, errSecond) {
			t.Errorf("the second says %v", err)
		}
		return "sent", nil
	})
	if row := f.one(t); got.err != nil || f.sends != 1 || row.state != ledger.Received {
		t.Errorf("%v: %d gates, on record %s", got.err, f.sends, row.state)
	}
}

// TestGateLeaves: a gate that was passed leaves nothing on the context of the call, which waits with it for as long as the model takes.
func TestGateLeaves(t *testing.T) {
	watched := &watchedContext{}
	ask(t, testRun(t, &fake{}, nil), "openai", time.Minute, func(ctx context.Context, a *Attempt) (string, error) {
		watched.Context = ctx
		return "sent", a.Sent(watched)
	})
	if watched.asked {
		t.Error("the gate watched the context of the call, which keeps memory for that as long as it lives")
	}
}

// watchedContext notes whether somebody wants to hear of its end.
type watchedContext struct {
	context.Context
	asked bool
}

func (c *watchedContext) Done() <-chan struct{} {
	c.asked = true
	return c.Context.Done()
}
