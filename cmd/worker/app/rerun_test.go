package app

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/internal/modelserver"
)

// TestRerun: a done job runs again as a new generation, once for each token, and its earlier result stays.
func TestRerun(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	ms := w.models(modelserver.Options{KeyOf: func(modelserver.Request) string { return ticketKey }})
	w.submitted()
	w.finishes(ms, 1)
	w.refused(exitUsage, "", []string{"jobs", "rerun", ticketKey, "--reason", " ", "--token", "t"}, "PO502", "--reason is empty")
	w.refused(exitUsage, "", []string{"jobs", "rerun", ticketKey, "--reason", "x", "--token", " "}, "PO502", "--token is empty")
	w.refused(exitFindings, "", []string{"jobs", "rerun", "a:b:c", "--reason", "x", "--token", "t"}, "PO501")
	order := []string{"jobs", "rerun", ticketKey, "--reason", "the prompt was wrong", "--token", "change 7"}
	if out := w.must("", order...); !strings.Contains(out, "ready, as generation 2") || !strings.Contains(out, "paid again (so far it cost $0.") {
		t.Errorf("rerun says\n%s", out)
	}
	w.refused(exitFailed, "", []string{"jobs", "rerun", ticketKey, "--reason", "x", "--token", "another"}, "PO503", "the job is ready")
	if out := w.must("", order...); !strings.Contains(out, "nothing happened now. The job is ready, in generation 2") {
		t.Errorf("the same order again says\n%s", out)
	}
	shown := w.finishes(ms, 2)
	if !strings.Contains(shown, "J18 run again, token change 7: the prompt was wrong") {
		t.Errorf("the history does not say why:\n%s", shown)
	}
	w.must("", order...)
	var doc struct {
		Generation int
		Result     json.RawMessage
		Earlier    []struct {
			Generation int
			Result     json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(w.must("", "jobs", "show", ticketKey, "--json")), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Generation != 2 || len(doc.Result) < 5 || len(doc.Earlier) != 1 || doc.Earlier[0].Generation != 1 || len(doc.Earlier[0].Result) < 5 {
		t.Errorf("shown: %+v", doc)
	}
}

// TestRerunUnknown: an unknown job is run again with leave to pay twice, and not without.
func TestRerunUnknown(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	ms := w.unknown()
	order := []string{"jobs", "rerun", ticketKey, "--reason", "cannot wait", "--token", "t"}
	w.refused(exitFailed, "", order, "PO503", "is unknown: 1 calls may have been paid", "--accept-double-pay")
	if s := w.state(ticketKey); s != "unknown" {
		t.Errorf("a refused order made the job %s", s)
	}
	if out := w.must("", append(order, "--accept-double-pay")...); !strings.Contains(out, "may be billed") || !strings.Contains(out, "generation 2") {
		t.Errorf("rerun says\n%s", out)
	}
	w.finishes(ms, 2)
}

// TestRerunFailed (case 59): a job failed for good, its cause is mended, and it is ordered anew: it runs, and its messages no longer get the failure.
func TestRerunFailed(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	ms := w.models(modelserver.Options{KeyOf: func(modelserver.Request) string { return ticketKey }})
	w.env = append(w.env, "PAIDONCE_JOBS_TICKET_SUMMARY_ROUTES=[{name: only, provider: anthropic, model: claude-haiku-4-5, timeout: 5s}]")
	ms.Script(ticketKey, modelserver.Fault{Kind: modelserver.BadRequest})
	w.submitted()
	r := w.start()
	w.until(ticketKey, "failed")
	r.stop()
	w.submitted()
	w.must("", "jobs", "rerun", ticketKey, "--reason", "the prompt is mended", "--token", "t")
	if shown := w.finishes(ms, 1); !strings.Contains(shown, "J18 run again, token t: the prompt is mended") || ms.Requests() != 2 {
		t.Errorf("%d requests of a job that is\n%s", ms.Requests(), shown)
	}
}

// TestRetry: failed jobs go back, those whose calls may have been paid only with leave.
func TestRetry(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	ms := w.unknown()
	w.must("", "jobs", "resolve", ticketKey, "--fail", "--reason", "x")
	for _, args := range [][]string{{}, {ticketKey, "--all"}, {ticketKey, "--job", "ticket.summary"}} {
		w.refused(exitUsage, "", append([]string{"jobs", "retry", "--reason", "x"}, args...), "PO502", "name keys, or say which failed jobs")
	}
	w.refused(exitUsage, "", []string{"jobs", "retry", ticketKey}, "PO502", "--reason is empty")
	w.refused(exitUsage, "", []string{"jobs", "retry", "--all", "--limit", "0", "--dry-run"}, "PO502", "--limit 0")
	if out := w.must("", "jobs", "retry", "--tenant", "nobody", "--dry-run"); out != "No failed jobs.\n" {
		t.Errorf("without any it says\n%s", out)
	}
	var doc retryDocument
	if err := json.Unmarshal([]byte(w.must("", "jobs", "retry", "--all", "--dry-run", "--accept-double-pay", "--json")), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Jobs) != 1 || doc.Jobs[0].Verdict != wouldRetry || doc.Jobs[0].MaybePaidTwice != 1 || doc.Summary.CallsAgain != 1 || doc.Summary.Retried != 1 || !doc.DryRun {
		t.Errorf("the dry run says %+v", doc)
	}
	if out := w.must("", "jobs", "retry", ticketKey, "--dry-run"); !strings.Contains(out, "needs_leave") || !strings.Contains(out, "0 jobs would be retried, 1 left") {
		t.Errorf("the dry run without leave says\n%s", out)
	}
	w.refused(exitFailed, "", []string{"jobs", "retry", "--job", "ticket.summary", "--reason", "x"}, "PO521", "1 of 1 jobs were not retried")
	if s := w.state(ticketKey); s != "failed" {
		t.Fatalf("without leave the job is %s", s)
	}
	if out := w.must("", "jobs", "retry", ticketKey, "--accept-double-pay", "--reason", "the provider is sorry"); !strings.Contains(out, "retried") {
		t.Errorf("retry says\n%s", out)
	}
	w.refused(exitFailed, "", []string{"jobs", "retry", ticketKey, "--reason", "x"}, "PO521")
	shown := w.finishes(ms, 2)
	if !strings.Contains(shown, "J18r retry, 1 calls may be paid twice: the provider is sorry") {
		t.Errorf("the history does not say who allowed it:\n%s", shown)
	}
}

// TestLimits: a job whose call is over a limit of its own sends nothing, is shown with the reason, and goes on when the limit is raised.
func TestLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ setting, low, high, shown, limits string }{
		"budget":   {"BUDGET_USD", "0.0001", "0.1", "budget: PO312", "0.0001 USD (0 held back)"},
		"lifetime": {"LIFETIME", "1s", "1h", "lifetime: PO625", "calls until 2"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorldHere(t)
			ms := w.models(modelserver.Options{KeyOf: func(modelserver.Request) string { return ticketKey }})
			if name == "lifetime" { // what is refused is sent again two seconds later
				ms.Script(ticketKey, modelserver.Fault{Kind: modelserver.ServerError})
			}
			setting := "PAIDONCE_JOBS_TICKET_SUMMARY_" + c.setting + "="
			w.env = append(w.env, setting+c.low)
			w.submitted()
			r := w.start()
			w.until(ticketKey, "failed")
			r.stop()
			if shown := w.must("", "jobs", "show", ticketKey); !strings.Contains(shown, c.shown) || !strings.Contains(shown, c.limits) || len(ms.Bill()) != 0 {
				t.Errorf("%d calls on the bill of a job that is\n%s", len(ms.Bill()), shown)
			}
			if list := w.must("", "jobs", "list", "--class", name); !strings.Contains(list, "failed ("+name+")") {
				t.Errorf("listed as\n%s", list)
			}
			w.env[len(w.env)-1] = setting + c.high
			w.must("", "jobs", "retry", ticketKey, "--reason", "it is worth more")
			w.finishes(ms, 1)
		})
	}
}

