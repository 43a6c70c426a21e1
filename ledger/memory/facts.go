package memory

import (
	"fmt"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// facts is what the guards may know of a row; nil: there is none. What the asker presents
// is added by the verb.
func (l *Ledger) facts(r *row, now time.Time) ledger.Facts {
	if r == nil {
		return ledger.Facts{}
	}
	w := l.workers[r.Owner.ID]
	open := w != nil && w.epoch == r.Owner.Epoch && !w.closed
	return ledger.Facts{
		Exists: true, State: r.State, OpenCalls: r.OpenCalls, Cancel: r.Cancel, InputKept: r.InputKept,
		Due:    !now.Before(r.NextAt),
		Lapsed: !open || !now.Before(r.runDeadline),
		Owned:  open && now.Before(w.lease),
	}
}

// leaseFacts are the facts for the owner of a lease, who is bound by its run's
// deadline alone.
func (l *Ledger) leaseFacts(r *row, lease ledger.Lease, now time.Time) ledger.Facts {
	f := l.facts(r, now)
	f.FenceHeld = r != nil && r.Fence == lease.Fence
	f.Lapsed = r != nil && !now.Before(r.runDeadline)
	return f
}

// inBudget reports whether the job may spend more. It must not overflow.
func (r *row) inBudget(more ledger.Nano) bool {
	var cost ledger.Nano
	if r.Cost != nil {
		cost = *r.Cost
	}
	return r.Budget == 0 || more <= r.Budget-cost-r.Reserved
}

// pastRoutes reports whether every open attempt is past its route's timeout.
func (r *row) pastRoutes(now time.Time) bool {
	for _, a := range r.attempts {
		if a.State == ledger.Sent && now.Before(a.SentAt.Add(a.Timeout)) {
			return false
		}
	}
	return true
}

// pick returns the one transition of ids that f allows. The guards of the table
// exclude each other; that it allows two is a mistake in the table.
func pick(f ledger.Facts, ids ...string) (ledger.Transition, bool) {
	var found ledger.Transition
	for _, id := range ids {
		t := ledger.Row(id)
		if t.Allows(f) != "" {
			continue
		}
		if found.ID != "" {
			panic(fmt.Sprintf("ledger: the table allows %s and %s for %+v", found.ID, id, f))
		}
		found = t
	}
	return found, found.ID != ""
}

// refusal is the error for a guard that does not hold.
func refusal(guard string) error {
	switch guard {
	case "":
		return nil
	case "state", "fence", "run_deadline_ahead":
		return ledger.ErrLost
	case "none_open":
		return ledger.ErrOpen
	case "not_cancelled":
		return ledger.ErrCancelled
	case "in_budget":
		return ledger.ErrBudget
	case "late_seen":
		return ledger.ErrLate
	case "input_kept":
		return ledger.ErrNoInput
	}
	return fmt.Errorf("%w: %s does not hold", ledger.ErrState, guard)
}
