package memory

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// Claim implements ledger.Ledger.
func (l *Ledger) Claim(ctx context.Context, r ledger.Request) (ledger.Claimed, error) {
	if err := r.Check(); err != nil {
		return ledger.Claimed{}, err
	}
	now, unlock, err := l.begin(ctx)
	if err != nil {
		return ledger.Claimed{}, err
	}
	defer unlock()
	j := l.keys[r.Key]
	f := l.facts(j, now)
	f.RunsLeft = j == nil || r.MaxRuns == 0 || j.Runs < r.MaxRuns
	f.TokenHeld = j != nil && j.token == r.Token
	f.SameInput = j != nil && j.Action == r.Action && j.InputHash == r.InputHash

	t, ok := ledger.PickClaim(f)
	if !ok {
		return l.answer(j, r, f, now), nil
	}
	switch t.ID {
	case "J5":
		return j.keepInput(r), nil
	case "J1", "J2", "J3":
		if !l.open(r.Worker) {
			return ledger.Claimed{}, ledger.ErrClosed
		}
		if j == nil {
			j = l.insert(r, now)
		}
		j.start(t, r, now)
	case "J2x", "J3x":
		j.exhaust(t, r, now)
	case "J4":
		j.lapse(t, now, r.Worker.ID)
	case "J19c":
		j.cancel(t, now, r.Worker.ID, "")
	}
	if t.To == ledger.Running {
		return j.keepInput(r), nil
	}
	return l.answer(j, r, f, now), nil
}

// keepInput stores an input that is larger than what is kept with the row, and answers the claim
// that offers it.
func (r *row) keepInput(q ledger.Request) ledger.Claimed {
	if q.LargeInput() != nil && !r.InputKept {
		r.input, r.InputKept = bytes.Clone(q.Input), true
		if q.Carrier == ledger.CarriedByLedger {
			r.Carrier = ledger.CarriedByLedger
		}
	}
	return r.running()
}

// insert makes the row of a key that was never seen.
func (l *Ledger) insert(r ledger.Request, now time.Time) *row {
	j := &row{Job: ledger.Job{Key: r.Key, ID: int64(len(l.rows)) + 1, Action: r.Action, Generation: 1,
		Carrier: ledger.CarriedByBroker, InputHash: r.InputHash, Origin: r.Origin.Clean(), CreatedAt: now, BeganAt: now, NextAt: now}}
	if r.RowInput() != nil {
		j.input, j.InputKept = bytes.Clone(r.Input), true
	}
	l.keys[r.Key] = j
	l.rows = append(l.rows, j)
	return j
}

// start gives the row to the asker (J1, J2, J3).
func (r *row) start(t ledger.Transition, q ledger.Request, now time.Time) {
	r.Runs++
	r.move(t, now, q.Worker.ID, fmt.Sprintf(", run %d", r.Runs))
	r.token, r.Owner, r.runDeadline, r.Budget = q.Token, q.Worker, now.Add(q.MaxRun), q.Budget
	r.MaxCalls, r.Lifetime = q.MaxCalls, q.Lifetime
	r.Receives = max(r.Receives, q.Receives)
	if q.Carrier == ledger.CarriedByLedger && r.InputKept {
		r.Carrier = ledger.CarriedByLedger
	}
}

// exhaust fails a job whose runs are spent (J2x, J3x).
func (r *row) exhaust(t ledger.Transition, q ledger.Request, now time.Time) {
	r.move(t, now, q.Worker.ID, "")
	r.Error = new(ledger.Exhausted(r.Runs, q.MaxRuns, r.Error))
	r.Receives = max(r.Receives, q.Receives)
	r.disown()
}

// lapse makes a job unknown whose run died with calls open (J4, J13).
func (r *row) lapse(t ledger.Transition, now time.Time, actor string) {
	r.move(t, now, actor, fmt.Sprintf(", %d open", r.OpenCalls))
	r.disown()
	r.unknownAt, r.NextAt = now, now
	if r.InputKept {
		r.Carrier = ledger.CarriedByLedger
	}
}

// cancel ends a job by a person's will (J19, J19b, J19c).
func (r *row) cancel(t ledger.Transition, now time.Time, actor, reason string) {
	r.closeOpen(now, all)
	r.move(t, now, actor, reason)
	r.disown()
}

// running answers the claim that owns the row.
func (r *row) running() ledger.Claimed {
	return ledger.Claimed{Verdict: ledger.Run, Run: r.Runs, Generation: r.Generation, Carrier: r.Carrier,
		Lease: ledger.Lease{Key: r.Key, Job: r.ID, Fence: r.Fence, Deadline: r.runDeadline}}
}

// answer says what the row is to somebody who may not run it.
func (l *Ledger) answer(r *row, q ledger.Request, f ledger.Facts, now time.Time) ledger.Claimed {
	c := ledger.Claimed{Generation: r.Generation, Carrier: r.Carrier}
	switch {
	case !f.SameInput:
		c.Verdict, c.Stored = ledger.Mismatch, &ledger.Identity{Action: r.Action, InputHash: r.InputHash}
	case r.State == ledger.Done && r.Purged:
		c.Verdict, c.Cost = ledger.Purged, clone(r.Cost)
	case r.State == ledger.Done && q.VerdictOnly:
		c.Verdict, c.Cost = ledger.Saved, clone(r.Cost)
	case r.State == ledger.Done:
		c.Verdict, c.Result, c.Cost = ledger.Saved, result(r.Result.Light()), clone(r.Cost)
	case r.State == ledger.Failed:
		c.Verdict, c.Error = ledger.HasFailed, clone(r.Error)
	case r.State == ledger.Cancelled:
		c.Verdict = ledger.IsCancelled
	case r.State == ledger.Unknown:
		c.Verdict, c.RetryIn = ledger.HeldUnknown, max(0, r.NextAt.Sub(now))
	case r.State == ledger.Ready:
		c.Verdict, c.RetryIn = ledger.NotDue, max(0, r.NextAt.Sub(now))
	default:
		c.Verdict, c.RetryIn = ledger.Busy, max(0, min(l.workers[r.Owner.ID].lease.Sub(now), r.runDeadline.Sub(now)))
	}
	return c
}
