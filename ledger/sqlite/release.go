package sqlite

import (
	"context"

	"github.com/paidonce/paidonce/ledger"
)

// Release implements ledger.Ledger.
func (l *Ledger) Release(ctx context.Context, lease ledger.Lease, o ledger.Outcome) (ledger.Released, error) {
	return write(ctx, l, "release "+lease.Key.Text, func(t *tx) (ledger.Released, error) { return t.release(lease, o) })
}

// release chooses how the run ends: J13, J19b, J12 or J11.
func (t *tx) release(lease ledger.Lease, o ledger.Outcome) (ledger.Released, error) {
	r, err := t.load(lease.Key.Tenant, lease.Job)
	if err != nil {
		return ledger.Released{}, err
	}
	f := r.leaseFacts(lease, t.now)
	if f.FenceHeld && (r.State == ledger.Ready || r.State == ledger.Failed || r.State == ledger.Cancelled) {
		return r.released(t.now), nil // its own effect, before a reply that was lost
	}
	if r == nil {
		return ledger.Released{}, ledger.ErrLost
	}
	rule, why, ok := ledger.PickRelease(f, o, r.panics)
	if !ok {
		return ledger.Released{}, ledger.ErrLost
	}
	if o.Panicked {
		r.panics++
	}
	r.Error = &why
	switch rule.ID {
	case "J11":
		r.NextAt = t.now.Add(o.RetryIn)
		if o.GiveBack {
			r.Runs = max(0, r.Runs-1)
		}
	case "J13":
		r.Runs = max(0, r.Runs-1)
		r.lapse(rule, t.now, o.Who)
		return r.released(t.now), t.save(r)
	}
	r.move(rule, t.now, o.Who, ": "+o.Error.Class)
	r.disown()
	return r.released(t.now), t.save(r)
}

// Carry implements ledger.Ledger.
func (l *Ledger) Carry(ctx context.Context, lease ledger.Lease) error {
	_, err := write(ctx, l, "carry "+lease.Key.Text, func(t *tx) (struct{}, error) {
		r, err := t.load(lease.Key.Tenant, lease.Job)
		if err != nil {
			return struct{}{}, err
		}
		rule := ledger.Row("JC")
		if err := ledger.Refusal(rule.Allows(r.leaseFacts(lease, t.now))); err != nil || r.Carrier == ledger.CarriedByLedger {
			return struct{}{}, err
		}
		r.Carrier = ledger.CarriedByLedger
		r.move(rule, t.now, r.Owner.ID, "")
		return struct{}{}, t.save(r)
	})
	return err
}
