package sqlite

import (
	"context"

	"github.com/paidonce/paidonce/ledger"
)

// follow puts a step on record that the result of r, which is job, asks for: a row of its own, if its key has none (J10s), and a link.
func (t *tx) follow(r *row, job ledger.Key, place int, s ledger.StepAsk) error {
	if _, err := t.exec("link", r.Key.Tenant, r.ID, s.Key.Text, r.Generation, place, s.Action, s.InputHash[:]); err != nil {
		return err
	}
	there, err := t.find(s.Key)
	if err != nil {
		return err
	}
	rule := ledger.Row("J10s")
	if rule.Allows(there.facts(t.now)) != "" {
		return nil
	}
	j := &row{Job: ledger.Job{Key: s.Key, Origin: s.Origin.Clean()}}
	j.move(rule, t.now, r.Owner.ID, ledger.FollowReason(job))
	origin, err := originText(j.Origin)
	if err != nil {
		return err
	}
	j.ID, err = one(context.Background(), t, scalar[int64], "follow", s.Key.Tenant, s.Key.Text, s.Action, s.InputHash[:], micros(t.now), len(j.news), origin)
	if err != nil {
		return err
	}
	if _, err := t.exec("input", s.Key.Tenant, j.ID, s.Input); err != nil {
		return err
	}
	return t.tell(j)
}

// steps adds a job's steps, and the jobs whose step it is.
func (r *row) steps(ctx context.Context, q querier, j *ledger.Job) (err error) {
	j.Steps, err = many(ctx, q, func(s scanner) (x ledger.StepRow, err error) {
		x.Key.Tenant = r.Key.Tenant
		return x, s.Scan(&x.Key.Text, &x.Action, &x.Generation, &x.State, &x.Other, &x.RemoteID)
	}, "steps", r.Key.Tenant, r.ID)
	if err != nil {
		return err
	}
	j.AskedBy, err = many(ctx, q, func(s scanner) (k ledger.Key, err error) {
		k.Tenant = r.Key.Tenant
		return k, s.Scan(&k.Text)
	}, "askers", r.Key.Tenant, r.Key.Text, ledger.AskersShown)
	return err
}
