package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// Claim implements ledger.Ledger. A reader looks first, so that duplicates of finished and
// running jobs do not wait for the writer.
func (l *Ledger) Claim(ctx context.Context, r ledger.Request) (ledger.Claimed, error) {
	if err := r.Check(); err != nil {
		return ledger.Claimed{}, err
	}
	what := "claim " + r.Key.Text
	seen, err := l.seen(ctx, r)
	if err != nil {
		return ledger.Claimed{}, fmt.Errorf("%s: %w", what, err)
	}
	if seen == nil {
		written, err := write(ctx, l, what, func(t *tx) (ledger.Claimed, error) { return t.claim(r) })
		if err != nil {
			return ledger.Claimed{}, err
		}
		seen = &written
	}
	return l.keepInput(ctx, r, *seen)
}

// seen answers a claim that changes nothing; nil: the writer has to decide.
func (l *Ledger) seen(ctx context.Context, r ledger.Request) (*ledger.Claimed, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	ctx = context.WithoutCancel(ctx) // watching it costs more than a read of one row
	asked := time.Now()
	j, err := find(ctx, l.readers, r.Key)
	if j == nil {
		return nil, err
	}
	now := clock() // after the read: a job that was released meanwhile is due
	f := j.claimFacts(r, now)
	switch rule, some := ledger.PickClaim(f); {
	case rule.ID == "J5":
		return new(j.running(asked, now)), nil
	case some:
		return nil, nil
	}
	c, err := j.answer(ctx, l.readers, r, f, now)
	return &c, err
}

// claimFacts are the facts for whoever asks to run the job.
func (r *row) claimFacts(q ledger.Request, now time.Time) ledger.Facts {
	f := r.facts(now)
	f.RunsLeft = r == nil || q.MaxRuns == 0 || r.Runs < q.MaxRuns
	f.TokenHeld = r != nil && r.token == q.Token
	f.SameInput = r != nil && r.Action == q.Action && r.InputHash == q.InputHash
	return f
}

// claim decides under the lock.
func (t *tx) claim(q ledger.Request) (ledger.Claimed, error) {
	asked := time.Now()
	j, err := t.find(q.Key)
	if err != nil {
		return ledger.Claimed{}, err
	}
	f := j.claimFacts(q, t.now)
	rule, ok := ledger.PickClaim(f)
	if !ok {
		return j.answer(context.Background(), t, q, f, t.now)
	}
	switch rule.ID {
	case "J5":
		return j.running(asked, t.now), nil
	case "J1", "J2", "J3":
		if open, err := t.open(q.Worker); err != nil || !open {
			return ledger.Claimed{}, orClosed(err)
		}
		if rule.ID == "J1" {
			j, err = t.insert(rule, q)
			break
		}
		j.start(rule, q, t.now)
		err = t.save(j)
	case "J2x", "J3x":
		j.exhaust(rule, q, t.now)
		err = t.save(j)
	case "J4":
		j.lapse(rule, t.now, q.Worker.ID)
		err = t.save(j)
	case "J19c":
		if err = t.cancel(j, rule, q.Worker.ID, ""); err == nil {
			err = t.save(j)
		}
	}
	if err != nil {
		return ledger.Claimed{}, err
	}
	if rule.To == ledger.Running {
		return j.running(asked, t.now), nil
	}
	return j.answer(context.Background(), t, q, f, t.now)
}

func orClosed(err error) error {
	if err == nil {
		return ledger.ErrClosed
	}
	return err
}

// open reports whether the worker's epoch is the current one and not closed.
func (t *tx) open(w ledger.WorkerID) (bool, error) {
	return one(context.Background(), t, scalar[bool], "worker_open", w.ID, w.Epoch)
}

