package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/internal/modelserver"
)

const (
	ticket    = `{"tenant":"acme","ticket":"48213","revision":3,"thread":"The invoice was charged twice."}`
	ticketKey = "acme:ticket.summary:48213:v3:p7"
)

// submitted sends the one ticket of these tests.
func (w *world) submitted() {
	w.t.Helper()
	if out := w.must(ticket, "submit", "--job", "ticket.summary"); out != ticketKey+"\n" {
		w.t.Fatalf("submit prints %q", out)
	}
}

// One key, one line on the bill, one result: with duplicates before, during and after.
func TestRunPaysOnce(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	ms := w.models(modelserver.Options{Latency: 100 * time.Millisecond})
	w.submitted()
	w.submitted()
	r := w.start()
	w.until(ticketKey, "done")
	w.submitted()
	eventually(t, func() (bool, string) {
		d := w.queue.Depth()
		return d.Ready+d.Held+d.Delayed == 0, "the queue to be empty"
	})
	r.stop()
	if lines := ms.BillByKey()[ticketKey]; len(lines) != 1 || !lines[0].Delivered {
		t.Errorf("the bill has %+v, want one line", lines)
	}
	if dead := w.queue.DeadLetters(); len(dead) != 0 {
		t.Errorf("dead letters %v", dead)
	}
	var d jobDocument
	if err := json.Unmarshal([]byte(w.must("", "jobs", "show", ticketKey, "--json")), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Attempts) != 1 || d.Attempts[0].State != "received" || d.OpenCalls != 0 || !strings.Contains(string(d.Result), `"summary": "Summary of`) {
		t.Errorf("job %+v", d)
	}
	if log := r.log.String(); strings.Contains(log, "planted") || !strings.Contains(log, "PO017") || !strings.Contains(log, "PO018") {
		t.Errorf("the log shows a key, or does not warn of memory:\n%s", log)
	}
}

// Who names a queue for the answer gets it there, unless the configuration says no.
func TestRunAnswers(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]int{"PAIDONCE_BROKER_REPLIES=true": 1, "PAIDONCE_BROKER_REPLIES=false": 0} {
		w := newWorldHere(t)
		w.models(modelserver.Options{})
		w.env = append(w.env, setting)
		w.queue.OpenReplies("answers")
		m := broker.Message{Body: []byte(`{"tenant":"acme","content":"7714","revision":2,"text":"hello"}`), Attributes: map[string]string{
			consumer.Attribute: "content.moderate", broker.ReplyTo: "answers", broker.CorrelationID: "c1"}}
		if err := w.queue.Publish(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		r := w.start()
		w.until("acme:content.moderate:7714:v2:p1", "done")
		r.stop()
		got := w.queue.Replies("answers")
		if len(got) != want || want > 0 && (got[0].Attributes[broker.CorrelationID] != "c1" || !strings.Contains(string(got[0].Body), `"state":"done","result":{"flagged":`)) {
			t.Errorf("%s: answers %+v", setting, got)
		}
	}
}

func TestInvoiceWithoutTables(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	w.models(modelserver.Options{})
	out := w.must(`{"tenant":"acme","document":"9821","revision":1,"text":"Invoice 17"}`, "submit", "--job", "invoice.extract")
	r := w.start()
	w.until(strings.TrimSpace(out), "done")
	r.stop()
}

