package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// DayLimits bound what is spent in a day: by all jobs of a tenant, and by those of one action of it. Days are of UTC, by
// the ledger's clock at the gate. 0: no bound; nothing is read, kept or locked for it.
type DayLimits struct{ Tenant, Action Nano }

// Budget is what was spent under a limit of a day.
type Budget struct {
	Tenant   string
	Action   string    // "": all of the tenant's
	Day      time.Time // midnight, UTC
	Limit    Nano      // that of the latest gate that it let pass
	Cost     Nano      // booked, on the day on which its attempts passed their gates, whenever it became known
	Reserved Nano      // held back for attempts without an outcome
}

// BudgetFilter selects budgets.
type BudgetFilter struct {
	Day    time.Time // any time of that day of UTC; required
	Tenant string    // "": all
}

// Check refuses a filter that names no day, with ErrRequest.
func (f BudgetFilter) Check() error {
	if f.Day.IsZero() {
		return fmt.Errorf("%w: budgets of which day?", ErrRequest)
	}
	return nil
}

// SortBudgets puts budgets in the order in which they are listed: by tenant, that of all actions first.
func SortBudgets(bs []Budget) {
	slices.SortFunc(bs, func(a, b Budget) int { return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Action, b.Action)) })
}

// Share is one of the budgets that an attempt is sent under.
type Share struct {
	Action string // "": all of the tenant's
	Limit  Nano
}

// Shares lists the budgets that d asks for, of a job of the action, in the order in which they are locked.
func (d DayLimits) Shares(action string) (all []Share) {
	if d.Tenant > 0 {
		all = append(all, Share{"", d.Tenant})
	}
	if d.Action > 0 {
		all = append(all, Share{action, d.Action})
	}
	return all
}

// OverDay reports whether a budget that has spent cost and holds reserved has no room for more under its limit. It does
// not overflow.
func (s Share) OverDay(cost, reserved, more Nano) bool { return more > s.Limit-cost-reserved }
