package memory

import (
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

// limits adds to the facts whether the row may send so many more calls.
func (r *row) limits(f *ledger.Facts, more int, now time.Time) {
	f.CallsLeft = r != nil && ledger.CallsLeft(r.MaxCalls, r.Calls, more)
	f.InLifetime = r != nil && ledger.InLifetime(r.Lifetime, r.BeganAt, now)
}

// openReserve is what the open attempts hold back, and would again if they were sent anew.
func (r *row) openReserve() (n ledger.Nano) {
	for _, a := range r.attempts {
		if a.State == ledger.Sent {
			n += a.Reserve
		}
	}
	return n
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