// insert makes the row of a key that was never seen, and starts its first run (J1).
func (t *tx) insert(rule ledger.Transition, q ledger.Request) (*row, error) {
	j := &row{Job: ledger.Job{Key: q.Key, Action: q.Action, Generation: 1, Carrier: ledger.CarriedByBroker,
		InputHash: q.InputHash, InputKept: q.RowInput() != nil, Origin: q.Origin.Clean(), CreatedAt: t.now, NextAt: t.now}}
	j.start(rule, q, t.now)
	origin, err := originText(j.Origin)
	if err != nil {
		return nil, err
	}
	j.ID, err = one(context.Background(), t, scalar[int64], "insert", q.Key.Tenant, q.Key.Text, q.Action, q.InputHash[:], j.InputKept,
		string(j.Carrier), q.Worker.ID, q.Worker.Epoch, q.Token[:], micros(j.runDeadline), micros(t.now), q.Receives, int64(q.Budget), len(j.news), origin,
		null(q.MaxCalls), null(q.Lifetime.Microseconds()))
	if err != nil {
		return nil, err
	}
	if j.InputKept {
		if _, err := t.exec("input", q.Key.Tenant, j.ID, q.Input); err != nil {
			return nil, err
		}
	}
	return j, t.tell(j)
}

// start gives the row to the asker (J1, J2, J3).
func (r *row) start(rule ledger.Transition, q ledger.Request, now time.Time) {
	r.Runs++
	r.move(rule, now, q.Worker.ID, fmt.Sprintf(", run %d", r.Runs))
	r.token, r.Owner, r.runDeadline, r.Budget = q.Token, q.Worker, now.Add(q.MaxRun), q.Budget
	r.MaxCalls, r.Lifetime = q.MaxCalls, q.Lifetime
	r.Receives = max(r.Receives, q.Receives)
	if q.Carrier == ledger.CarriedByLedger && r.InputKept {
		r.Carrier = ledger.CarriedByLedger
	}
}

// exhaust fails a job whose runs are spent (J2x, J3x).
func (r *row) exhaust(rule ledger.Transition, q ledger.Request, now time.Time) {
	r.move(rule, now, q.Worker.ID, "")
	r.Error = new(ledger.Exhausted(r.Runs, q.MaxRuns, r.Error))
	r.Receives = max(r.Receives, q.Receives)
	r.disown()
}

// running answers the claim that owns the row. The deadline is counted from before the row
// was read: never later than the ledger's own.
func (r *row) running(asked, now time.Time) ledger.Claimed {
	return ledger.Claimed{Verdict: ledger.Run, Run: r.Runs, Generation: r.Generation, Carrier: r.Carrier,
		Lease: ledger.Lease{Key: r.Key, Job: r.ID, Fence: r.Fence, Deadline: asked.Add(r.runDeadline.Sub(now))}}
}

// answer says what the row is to somebody who may not run it.
func (r *row) answer(ctx context.Context, db querier, q ledger.Request, f ledger.Facts, now time.Time) (ledger.Claimed, error) {
	c := ledger.Claimed{Generation: r.Generation, Carrier: r.Carrier}
	switch {
	case !f.SameInput:
		c.Verdict, c.Stored = ledger.Mismatch, &ledger.Identity{Action: r.Action, InputHash: r.InputHash}
	case r.State == ledger.Done:
		saved, err := r.result(ctx, db)
		if saved != nil {
			if _, large := ledger.Referred(saved.Body); large {
				saved.Body = nil
			}
		}
		if err != nil {
			return ledger.Claimed{}, err
		}
		if saved == nil {
			c.Verdict, c.Cost = ledger.Purged, r.Cost
			break
		}
		if q.VerdictOnly {
			saved = nil
		}
		c.Verdict, c.Result, c.Cost = ledger.Saved, saved, r.Cost
	case r.State == ledger.Failed:
		c.Verdict, c.Error = ledger.HasFailed, r.Error
	case r.State == ledger.Cancelled:
		c.Verdict = ledger.IsCancelled
	case r.State == ledger.Unknown:
		c.Verdict, c.RetryIn = ledger.HeldUnknown, max(0, r.NextAt.Sub(now))
	case r.State == ledger.Ready:
		c.Verdict, c.RetryIn = ledger.NotDue, max(0, r.NextAt.Sub(now))
	default:
		c.Verdict, c.RetryIn = ledger.Busy, max(0, min(r.lease.Sub(now), r.runDeadline.Sub(now)))
	}
	return c, nil
}
