package app

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

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
	t.Parallel()
	w := newWorldHere(t)
	w.unknownAt(1, false)
	const key = "acme:ticket.summary:1:v1:p7"
	w.refused(exitFailed, "", []string{"jobs", "rerun", key, "--token", "t", "--reason", "r", "--accept-double-pay"}, "PO503", "submit it again")
	if s := w.state(key); s != "unknown" {
		t.Errorf("the order was refused, and the job is %s", s)
	}
}

// TestLimitsAreTold: where --limit leaves jobs out it is said, and what is looked at is the oldest.
func TestLimitsAreTold(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
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

	w = newWorldHere(t)
	w.failedAt(0, true, false)
	for n := range 4 {
		w.failedAt(n+1, true, true) // these are in front of it, and need leave
	}
	if o := w.do("", "jobs", "retry", "--all", "--reason", "x", "--limit", "2"); o.code != exitFailed || w.state("acme:ticket.summary:0:v1:p7") != "ready" || !strings.Contains(o.stdout, "1 jobs retried, 4 left") {
		t.Errorf("jobs that need leave hide the one that can be retried:\n%s%s", o.stdout, o.stderr)
	}
	w = newWorldHere(t)
	for n := range 3 {
		w.failedAt(n, true, false)
	}
	if out := w.must("", "jobs", "retry", "--all", "--reason", "x", "--limit", "2"); !strings.Contains(out, "--limit is reached") || !strings.Contains(out, "2 jobs retried") {
		t.Errorf("two of three retried:\n%s", out)
	}
}

// TestAllThatWaitAreReleased: whoever raised a limit of the day has all of its jobs look again, however many these are, and a limit of
// one's own goes on where the last order stopped.
func TestAllThatWaitAreReleased(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	const jobs = 130
	wait := ledger.Outcome{GiveBack: true, RetryIn: time.Hour, Error: ledger.JobError{Class: "day_budget", Text: "PO621"}}
	for n := range jobs {
		w.release(w.jobAt(n, true), wait)
	}
	other := wait
	other.Error.Class = "retry"
	w.release(w.jobAt(jobs, true), other)
	retry := func(args ...string) string {
		t.Helper()
		return w.must("", append([]string{"jobs", "retry", "--over-day-budget", "--reason", "it is worth more"}, args...)...)
	}
	for range 2 {
		if out := retry("--limit", "5"); !strings.Contains(out, "5 jobs retried, 0 left") || !strings.Contains(out, "--limit is reached") {
			t.Errorf("five of them:\n%s", out)
		}
	}
	if out := retry("--dry-run"); !strings.Contains(out, "120 jobs would be retried, 0 left") {
		t.Errorf("a dry run of the rest:\n%s", out)
	}
	if out := retry(); !strings.Contains(out, "120 jobs retried, 0 left") || strings.Contains(out, "--limit") {
		t.Errorf("the rest:\n%s", out)
	}
	if out := retry(); out != "No job waits for a budget of the day that is not due already.\n" {
		t.Errorf("and once more:\n%s", out)
	}
	due, err := w.ledger.Due(t.Context(), 1000, 24*time.Hour)
	if err != nil || len(due) != jobs {
		t.Errorf("%d jobs are due (%v), want %d", len(due), err, jobs)
	}
	w.refused(exitUsage, "", []string{"jobs", "retry", "--over-day-budget", "--class", "calls", "--reason", "x"}, "PO502 --class")
	w.refused(exitUsage, "", []string{"jobs", "retry", "--all", "--limit", "0", "--reason", "x"}, "PO502 --limit 0")
}

// TestClasses: jobs over a limit are found and released by it, and others stay.
func TestClasses(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	for n, class := range []string{"calls", "permanent", "calls", "lifetime", "calls"} {
		w.release(w.jobAt(n, true), ledger.Outcome{Fail: true, Error: ledger.JobError{Class: class, Text: "x"}})
	}
	w.release(w.jobAt(5, true), ledger.Outcome{RetryIn: time.Hour, Error: ledger.JobError{Class: "calls", Text: "x"}})
	list := func(args ...string) string {
		t.Helper()
		var d listDocument
		if err := json.Unmarshal([]byte(w.must("", append([]string{"jobs", "list", "--json"}, args...)...)), &d); err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, j := range d.Jobs {
			all = append(all, strings.Split(j.Key, ":")[2])
		}
		return strings.Join(all, " ")
	}
	for args, want := range map[string]string{"--class calls": "4 2 0", "--class calls --limit 2": "4 2", "--class calls --state ready": "5",
		"--class lifetime": "3", "--class none": "", "--class calls --state done": ""} {
		if got := list(strings.Fields(args)...); got != want {
			t.Errorf("jobs list %s: %q, want %q", args, got, want)
		}
	}
	if out := w.must("", "jobs", "retry", "--class", "calls", "--reason", "they may send more"); !strings.Contains(out, "3 jobs retried, 0 left") {
		t.Errorf("retried\n%s", out)
	}
	if got := list("--state", "failed"); got != "3 1" {
		t.Errorf("failed still: %q", got)
	}
}

// TestRetryForecast: a dry run says what the run will say, and a sum that nobody knows is null.
func TestRetryForecast(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
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
	t.Parallel()
	w := newWorldHere(t)
	w.unknownAt(1, true)
	w.refused(exitUsage, "", []string{"jobs", "resolve", "acme:ticket.summary:1:v1:p7", "--absent", "--call", "translate", "--reason", "x"}, "PO502", "--call says which call --result answers")
}
