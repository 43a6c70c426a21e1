package e2e

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/handlers/agent"
	"github.com/paidonce/paidonce/handlers/invoice"
	"github.com/paidonce/paidonce/handlers/moderate"
	"github.com/paidonce/paidonce/handlers/summarize"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/internal/planted"
	"github.com/paidonce/paidonce/internal/progtest"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// Options shape a World. Zero fields have the defaults that their comments name.
type Options struct {
	Broker Broker // default RabbitMQ
	Models modelserver.Options
	// Routes are those of a job, one to a line: provider and timeout ("openai 5s"), and whether they
	// answer in the background ("openai 5s background"), or what is not stored count as never made ("openai 5s trusted").
	// Default: that one.
	Routes map[string]string
	// Policy is on_unknown of all jobs that Policies does not name. Default hold.
	Policy   string
	Policies map[string]string
	// Database is an empty one. Default: one of the process's server.
	Database string
	// Lease, Drain, SettleWindow, Hold: default 2s, 5s, 6s, 6s.
	Lease, Drain, SettleWindow, Hold time.Duration
	Workers                          int // handlers at once in each process; default 16
	// Visibility is how long SQS hides a delivery, default 20s, and MaxReceives how often
	// it hands one out, default 1000.
	Visibility  time.Duration
	MaxReceives int
}

// World is a fresh database with the ledger's schema, a fresh queue, a model server, and
// the processes of one test.
type World struct {
	t      *testing.T
	broker Broker
	dir    string
	env    []string
	URL    string // of the database
	Queue  Queue
	Models *modelserver.Server
	Ledger *postgres.Ledger
	docs   map[string]Doc // submitted, by key
	procs  []*Proc
}

// Doc is the input of one job and its key. Its text carries the key as the model
// server's marker, so that every bill line names its job.
type Doc struct{ Job, Line, Key string }

// Ticket is the job ticket.summary.
func Ticket(id string) Doc {
	t := summarize.Ticket{Tenant: "acme", Ticket: id, Revision: 1}
	key := t.JobKey().String()
	return Doc{summarize.Name, fmt.Sprintf(`{"tenant":"acme","ticket":%q,"revision":1,"thread":"[key:%s] It was charged twice."}`, id, key), key}
}

// Invoice is the job invoice.extract.
func Invoice(id string) Doc {
	d := invoice.Document{Tenant: "acme", Document: id, Revision: 1}
	key := d.JobKey().String()
	return Doc{invoice.Name, fmt.Sprintf(`{"tenant":"acme","document":%q,"revision":1,"text":"[key:%s] Invoice R-17"}`, id, key), key}
}

// Task is the job agent.task.
func Task(id string) Doc {
	key := agent.Task{Tenant: "acme", Task: id}.JobKey().String()
	return Doc{agent.Name, fmt.Sprintf(`{"tenant":"acme","task":%q,"goal":"[key:%s] Is 42 in the list?"}`, id, key), key}
}

// Docs are n jobs, two tickets to one invoice.
func Docs(n int) []Doc {
	docs := make([]Doc, n)
	for i := range docs {
		make := Ticket
		if i%3 == 2 {
			make = Invoice
		}
		docs[i] = make(fmt.Sprint(i))
	}
	return docs
}

// NewWorld makes one. Everything in it ends with the test.
func NewWorld(t *testing.T, o Options) *World {
	t.Helper()
	if o.Broker.open == nil {
		o.Broker = RabbitMQ
	}
	w := &World{t: t, broker: o.Broker, dir: t.TempDir(), docs: map[string]Doc{}, URL: o.Database, Queue: o.Broker.open(t, o)}
	if w.URL == "" {
		w.URL = pgtest.URL(t)
	}
	ms, err := modelserver.Start(o.Models)
	if err != nil {
		t.Fatal(err)
	}
	w.Models = ms
	t.Cleanup(func() {
		if err := ms.Close(); err != nil {
			t.Errorf("closing the model server: %v", err)
		}
	})
	w.configure(o)
	w.Must("", "migrate", "up")
	if w.Ledger, err = postgres.Open(t.Context(), w.URL, postgres.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Ledger.Close)
	t.Cleanup(w.cleanRows)
	return w
}

func (w *World) configure(o Options) {
	w.t.Helper()
	var file strings.Builder
	file.WriteString("jobs:\n")
	for _, name := range []string{summarize.Name, invoice.Name, moderate.Name, agent.Name} {
		fmt.Fprintf(&file, "  %s:\n    on_unknown: %s\n    routes:\n", name, cmp.Or(o.Policies[name], o.Policy, "hold"))
		for i, line := range strings.Split(cmp.Or(o.Routes[name], "openai 5s"), "\n") {
			provider, timeout, _ := strings.Cut(line, " ")
			timeout, how, _ := strings.Cut(timeout, " ")
			model := map[string]string{"openai": "gpt-5-mini", "anthropic": "claude-haiku-4-5"}[provider]
			fmt.Fprintf(&file, "      - { name: route%d, provider: %s, model: %s, timeout: %s, background: %t, trust_absence: %t }\n", i, provider, model, timeout,
				how == "background", how == "trusted")
		}
	}
	if err := os.WriteFile(filepath.Join(w.dir, "worker.yaml"), []byte(file.String()), 0o600); err != nil {
		w.t.Fatal(err)
	}
	set := func(name string, v any) { w.env = append(w.env, fmt.Sprintf("PAIDONCE_%s=%v", name, v)) }
	set("LEDGER_URL", w.URL)
	set("HTTP_LISTEN", "127.0.0.1:0")
	set("PROVIDERS_OPENAI_BASE_URL", w.Models.URL()+"/v1/")
	set("PROVIDERS_OPENAI_API_KEY", planted.Secret("sk"))
	set("PROVIDERS_ANTHROPIC_BASE_URL", w.Models.URL())
	set("PROVIDERS_ANTHROPIC_API_KEY", planted.Secret("sk-ant"))
	set("CONSUMER_WORKERS", cmp.Or(o.Workers, 16))
	set("CONSUMER_LEASE", cmp.Or(o.Lease, 2*time.Second))
	set("CONSUMER_DRAIN", cmp.Or(o.Drain, 5*time.Second))
	set("CONSUMER_SETTLE_WINDOW", cmp.Or(o.SettleWindow, 6*time.Second))
	set("CONSUMER_HOLD", cmp.Or(o.Hold, 6*time.Second))
	for name, v := range w.Queue.Env {
		w.env = append(w.env, name+"="+v)
	}
	w.env = append(w.env, "USER=ann", "PATH="+os.Getenv("PATH"))
}

