package moderate

import (
	"testing"

	"github.com/paidonce/paidonce/handlers/provider"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/job/jobtest"
	"github.com/paidonce/paidonce/ledger"
)

// Whoever dies, and wherever, there is one call and one verdict.
func TestDeathEverywhere(t *testing.T) {
	for _, via := range provider.Names() {
		t.Run(via, func(t *testing.T) {
			def := New(provider.Settings{OpenAI: provider.Account{APIKey: "k"}, Anthropic: provider.Account{APIKey: "k"},
				Routes: []provider.Route{{Name: "only", Provider: via, Model: "m", Timeout: 9e10}}})
			in := Content{Tenant: "acme", Content: "7714", Revision: 2, Text: "Buy now!"}
			opt := jobtest.Options{Answer: `{"flagged":true,"categories":["spam"]}`}
			jobtest.CrashEverywhere(t, def, in, func(t testing.TB, end jobtest.End[Verdict]) {
				if end.State != ledger.Done || !end.Result.Flagged || len(end.Result.Categories) != 1 || end.Sends["moderate"] != 1 {
					t.Errorf("%s: %s with %+v, sent %v", end.When, end.State, end.Result, end.Sends)
				}
			}, opt)
			jobtest.SevenPaths(t, def, in, opt)
		})
	}
	jobtest.NoCollisions(t, func(tenant, content string) job.Key { return Content{Tenant: tenant, Content: content}.JobKey() })
}
