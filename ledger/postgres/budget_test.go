package postgres_test

import (
	"errors"
	"testing"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// TestOverTheDayIsNoError: each refusal that is an error of the server is a line of its log with the whole statement, 4 kB, and
// takes the batch that it is in apart. A tenant whose jobs wait by the thousand and look every hour fills a disk with
// them, so only what others take under the statement's eyes ends in one.
func TestOverTheDayIsNoError(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	run(t, f.db, `create or replace function paidonce.over_day() returns boolean language plpgsql as $$
		begin raise exception 'asked' using errcode = 'XX000'; end $$`)
	for _, c := range []struct {
		job    string
		limits ledger.DayLimits // of calls of 5
		want   error
	}{
		{"fits in no day", ledger.DayLimits{Tenant: 4}, ledger.ErrDayBudget},
		{"fits", ledger.DayLimits{Tenant: 5, Action: 5}, nil},
		{"over the tenant's", ledger.DayLimits{Tenant: 9}, ledger.ErrDayBudget},
		{"over the action's", ledger.DayLimits{Tenant: 10, Action: 9}, ledger.ErrDayBudget},
		{"beside it", ledger.DayLimits{Tenant: 10, Action: 10}, nil},
		{"without limits", ledger.DayLimits{}, nil},
	} {
		a := attempt()
		a.Day = c.limits
		if err := f.Send(t.Context(), f.run(f.request(c.job)), a); !errors.Is(err, c.want) {
			t.Errorf("%s: the gate says %v, want %v", c.job, err, c.want)
		}
	}
}
