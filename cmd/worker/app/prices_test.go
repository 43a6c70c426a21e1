package app

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/internal/modelserver"
)

const ownPrices = "provider,model,from,currency,input,cache_read,output\n# twice the list price\nopenai,gpt-5-mini,2025-01-01,USD,0.5,0.05,4\n"

func TestPricesList(t *testing.T) {
	w := newWorld(t)
	list := func() (d pricesDocument, mini priceDocument) {
		if err := json.Unmarshal([]byte(w.must("", "prices", "list", "--json")), &d); err != nil {
			t.Fatal(err)
		}
		for _, p := range d.Prices {
			if p.Provider == "openai" && p.Model == "gpt-5-mini" {
				mini = p
			}
		}
		return d, mini
	}
	d, mini := list()
	want := priceDocument{Provider: "openai", Model: "gpt-5-mini", From: "2025-08-07", Input: "0.25", CacheRead: "0.025", CacheWrite: "0.25", CacheWrite1h: "0.25",
		Output: "2", Reasoning: "2", Factors: map[string]string{"batch": "0.5", "flex": "0.5", "priority": "1.8"}, Source: "built-in"}
	if d.Currency != "USD" || d.Tokens != 1_000_000 || d.BuiltinAsOf != "2026-08-21" || fmt.Sprint(mini) != fmt.Sprint(want) {
		t.Errorf("listed %+v, of %+v; want %+v", mini, d, want)
	}
	builtin := len(d.Prices)
	w.file("prices.csv", ownPrices)
	w.env = append(w.env, "PAIDONCE_PRICES=prices.csv")
	if d, mini = list(); mini.Input != "0.5" || mini.Source != "prices.csv:3" || len(mini.Factors) != 0 || len(d.Prices) != builtin {
		t.Errorf("with a file, listed %+v among %d, want %d", mini, len(d.Prices), builtin)
	}
	text := w.must("", "prices", "list")
	if !strings.Contains(text, "US dollars per million tokens; built-in prices as of 2026-08-21\n") || !strings.Contains(text, "prices.csv:3") || strings.Count(text, "\n") != builtin+3 {
		t.Errorf("the list is\n%s", text)
	}
}

func TestPricesCheck(t *testing.T) {
	w := newWorld(t)
	if out := w.must("", "prices", "check"); !strings.Contains(out, "models (built-in, as of 2026-08-21)\n") {
		t.Errorf("of the built-in table: %s", out)
	}
	w.file("prices.csv", ownPrices)
	if out := w.must("", "prices", "check", "prices.csv"); !strings.Contains(out, "models (prices.csv, over what is built-in, as of 2026-08-21)\n") {
		t.Errorf("of a good file: %s", out)
	}
	w.file("bad.csv", "provider,model,from,currency,input,output\nopenai,m,2026-01-01,EUR,-1,1e3\nopenai,n,soon,USD,1,1\n")
	faults := []string{
		"PO064 currency EUR (bad.csv:2:21): ", "PO063 input -1 (bad.csv:2:25): ", "PO063 output 1e3 (bad.csv:2:28): ", "PO062 from soon (bad.csv:3:10): "}
	w.refused(exitUsage, "", []string{"prices", "check", "bad.csv"}, faults...)
	w.refused(exitUsage, "", []string{"prices", "check", "nowhere.csv"}, "PO039 prices nowhere.csv", "no such file")
	w.env = append(w.env, "PAIDONCE_PRICES=bad.csv")
	for _, command := range []string{"run", "doctor", "prices list", "prices check"} {
		w.refused(exitUsage, "", strings.Fields(command), faults...)
	}
	// A file that is named is checked instead of the configured one.
	w.must("", "prices", "check", "prices.csv")
	w.env = append(w.env, "PAIDONCE_PRICES=nowhere.csv")
	w.refused(exitUsage, "", []string{"run"}, "PO039 prices nowhere.csv (environment PAIDONCE_PRICES): the file cannot be read: no such file or directory")
}

