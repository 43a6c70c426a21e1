package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// The budgets that an attempt was sent under, as its row has them.
const (
	ofTenant = 1
	ofAction = 2
)

// overDay reports whether a budget of the day has no room for the attempt.
func (t *tx) overDay(r *row, a ledger.Attempt) (bool, error) {
	if r == nil {
		return false, nil
	}
	for _, s := range a.Day.Shares(r.Action) {
		b, err := one(context.Background(), t, func(s scanner) (b ledger.Budget, err error) {
			return b, s.Scan(&b.Cost, &b.Reserved)
		}, "budget", r.Key.Tenant, s.Action, micros(ledger.DayOf(t.now)))
		if err != nil && err != ledger.ErrNotFound { // the first gate of the day makes it
			return false, err
		}
		if s.OverDay(b.Cost, b.Reserved, a.Reserve) {
			return true, nil
		}
	}
	return false, nil
}

// hold reserves an attempt's cost on its budgets, and returns what its row says of them: nulls, of none.
func (t *tx) hold(r *row, a ledger.Attempt) (budgets, day any, err error) {
	on := 0
	for _, s := range a.Day.Shares(r.Action) {
		if on |= ofAction; s.Action == "" {
			on = ofTenant
		}
		if _, err := t.exec("budget_hold", r.Key.Tenant, s.Action, micros(ledger.DayOf(t.now)), int64(s.Limit), int64(a.Reserve)); err != nil {
			return nil, nil, err
		}
	}
	if on == 0 {
		return nil, nil, nil
	}
	return on, micros(ledger.DayOf(t.now)), nil
}

// rebook puts on the attempt's budgets what it freed and what more it is known to have cost.
func (t *tx) rebook(r *row, a *attempt, freed, booked ledger.Nano) error {
	for bit, action := range map[int]string{ofTenant: "", ofAction: r.Action} {
		if value(a.budgets)&bit == 0 {
			continue
		}
		if _, err := t.exec("budget_book", int64(freed), int64(booked), r.Key.Tenant, action, value(a.budgetDay)); err != nil {
			return err
		}
	}
	return nil
}

// Budgets implements ledger.Reader.
func (l *Ledger) Budgets(ctx context.Context, f ledger.BudgetFilter) ([]ledger.Budget, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	all, err := many(ctx, l.readers, func(s scanner) (b ledger.Budget, err error) {
		var day int64
		err = s.Scan(&b.Tenant, &b.Action, &day, &b.Limit, &b.Cost, &b.Reserved)
		b.Day = time.UnixMicro(day).UTC()
		return b, err
	}, "budgets", micros(ledger.DayOf(f.Day)), f.Tenant)
	if err != nil {
		return nil, fmt.Errorf("read the budgets of %s: %w", f.Day.UTC().Format(time.DateOnly), explain(err))
	}
	return all, nil
}
