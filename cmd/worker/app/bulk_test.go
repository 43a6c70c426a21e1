package app

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/ledger"
)

func (w *world) jobAt(n int, input bool) ledger.Lease {
	w.t.Helper()
	ctx := w.t.Context()
	id, err := w.ledger.Join(ctx, ledger.Worker{ID: "worker-7f3", TTL: 1e12})
	if err != nil {
		w.t.Fatal(err)
	}
	q := ledger.Request{Key: ledger.Key{Tenant: "acme", Text: fmt.Sprintf("acme:ticket.summary:%d:v1:p7", n)}, Action: "ticket.summary", InputHash: ledger.Hash{1},
		Carrier: ledger.CarriedByBroker, Worker: id, Token: ledger.NewID(), MaxRun: 1e12}
	if input {
		q.Input = []byte(ticket)
	}
	c, err := w.ledger.Claim(ctx, q)
	if err != nil || c.Verdict != ledger.Run {
		w.t.Fatal(c, err)
	}
	return c.Lease
}

func (w *world) unknownAt(n int, input bool) {
	l := w.jobAt(n, input)
	w.sent(l, false)
	w.release(l, ledger.Outcome{})
}

func (w *world) failedAt(n int, input, open bool) {
	l := w.jobAt(n, input)
	if open {
		w.sent(l, false)
		w.release(l, ledger.Outcome{})
		w.must("", "jobs", "resolve", l.Key.Text, "--fail", "--reason", "x")
		return
	}
	w.sent(l, true)
	w.release(l, ledger.Outcome{Fail: true})
}

// TestRerunOfWhatCannotRun: an order that cannot be carried out changes nothing.
func TestRerunOfWhatCannotRun(t *testing.T) {
	w := newWorld(t)
	w.unknownAt(1, false)
	const key = "acme:ticket.summary:1:v1:p7"
	w.refused(exitFailed, "", []string{"jobs", "rerun", key, "--token", "t", "--reason", "r", "--accept-double-pay"}, "PO503", "submit it again")
	if s := w.state(key); s != "unknown" {
		t.Errorf("the order was refused, and the job is %s", s)
	}
}

// TestLimitsAreTold: where --limit leaves jobs out it is said, and what is looked at is the oldest.
func TestLimitsAreTold(t *testing.T) {
	w := newWorld(t)
	for n := range 5 {
		w.unknownAt(n, true)
	}
	if out := w.must("", "unknown", "list", "--limit", "2"); !strings.Contains(out, "there are more") || !strings.Contains(out, "acme:ticket.summary:0:") || strings.Contains(out, "acme:ticket.summary:2:") {
		t.Errorf("two of five unknown jobs:\n%s", out)
	}
	if out := w.must("", "jobs", "resolve", "--all", "--fail", "--reason", "x", "--limit", "3"); !strings.Contains(out, "3 unknown jobs resolved, 0 left.\n--limit is reached") {
		t.Errorf("three of five resolved:\n%s", out)
	}
	if out := w.must("", "unknown", "list", "--limit", "2"); strings.Contains(out, "there are more") || !strings.Contains(out, "2 jobs with 2 calls") {
		t.Errorf("the last two:\n%s", out)
	}

	w = newWorld(t)
	w.failedAt(0, true, false)
	for n := range 4 {
		w.failedAt(n+1, true, true) // these are in front of it, and need leave
	}
	if o := w.do("", "jobs", "retry", "--all", "--reason", "x", "--limit", "2"); o.code != exitFailed || w.state("acme:ticket.summary:0:v1:p7") != "ready" || !strings.Contains(o.stdout, "1 jobs retried, 4 left") {
		t.Errorf("jobs that need leave hide the one that can be retried:\n%s%s", o.stdout, o.stderr)
	}
	w = newWorld(t)
	for n := range 3 {
		w.failedAt(n, true, false)
	}
	if out := w.must("", "jobs", "retry", "--all", "--reason", "x", "--limit", "2"); !strings.Contains(out, "--limit is reached") || !strings.Contains(out, "2 jobs retried") {
		t.Errorf("two of three retried:\n%s", out)
	}
}

// TestRetryForecast: a dry run says what the run will say, and a sum that nobody knows is null.
func TestRetryForecast(t *testing.T) {
	w := newWorld(t)
	verdicts := func(args ...string) (retryDocument, string) {
		t.Helper()
		var d retryDocument
		o := w.do("", append([]string{"jobs", "retry", "--all", "--json"}, args...)...)
		if err := json.Unmarshal([]byte(o.stdout), &d); err != nil {
			t.Fatal(err, o.stderr)
		}
		return d, w.do("", append([]string{"jobs", "retry", "--all"}, args...)...).stdout
	}
	if d, _ := verdicts("--dry-run"); d.Summary.SavedUSD == nil || *d.Summary.SavedUSD != "0" {
		t.Errorf("with no jobs: %+v", d)
	}
	w.failedAt(1, false, false)
	if d, _ := verdicts("--dry-run"); d.Jobs[0].Verdict != inputGone {
		t.Errorf("the dry run of a job without input says %+v", d)
	}
	if d, _ := verdicts("--reason", "x"); d.Jobs[0].Verdict != inputGone {
		t.Errorf("the run says %+v", d)
	}
	w.failedAt(2, true, false) // its answer's cost is not known
	if d, text := verdicts("--dry-run"); d.Summary.SavedUSD != nil || d.Summary.AnswersKept != 1 || !strings.Contains(text, "(unknown USD is not paid again)") {
		t.Errorf("an answer of unknown cost: %+v\n%s", d, text)
	}
}

// TestVerdictsNameNoCall: whoever says that a call never happened says it of all that are open, and cannot think otherwise.
func TestVerdictsNameNoCall(t *testing.T) {
	w := newWorld(t)
	w.unknownAt(1, true)
	w.refused(exitUsage, "", []string{"jobs", "resolve", "acme:ticket.summary:1:v1:p7", "--absent", "--call", "translate", "--reason", "x"}, "PO502", "--call says which call --result answers")
}
