package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// Job implements ledger.Reader. It reads everything in one snapshot.
func (l *Ledger) Job(ctx context.Context, k ledger.Key) (ledger.Job, error) {
	var j ledger.Job
	err := l.readers.snapshot(ctx, func(q querier) error {
		r, err := find(ctx, q, k)
		if err != nil {
			return err
		}
		if r == nil {
			return ledger.ErrNotFound
		}
		j = r.Job
		if j.Attempts, err = attempts(ctx, q, k.Tenant, j.ID, ""); err != nil {
			return err
		}
		if j.History, err = many(ctx, q, readEvent, "events", k.Tenant, j.ID); err != nil {
			return err
		}
		if j.Earlier, err = r.earlier(ctx, q); err != nil {
			return err
		}
		if err = r.steps(ctx, q, &j); err != nil {
			return err
		}
		if j.State == ledger.Done {
			if j.Result, err = r.result(ctx, q); j.Result != nil {
				j.Result.Body, err = join(ctx, q, k.Tenant, j.ID, j.Result.Body)
			}
			j.Purged = j.Result == nil && err == nil
		}
		return err
	})
	if errors.Is(err, ledger.ErrNotFound) {
		return ledger.Job{}, ledger.ErrNotFound
	}
	if err != nil {
		return ledger.Job{}, fmt.Errorf("read %s: %w", k, explain(err))
	}
	return j, nil
}

// Answer implements ledger.Reader.
func (l *Ledger) Answer(ctx context.Context, of ledger.AttemptID) (ledger.Response, error) {
	var r ledger.Response
	err := l.readers.snapshot(ctx, func(q querier) error {
		_, err := one(ctx, q, func(s scanner) (none struct{}, err error) {
			return none, s.Scan(&r.Codec, &r.Body)
		}, "response_read", of.Tenant, of.Job, of.ID[:])
		if err == nil {
			r.Body, err = join(ctx, q, of.Tenant, of.Job, r.Body)
		}
		return err
	})
	if errors.Is(err, ledger.ErrNotFound) {
		return ledger.Response{}, ledger.ErrNotFound
	}
	if err != nil {
		return ledger.Response{}, fmt.Errorf("read the answer of attempt %s: %w", of.ID, explain(err))
	}
	return r, nil
}

// result reads the row of a job's result; nil: it is purged.
func (r *row) result(ctx context.Context, q querier) (*ledger.Result, error) {
	res, err := one(ctx, q, func(s scanner) (*ledger.Result, error) {
		var res ledger.Result
		var of []byte
		err := s.Scan(&of, &res.Schema, &res.Body)
		res.ID = id(of)
		return &res, err
	}, "result_read", r.Key.Tenant, r.ID, r.Generation)
	if err == ledger.ErrNotFound {
		return nil, nil
	}
	return res, err
}

// earlier reads the results of earlier generations.
func (r *row) earlier(ctx context.Context, q querier) ([]ledger.Earlier, error) {
	if r.Generation == 1 {
		return nil, nil
	}
	all, err := many(ctx, q, func(s scanner) (e ledger.Earlier, err error) {
		var of []byte
		err = s.Scan(&e.Generation, &of, &e.Result.Schema, &e.Result.Body)
		e.Result.ID = id(of)
		return e, err
	}, "earlier", r.Key.Tenant, r.ID, r.Generation)
	for i := range all {
		if err == nil {
			all[i].Result.Body, err = join(ctx, q, r.Key.Tenant, r.ID, all[i].Result.Body)
		}
	}
	return all, err
}

func readEvent(s scanner) (e ledger.Event, err error) {
	var us int64
	err = s.Scan(&us, &e.From, &e.To, &e.Actor, &e.Reason, &e.Looks)
	e.At = time.UnixMicro(us)
	return e, err
}

// attempts reads those of a job that are in a state, or all.
func attempts(ctx context.Context, q querier, tenant string, job int64, state ledger.AttemptState) ([]ledger.AttemptRow, error) {
	return many(ctx, q, readAttemptRow, "attempts", tenant, job, string(state))
}

func readAttemptRow(s scanner) (ledger.AttemptRow, error) {
	var a ledger.AttemptRow
	var of []byte
	var timeout, sent int64
	var ended, first, cost, applied *int64
	var captured *int
	e := &a.Evidence
	err := s.Scan(&of, &a.Generation, &a.N, &a.Fence, &a.State, &a.Call.Name, &a.Call.InputKey, &a.Route, &a.Provider, &a.Model, &a.Config,
		&a.ClientRequestID, &timeout, &a.Reserve, &a.LateSeen, &sent, &ended, &e.Class, &e.By, &e.Who, &e.Reason, &e.Status,
		&e.ProviderRequestID, &e.ObjectID, &first, &e.Usage.In, &e.Usage.Cached, &e.Usage.Out, &cost, &e.CostSource, &a.Surplus, &applied, &captured, &a.AnswerKept)
	a.ID, a.Timeout, a.SentAt, a.EndedAt, a.Applied = id(of), time.Duration(timeout)*time.Microsecond, time.UnixMicro(sent), at(ended), at(applied)
	e.State, e.FirstByte, a.HasAnswer = a.State, time.Duration(value(first))*time.Microsecond, captured != nil
	if cost != nil {
		e.Cost = new(ledger.Nano(*cost))
	}
	return a, err
}

// Unknowns implements ledger.Reader.
func (l *Ledger) Unknowns(ctx context.Context) ([]ledger.UnknownCount, error) {
	now := clock()
	counts, err := many(ctx, l.readers, func(s scanner) (c ledger.UnknownCount, err error) {
		var since int64
		err = s.Scan(&c.Action, &c.Count, &since)
		c.Oldest = max(0, now.Sub(time.UnixMicro(since)))
		return c, err
	}, "unknowns")
	if err != nil {
		return nil, fmt.Errorf("count unknown jobs: %w", explain(err))
	}
	return counts, nil
}

// Waiting counts the jobs of each action, of all tenants, that wait for a worker that can run them.
func (l *Ledger) Waiting(ctx context.Context) ([]ledger.WaitingCount, error) {
	now := clock()
	counts, err := many(ctx, l.readers, func(s scanner) (c ledger.WaitingCount, err error) {
		var since int64
		err = s.Scan(&c.Action, &c.Count, &since)
		c.Oldest = max(0, now.Sub(time.UnixMicro(since)))
		return c, err
	}, "waiting")
	if err != nil {
		return nil, fmt.Errorf("count waiting jobs: %w", explain(err))
	}
	return counts, nil
}
