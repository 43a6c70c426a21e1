package memory

import (
	"context"
	"fmt"

	"github.com/paidonce/paidonce/ledger"
)

// Look implements ledger.Ledger.
func (l *Ledger) Look(ctx context.Context, lease ledger.Lease, c ledger.CallRef) (ledger.Looked, error) {
	_, unlock, err := l.begin(ctx)
	if err != nil {
		return ledger.Looked{}, err
	}
	defer unlock()
	r := l.row(lease.Key.Tenant, lease.Job)
	if r == nil || r.Fence != lease.Fence {
		return ledger.Looked{}, ledger.ErrLost
	}
	k := ledger.Looked{Late: r.late}
	first := r.first(c)
	for _, a := range r.attempts {
		if a.Call != c || a.Generation != r.Generation {
			continue
		}
		k.Attempts++
		if a.State == ledger.Sent {
			k.Open++
		}
		if a.captured > 0 && a.captured == first && a.response != nil { // nil: purged, and with it the job's input
			k.Answer = &ledger.Captured{Attempt: a.ID, Route: a.Route, Response: *response(a.response), Panics: r.panics}
		}
	}
	return k, nil
}

// Send implements ledger.Ledger.
func (l *Ledger) Send(ctx context.Context, lease ledger.Lease, a ledger.Attempt) error {
	if err := a.Check(); err != nil {
		return err
	}
	now, unlock, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	r := l.row(lease.Key.Tenant, lease.Job)
	if r.attempt(a.ID) != nil { // before the guards: its own reserve may be what they refuse
		return ledger.ErrRepeated
	}
	f := l.leaseFacts(r, lease, now)
	f.InBudget = r != nil && ledger.InBudget(r.Budget, r.Cost, r.Reserved, a.Reserve)
	f.LateSeen = r != nil && r.late == a.LateSeen
	r.limits(&f, 1, now)
	shares := l.shares(r, a.Day, now)
	f.OverDay = l.overDay(shares, a.Reserve)
	t := ledger.Row("J7")
	if err := ledger.Refusal(t.Allows(f)); err != nil {
		return err
	}
	n := len(r.attempts) + 1
	kept := a
	kept.Day = ledger.DayLimits{}
	r.attempts = append(r.attempts, &attempt{AttemptRow: ledger.AttemptRow{Attempt: kept, N: n, Generation: r.Generation,
		Fence: r.Fence, State: ledger.Sent, SentAt: now}, spends: l.hold(shares, a.Reserve)})
	r.OpenCalls++
	r.Calls++
	r.Reserved += a.Reserve
	r.move(t, now, r.Owner.ID, fmt.Sprintf(", attempt %d of call %s by route %s", n, a.Call.Name, a.Route))
	return nil
}
