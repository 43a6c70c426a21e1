package app

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/ledger"
)

// spending fills the world's ledger with a job of each kind that a report tells apart.
func (w *world) spending() {
	w.t.Helper()
	ctx := w.t.Context()
	received := func(cost *ledger.Nano) ledger.Evidence {
		return ledger.Evidence{State: ledger.Received, Cost: cost, Response: &ledger.Response{Codec: "json", Body: []byte(`{}`)}, By: ledger.BySender}
	}
	complete := func(lease ledger.Lease, used ...ledger.ID) {
		if err := w.ledger.Complete(ctx, lease, ledger.Result{ID: ledger.NewID(), Body: []byte(`{}`), Used: used}); err != nil {
			w.t.Fatal(err)
		}
	}
	lease := w.claimed(ledger.Key{Tenant: "acme", Text: "acme:ticket.summary:1:v1:p7"})
	w.attempt(ctx, lease, ledger.Evidence{State: ledger.Rejected, By: ledger.BySender})
	used := w.attempt(ctx, lease, received(new(ledger.Nano(1_234_000))))
	complete(lease, used)

	lease = w.claimed(ledger.Key{Tenant: "beta", Text: "beta:ticket.summary:1:v1:p7"})
	w.attempt(ctx, lease, received(nil))
	w.attempt(ctx, lease, received(new(ledger.Nano(2_000_000_001))))
	w.attempt(ctx, lease, ledger.Evidence{State: ledger.FailedAttempt, By: ledger.BySender})
	complete(lease)

	lease = w.claimed(ledger.Key{Tenant: "\x1b[2J", Text: "x:ticket.summary:1:v1:p7"})
	if err := w.ledger.Send(ctx, lease, ledger.Attempt{ID: ledger.NewID(), Call: ledger.CallRef{Name: "c"}, Provider: "openai", Model: "gpt-5-mini", Timeout: 1, Reserve: 40_000_000}); err != nil {
		w.t.Fatal(err)
	}
	if err := w.ledger.Replay(ctx, lease, ledger.ReplayPolicy{Max: 1}); err != nil {
		w.t.Fatal(err)
	}
	if err := w.ledger.Send(ctx, lease, ledger.Attempt{ID: ledger.NewID(), Call: ledger.CallRef{Name: "c"}, Provider: "openai", Model: "gpt-5-mini", Timeout: 1}); err != nil {
		w.t.Fatal(err)
	}
	w.counted(ledger.Avoided{Day: time.Now(), Tenant: "acme", Action: "ticket.summary", Cause: ledger.Redelivered, Count: 1200, Saved: 1_480_800_000},
		ledger.Avoided{Day: time.Now(), Tenant: "acme", Action: "ticket.summary", Cause: ledger.AckLost, Count: 2, Unpriced: 2})
}

