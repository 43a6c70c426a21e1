package app

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/internal/modelserver"
)

// TestDayBudget: a call over a limit of the day is not sent; its job waits, is shown with the reason, and is released
// by a raised limit.
func TestDayBudget(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"PAIDONCE_BUDGETS_TENANT_DAY_USD=", "PAIDONCE_JOBS_TICKET_SUMMARY_TENANT_DAY_USD=", "PAIDONCE_BUDGETS_TENANTS={globex: 9, acme: "} {
		t.Run(setting, func(t *testing.T) {
			w := newWorldHere(t)
			ms := w.models(modelserver.Options{KeyOf: func(modelserver.Request) string { return ticketKey }})
			limit := func(usd string) string {
				if strings.Contains(setting, "{") {
					usd += "}"
				}
				return setting + usd
			}
			w.env = append(w.env, limit("0.0001"))
			w.submitted()
			r := w.start()
			w.until(ticketKey, "ready")
			r.stop()
			if shown := w.must("", "jobs", "show", ticketKey); !strings.Contains(shown, "day_budget: PO621") || len(ms.Bill()) != 0 {
				t.Errorf("%d calls on the bill of a job that is\n%s", len(ms.Bill()), shown)
			}
			if list := w.must("", "jobs", "list", "--state", "ready"); !strings.Contains(list, "ready (day_budget)  0 ") {
				t.Errorf("listed as\n%s", list)
			}
			if out := w.must("", "budgets"); !strings.Contains(out, "nothing was sent under a limit on ") {
				t.Errorf("budgets says\n%s", out)
			}
			w.env[len(w.env)-1] = limit("0.1")
			if out := w.must("", "jobs", "retry", "--over-day-budget", "--dry-run"); !strings.Contains(out, ticketKey) || !strings.Contains(out, "1 ") {
				t.Errorf("a dry run says\n%s", out)
			}
			if s := w.state(ticketKey); s != "ready" {
				t.Errorf("a dry run left the job %s", s)
			}
			w.must("", "jobs", "retry", "--over-day-budget", "--job", "ticket.summary", "--reason", "it is worth more")
			if shown := w.finishes(ms, 1); !strings.Contains(shown, "J18w do not wait: it is worth more") || !strings.Contains(shown, "1, received") {
				t.Errorf("shown as\n%s", shown)
			}
			var doc struct{ Budgets []map[string]string }
			if err := json.Unmarshal([]byte(w.must("", "budgets", "--json", "--tenant", "acme")), &doc); err != nil || len(doc.Budgets) != 1 {
				t.Fatalf("%+v (%v)", doc, err)
			}
			b := doc.Budgets[0]
			var job struct{ Cost_USD string }
			if err := json.Unmarshal([]byte(w.must("", "jobs", "show", ticketKey, "--json")), &job); err != nil {
				t.Fatal(err)
			}
			if b["limit_usd"] != "0.1" || b["reserved_usd"] != "0" || b["spent_usd"] != job.Cost_USD || b["tenant"] != "acme" {
				t.Errorf("the budget is %v, and the job cost %s", b, job.Cost_USD)
			}
			if out := w.must("", "budgets", "--day", "1d"); !strings.Contains(out, "nothing was sent") {
				t.Errorf("budgets of yesterday:\n%s", out)
			}
		})
	}
}