// TestMaxCalls: refused requests are calls too, and what is over the limit is not sent.
func TestMaxCalls(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	ms := w.models(modelserver.Options{KeyOf: func(modelserver.Request) string { return ticketKey }})
	ms.Script(ticketKey, modelserver.Fault{Kind: modelserver.ServerError})
	w.env = append(w.env, "PAIDONCE_JOBS_TICKET_SUMMARY_MAX_CALLS=1")
	w.submitted()
	r := w.start()
	w.until(ticketKey, "failed")
	r.stop()
	var d jobDocument
	if err := json.Unmarshal([]byte(w.must("", "jobs", "show", ticketKey, "--json")), &d); err != nil {
		t.Fatal(err)
	}
	if d.Error.Class != "calls" || d.Calls != 1 || len(d.Attempts) != 1 || d.Limits == nil || d.Limits.MaxCalls == nil || *d.Limits.MaxCalls != 1 || d.Limits.SendUntil != nil {
		t.Errorf("the job is %+v, limits %+v", d, d.Limits)
	}
	if shown := w.must("", "jobs", "show", ticketKey); !strings.Contains(shown, "1 of 1 calls sent") || !strings.Contains(shown, "calls: PO623") {
		t.Errorf("shown as\n%s", shown)
	}
	w.env[len(w.env)-1] = "PAIDONCE_JOBS_TICKET_SUMMARY_MAX_CALLS=2"
	w.must("", "jobs", "retry", "--class", "calls", "--reason", "it is worth more")
	w.finishes(ms, 1) // what was refused is not on the bill
}
