package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger"
)

var (
	releaseSQL = statement("release")
	carrySQL   = statement("carry")
)

// ending is how a run ends: what release.sql writes.
type ending struct {
	rule     ledger.Transition
	carrier  ledger.Carrier
	nextAt   time.Time
	err      ledger.JobError
	fence    int
	runsBack int
	panics   int
	who      string
}

// Release implements ledger.Ledger.
func (l *Ledger) Release(ctx context.Context, lease ledger.Lease, o ledger.Outcome) (ledger.Released, error) {
	return again(ctx, "release "+lease.Key.Text, func() (x ledger.Released, err error) {
		err = l.under(ctx, lease.Key.Tenant, lease.Job, func(tx pgx.Tx, row lockedRow) error {
			if row.Fence == lease.Fence && (row.State == ledger.Ready || row.State == ledger.Failed || row.State == ledger.Cancelled) {
				x = row.released(row.State, row.Carrier, row.NextAt) // its own effect, before a reply that was lost
				return nil
			}
			e, ok := row.end(lease, o)
			if !ok {
				return ledger.ErrLost
			}
			x = row.released(e.rule.To, e.carrier, e.nextAt)
			_, err := tx.Exec(ctx, releaseSQL, lease.Key.Tenant, lease.Job, row.Now, e.rule.To, e.fence, e.carrier, e.nextAt,
				e.err.Class, e.err.Text, e.runsBack, e.panics, e.who, reason(e.rule, ": "+e.err.Class))
			return err
		})
		return x, lost(err)
	})
}

// end chooses how the run ends from the locked row: J13, J19b, J12 or J11.
func (r lockedRow) end(lease ledger.Lease, o ledger.Outcome) (ending, bool) {
	e := ending{carrier: r.Carrier, nextAt: r.NextAt, who: ledger.Text(o.Who)}
	if o.Panicked {
		e.panics = 1
	}
	var ok bool
	e.rule, e.err, ok = ledger.PickRelease(r.facts(lease.Fence), o, r.Panics)
	if e.rule.Fence {
		e.fence = 1
	}
	switch e.rule.ID {
	case "J11":
		e.nextAt = r.Now.Add(o.RetryIn)
		if o.GiveBack {
			e.runsBack = 1
		}
	case "J13":
		e.nextAt, e.runsBack = r.Now, 1
		if r.InputKept {
			e.carrier = ledger.CarriedByLedger
		}
	}
	return e, ok
}

// Carry implements ledger.Ledger.
func (l *Ledger) Carry(ctx context.Context, lease ledger.Lease) error {
	_, err := again(ctx, "carry "+lease.Key.Text, func() (struct{}, error) {
		return struct{}{}, l.under(ctx, lease.Key.Tenant, lease.Job, func(tx pgx.Tx, row lockedRow) error {
			if guard := ledger.Row("JC").Allows(row.facts(lease.Fence)); guard != "" {
				return ledger.Refusal(guard)
			}
			if row.Carrier == ledger.CarriedByLedger {
				return nil
			}
			_, err := tx.Exec(ctx, carrySQL, lease.Key.Tenant, lease.Job, row.Now, *row.Owner, reason(ledger.Row("JC"), ""))
			return err
		})
	})
	return lost(err)
}

// lost turns a job that is not there into a lease that is not good.
func lost(err error) error {
	if errors.Is(err, ledger.ErrNotFound) {
		return ledger.ErrLost
	}
	return err
}

// reason is the line of a transition in the history.
func reason(t ledger.Transition, more string) string {
	return ledger.Text(fmt.Sprintf("%s %s%s", t.ID, t.Name, more))
}
