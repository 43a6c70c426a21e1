package app

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/ledger/sqlite"
)

// plain is a world in which nobody configured a ledger or a broker.
func plain(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.env = []string{"PAIDONCE_HTTP_LISTEN=127.0.0.1:0", "USER=ann"}
	w.ledger, w.queue = nil, nil
	return w
}

const (
	invoiceDoc = `{"tenant":"acme","document":"9821","revision":1,"text":"Invoice 17"}`
	invoiceKey = "acme:invoice.extract:9821:v1:p7"
)

// TestNothingConfigured: jobs that were submitted before any worker ran are done by the first
// one, those that were submitted beside it too, and a restart pays for none again.
func TestNothingConfigured(t *testing.T) {
	w := plain(t)
	answer := `{"number":"R-17","currency":"EUR","total_cents":11900,"supplier":"Initech","date":"2026-03-01"}`
	ms := w.models(modelserver.Options{Generate: func(modelserver.Request) string { return answer }})
	for range 2 {
		if out := w.must(invoiceDoc+"\n"+invoiceDoc, "submit", "--job", "invoice.extract"); out != invoiceKey+"\n"+invoiceKey+"\n" {
			t.Fatalf("submit prints %q", out)
		}
	}
	if s := w.state(invoiceKey); s != "ready" {
		t.Fatalf("a submitted job is %q", s)
	}
	r := w.start()
	w.until(invoiceKey, "done")
	w.must(strings.ReplaceAll(invoiceDoc, "9821", "9822"), "submit", "--job", "invoice.extract") // beside the worker
	w.until("acme:invoice.extract:9822:v1:p7", "done")
	r.stop()
	w.must(invoiceDoc, "submit", "--job", "invoice.extract")
	r = w.start()
	w.must(strings.ReplaceAll(invoiceDoc, "9821", "9823"), "submit", "--job", "invoice.extract")
	w.until("acme:invoice.extract:9823:v1:p7", "done")
	r.stop()
	for _, document := range []string{"9821", "9822", "9823"} {
		key := "acme:invoice.extract:" + document + ":v1:p7"
		if lines := ms.BillByKey()[key]; len(lines) != 1 {
			t.Errorf("the bill of %s has %d lines", key, len(lines))
		}
	}
	rows := 0
	err := sqlite.Exec(t.Context(), "paidonce.db", "create table only_three as select 1 / (count(*) = 3 and sum(total_cents) = 35700) as ok from invoices")
	if err != nil {
		t.Errorf("the invoices: %v, %d", err, rows)
	}
	if out := w.must("", "jobs", "list"); strings.Count(out, "invoice.extract") < 3 {
		t.Errorf("jobs list:\n%s", out)
	}
}

// Who waits is told what became of each job, once for each key, and by the exit code.
func TestSubmitAndWait(t *testing.T) {
	w := plain(t)
	answer := `{"number":"R-17","currency":"EUR","total_cents":11900,"supplier":"Initech","date":"2026-03-01"}`
	ms := w.models(modelserver.Options{Generate: func(modelserver.Request) string { return answer }})
	w.must("", "migrate", "up")
	r := w.start()
	want := `{"key":"acme:invoice.extract:9821:v1:p7","job":"invoice.extract","state":"done","result":{"number":"R-17",`
	for range 2 { // the second finds the first
		if out := w.must(invoiceDoc+"\n"+invoiceDoc, "submit", "--job", "invoice.extract", "--wait"); !strings.HasPrefix(out, want) || strings.Count(out, "\n") != 1 {
			t.Errorf("submit --wait prints %s", out)
		}
	}
	w.refused(exitFailed, strings.ReplaceAll(invoiceDoc, "9821", "9822"), []string{"submit", "--job", "invoice.extract", "--wait", "--timeout", "1ns"}, "PO592", "9822")
	w.refused(exitUsage, invoiceDoc, []string{"submit", "--job", "invoice.extract", "--timeout", "1s"}, "PO502")
	w.refused(exitFailed, strings.NewReplacer("9821", "9823", "Invoice 17", "").Replace(invoiceDoc), []string{"submit", "--job", "invoice.extract", "--wait"}, "PO593", "1 of 1")
	r.stop()
	if lines := ms.BillByKey()[invoiceKey]; len(lines) != 1 {
		t.Errorf("the bill has %d lines", len(lines))
	}
}

// Commands that only look make no file, and say what does.
func TestNoFileYet(t *testing.T) {
	w := plain(t)
	w.refused(exitFailed, "", []string{"jobs", "list"}, "PO232", "worker migrate up")
	w.refused(exitFindings, "", []string{"migrate", "status"}, "PO513")
	if _, err := os.Stat("paidonce.db"); err == nil {
		t.Error("looking made the file")
	}
	if out := w.must("", "migrate", "up"); !strings.Contains(out, "version") {
		t.Errorf("migrate up: %q", out)
	}
	w.must("", "migrate", "status")
	w.must("", "jobs", "list")
	if out := w.must("", "migrate", "print"); !strings.Contains(out, "create table paidonce_job") || !strings.Contains(out, "invoices") {
		t.Errorf("migrate print: %.300s", out)
	}
	if _, err := sqlite.Open(context.Background(), "paidonce.db"); err != nil {
		t.Error(err)
	}
}

// TestIntakeRefuses what the ledger could not run; a large input it could.
func TestIntakeRefuses(t *testing.T) {
	w := plain(t)
	long := strings.Replace(invoiceDoc, "Invoice 17", strings.Repeat("x", 700_000), 1)
	w.must(long, "submit", "--job", "invoice.extract")
	w.refused(exitFailed, invoiceDoc, []string{"submit", "--job", "invoice.extract"}, "PO508", "another input")
}
