package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

var (
	sendWithinSQL = statement("send_within")
	budgetsSQL    = statement("budgets")
)

// overDay is the state of paidonce.over_day.
const overDay = "POB20"

// limitedRow is what the gate says of an attempt under budgets of the day.
type limitedRow struct {
	gateRow
	Over bool // one of them had no room
}

// gateWithin is gate for attempts under budgets of the day.
func (l *Ledger) gateWithin(ctx context.Context, asks []*gateAsk) ([]limitedRow, error) {
	args := append(gateArguments(asks),
		column(asks, func(a *gateAsk) ledger.Nano { return a.attempt.Day.Tenant }),
		column(asks, func(a *gateAsk) ledger.Nano { return a.attempt.Day.Action }))
	return locked[limitedRow](ctx, l.pool, column(asks, func(a *gateAsk) jobRef { return jobRef{a.lease.Key.Tenant, a.lease.Job} }),
		sendWithinSQL, args[2:]...)
}

// Budgets implements ledger.Reader.
func (l *Ledger) Budgets(ctx context.Context, f ledger.BudgetFilter) ([]ledger.Budget, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	if !storable(f.Tenant) {
		return nil, nil
	}
	rows, err := many[struct {
		Tenant, Action      string
		Day                 time.Time
		Cap, Cost, Reserved ledger.Nano
	}](ctx, l.pool, budgetsSQL, ledger.DayOf(f.Day), f.Tenant)
	if err != nil {
		return nil, fmt.Errorf("read the budgets of %s: %w", f.Day.UTC().Format(time.DateOnly), err)
	}
	var all []ledger.Budget
	for _, r := range rows {
		all = append(all, ledger.Budget{Tenant: r.Tenant, Action: r.Action, Day: r.Day, Limit: r.Cap, Cost: r.Cost, Reserved: r.Reserved})
	}
	return all, nil
}
