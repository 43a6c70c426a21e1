package app

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{}, "PO500"},
		{[]string{"rnu"}, `did you mean "run"?`},
		{[]string{"submit"}, "--job"},
		{[]string{"jobs", "show"}, "<key>"},
		{[]string{"jobs", "show", "nocolons"}, "PO302"},
		{[]string{"jobs", "show", "a:b:c", "--answer", "1", "--json"}, "PO502"},
		{[]string{"jobs", "show", "a:b:c", "--answer=-1"}, "PO502"},
		{[]string{"jobs", "list", "--state", "happy"}, "PO502"},
		{[]string{"jobs", "list", "--limit", "0"}, "PO502"},
		{[]string{"jobs", "resolve", "a:b:c", "--reason", "x"}, "--result"},
		{[]string{"jobs", "resolve", "a:b:c", "--reason", "x", "--absent", "--fail"}, "--absent"},
		{[]string{"jobs", "resolve", "a:b:c", "--absent"}, "--reason"},
		{[]string{"jobs", "resolve", "a:b:c", "--absent", "--reason", " "}, "PO502"},
		{[]string{"submit", "--job", "ticket.sumary"}, "PO506"},
		{[]string{"submit", "--job", "ticket.summary", "--input", "nowhere"}, "PO507"},
		{[]string{"config", "show", "--config", "nowhere.yaml"}, "PO001"},
		{[]string{"migrate", "up"}, "PO512"},
	} {
		w.refused(exitUsage, "", c.args, c.want)
	}
	for _, args := range [][]string{{"--help"}, {"jobs", "resolve", "--help"}} {
		if out := w.must("", args...); !strings.Contains(out, "Usage: worker") {
			t.Errorf("worker %v says %q", args, out)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	var d map[string]string
	if err := json.Unmarshal([]byte(w.must("", "version", "--json")), &d); err != nil || d["version"] == "" || d["go"] == "" {
		t.Errorf("version --json is %v, %v", d, err)
	}
	if out := w.must("", "version"); !strings.HasPrefix(out, "worker ") {
		t.Errorf("version says %q", out)
	}
}

// All faults come at once: those of the file, of the windows, of what this version cannot
// do, and of missing keys; each with its place.
func TestRunReportsEverything(t *testing.T) {
	w := newWorld(t)
	w.env = []string{"PAIDONCE_CONSUMER_HOLD=5m", "PAIDONCE_LEDGER_URL=sqlite:x.db?mode=ro"}
	w.file("worker.yaml", "consumer:\n  drain: 25\n  settle_window: 1m\n  lease: 500ms\nbroker: {region: here}\nhttp: {listen: 8080}\n")
	w.refused(exitUsage, "", []string{"run"},
		`PO006 consumer.drain 25 (worker.yaml:2:10): "25" has no unit; write 25s if seconds were meant`,
		"PO015 http.listen 8080 (worker.yaml:6:16)",
		"PO009 ledger.url sqlite:x.db?mode=ro (environment PAIDONCE_LEDGER_URL)",
		"PO037 broker.region here (worker.yaml:5:18)",
		"PO023 lease 500ms is too short",
		"(consumer.lease worker.yaml:4:10)",
		"PO031 job ticket.summary: settle_window 1m0s",
		"(consumer.settle_window worker.yaml:3:18)",
		"PO014 providers.openai.api_key (default): it is empty, and so is OPENAI_API_KEY")
	w.file("worker.yaml", "consumer: {settle_window: 20m}\n")
	w.env = []string{"PAIDONCE_CONSUMER_HOLD=5m", "PAIDONCE_LEDGER_URL=memory:", "OPENAI_API_KEY=sk-x"}
	o := w.do("", "run")
	if want := "worker: PO026 hold 5m0s is shorter than settle_window 20m0s: a policy could act while the call may still land; raise hold" +
		" (consumer.settle_window worker.yaml:1:27, consumer.hold environment PAIDONCE_CONSUMER_HOLD)\n"; o.stderr != want || o.code != exitUsage {
		t.Errorf("exit %d, stderr\n%swant\n%s", o.code, o.stderr, want)
	}
}

// A memory: of another process would be an empty one.
func TestMemoryIsNotShared(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	w.ledger, w.queue = nil, nil
	for _, args := range [][]string{{"jobs", "list"}, {"jobs", "show", "a:b:c"}, {"submit", "--job", "ticket.summary"}} {
		w.refused(exitUsage, "", args, "PO504", "memory:")
	}
}

func TestSubmit(t *testing.T) {
	w := newWorld(t)
	w.file("tickets.jsonl", `{"tenant":"acme","ticket":"1","revision":1,"thread":"one"}
{"tenant":"acme","revision":1,"thread":"no ticket"}

{"tenant":"acme","ticket":"3","revision":1,"thread":
["not","an","object"]
{"tenant":"acme","ticket":"6","revision":2,"thread":"six"}`)
	o := w.do("", "submit", "--job", "ticket.summary", "--input", "tickets.jsonl")
	if want := "acme:ticket.summary:1:v1:p7\nacme:ticket.summary:6:v2:p7\n"; o.code != exitFailed || o.stdout != want {
		t.Errorf("exit %d, keys\n%swant exit 1 and\n%s", o.code, o.stdout, want)
	}
	for _, want := range []string{"PO505 line 2: PO404", "PO505 line 4: PO403", "PO505 line 5: PO403", "PO509 2 sent, 3 refused"} {
		if !strings.Contains(o.stderr, want) {
			t.Errorf("stderr does not say %q:\n%s", want, o.stderr)
		}
	}
	if d := w.queue.Depth(); d.Ready != 2 {
		t.Errorf("the queue holds %+v, want the two good lines and nothing of the others", d)
	}
	ds, err := w.queue.Receive(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range ds {
		if d.Attributes["job"] != "ticket.summary" || !json.Valid(d.Body) {
			t.Errorf("message %q with attributes %v", d.Body, d.Attributes)
		}
	}
	if string(ds[1].Body) != `{"tenant":"acme","ticket":"6","revision":2,"thread":"six"}` {
		t.Errorf("the body is not the line: %s", ds[1].Body)
	}
}

func TestSubmitMany(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	var in strings.Builder
	for range 250 {
		in.WriteString(`{"tenant":"acme","ticket":"1","thread":"x"}` + "\n")
	}
	if out := w.must(in.String(), "submit", "--job", "ticket.summary"); strings.Count(out, "\n") != 250 {
		t.Errorf("%d keys for 250 lines", strings.Count(out, "\n"))
	}
	if d := w.queue.Depth(); d.Ready != 250 {
		t.Errorf("the queue holds %+v", d)
	}
	long := `{"tenant":"acme","ticket":"1","thread":"` + strings.Repeat("x", maxLine) + `"}`
	w.refused(exitFailed, long, []string{"submit", "--job", "ticket.summary"}, "PO505 line 1", "at most 1048576")
}

// After a broker's refusal nobody is told that a message was sent.
func TestSubmitRefused(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	w.queue.Delete()
	o := w.do(`{"tenant":"acme","ticket":"1","thread":"x"}`, "submit", "--job", "ticket.summary")
	if o.code != exitFailed || o.stdout != "" || !strings.Contains(o.stderr, "PO508 0 messages are sent; of the next 1") {
		t.Errorf("exit %d, stdout %q, stderr %q", o.code, o.stdout, o.stderr)
	}
}

// Whatever goes wrong, no secret is printed.
func TestSecretsInErrors(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	w.env = []string{"PAIDONCE_LEDGER_URL=postgres://worker:hunter2@127.0.0.1:1/none?connect_timeout=1", "PAIDONCE_BROKER_URL=amqp://worker:hunter3@127.0.0.1:1/",
		"PAIDONCE_PROVIDERS_OPENAI_API_KEY=sk-planted-key"}
	for _, args := range [][]string{{"run"}, {"jobs", "list"}, {"migrate", "up"}, {"migrate", "status"}, {"config", "show"}, {"config", "show", "--json"}} {
		o := w.do("", args...)
		for _, secret := range []string{"hunter2", "hunter3", "sk-planted-key"} {
			if strings.Contains(o.stdout+o.stderr, secret) {
				t.Errorf("worker %v prints %s:\n%s%s", args, secret, o.stdout, o.stderr)
			}
		}
		if config := args[0] == "config"; (o.code == exitDone) != config {
			t.Errorf("worker %v: exit %d\n%s", args, o.code, o.stderr)
		}
		if !strings.Contains(o.stdout+o.stderr, "worker:(hidden)@127.0.0.1:1/none") {
			t.Errorf("worker %v does not name the ledger:\n%s%s", args, o.stdout, o.stderr)
		}
	}
}

func TestMigratePrint(t *testing.T) {
	w := newWorld(t)
	out := w.must("", "migrate", "print")
	table, err := os.ReadFile(packageDir + "/../../../handlers/invoice/table.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"create schema if not exists paidonce", string(table)} {
		if !strings.Contains(out, want) {
			t.Errorf("migrate print lacks\n%s", want)
		}
	}
}
