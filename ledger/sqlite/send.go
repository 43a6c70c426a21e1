package sqlite

import (
	"context"
	"fmt"

	"github.com/paidonce/paidonce/ledger"
)

// lookRow is what look.sql finds.
type lookRow struct {
	fence, late                     int64
	panics, attempts, open, answers int
}

func readLook(s scanner) (r lookRow, err error) {
	return r, s.Scan(&r.fence, &r.late, &r.panics, &r.attempts, &r.open, &r.answers)
}

// Look implements ledger.Ledger.
func (l *Ledger) Look(ctx context.Context, lease ledger.Lease, c ledger.CallRef) (ledger.Looked, error) {
	if ctx.Err() != nil {
		return ledger.Looked{}, context.Cause(ctx)
	}
	found, err := l.look(context.WithoutCancel(ctx), lease, c) // watching it costs more than a read of one row
	if err != nil && err != ledger.ErrLost {
		err = fmt.Errorf("look for call %s of %s: %w", c.Name, lease.Key, explain(err))
	}
	return found, err
}

// look reads the counts before the answer. An answer that is captured in between is
// found, or it raises the count of late ones and the gate refuses what was counted here.
func (l *Ledger) look(ctx context.Context, lease ledger.Lease, c ledger.CallRef) (ledger.Looked, error) {
	k, err := one(ctx, l.readers, readLook, "look", lease.Key.Tenant, lease.Job, c.Name, c.InputKey)
	if err == ledger.ErrNotFound || err == nil && k.fence != lease.Fence {
		return ledger.Looked{}, ledger.ErrLost
	}
	if err != nil {
		return ledger.Looked{}, err
	}
	found := ledger.Looked{Attempts: k.attempts, Open: k.open, Late: k.late}
	if k.answers == 0 {
		return found, nil
	}
	found.Answer = &ledger.Captured{Panics: k.panics}
	found.Answer.Attempt, err = one(ctx, l.readers, func(s scanner) (ledger.ID, error) {
		var attempt []byte
		err := s.Scan(&attempt, &found.Answer.Route, &found.Answer.Response.Codec, &found.Answer.Response.Body)
		return id(attempt), err
	}, "answer", lease.Key.Tenant, lease.Job, c.Name, c.InputKey)
	if err == ledger.ErrNotFound { // purged, and with it the job's input: nothing runs it again
		found.Answer = nil
		return found, nil
	}
	if err != nil {
		return ledger.Looked{}, err
	}
	body := &found.Answer.Response.Body
	*body, err = join(ctx, l.readers, lease.Key.Tenant, lease.Job, *body)
	return found, err
}

// Send implements ledger.Ledger.
func (l *Ledger) Send(ctx context.Context, lease ledger.Lease, a ledger.Attempt) error {
	if err := a.Check(); err != nil {
		return err
	}
	_, err := write(ctx, l, fmt.Sprintf("gate attempt %s of %s", a.ID, lease.Key), func(t *tx) (struct{}, error) {
		return struct{}{}, t.send(lease, a)
	})
	return err
}

func (t *tx) send(lease ledger.Lease, a ledger.Attempt) error {
	r, err := t.facts(lease.Key.Tenant, lease.Job)
	if err != nil {
		return err
	}
	if r != nil && r.attempts > 0 { // before the guards: its own reserve may be what they refuse
		known, err := t.attempt(ledger.AttemptID{Tenant: lease.Key.Tenant, Job: lease.Job, ID: a.ID})
		if err != nil {
			return err
		}
		if known != nil {
			return ledger.ErrRepeated
		}
	}
	f := r.leaseFacts(lease, t.now)
	f.InBudget = r != nil && ledger.InBudget(r.Budget, r.Cost, r.Reserved, a.Reserve)
	f.LateSeen = r != nil && r.late == a.LateSeen
	r.limits(&f, 1, t.now)
	if f.OverDay, err = t.overDay(r, a); err != nil {
		return err
	}
	rule := ledger.Row("J7")
	if err := ledger.Refusal(rule.Allows(f)); err != nil {
		return err
	}
	n := r.attempts + 1
	r.move(rule, t.now, r.Owner.ID, fmt.Sprintf(", attempt %d of call %s by route %s", n, a.Call.Name, a.Route))
	budgets, day, err := t.hold(r, a)
	if err != nil {
		return err
	}
	_, err = t.exec("attempt", r.Key.Tenant, r.ID, a.ID[:], r.Generation, n, r.Fence, a.Call.Name, a.Call.InputKey, a.Route,
		a.Provider, a.Model, a.Config, a.ClientRequestID, a.Timeout.Microseconds(), int64(a.Reserve), a.LateSeen, micros(t.now), budgets, day)
	if err != nil {
		return err
	}
	if _, err := t.exec("send", int64(a.Reserve), micros(t.now), r.Key.Tenant, r.ID); err != nil {
		return err
	}
	return t.tell(r)
}
