package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/paidonce/paidonce/ledger"
)

// RunTx returns a call's answer, as call.Run does, and has fn work on it in a transaction that marks the answer as applied:
// run is a *job.Run, and call a job.Call. What fn writes through tx is committed once for each answer, before
// RunTx returns: a later run of the job, or a second RunTx, gets the answer and does not run fn. It
// is bound as the work of OnCommit is, and an error of it leaves the answer captured and not applied.
// See job.Call.RunTx for the rest.
func RunTx[Run, In, Out any](ctx context.Context, run Run, call interface {
	RunTx(ctx context.Context, run Run, in In, work func(Out) ledger.Hook) (Out, error)
}, in In, fn func(ctx context.Context, tx Tx, out Out) error) (Out, error) {
	return call.RunTx(ctx, run, in, func(out Out) ledger.Hook {
		return hook{func(ctx context.Context, tx Tx) error { return fn(ctx, tx, out) }}
	})
}

// Apply implements ledger.Ledger.
func (l *Ledger) Apply(ctx context.Context, lease ledger.Lease, attempt ledger.ID, work ledger.Hook) error {
	h, err := own(work)
	if err != nil {
		return err
	}
	_, err = submit(ctx, l, "apply an answer of "+lease.Key.Text, true, func(t *tx) (struct{}, error) {
		return struct{}{}, t.apply(ctx, lease, attempt, h)
	})
	return repanic(err)
}

// own is the hook if this ledger made it.
func own(h ledger.Hook) (hook, error) {
	own, ok := h.(hook)
	if !ok {
		return hook{}, fmt.Errorf("%w: a %T was made for another kind of ledger than SQLite", ledger.ErrHook, h)
	}
	return own, nil
}

// repanic lets a panic of the user's work reach whoever asked for it.
func repanic(err error) error {
	if p, ok := errors.AsType[panicked](err); ok {
		panic(p.value)
	}
	return err
}

// applicable is what applying an answer looks at.
type applicable struct {
	state            ledger.AttemptState
	n                int
	applied, firstIn bool
}

func readApplicable(s scanner) (a applicable, err error) {
	return a, s.Scan(&a.state, &a.n, &a.applied, &a.firstIn)
}

// apply commits the user's rows for an answer (J10a). As with complete the work comes between the guards and the
// writes.
func (t *tx) apply(ctx context.Context, lease ledger.Lease, attempt ledger.ID, h hook) error {
	r, err := t.facts(lease.Key.Tenant, lease.Job)
	if err != nil {
		return err
	}
	f := r.leaseFacts(lease, t.now)
	var a applicable
	if r != nil {
		a, err = one(ctx, t, readApplicable, "applicable", lease.Key.Tenant, lease.Job, attempt[:], r.Generation)
		if err != nil && err != ledger.ErrNotFound {
			return err
		}
	}
	f.Attempt, f.Applied, f.FirstIn = a.state, a.applied, a.firstIn
	rule := ledger.Row("J10a")
	switch guard := rule.Allows(f); {
	case guard == "unapplied": // its own effect, before a reply that was lost; or an earlier run's
		return nil
	case guard == "received" && a.n == 0:
		return ledger.ErrNotFound
	case guard != "":
		return ledger.Refusal(guard)
	}
	if err := t.run(ctx, h); err != nil {
		return err
	}
	t.now = clock()
	r.move(rule, t.now, r.Owner.ID, fmt.Sprintf(", attempt %d", a.n))
	if _, err := t.exec("apply", micros(t.now), lease.Key.Tenant, lease.Job, attempt[:]); err != nil {
		return err
	}
	if _, err := t.exec("applied", micros(t.now), lease.Key.Tenant, lease.Job); err != nil {
		return err
	}
	return t.tell(r)
}
