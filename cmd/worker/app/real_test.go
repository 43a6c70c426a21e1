package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/internal/progtest"
	"github.com/paidonce/paidonce/internal/rabbittest"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// newRealWorld has a Postgres database, a RabbitMQ virtual host and a model server. Such
// worlds run side by side.
func newRealWorld(t *testing.T, o modelserver.Options) (*world, *modelserver.Server) {
	t.Helper()
	t.Parallel()
	w := newWorldHere(t)
	w.ledger, w.queue = nil, nil
	w.env = []string{"PAIDONCE_LEDGER_URL=" + pgtest.URL(t), "PAIDONCE_BROKER_URL=" + rabbittest.Start(t).VHost(t),
		"PAIDONCE_BROKER_QUEUE=" + rabbittest.Queue(t), "PAIDONCE_HTTP_LISTEN=127.0.0.1:0", "USER=ann", "PATH=" + os.Getenv("PATH")}
	ms := w.models(o)
	return w, ms
}

func TestRealServices(t *testing.T) {
	w, ms := newRealWorld(t, modelserver.Options{KeyOf: func(r modelserver.Request) string { return r.MetadataKey() }})
	w.refused(exitFailed, "", []string{"run"}, "PO213", "worker migrate up")
	w.refused(exitFindings, "", []string{"migrate", "status", "--json"}, "PO513")
	for range 2 {
		if out := w.must("", "migrate", "up"); !strings.Contains(out, "schema is version") {
			t.Errorf("migrate up says %q", out)
		}
	}
	w.must("", "migrate", "status")
	r := w.start()
	url := "http://" + r.says(`"setting":"http.listen","address":"([^"]+)"`)
	eventually(t, func() (bool, string) { s, b := get(t, url+"/readyz?verbose"); return s == http.StatusOK, b })
	eventually(t, func() (bool, string) { // a busy machine may have just lost its connection again
		_, metrics := get(t, url+"/metrics")
		return strings.Contains(metrics, "paidonce_broker_connected 1\n"), "the metrics say how the adapter fares"
	})

	const n = 20
	var in strings.Builder
	for i := range n {
		fmt.Fprintf(&in, `{"tenant":"acme","document":"%d","revision":1,"text":"Invoice %d"}`+"\n", i, i)
	}
	keys := strings.Fields(w.must(in.String(), "submit", "--job", "invoice.extract"))
	w.must(in.String(), "submit", "--job", "invoice.extract") // duplicates of all
	w.submitted()
	for _, key := range append(keys, ticketKey) {
		w.until(key, "done")
	}
	r.stop()

	bill := ms.BillByKey()
	for _, key := range append(keys, ticketKey) {
		if len(bill[key]) != 1 {
			t.Errorf("%s was paid %d times", key, len(bill[key]))
		}
	}
	var list listDocument
	if err := json.Unmarshal([]byte(w.must("", "jobs", "list", "--json", "--state", "done")), &list); err != nil || len(list.Jobs) != n+1 {
		t.Errorf("jobs list has %d jobs, %v", len(list.Jobs), err)
	}
	if list.Jobs[0].Key != ticketKey {
		t.Errorf("the newest job comes first, not %s", list.Jobs[0].Key)
	}
	var d jobDocument
	if err := json.Unmarshal([]byte(w.must("", "jobs", "show", keys[0], "--json")), &d); err != nil || d.Runs != 1 || len(d.Attempts) != 1 || d.OpenCalls != 0 {
		t.Errorf("%s: %+v, %v", keys[0], d, err)
	}
	w.refused(exitFindings, "", []string{"jobs", "show", "acme:invoice.extract:nowhere"}, "PO501")
}

// A real process is killed in the middle of its calls; another one finishes. Nothing that
// was answered is asked for again, and what may have happened is held.
func TestKilledProcess(t *testing.T) {
	w, ms := newRealWorld(t, modelserver.Options{KeyOf: func(r modelserver.Request) string { return r.MetadataKey() }})
	w.must("", "migrate", "up")
	const held = "acme:ticket.summary:0:v1:p7"
	ms.Script(held, modelserver.Fault{Hold: true})
	var in strings.Builder
	for i := range 10 {
		fmt.Fprintf(&in, `{"tenant":"acme","ticket":"%d","revision":1,"thread":"Ticket %d."}`+"\n", i, i)
	}
	keys := strings.Fields(w.must(in.String(), "submit", "--job", "ticket.summary"))

	cmd := exec.Command(w.build(), "run")
	cmd.Env, cmd.Dir = w.env, t.TempDir()
	var log lockedBuffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() (bool, string) { return len(ms.Bill()) == 10, log.String() })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || strings.Contains(log.String(), "planted") {
		t.Errorf("the killed worker ended with %v and said\n%s", err, log.String())
	}
	r := w.start()
	for _, key := range keys[1:] {
		w.until(key, "done")
	}
	// The answer of the held call is in the provider's store by now: evidence.
	ms.Release(held)
	w.until(held, "done")
	r.stop()
	for key, lines := range ms.BillByKey() {
		if len(lines) != 1 {
			t.Errorf("%s was paid %d times", key, len(lines))
		}
	}
}

