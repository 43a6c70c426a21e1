package app

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/ledger"
)

// unknown makes the ticket's job unknown: its one call went to a provider that keeps
// nothing, and the answer was lost. It returns with no worker running.
func (w *world) unknown() *modelserver.Server {
	w.t.Helper()
	ms := w.models(modelserver.Options{KeyOf: func(modelserver.Request) string { return ticketKey }})
	w.env = append(w.env, "PAIDONCE_JOBS_TICKET_SUMMARY_ROUTES=[{name: only, provider: anthropic, model: claude-haiku-4-5, timeout: 5s}]")
	ms.Script(ticketKey, modelserver.Fault{Kind: modelserver.Reset})
	w.submitted()
	r := w.start()
	w.until(ticketKey, "unknown")
	r.stop()
	if n := len(ms.Bill()); n != 1 {
		w.t.Fatalf("%d calls on the bill before anybody decided", n)
	}
	return ms
}

// finishes runs a worker until the job is done, and wants so many calls on the bill.
func (w *world) finishes(ms *modelserver.Server, calls int) string {
	w.t.Helper()
	r := w.start()
	w.until(ticketKey, "done")
	r.stop()
	if n := len(ms.Bill()); n != calls {
		w.t.Errorf("%d calls on the bill, want %d", n, calls)
	}
	return w.must("", "jobs", "show", ticketKey)
}

func TestResolveResult(t *testing.T) {
	w := newWorld(t)
	ms := w.unknown()
	w.file("wrong.json", `{"text":"no summary"}`)
	w.refused(exitUsage, "", []string{"jobs", "resolve", ticketKey, "--result", "wrong.json", "--reason", "x"}, "PO507", `unknown field "text"`)
	w.refused(exitUsage, "not JSON", []string{"jobs", "resolve", ticketKey, "--result", "-", "--reason", "x"}, "PO507", "not JSON")
	w.refused(exitUsage, "{}", []string{"jobs", "resolve", ticketKey, "--result", "-", "--call", "other", "--reason", "x"}, "PO510", "summarise")
	if s := w.state(ticketKey); s != "unknown" {
		t.Fatalf("a refused answer made the job %s", s)
	}
	out := w.must(`{"summary":"as read in the provider's console"}`, "jobs", "resolve", ticketKey, "--result", "-", "--reason", "seen in the console")
	for _, want := range []string{"Attempt 1 (call summarise, anthropic/claude-haiku-4-5", "is received now", "does not send the call again"} {
		if !strings.Contains(out, want) {
			t.Errorf("resolve does not say %q:\n%s", want, out)
		}
	}
	shown := w.finishes(ms, 1)
	if got := w.must("", "jobs", "show", ticketKey, "--answer", "1"); got != `{"summary":"as read in the provider's console"}` {
		t.Errorf("the captured answer is shown as %q", got)
	}
	w.refused(exitFindings, "", []string{"jobs", "show", ticketKey, "--answer", "2"}, "PO501", "attempt 2")
	for _, want := range []string{`{"summary":"as read in the provider's console"}`, "ann@", "seen in the console"} {
		if !strings.Contains(shown, want) {
			t.Errorf("jobs show does not say %q:\n%s", want, shown)
		}
	}
	w.refused(exitFailed, "", []string{"jobs", "resolve", ticketKey, "--fail", "--reason", "x"}, "PO503", "is done, not unknown")
}

func TestResolveAbsent(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	ms := w.unknown()
	out := w.must("", "jobs", "resolve", ticketKey, "--absent", "--reason", "not in the provider's log")
	if !strings.Contains(out, "is not_sent now") || !strings.Contains(out, "it is paid then") {
		t.Errorf("resolve says\n%s", out)
	}
	w.finishes(ms, 2) // a person said so
}