// Run runs one command of the program and returns its exit code and output.
func (w *World) Run(stdin string, args ...string) (code int, stdout, stderr string) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), binary(w.t), args...)
	var out, errs bytes.Buffer
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = w.env, w.dir, strings.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		w.t.Fatalf("worker %v: %v", args, err)
	}
	w.clean("worker "+strings.Join(args, " "), out.String()+errs.String())
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// Must runs a command that has to succeed, and returns its stdout.
func (w *World) Must(stdin string, args ...string) string {
	w.t.Helper()
	code, out, errs := w.Run(stdin, args...)
	if code != 0 {
		w.t.Fatalf("worker %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// Submit sends every job so many times, through `worker submit`.
func (w *World) Submit(times int, docs ...Doc) {
	w.t.Helper()
	lines, keys := map[string]string{}, map[string]string{}
	for _, d := range docs {
		w.docs[d.Key] = d
		lines[d.Job] += d.Line + "\n"
		keys[d.Job] += d.Key + "\n"
	}
	for range times {
		for job, text := range lines {
			if out := w.Must(text, "submit", "--job", job); out != keys[job] {
				w.t.Fatalf("submit --job %s prints\n%swant\n%s", job, out, keys[job])
			}
		}
	}
}

// Jobs reads every job with its attempts, by printed key.
func (w *World) Jobs() map[string]ledger.Job {
	w.t.Helper()
	jobs := map[string]ledger.Job{}
	for j, err := range w.Ledger.Jobs(w.t.Context(), ledger.Filter{Limit: 100_000}) {
		if err != nil {
			w.t.Fatal(err)
		}
		jobs[j.Key.Text] = j
	}
	return jobs
}

// Job reads one whole job.
func (w *World) Job(key string) ledger.Job {
	w.t.Helper()
	tenant, _, _ := strings.Cut(key, ":")
	j, err := w.Ledger.Job(w.t.Context(), ledger.Key{Tenant: tenant, Text: key})
	if err != nil {
		w.t.Fatalf("job %s: %v", key, err)
	}
	return j
}

// UntilState waits until every submitted job is in one of the states.
func (w *World) UntilState(states ...ledger.State) {
	w.t.Helper()
	w.Eventually(func() (bool, string) {
		jobs, count, ok := w.Jobs(), map[ledger.State]int{}, true
		for key := range w.docs {
			state := jobs[key].State
			count[state]++
			in := false
			for _, s := range states {
				in = in || s == state
			}
			ok = ok && in
		}
		return ok, fmt.Sprintf("jobs are %v, want all in %v", count, states)
	})
}

// Until waits until every submitted job is in the state that is expected.
func (w *World) Until(e Expect) {
	w.t.Helper()
	w.Eventually(func() (bool, string) {
		jobs := w.Jobs()
		for key := range w.docs {
			want, is := cmp.Or(e.States[key], ledger.Done), jobs[key].State
			if is.Terminal() && is != want {
				w.t.Fatalf("%s is %s for good, want %s\n%s", key, is, want, story(w.Job(key)))
			}
			if is != want {
				return false, fmt.Sprintf("%s is %s, want %s", key, is, want)
			}
		}
		return true, ""
	})
}

// Eventually waits up to two minutes for what other processes do: a busy machine is no finding.
func (w *World) Eventually(ok func() (bool, string)) {
	w.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		good, what := ok()
		if good {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("it does not happen: %s", what)
		}
	}
}

// Billed waits for a line of the bill for key.
func (w *World) Billed(key string) modelserver.Line {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	l, err := w.Models.WaitFor(ctx, func(l modelserver.Line) bool { return l.Key == key })
	if err != nil {
		w.t.Fatalf("%s is not on the bill: %v", key, err)
	}
	return l
}

var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "paidonce-e2e-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "worker")
	return bin, progtest.Build("", "github.com/paidonce/paidonce/cmd/worker", bin)
})

// binary is the program, made once.
func binary(t *testing.T) string {
	t.Helper()
	bin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "docker" {
		os.Exit(docker(os.Args[1:]))
	}
	if os.Getenv(plainVariable) != "" {
		fmt.Fprintln(os.Stderr, runPlain())
		os.Exit(1)
	}
	if os.Getenv(pointVariable) != "" {
		if err := runDeadly(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := m.Run()
	if bin, err := built(); err == nil {
		if err := os.RemoveAll(filepath.Dir(bin)); err != nil {
			fmt.Fprintln(os.Stderr, "removing the built program:", err)
		}
	}
	os.Exit(code)
}
