package sqlite

import (
	"context"
	"fmt"

	"github.com/paidonce/paidonce/ledger"
)

// follow puts a step on record that the result of r, which is job, asks for: a row of its own, if its key has none (J10s), and a link.
func (t *tx) follow(r *row, job ledger.Key, place int, s ledger.StepAsk) error {
	if _, err := t.exec("link", r.Key.Tenant, r.ID, s.Key.Text, r.Generation, place, s.Action, s.InputHash[:]); err != nil {
		return err
	}
	_, err := t.carryNew(ledger.Row("J10s"), ledger.Submission{Key: s.Key, Action: s.Action, InputHash: s.InputHash, Input: s.Input, Origin: s.Origin, Who: r.Owner.ID},
		ledger.FollowReason(job))
	return err
}

// Seal implements ledger.Submitter: bodies are stored as they are.
func (*Ledger) Seal(s ledger.Submission) ledger.Submission { return s }

// Submit implements ledger.Submitter.
func (l *Ledger) Submit(ctx context.Context, all ...ledger.Submission) ([]ledger.Submitted, error) {
	if err := ledger.CheckSubmissions(all); err != nil {
		return nil, err
	}
	return write(ctx, l, fmt.Sprintf("submit %d jobs", len(all)), func(t *tx) ([]ledger.Submitted, error) {
		found := make([]ledger.Submitted, len(all))
		for i, s := range all {
			there, err := t.carryNew(ledger.Row("J1s"), s, "")
			if err != nil {
				return nil, err
			}
			found[i] = ledger.Submitted{New: there == nil, State: ledger.Ready}
			if there != nil {
				found[i].State, found[i].Other = there.State, there.Action != s.Action || there.InputHash != s.InputHash
			}
		}
		return found, nil
	})
}

// carryNew makes the row of a job that the ledger carries, by a rule of the table, unless its key has one, which it returns.
func (t *tx) carryNew(rule ledger.Transition, s ledger.Submission, reason string) (there *row, err error) {
	there, err = t.find(s.Key)
	if err != nil || rule.Allows(there.facts(t.now)) != "" {
		return there, err
	}
	j := &row{Job: ledger.Job{Key: s.Key, Origin: s.Origin.Clean()}}
	j.move(rule, t.now, s.Submitter(), reason)
	origin, err := originText(j.Origin)
	if err != nil {
		return nil, err
	}
	j.ID, err = one(context.Background(), t, scalar[int64], "follow", s.Key.Tenant, s.Key.Text, s.Action, s.InputHash[:], micros(t.now), len(j.news), origin)
	if err != nil {
		return nil, err
	}
	if _, err := t.exec("input", s.Key.Tenant, j.ID, s.Input); err != nil {
		return nil, err
	}
	return nil, t.tell(j)
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