func TestResolveFail(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	w.unknown()
	out := w.must("", "jobs", "resolve", ticketKey, "--fail", "--reason", "customer left")
	if !strings.Contains(out, "The job is failed. 1 calls stay unknown and may be billed") {
		t.Errorf("resolve says\n%s", out)
	}
	if s := w.state(ticketKey); s != "failed" {
		t.Errorf("the job is %s", s)
	}
	if shown := w.must("", "jobs", "show", ticketKey); !strings.Contains(shown, "customer left") {
		t.Errorf("the history lacks the reason:\n%s", shown)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	w.unknown()
	out := w.must("", "jobs", "cancel", ticketKey, "--reason", "not needed")
	if !strings.Contains(out, "The job is cancelled.") || !strings.Contains(out, "1 calls had been sent") || w.state(ticketKey) != "cancelled" {
		t.Errorf("cancel says\n%s and the job is %s", out, w.state(ticketKey))
	}
	w.refused(exitFailed, "", []string{"jobs", "cancel", ticketKey, "--reason", "again"}, "PO503", "is cancelled")
}

func TestCancelRunning(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	ms := w.models(modelserver.Options{})
	ms.Script(ticketKey, modelserver.Fault{Hold: true})
	w.submitted()
	r := w.start()
	eventually(t, func() (bool, string) { return len(ms.Bill()) == 1, "the call to be under way" })
	if out := w.must("", "jobs", "cancel", ticketKey, "--reason", "not needed"); !strings.Contains(out, "It is flagged") {
		t.Errorf("cancel says\n%s", out)
	}
	ms.Release(ticketKey)
	eventually(t, func() (bool, string) {
		s := w.state(ticketKey)
		return s == "cancelled" || s == "done", "the flagged job is " + s // whichever its run came to first
	})
	r.stop()
}

func TestNotFound(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	for _, args := range [][]string{{"jobs", "show", "a:b:c"}, {"jobs", "show", "a:b:c", "--json"},
		{"jobs", "resolve", "a:b:c", "--fail", "--reason", "x"}, {"jobs", "cancel", "a:b:c", "--reason", "x"}} {
		w.refused(exitFindings, "", args, "PO501 there is no job a:b:c")
	}
}

// Several open calls need to be told apart.
func TestResolveSeveral(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	key := ledger.Key{Tenant: "acme", Text: ticketKey}
	lease := w.claimed(key)
	for _, name := range []string{"summarise", "translate"} {
		a := ledger.Attempt{ID: ledger.NewID(), Call: ledger.CallRef{Name: name}, Timeout: 1e9}
		if err := w.ledger.Send(t.Context(), lease, a); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.ledger.Release(t.Context(), lease, ledger.Outcome{}); err != nil {
		t.Fatal(err)
	}
	w.refused(exitUsage, "{}", []string{"jobs", "resolve", ticketKey, "--result", "-", "--reason", "x"}, "PO510 calls summarise, translate are open")
	w.refused(exitUsage, "{}", []string{"jobs", "resolve", ticketKey, "--result", "-", "--call", "translate", "--reason", "x"}, "PO507", "no call translate")
	out := w.must(`{"summary":"s"}`, "jobs", "resolve", ticketKey, "--result", "-", "--call", "summarise", "--reason", "x")
	if !strings.Contains(out, "still unknown: other calls are open") {
		t.Errorf("resolve says\n%s", out)
	}
	if out = w.must("", "jobs", "resolve", ticketKey, "--absent", "--reason", "x"); !strings.Contains(out, "The job is ready") || strings.Contains(out, "summarise") {
		t.Errorf("resolve says\n%s", out)
	}
}

// claimed makes a worker and gives it a job.
func (w *world) claimed(key ledger.Key) ledger.Lease {
	w.t.Helper()
	return w.claimedFrom(key, ledger.Origin{})
}

func (w *world) claimedFrom(key ledger.Key, o ledger.Origin) ledger.Lease {
	w.t.Helper()
	ctx := w.t.Context()
	id, err := w.ledger.Join(ctx, ledger.Worker{ID: "worker-7f3", TTL: 1e12})
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := w.ledger.Claim(ctx, ledger.Request{Key: key, Action: "ticket.summary", InputHash: ledger.Hash{1}, Input: []byte(ticket),
		Carrier: ledger.CarriedByBroker, Worker: id, Token: ledger.NewID(), MaxRun: 1e12, Receives: 3, Origin: o})
	if err != nil || c.Verdict != ledger.Run {
		w.t.Fatalf("claim: %v, %v", c.Verdict, err)
	}
	return c.Lease
}

// The documents of --json, field by field.
func TestDocuments(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	ctx := t.Context()
	lease := w.claimed(ledger.Key{Tenant: "acme", Text: ticketKey})
	w.attempt(ctx, lease, ledger.Evidence{State: ledger.Rejected, Class: "rate_limit", Status: 429, ProviderRequestID: "req_1", By: ledger.BySender})
	used := w.attempt(ctx, lease, ledger.Evidence{State: ledger.Received, Class: "done", Status: 200, ProviderRequestID: "req_2", ObjectID: "chatcmpl-2",
		Usage: ledger.Usage{In: new(int64(120)), Cached: new(int64(0)), Out: new(int64(40))}, Cost: new(ledger.Nano(1_234_000)), CostSource: "computed",
		Response: &ledger.Response{Codec: "json", Body: []byte(`{}`)}, By: ledger.BySender})
	if err := w.ledger.Complete(ctx, lease, ledger.Result{ID: ledger.NewID(), Body: []byte(`{"summary":"<b>&"}`), Used: []ledger.ID{used}}); err != nil {
		t.Fatal(err)
	}
	w.claimed(ledger.Key{Tenant: "beta", Text: "beta:ticket.summary:1:v0:p7"})
	golden(t, "show.json", steady(w.must("", "jobs", "show", ticketKey, "--json")))
	golden(t, "show.txt", steady(w.must("", "jobs", "show", ticketKey)))
	golden(t, "running.json", steady(w.must("", "jobs", "show", "beta:ticket.summary:1:v0:p7", "--json")))
	golden(t, "list.json", steady(w.must("", "jobs", "list", "--json")))
	golden(t, "list.txt", steady(w.must("", "jobs", "list", "--state", "done", "--tenant", "acme", "--job", "ticket.summary", "--limit", "5")))
	golden(t, "empty.json", w.must("", "jobs", "list", "--json", "--state", "failed"))
}

// What is known of the first message is shown where it is known.
func TestOriginIsShown(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	for name, c := range map[string]struct {
		origin       ledger.Origin
		group, trace string
	}{
		"nothing": {},
		"both":    {ledger.Origin{Group: "tenant-7", Trace: "00-4bf9-00f0-01", AWSTrace: "Root=1-5759"}, "tenant-7", "00-4bf9-00f0-01"},
		"aws":     {ledger.Origin{AWSTrace: "Root=1-5759"}, "", "Root=1-5759"},
		"group":   {ledger.Origin{Group: "g\x1b[2J"}, "g\x1b[2J", ""},
	} {
		key := "acme:ticket.summary:" + name + ":v1:p7"
		w.claimedFrom(ledger.Key{Tenant: "acme", Text: key}, c.origin)
		want := map[string]string{"group": c.group, "trace": c.trace}
		var d map[string]any
		if err := json.Unmarshal([]byte(w.must("", "jobs", "show", key, "--json")), &d); err != nil {
			t.Fatal(err)
		}
		text := w.must("", "jobs", "show", key)
		for field, v := range want {
			got, there := d[field]
			row := regexp.MustCompile("(?m)^" + field + " +" + regexp.QuoteMeta(strings.ReplaceAll(v, "\x1b", "\uFFFD")) + "$")
			if there != (v != "") || there && got != v || row.MatchString(text) != there {
				t.Errorf("%s: %s is %v in JSON, want %q; the text is\n%s", name, field, got, v, text)
			}
		}
	}
}

// What is known of the last look at an unknown job, and how many there were.
func TestLooksAreShown(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	ctx := t.Context()
	lease := w.claimed(ledger.Key{Tenant: "acme", Text: ticketKey})
	if err := w.ledger.Send(ctx, lease, ledger.Attempt{ID: ledger.NewID(), Call: ledger.CallRef{Name: "summarise"}, Timeout: 1e9}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.ledger.Release(ctx, lease, ledger.Outcome{}); err != nil {
		t.Fatal(err)
	}
	id, err := w.ledger.Join(ctx, ledger.Worker{ID: "reconciler", TTL: 1e12})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		as, err := w.ledger.Adopt(ctx, ledger.Adoption{Worker: id, Token: ledger.NewID(), Max: 1})
		if err != nil || len(as) != 1 {
			t.Fatalf("adopt: %+v %v", as, err)
		}
		_, err = w.ledger.Resolve(ctx, ledger.Resolution{Key: as[0].Lease.Key, Fence: as[0].Lease.Fence, Action: ledger.Keep,
			By: ledger.ByReconciler, Who: "reconciler", Reason: fmt.Sprint("answer ", n)})
		if err != nil {
			t.Fatal(err)
		}
	}
	if text := steady(w.must("", "jobs", "show", ticketKey)); strings.Count(text, "kept") != 1 || !strings.Contains(text, "CLOCK  unknown  reconciler: kept: answer 2 (look 3)\n") {
		t.Errorf("shown as\n%s", text)
	}
	if text := w.must("", "jobs", "show", ticketKey, "--json"); strings.Count(text, `"looks": 3`) != 1 {
		t.Errorf("shown as\n%s", text)
	}
}

func (w *world) attempt(ctx context.Context, lease ledger.Lease, e ledger.Evidence) ledger.ID {
	w.t.Helper()
	id := ledger.NewID()
	a := ledger.Attempt{ID: id, Call: ledger.CallRef{Name: "summarise"}, Route: "primary", Provider: "openai", Model: "gpt-5-mini", Config: "p7",
		ClientRequestID: id.String(), Timeout: 1e9}
	if err := w.ledger.Send(ctx, lease, a); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.ledger.Settle(ctx, ledger.AttemptID{Tenant: lease.Key.Tenant, Job: lease.Job, ID: id}, e); err != nil {
		w.t.Fatal(err)
	}
	return id
}

// steady replaces what is new at every run.
func steady(s string) string {
	for _, r := range []struct{ pattern, with string }{
		{`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, "UUID"},
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`, "INSTANT"},
		{`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+Z`, "CLOCK"},
	} {
		s = regexp.MustCompile(r.pattern).ReplaceAllString(s, r.with)
	}
	return s
}
