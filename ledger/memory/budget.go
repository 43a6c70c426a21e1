package memory

import (
	"context"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// spender names a budget of a day.
type spender struct {
	tenant, action string
	day            time.Time
}

// share is a budget that an attempt wants to be sent under.
type share struct {
	spender
	ledger.Share
}

// shares are those of an attempt of the row that is sent now.
func (l *Ledger) shares(r *row, d ledger.DayLimits, now time.Time) (all []share) {
	if r == nil {
		return nil
	}
	for _, s := range d.Shares(r.Action) {
		all = append(all, share{spender{r.Key.Tenant, s.Action, ledger.DayOf(now)}, s})
	}
	return all
}

// overDay reports whether one of them has no room for more.
func (l *Ledger) overDay(shares []share, more ledger.Nano) bool {
	for _, s := range shares {
		var b ledger.Budget
		if known := l.budgets[s.spender]; known != nil {
			b = *known
		}
		if s.OverDay(b.Cost, b.Reserved, more) {
			return true
		}
	}
	return false
}

// hold reserves an attempt's cost on each.
func (l *Ledger) hold(shares []share, reserve ledger.Nano) (on []spender) {
	for _, s := range shares {
		b := l.budgets[s.spender]
		if b == nil {
			b = &ledger.Budget{Tenant: s.tenant, Action: s.spender.action, Day: s.day}
			l.budgets[s.spender] = b
		}
		b.Limit = s.Limit
		b.Reserved += reserve
		on = append(on, s.spender)
	}
	return on
}

// held is what the attempt holds back: its reserve, until there is evidence.
func (a *attempt) held() ledger.Nano {
	if a.State == ledger.Sent || a.State == ledger.UnknownAttempt {
		return a.Reserve
	}
	return 0
}

// cost is what is booked for the attempt.
func (a *attempt) cost() ledger.Nano {
	if a.Evidence.Cost == nil {
		return 0
	}
	return *a.Evidence.Cost
}

// rebook puts on the attempt's budgets what changed of it. A budget that is past its retention is gone.
func (l *Ledger) rebook(a *attempt, held, cost ledger.Nano) {
	for _, s := range a.spends {
		if b := l.budgets[s]; b != nil {
			b.Reserved += a.held() - held
			b.Cost += a.cost() - cost
		}
	}
}

// Budgets implements ledger.Reader.
func (l *Ledger) Budgets(ctx context.Context, f ledger.BudgetFilter) ([]ledger.Budget, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	_, unlock, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var all []ledger.Budget
	for s, b := range l.budgets {
		if s.day.Equal(ledger.DayOf(f.Day)) && (f.Tenant == "" || f.Tenant == s.tenant) {
			all = append(all, *b)
		}
	}
	ledger.SortBudgets(all)
	return all, nil
}

// AgeBudgets moves all budgets back by whole days, and with them where attempts are booked.
func (l *Ledger) AgeBudgets(days int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	moved := map[spender]*ledger.Budget{}
	for s, b := range l.budgets {
		s.day, b.Day = s.day.AddDate(0, 0, -days), b.Day.AddDate(0, 0, -days)
		moved[s] = b
	}
	l.budgets = moved
	for _, r := range l.rows {
		for _, a := range r.attempts {
			for i := range a.spends {
				a.spends[i].day = a.spends[i].day.AddDate(0, 0, -days)
			}
		}
	}
}