// Every job that this program brings along runs as it is configured: an agent takes the turns that it may, and no more.
func TestBundledJobs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, body, key, state, says, setting string }{
		{"content.moderate", `{"tenant":"acme","content":"7714","revision":2,"text":"hello"}`, "acme:content.moderate:7714:v2:p1", "done", `"flagged": false`, ""},
		{"agent.task", `{"tenant":"acme","task":"1077","goal":"say hello"}`, "acme:agent.task:1077", "done", `"answer": "Summary of`, ""},
		{"agent.task", `{"tenant":"acme","task":"1077","goal":"say hello"}`, "acme:agent.task:1077", "failed", "PO359 the agent has made 1 turns", "PAIDONCE_JOBS_AGENT_TASK_MAX_TURNS=1"},
	} {
		w := newWorldHere(t)
		w.models(modelserver.Options{})
		w.env = append(w.env, c.setting)
		if out := w.must(c.body, "submit", "--job", c.name); out != c.key+"\n" {
			t.Errorf("%s: submit prints %q", c.name, out)
		}
		r := w.start()
		w.until(c.key, c.state)
		r.stop()
		if out := w.must("", "jobs", "show", c.key, "--json"); !strings.Contains(out, c.says) {
			t.Errorf("%s %s: jobs show lacks %s:\n%s", c.name, c.setting, c.says, out)
		}
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestProbes(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	ms := w.models(modelserver.Options{})
	w.env = append(w.env, "PAIDONCE_CONSUMER_DRAIN=1m", "PAIDONCE_HTTP_LISTEN=127.0.0.1:0", "PAIDONCE_HTTP_DEBUG=127.0.0.1:0")
	ms.Script(ticketKey, modelserver.Fault{Hold: true})
	r := w.start()
	url := "http://" + r.says(`"setting":"http.listen","address":"([^"]+)"`)
	debug := "http://" + r.says(`"setting":"http.debug","address":"([^"]+)"`)
	eventually(t, func() (bool, string) { s, b := get(t, url+"/readyz"); return s == http.StatusOK, b })
	if s, b := get(t, url+"/livez"); s != http.StatusOK || b != "ok\n" {
		t.Errorf("livez: %d %s", s, b)
	}
	if _, b := get(t, url+"/readyz?verbose"); b != `{"checks":{"broker":{"ok":true},"lease":{"ok":true},"ledger":{"ok":true},"not_draining":{"ok":true},"schema":{"ok":true}},"ready":true}`+"\n" {
		t.Errorf("readyz?verbose: %s", b)
	}
	if s, _ := get(t, url+"/debug/pprof/"); s != http.StatusNotFound {
		t.Errorf("profiles are served beside the probes: %d", s)
	}
	if s, _ := get(t, debug+"/debug/pprof/"); s != http.StatusOK {
		t.Errorf("profiles: %d", s)
	}
	s, metrics := get(t, url+"/metrics")
	for _, want := range []string{"paidonce_build_info{", `paidonce_unknown_jobs{job="ticket.summary"} 0`, "go_goroutines ", "process_open_fds ",
		`paidonce_model_calls_total{job="ticket.summary",model="gpt-5-mini",outcome="received",provider="openai"} 0`} {
		if s != http.StatusOK || !strings.Contains(metrics, want) {
			t.Errorf("metrics (%d) lack %s", s, want)
		}
	}
	listen := w.env[len(w.env)-2]
	w.env[len(w.env)-2] = "PAIDONCE_HTTP_LISTEN=" + strings.TrimPrefix(url, "http://127.0.0.1") // as in a container: everywhere
	w.must("", "healthcheck")
	w.must("", "healthcheck", "--ready")
	w.submitted()
	eventually(t, func() (bool, string) { return len(ms.Bill()) == 1, "the call to be under way" })
	r.cancel()
	eventually(t, func() (bool, string) {
		o := w.do("", "healthcheck", "--ready")
		return o.code == exitFailed && strings.Contains(o.stderr, "PO514") && strings.Contains(o.stderr, "503"), o.stderr
	})
	w.must("", "healthcheck")
	w.env[len(w.env)-2] = listen
	eventually(t, func() (bool, string) {
		s, b := get(t, url+"/readyz?verbose")
		return s == http.StatusServiceUnavailable && strings.Contains(b, `"not_draining":{"ok":false,"error":"draining; 1 in hand"}`), b
	})
	ms.Release(ticketKey)
	r.wait()
	if s := w.state(ticketKey); s != "done" {
		t.Errorf("the job that ran during the drain is %s", s)
	}
	w.env = append(w.env, "PAIDONCE_HTTP_LISTEN="+strings.TrimPrefix(url, "http://"))
	w.refused(exitFailed, "", []string{"healthcheck"}, "PO514", "does not answer")
}

// A gateway may ask for no key; then none is asked for here.
func TestGatewayWithoutKey(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	w.env = append(w.env, "PAIDONCE_PROVIDERS_OPENAI_BASE_URL=http://127.0.0.1:1/v1/")
	r := w.start()
	r.says("joined the ledger")
	r.stop()
}

// Other people's errors may quote what they were given.
func TestLogScrubs(t *testing.T) {
	c := &call{Process: Process{Environ: []string{"PAIDONCE_LEDGER_URL=postgres://u:hunter2@h/d", "PAIDONCE_PROVIDERS_OPENAI_API_KEY=sk-planted"}}}
	cfg, err := c.load()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	log := logger(cfg, &b).With("dsn", "postgres://u:hunter2@h/d")
	log.Error("x", "error", errors.New("dial postgres://u:hunter2@h/d"), "text", "key sk-planted", "took", 1500*time.Millisecond,
		slog.Group("in", "a", fmt.Errorf("wrapped: %w", errors.New("sk-planted"))))
	if s := b.String(); strings.Contains(s, "hunter2") || strings.Contains(s, "planted") || !strings.Contains(s, `"took":"1.5s"`) {
		t.Errorf("logged %s", s)
	}
	b.Reset()
	c.Stderr = &b
	if code := c.report(fmt.Errorf("dial postgres://u:hunter2@h/d\nand more")); code != exitFailed || b.String() != "worker: dial postgres://u:(hidden)@h/d\nworker: and more\n" {
		t.Errorf("exit %d, printed %s", code, b.String())
	}
}

// Case 29: the first signal drains, the second ends the drain: the call under way is unknown,
// nothing is lost, and the exit code is 0.
// Not beside other tests: every worker of the process hears the signal.
func TestSecondSignal(t *testing.T) {
	w := newWorldHere(t)
	ms := w.models(modelserver.Options{})
	w.env = append(w.env, "PAIDONCE_CONSUMER_DRAIN=10m", "PAIDONCE_JOBS_TICKET_SUMMARY_ROUTES=[{name: only, provider: anthropic, model: m, timeout: 90s}]")
	ms.ScriptAny(modelserver.Fault{Hold: true})
	w.submitted()
	r := w.start()
	eventually(t, func() (bool, string) { return len(ms.Bill()) == 1, "the call to be under way" })
	signal := func() {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	signal()
	r.says(`signal received; draining","signal":"terminated"`)
	signal()
	r.wait()
	if s := w.state(ticketKey); s != "unknown" {
		t.Errorf("the job whose call was cut is %s, want unknown", s)
	}
	if n := len(ms.Bill()); n != 1 {
		t.Errorf("%d calls on the bill", n)
	}
}

func TestAddressTaken(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	w.models(modelserver.Options{})
	w.env = append(w.env, "PAIDONCE_HTTP_LISTEN=127.0.0.1:0")
	r := w.start()
	taken := r.says(`"setting":"http.listen","address":"([^"]+)"`)
	w.env = append(w.env, "PAIDONCE_HTTP_LISTEN="+taken)
	w.refused(exitFailed, "", []string{"run"}, "PO511 http.listen "+taken+" (environment PAIDONCE_HTTP_LISTEN)", "address already in use")
	r.stop()
}