// counted counts avoided deliveries.
func (w *world) counted(all ...ledger.Avoided) {
	w.t.Helper()
	id, err := w.ledger.Join(w.t.Context(), ledger.Worker{ID: "counter", TTL: 1e12})
	if err == nil {
		err = w.ledger.Count(w.t.Context(), id, ledger.NewID(), all)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// The report as people, programs and spreadsheets get it.
func TestReport(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	golden(t, "report_empty.txt", w.must("", "report"))
	w.spending()
	golden(t, "report.txt", w.must("", "report", "--by", "tenant"))
	golden(t, "report_model.txt", w.must("", "report", "--by", "model", "--since", "1970-01-01", "--tenant", "acme", "--job", "ticket.summary"))
	golden(t, "report.json", w.must("", "report", "--by", "tenant", "--json"))
	golden(t, "report.csv", w.must("", "report", "--by", "tenant", "--csv"))
	today := time.Now().UTC().Format(time.DateOnly)
	var d reportDocument
	if err := json.Unmarshal([]byte(w.must("", "report", "--by", "day", "--since", "1d", "--until", "0h", "--json")), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Groups) != 1 || d.Groups[0].By != today || d.Total.Calls != 7 || *d.Until != today || d.Since == nil || *d.Since >= today {
		t.Errorf("by day: %+v", d)
	}
	o := w.do("", "report", "--until", "2026-01-01")
	if !strings.Contains(o.stdout, "up to 2026-01-01, in UTC") || !strings.Contains(o.stdout, "total   0     0      0") {
		t.Errorf("of another time:\n%s", o.stdout)
	}
}

// What is past its retention is missing, and everybody is told.
func TestReportOfForgottenJobs(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	w.counted(ledger.Avoided{Day: time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC), Tenant: "acme", Action: "ticket.summary", Cause: ledger.Redelivered, Count: 1})
	if o := w.do("", "report"); strings.Contains(o.stdout+o.stderr, "PO570") {
		t.Errorf("nothing is missing yet:\n%s%s", o.stdout, o.stderr)
	}
	w.must("", "purge")
	w.spending()
	const why = "PO570 the numbers are too small: of what is dated up to 2024-02-29 23:59:59Z something is past its retention and gone"
	if o := w.do("", "report"); o.code != exitDone || !strings.Contains(o.stdout, "* "+why) || !strings.Contains(o.stdout, "total *") || o.stderr != "" {
		t.Errorf("exit %d:\n%s%s", o.code, o.stdout, o.stderr)
	}
	o := w.do("", "report", "--json")
	var d reportDocument
	if err := json.Unmarshal([]byte(o.stdout), &d); err != nil {
		t.Fatal(err)
	}
	if !d.Total.Partial || d.ForgottenUntil == nil || !strings.Contains(o.stderr, why) {
		t.Errorf("%+v\n%s", d, o.stderr)
	}
	o = w.do("", "report", "--csv", "--by", "tenant")
	lines, err := csv.NewReader(strings.NewReader(o.stdout)).ReadAll()
	if err != nil || len(lines) != 4 || !strings.Contains(o.stderr, why) {
		t.Fatalf("%v %v\n%s", lines, err, o.stderr)
	}
	for _, l := range lines[1:] {
		if got := l[len(l)-1]; got != fmt.Sprint(l[0] == "acme") {
			t.Errorf("tenant %s is partial: %s", l[0], got)
		}
	}
	if o := w.do("", "report", "--since", "2024-03-01"); strings.Contains(o.stdout+o.stderr, "PO570") {
		t.Errorf("nothing is missing since then:\n%s%s", o.stdout, o.stderr)
	}
}

func TestReportUsage(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	for _, c := range []struct {
		args []string
		word string
	}{
		{[]string{"--by", "colour"}, "PO502 --by colour: there are [action tenant model day]"},
		{[]string{"--json", "--csv"}, "PO502 --csv and --json"},
		{[]string{"--since", "yesterday"}, "PO502 --since yesterday: write a day"},
		{[]string{"--since", "7"}, "PO502 --since 7: write a day"},
		{[]string{"--since", "2026-02-30"}, "PO502 --since 2026-02-30"},
		{[]string{"--until", "2026-11-01T10:00:00Z"}, "PO502 --until"},
		{[]string{"--since", "2026-11-02", "--until", "2026-11-01"}, "PO502 --until 2026-11-01 is before --since 2026-11-02"},
	} {
		w.refused(exitUsage, "", append([]string{"report"}, c.args...), c.word)
	}
	w.must("", "report", "--since", "2026-11-01", "--until", "2026-11-01")
}

// Booked is what the model server billed, and avoided what was delivered again: on the embedded ledger, where
// submitting again is a cause of its own.
func TestReportIsTheBill(t *testing.T) {
	w := plain(t)
	ms := w.models(modelserver.Options{Generate: func(modelserver.Request) string {
		return `{"number":"R-17","currency":"EUR","total_cents":11900,"supplier":"Initech","date":"2026-03-01"}`
	}})
	w.must(invoiceDoc, "submit", "--job", "invoice.extract")
	r := w.start()
	w.until(invoiceKey, "done")
	r.stop()
	w.must(invoiceDoc+"\n"+invoiceDoc+"\n"+strings.ReplaceAll(invoiceDoc, "9821", "9822"), "submit", "--job", "invoice.extract")
	w.must(invoiceDoc, "submit", "--job", "invoice.extract")
	var d reportDocument
	if err := json.Unmarshal([]byte(w.must("", "report", "--json")), &d); err != nil {
		t.Fatal(err)
	}
	paid := ledger.Nano(ms.Bill()[0].Price)
	got := d.Total
	if len(ms.Bill()) != 1 || got.Jobs != 2 || got.Calls != 1 || *got.SpentUSD != paid.String() || got.Avoided != 3 ||
		got.AvoidedBy[ledger.SubmittedAgain] != 3 || *got.SavedUSD != (3*paid).String() || got.WastedCalls+got.Unknown != 0 {
		t.Errorf("paid %s, reported %+v", paid, got)
	}
}
