package job

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

var errStore = errors.New("the store is not reachable")

// fake is a ledger of one job that can be told to fail. It knows attempts only; the
// rules of jobs are tested with a real ledger.
type fake struct {
	ledger.Ledger // what a guard does not use panics

	mu       sync.Mutex
	attempts []*fakeAttempt
	sends    int
	settles  []ledger.Evidence // in order, also the refused ones

	onSend   func(ctx context.Context) error             // before the gate commits
	onSettle func(n int, e ledger.Evidence) error        // before the nth settle commits, from 1
	passed   func(ctx context.Context, a ledger.Attempt) // after the gate committed
}

type fakeAttempt struct {
	ledger.Attempt
	state    ledger.AttemptState
	evidence ledger.Evidence
}

func (f *fake) Look(_ context.Context, _ ledger.Lease, c ledger.CallRef) (ledger.Looked, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var l ledger.Looked
	for _, a := range f.attempts {
		if a.Call != c {
			continue
		}
		l.Attempts++
		if a.state == ledger.Sent {
			l.Open++
		}
		if a.state == ledger.Received && l.Answer == nil {
			l.Answer = &ledger.Captured{Attempt: a.ID, Route: a.Route, Response: *a.evidence.Response}
		}
	}
	return l, nil
}

func (f *fake) Send(ctx context.Context, _ ledger.Lease, a ledger.Attempt) error {
	f.mu.Lock()
	f.sends++
	hook, passed := f.onSend, f.passed
	f.mu.Unlock()
	if err := a.Check(); err != nil {
		return err
	}
	if hook != nil {
		if err := hook(ctx); err != nil {
			return err
		}
	}
	f.mu.Lock()
	f.attempts = append(f.attempts, &fakeAttempt{Attempt: a, state: ledger.Sent})
	f.mu.Unlock()
	if passed != nil {
		passed(ctx, a)
	}
	return nil
}

func (f *fake) Settle(_ context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	f.mu.Lock()
	f.settles = append(f.settles, e)
	n, hook := len(f.settles), f.onSettle
	f.mu.Unlock()
	if err := e.Check(); err != nil {
		return ledger.Settled{}, err
	}
	if hook != nil {
		if err := hook(n, e); err != nil {
			return ledger.Settled{}, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.attempts, func(a *fakeAttempt) bool { return a.ID == id.ID })
	switch {
	case i < 0:
		return ledger.Settled{}, ledger.ErrNotFound
	case f.attempts[i].state != ledger.Sent:
		return ledger.Settled{}, ledger.ErrState
	}
	f.attempts[i].state, f.attempts[i].evidence = e.State, e
	return ledger.Settled{Job: ledger.Running}, nil
}

// one returns the only attempt.
func (f *fake) one(t *testing.T) fakeAttempt {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.attempts) != 1 {
		t.Fatalf("%d attempts on record, want 1", len(f.attempts))
	}
	return *f.attempts[0]
}

// settled returns what was settled so far.
func (f *fake) settled() []ledger.Evidence {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.settles)
}

// testRun makes a run on l whose calls may be any. Its job had an owner before, so what that one left is looked for.
func testRun(t *testing.T, l ledger.Ledger, change func(*RunConfig)) *Run {
	t.Helper()
	cfg := RunConfig{Worker: NewWorker(Worker{Ledger: l, Who: "w1", Paid: context.WithoutCancel(t.Context())}), Number: 1,
		Lease: &ledger.Lease{Key: ledger.Key{Tenant: "acme", Text: "acme:job:1"}, Job: 1, Fence: 2, Deadline: time.Now().Add(time.Hour)},
		Log:   slog.New(slog.NewTextHandler(t.Output(), nil))}
	if change != nil {
		change(&cfg)
	}
	return NewRun(cfg)
}

// asked is one call of one route, and what came of it.
type asked[Out any] struct {
	out     Out
	err     error   // of the call
	outcome outcome // of its attempt; zero if there was none
	attempt *Attempt
}

// ask makes a call with one route on run.
func ask[Out any](t *testing.T, j *Run, provider string, timeout time.Duration, do func(ctx context.Context, a *Attempt) (Out, error)) asked[Out] {
	t.Helper()
	var res asked[Out]
	c := Call[string, Out]{Name: "ask", Config: "p1", Routes: []Route[string, Out]{{
		Name: "only", Provider: provider, Model: "m1", Timeout: timeout,
		Do: func(ctx context.Context, a *Attempt, _ string) (Out, error) {
			res.attempt = a
			return do(ctx, a)
		}}}}
	if err := c.info().check(); err != nil {
		t.Fatal(err)
	}
	j.calls = map[string]CallInfo{"ask": c.info()}
	res.out, res.err = c.Run(t.Context(), j, "in")
	if res.attempt != nil && res.attempt.out != nil {
		res.outcome = *res.attempt.out
	}
	return res
}