// A route to a model without a price is named before anything is sent there, and after.
func TestUnpricedRoute(t *testing.T) {
	w := newWorld(t)
	w.models(modelserver.Options{})
	w.file("worker.yaml", "jobs: {ticket.summary: {routes: [{name: own, provider: openai, model: own-7b, timeout: 5s}]}}\n")
	const line = "job ticket.summary, route own: PO067 the cost of a call to openai own-7b is not known: no price is known for the model"
	w.refused(exitFindings, "", []string{"prices", "check"}, "PO560 routes without a price: 1")
	if out := w.do("", "prices", "check").stdout; !strings.HasPrefix(out, line+"\n") {
		t.Errorf("prices check says\n%s", out)
	}
	var d pricesCheckDocument
	if err := json.Unmarshal([]byte(w.do("", "prices", "check", "--json").stdout), &d); err != nil || len(d.Unpriced) != 1 || d.Unpriced[0].Model != "own-7b" || d.Models < 2 || d.Prices < d.Models {
		t.Errorf("prices check --json is %+v, %v", d, err)
	}
	if out := w.do("", "doctor").stdout; !strings.Contains(out, "warning PO557 prices: "+line+"; fix: ") {
		t.Errorf("doctor says\n%s", out)
	}
	w.env = append(w.env, "PAIDONCE_JOBS_TICKET_SUMMARY_BUDGET_USD=0.5", "PAIDONCE_BUDGETS_TENANTS={globex: 9}", "PAIDONCE_JOBS_INVOICE_EXTRACT_TENANT_DAY_USD=7")
	const under = "; so what it costs does not count under jobs.ticket.summary.budget_usd 0.5, budgets.tenants of globex 9; fix: "
	if out := w.do("", "doctor").stdout; !strings.Contains(out, "warning PO628 prices: "+line+under) || strings.Contains(out, "PO557") {
		t.Errorf("with limits doctor says\n%s", out)
	}
	w.submitted()
	r := w.start()
	w.until(ticketKey, "done")
	r.stop()
	if n := strings.Count(r.log.String(), "PO626"); n != 1 || !strings.Contains(r.log.String(), "own-7b") {
		t.Errorf("the worker says %d times that a limit does not count a route:\n%s", n, r.log.String())
	}
	var j jobDocument
	if err := json.Unmarshal([]byte(w.must("", "jobs", "show", ticketKey, "--json")), &j); err != nil {
		t.Fatal(err)
	}
	if j.CostUSD != nil || j.Attempts[0].CostUSD != nil || j.Attempts[0].CostSource != "unknown" || j.Attempts[0].TokensIn == nil {
		t.Errorf("job %+v", j)
	}
	if n := strings.Count(r.log.String(), "cost not known; said once for each model"); n != 1 {
		t.Errorf("the log says %d times that there is no price:\n%s", n, r.log.String())
	}
}

// What is booked is what the configured file says, and it is in the metrics: here twice the list prices, which
// the model server's bill is by. The duplicate saves as much.
func TestConfiguredPricesAreBooked(t *testing.T) {
	w := newWorld(t)
	ms := w.models(modelserver.Options{})
	w.file("prices.csv", ownPrices)
	w.env = append(w.env, "PAIDONCE_PRICES=prices.csv", "PAIDONCE_HTTP_LISTEN=127.0.0.1:0")
	w.submitted()
	r := w.start()
	w.until(ticketKey, "done")
	w.submitted()
	eventually(t, func() (bool, string) {
		d := w.queue.Depth()
		return d.Ready+d.Held+d.Delayed == 0, "the queue to be empty"
	})
	_, metrics := get(t, "http://"+r.says(`"setting":"http.listen","address":"([^"]+)"`)+"/metrics")
	r.stop()
	var j jobDocument
	if err := json.Unmarshal([]byte(w.must("", "jobs", "show", ticketKey, "--json")), &j); err != nil {
		t.Fatal(err)
	}
	line := ms.Bill()[0]
	nano := 2 * line.Price
	want := strings.TrimRight(fmt.Sprintf("0.%09d", nano), "0")
	if j.CostUSD == nil || *j.CostUSD != want || *j.Attempts[0].CostUSD != want || j.Attempts[0].CostSource != "computed" {
		t.Errorf("booked %v, %+v; want %s", j.CostUSD, j.Attempts, want)
	}
	for _, m := range []string{`paidonce_spent_usd_total{job="ticket.summary",model="gpt-5-mini",provider="openai"} `, `paidonce_saved_usd_total{job="ticket.summary"} `} {
		if !strings.Contains(metrics, fmt.Sprintf("%s%v\n", m, float64(nano)/1e9)) {
			t.Errorf("the metrics lack %s%v:\n%s", m, float64(nano)/1e9, metrics)
		}
	}
}
