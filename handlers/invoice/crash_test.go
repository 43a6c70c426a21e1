package invoice

import (
	"context"
	"testing"
	"time"

	"github.com/paidonce/paidonce/handlers/provider"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/job/jobtest"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/memory"
)

// Whoever dies, and wherever, there is one call, one invoice, and one row that was committed with it; of the two routes the
// second is for refusals, not for doubt.
func TestDeathEverywhere(t *testing.T) {
	rows := 0
	def := New(provider.Settings{OpenAI: provider.Account{APIKey: "k"}, Anthropic: provider.Account{APIKey: "k"}, Routes: []provider.Route{
		{Name: "primary", Provider: provider.OpenAI, Model: "gpt-5-mini", Timeout: 90 * time.Second},
		{Name: "fallback", Provider: provider.Anthropic, Model: "claude-haiku-4-5", Timeout: 90 * time.Second}}},
		func(j *job.Run, _ Document, _ Invoice) {
			memory.OnCommit(j, func(ctx context.Context) error {
				memory.Then(ctx, func() { rows++ })
				return nil
			})
		})
	in := Document{Tenant: "acme", Document: "9821", Revision: 3, Text: "Invoice R-17"}
	opt := jobtest.Options{Answer: `{"number":"R-17","currency":"EUR","total_cents":11900,"supplier":"S","date":"2026-03-01"}`}
	runs := 0
	jobtest.CrashEverywhere(t, def, in, func(t testing.TB, end jobtest.End[Invoice]) {
		if runs++; rows != runs {
			t.Errorf("%s: %d rows after %d jobs", end.When, rows, runs)
		}
		if end.State != ledger.Done || end.Result.TotalCents != 11900 || end.Sends["extract"] != 1 {
			t.Errorf("%s: %s with %+v, sent %v", end.When, end.State, end.Result, end.Sends)
		}
	}, opt)
	jobtest.SevenPaths(t, def, in, opt)
	jobtest.NoCollisions(t, func(tenant, document string) job.Key { return Document{Tenant: tenant, Document: document}.JobKey() })
}
