package postgres

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger"
)

var (
	replaySQL = statement("replay")
	openSQL   = statement("open_reserve")
	findSQL   = statement("find")
	closeSQL  = statement("close")
	flagSQL   = statement("flag")
	keepSQL   = statement("keep")
)

// openReserve is what the open attempts of a job hold back, and would again if they were sent anew.
type openReserve struct{ Reserve ledger.Nano }

// Replay implements ledger.Ledger.
func (l *Ledger) Replay(ctx context.Context, lease ledger.Lease, p ledger.ReplayPolicy) error {
	_, err := again(ctx, "replay "+lease.Key.Text, func() (struct{}, error) {
		return struct{}{}, l.under(ctx, lease.Key.Tenant, lease.Job, func(tx pgx.Tx, row lockedRow) error {
			open, err := one[openReserve](ctx, tx, openSQL, lease.Key.Tenant, lease.Job)
			if err != nil {
				return err
			}
			f := row.facts(lease.Fence)
			f.ReplayLeft = row.Replays < p.Max
			f.Held = row.UnknownAt == nil || row.Now.Sub(*row.UnknownAt) >= p.Hold
			f.PastRoutes = row.OpenUntil == nil || !row.Now.Before(*row.OpenUntil)
			f.InBudget = ledger.InBudget(row.Budget, row.Cost, row.Reserved, open.Reserve)
			f.CallsLeft, f.InLifetime = ledger.CallsLeft(row.MaxCalls, row.Calls, row.OpenCalls), ledger.InLifetime(row.Lifetime, row.BeganAt, row.Now)
			t, ok := ledger.Pick(f, "J16", "J16o")
			if !ok {
				return ledger.ReplayRefusal(f)
			}
			_, err = tx.Exec(ctx, replaySQL, lease.Key.Tenant, lease.Job, row.Now, cmp.Or(t.To, row.State),
				ledger.Text(p.Who), reason(t, ": "+p.Reason))
			return err
		})
	})
	return lost(err)
}

// Resolve implements ledger.Reconciler.
func (l *Ledger) Resolve(ctx context.Context, v ledger.Resolution) (ledger.Released, error) {
	if !storable(v.Key.Tenant, v.Key.Text) {
		return ledger.Released{}, ledger.ErrNotFound
	}
	return again(ctx, "resolve "+v.Key.Text, func() (x ledger.Released, err error) {
		id, err := one[struct{ ID int64 }](ctx, l.pool, findSQL, v.Key.Tenant, v.Key.Text)
		if err != nil {
			return x, err
		}
		err = l.under(ctx, v.Key.Tenant, id.ID, func(tx pgx.Tx, row lockedRow) (err error) {
			x, err = row.resolve(ctx, tx, v)
			return err
		})
		return x, err
	})
}

func (r lockedRow) resolve(ctx context.Context, tx pgx.Tx, v ledger.Resolution) (ledger.Released, error) {
	f := r.facts(v.Fence)
	switch v.Action {
	case ledger.Keep:
		return r.keep(ctx, tx, f, v)
	case ledger.GiveUp:
		return r.giveUp(ctx, tx, f, v)
	case ledger.Cancel:
		return r.cancel(ctx, tx, f, v)
	}
	return ledger.Released{}, fmt.Errorf("%w: resolve: no such action as %q", ledger.ErrRequest, v.Action)
}

// keep puts an unknown job back for a later look.
func (r lockedRow) keep(ctx context.Context, tx pgx.Tx, f ledger.Facts, v ledger.Resolution) (ledger.Released, error) {
	if f.State != ledger.Unknown || !f.FenceHeld {
		return ledger.Released{}, ledger.ErrLost
	}
	next := r.Now.Add(v.NextIn)
	_, err := tx.Exec(ctx, keepSQL, v.Key.Tenant, r.ID, r.Now, next, who(v), ledger.Text("kept: "+v.Reason))
	return r.released(r.State, r.Carrier, next), err
}

// giveUp ends an unknown job (J17).
func (r lockedRow) giveUp(ctx context.Context, tx pgx.Tx, f ledger.Facts, v ledger.Resolution) (ledger.Released, error) {
	t := ledger.Row("J17")
	if guard := t.Allows(f); guard != "" {
		if f.State == ledger.Failed && f.FenceHeld { // its own effect, before a reply that was lost
			return r.released(r.State, r.Carrier, r.NextAt), nil
		}
		return ledger.Released{}, ledger.Refusal(guard)
	}
	_, err := tx.Exec(ctx, closeSQL, v.Key.Tenant, r.ID, r.Now, t.To, "held", ledger.Text(v.Reason), who(v), reason(t, ": "+v.Reason))
	return r.released(t.To, r.Carrier, r.NextAt), err
}

// cancel ends a job, or flags a running one (J19, J19f).
func (r lockedRow) cancel(ctx context.Context, tx pgx.Tx, f ledger.Facts, v ledger.Resolution) (ledger.Released, error) {
	t, ok := ledger.Pick(f, "J19", "J19f")
	var err error
	switch {
	case !ok && f.State == ledger.Cancelled: // its own effect, before a reply that was lost
	case !ok:
		return ledger.Released{}, fmt.Errorf("%w: the job is %s", ledger.ErrState, f.State)
	case t.ID == "J19":
		_, err = tx.Exec(ctx, closeSQL, v.Key.Tenant, r.ID, r.Now, t.To, nil, nil, who(v), reason(t, ": "+v.Reason))
	default:
		_, err = tx.Exec(ctx, flagSQL, v.Key.Tenant, r.ID, r.Now, who(v), reason(t, ": "+v.Reason))
	}
	return r.released(cmp.Or(t.To, r.State), r.Carrier, r.NextAt), err
}

func who(v ledger.Resolution) string { return ledger.Text(cmp.Or(v.Who, string(v.By))) }