// build makes the program.
func (w *world) build() string {
	w.t.Helper()
	bin := filepath.Join(w.t.TempDir(), "worker")
	if err := progtest.Build(filepath.Dir(packageDir), ".", bin); err != nil {
		w.t.Fatal(err)
	}
	return bin
}

// Connections that the broker closes are made again, and readiness follows.
func TestReadinessFollowsBroker(t *testing.T) {
	w, _ := newRealWorld(t, modelserver.Options{})
	w.must("", "migrate", "up")
	broker := rabbittest.Start(t)
	r := w.start()
	url := "http://" + r.says(`"setting":"http.listen","address":"([^"]+)"`)
	eventually(t, func() (bool, string) { s, b := get(t, url+"/readyz?verbose"); return s == http.StatusOK, b })
	for _, e := range w.env {
		if u, ok := strings.CutPrefix(e, "PAIDONCE_BROKER_URL="); ok {
			broker.CloseConnections(t, u)
		}
	}
	w.submitted()
	w.until(ticketKey, "done")
	eventually(t, func() (bool, string) { s, b := get(t, url+"/readyz?verbose"); return s == http.StatusOK, b })
	if s, _ := get(t, url+"/livez"); s != http.StatusOK {
		t.Errorf("livez: %d", s)
	}
	r.stop()
}

// A ledger that is away makes the worker not ready, and ends nothing.
func TestLedgerAway(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	w.ledger = nil
	server := pgtest.Start(t)
	w.env = append(w.env, "PAIDONCE_LEDGER_URL="+server.URL(t), "PAIDONCE_HTTP_LISTEN=127.0.0.1:0")
	ms := w.models(modelserver.Options{KeyOf: func(r modelserver.Request) string { return r.MetadataKey() }})
	w.must("", "migrate", "up")
	r := w.start()
	url := "http://" + r.says(`"setting":"http.listen","address":"([^"]+)"`)
	eventually(t, func() (bool, string) { s, b := get(t, url+"/readyz?verbose"); return s == http.StatusOK, b })
	server.StopImmediate(t)
	eventually(t, func() (bool, string) {
		s, b := get(t, url+"/readyz?verbose")
		return s == http.StatusServiceUnavailable && strings.Contains(b, `"ledger":{"ok":false`) && strings.Contains(b, `"broker":{"ok":true}`), b
	})
	if s, _ := get(t, url+"/livez"); s != http.StatusOK {
		t.Errorf("livez without a ledger: %d; a restart would not bring it back", s)
	}
	w.submitted()
	server.Restart(t)
	w.until(ticketKey, "done")
	eventually(t, func() (bool, string) { s, b := get(t, url+"/readyz?verbose"); return s == http.StatusOK, b })
	r.stop()
	if n := len(ms.BillByKey()[ticketKey]); n != 1 {
		t.Errorf("%d calls on the bill", n)
	}
}

// Without the table invoices the result cannot be committed, and nothing is paid again
// when it is there: the row belongs to the result.
func TestInvoiceNeedsItsTable(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	w.ledger = nil
	url := pgtest.URL(t)
	w.env = append(w.env, "PAIDONCE_LEDGER_URL="+url)
	ms := w.models(modelserver.Options{})
	if err := postgres.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	key := strings.TrimSpace(w.must(`{"tenant":"acme","document":"9821","revision":1,"text":"Invoice 17"}`, "submit", "--job", "invoice.extract"))
	r := w.start()
	r.says(`keeping the invoice: .*invoices`)
	w.must("", "migrate", "up")
	w.until(key, "done")
	r.stop()
	if n := len(ms.Bill()); n != 1 {
		t.Errorf("%d calls on the bill", n)
	}
}
