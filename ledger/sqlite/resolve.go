package sqlite

import (
	"cmp"
	"context"
	"fmt"

	"github.com/paidonce/paidonce/ledger"
)

// Replay implements ledger.Ledger.
func (l *Ledger) Replay(ctx context.Context, lease ledger.Lease, p ledger.ReplayPolicy) error {
	_, err := write(ctx, l, "replay "+lease.Key.Text, func(t *tx) (struct{}, error) { return struct{}{}, t.replay(lease, p) })
	return err
}

func (t *tx) replay(lease ledger.Lease, p ledger.ReplayPolicy) error {
	r, err := t.load(lease.Key.Tenant, lease.Job)
	if err != nil {
		return err
	}
	f := r.leaseFacts(lease, t.now)
	if r != nil {
		until, reserve, err := t.openAttempts(r)
		if err != nil {
			return err
		}
		f.ReplayLeft = r.Replays < p.Max
		f.Held = r.State != ledger.Unknown || t.now.Sub(r.unknownAt) >= p.Hold
		f.PastRoutes = until == nil || !t.now.Before(at(until))
		f.InBudget = ledger.InBudget(r.Budget, r.Cost, r.Reserved, reserve)
		r.limits(&f, r.OpenCalls, t.now)
	}
	rule, ok := ledger.Pick(f, "J16", "J16o")
	if !ok {
		return ledger.ReplayRefusal(f)
	}
	if err := t.closeOpen(r); err != nil {
		return err
	}
	r.Replays++
	if rule.To == ledger.Ready {
		r.NextAt = t.now
		r.disown()
	}
	r.move(rule, t.now, p.Who, ": "+p.Reason)
	return t.save(r)
}

// openAttempts tells until when an open attempt may land (nil: none is open), and what they hold back.
func (t *tx) openAttempts(r *row) (until *int64, reserve ledger.Nano, err error) {
	until, err = one(context.Background(), t, func(s scanner) (u *int64, err error) { return u, s.Scan(&u, &reserve) },
		"open_attempts", r.Key.Tenant, r.ID)
	return until, reserve, err
}

// Resolve implements ledger.Reconciler.
func (l *Ledger) Resolve(ctx context.Context, v ledger.Resolution) (ledger.Released, error) {
	return write(ctx, l, "resolve "+v.Key.Text, func(t *tx) (ledger.Released, error) { return t.resolve(v) })
}

func (t *tx) resolve(v ledger.Resolution) (ledger.Released, error) {
	r, err := t.find(v.Key)
	if err != nil {
		return ledger.Released{}, err
	}
	if r == nil {
		return ledger.Released{}, ledger.ErrNotFound
	}
	f := r.facts(t.now)
	f.FenceHeld = r.Fence == v.Fence
	who := cmp.Or(v.Who, string(v.By))
	switch v.Action {
	case ledger.Keep:
		err = t.keep(r, f, v, who)
	case ledger.GiveUp:
		err = t.giveUp(r, f, v, who)
	case ledger.Cancel:
		err = t.cancelled(r, f, v, who)
	default:
		err = fmt.Errorf("%w: resolve: no such action as %q", ledger.ErrRequest, v.Action)
	}
	if err != nil {
		return ledger.Released{}, err
	}
	return r.released(t.now), nil
}

// keep puts an unknown job back for a later look.
func (t *tx) keep(r *row, f ledger.Facts, v ledger.Resolution, who string) error {
	if f.State != ledger.Unknown || !f.FenceHeld {
		return ledger.ErrLost
	}
	r.disown()
	r.NextAt = t.now.Add(v.NextIn)
	r.record(r.State, t.now, who, "kept: "+v.Reason)
	line := r.news[0]
	same, err := t.exec("look_end", micros(line.At), line.Actor, line.Reason, r.Key.Tenant, r.ID, r.events)
	if err != nil {
		return err
	}
	if same > 0 {
		r.news = nil
	}
	return t.save(r)
}

// giveUp ends an unknown job (J17).
func (t *tx) giveUp(r *row, f ledger.Facts, v ledger.Resolution, who string) error {
	rule := ledger.Row("J17")
	if err := ledger.Refusal(rule.Allows(f)); err != nil {
		if f.State == ledger.Failed && f.FenceHeld { // its own effect, before a reply that was lost
			return nil
		}
		return err
	}
	if err := t.closeOpen(r); err != nil {
		return err
	}
	r.Error = new(ledger.JobError{Class: "held", Text: v.Reason}.Clean())
	r.move(rule, t.now, who, ": "+v.Reason)
	r.disown()
	return t.save(r)
}

// cancelled ends a job or flags a running one (J19, J19f).
func (t *tx) cancelled(r *row, f ledger.Facts, v ledger.Resolution, who string) error {
	rule, ok := ledger.Pick(f, "J19", "J19f")
	switch {
	case !ok && f.State == ledger.Cancelled: // its own effect, before a reply that was lost
		return nil
	case !ok:
		return fmt.Errorf("%w: the job is %s", ledger.ErrState, f.State)
	case rule.ID == "J19":
		if err := t.cancel(r, rule, who, ": "+v.Reason); err != nil {
			return err
		}
	case f.Cancel:
		return nil
	default:
		r.Cancel = true
		r.move(rule, t.now, who, ": "+v.Reason)
	}
	return t.save(r)
}
