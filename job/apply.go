package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// RunTx returns the call's answer as Run does, and has the user's rows for it committed first, once, in one transaction with a mark
// on the answer. Users call the typed door of their ledger instead: postgres.RunTx(ctx, j, call, in, fn) or sqlite.RunTx. work makes
// the ledger's hook of what Run returned.
//
// The rows are there once for each answer: a redelivery, a take over, a retry and a second RunTx of the run get the answer
// and run nothing, and a re-run on purpose, which pays for a new answer, runs the work on that. A run that lost its
// lease commits nothing. The work may run more than once, each time in a new transaction; it must be short, and must not make calls or ask for
// steps or messages (PO631): it is not run again once it is committed, so what it asked for would be lost with the run. What
// should follow its rows is asked for after RunTx.
//
// An error of the work commits nothing of it, and the answer stays: it is returned under [ledger.ErrHook], and the next run
// tries again. PO630: the call is EachCall, so no later run would know its answer. PO632: its route answered without sending anything.
func (c Call[In, Out]) RunTx(ctx context.Context, j *Run, in In, work func(Out) ledger.Hook) (Out, error) {
	var none Out
	if c.Memo == EachCall {
		return none, Failf("PO630 call %q is EachCall: another run makes it anew, and the rows of its answer would be there twice", c.Name)
	}
	for {
		q, err := newQuestion(&c, j, in)
		if err != nil {
			return none, err
		}
		out, fl, err := q.once(ctx)
		switch {
		case err != nil:
			return none, err
		case fl.from.IsZero():
			return none, Failf("PO632 call %q was answered without a request: there is no answer on record that rows could belong to, and they would be there twice", c.Name)
		}
		switch err := j.apply(ctx, fl.from, work(out)); {
		case err == nil:
			return out, nil
		case !errors.Is(err, ledger.ErrLate):
			return none, fmt.Errorf("call %s was answered, and the answer is kept: %w", c.Name, err)
		}
		j.disuse(q.ref, fl) // an earlier attempt's answer came first: that one is the call's
	}
}

// apply has the rows for the answer of a call committed. Like the end of a run it tries again while the
// ledger is out of reach.
func (r *Run) apply(ctx context.Context, id ledger.ID, work ledger.Hook) error {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := r.applyOnce(ctx, id, work)
		if err == nil || decided(err) {
			return r.refused(err)
		}
		r.cfg.Log.WarnContext(ctx, "rows of an answer not committed yet", "attempt_id", id.String(), "error", err)
		select {
		case <-ctx.Done():
		case <-r.cfg.Paid.Done():
			return err
		case <-time.After(wait):
		}
	}
}

func (r *Run) applyOnce(ctx context.Context, id ledger.ID, work ledger.Hook) error {
	ctx, cancel := r.settling(ctx)
	defer cancel()
	return r.cfg.Ledger.Apply(ctx, *r.cfg.Lease, id, work)
}

// decided reports whether the ledger understood, and refused.
func decided(err error) bool {
	return slices.ContainsFunc([]error{ledger.ErrLost, ledger.ErrHook, ledger.ErrLate, ledger.ErrState, ledger.ErrNotFound, ledger.ErrRequest},
		func(e error) bool { return errors.Is(err, e) })
}

// disuse forgets the answer that a call was given, so that it looks again, unless another goroutine did.
func (r *Run) disuse(ref ledger.CallRef, fl *flight) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.flight(ref) == fl {
		r.used = slices.DeleteFunc(r.used, func(id ledger.ID) bool { return id == fl.from })
		r.land(fl)
	}
}

// inWork refuses what work of OnCommit or RunTx must not do; what is what it does.
func (r *Run) inWork(what string) error {
	if !ledger.InWork() {
		return nil
	}
	return r.stick(Failf("PO631 %s within work of a transaction, of OnCommit or RunTx: do it in the handler itself", what))
}
