package memory

import (
	"context"
	"fmt"

	"github.com/paidonce/paidonce/ledger"
)

// RunTx returns a call's answer and has fn work on it once: run is a *job.Run, and call a job.Call. It is postgres.RunTx for
// this ledger: what fn leaves in memory must go through Then, so that it happens with the mark on the answer or not
// at all.
func RunTx[Run, In, Out any](ctx context.Context, run Run, call interface {
	RunTx(ctx context.Context, run Run, in In, work func(Out) ledger.Hook) (Out, error)
}, in In, fn func(ctx context.Context, out Out) error) (Out, error) {
	return call.RunTx(ctx, run, in, func(out Out) ledger.Hook {
		return hook{func(ctx context.Context) error { return fn(ctx, out) }}
	})
}

// Apply implements ledger.Ledger.
func (l *Ledger) Apply(ctx context.Context, lease ledger.Lease, attempt ledger.ID, work ledger.Hook) error {
	if done, err := l.apply(ctx, lease, attempt, nil); done || err != nil {
		return err
	}
	c := &commit{}
	if err := c.work(ctx, work); err != nil {
		return err
	}
	_, err := l.apply(ctx, lease, attempt, c)
	return err
}

// apply checks J10a, and marks the answer when there is something to commit. As with complete no lock is held while the
// work runs. done reports that the answer is marked already.
func (l *Ledger) apply(ctx context.Context, lease ledger.Lease, attempt ledger.ID, c *commit) (done bool, err error) {
	now, unlock, err := l.begin(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	r := l.row(lease.Key.Tenant, lease.Job)
	f := l.leaseFacts(r, lease, now)
	a := r.attempt(attempt)
	if a != nil {
		f.Attempt, f.Applied = a.State, !a.Applied.IsZero()
		f.FirstIn = a.Generation == r.Generation && a.captured == r.first(a.Call)
	}
	t := ledger.Row("J10a")
	switch guard := t.Allows(f); {
	case guard == "unapplied":
		return true, nil
	case guard == "received" && a == nil:
		return false, ledger.ErrNotFound
	case guard != "" || c == nil:
		return false, ledger.Refusal(guard)
	}
	for _, effect := range c.effects {
		effect()
	}
	a.Applied = now
	r.move(t, now, r.Owner.ID, fmt.Sprintf(", attempt %d", a.N))
	return true, nil
}

// first is the number of the capture that a call's answer in this generation is; 0: there is none.
func (r *row) first(c ledger.CallRef) int {
	first := 0
	for _, a := range r.attempts {
		if a.Call == c && a.Generation == r.Generation && a.captured > 0 && (first == 0 || a.captured < first) {
			first = a.captured
		}
	}
	return first
}
