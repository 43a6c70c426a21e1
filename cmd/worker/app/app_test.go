package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	brokermemory "github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/internal/planted"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	ledgermemory "github.com/paidonce/paidonce/ledger/memory"
)

var update = flag.Bool("update", false, "write the golden files anew")

// world is what the commands of one test share: as many processes as they like.
type world struct {
	t      *testing.T
	env    []string
	moved  bool // into a directory of its own
	ledger *ledgermemory.Ledger
	queue  *brokermemory.Queue
}

// newWorld is an empty directory with a memory: ledger and broker.
func newWorld(t *testing.T) *world {
	t.Helper()
	t.Chdir(t.TempDir())
	w := newWorldHere(t)
	w.moved = true
	return w
}

// newWorldHere is newWorld without the directory, for tests that run side by side: they
// read and write no file by a relative name.
func newWorldHere(t *testing.T) *world {
	t.Helper()
	return &world{t: t, ledger: ledgermemory.New(), queue: brokermemory.New(brokermemory.Options{Visibility: 2 * time.Second}),
		env: []string{"PAIDONCE_LEDGER_URL=memory:", "PAIDONCE_HTTP_LISTEN=127.0.0.1:0", "USER=ann"}}
}

// models starts a stand-in model server and points the world's workers at it.
func (w *world) models(o modelserver.Options) *modelserver.Server {
	w.t.Helper()
	ms, err := modelserver.Start(o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := ms.Close(); err != nil {
			w.t.Errorf("closing the model server: %v", err)
		}
	})
	w.env = append(w.env, "PAIDONCE_PROVIDERS_OPENAI_BASE_URL="+ms.URL()+"/v1/", "PAIDONCE_PROVIDERS_OPENAI_API_KEY=sk-planted-in-tests",
		"PAIDONCE_PROVIDERS_ANTHROPIC_BASE_URL="+ms.URL(), "PAIDONCE_PROVIDERS_ANTHROPIC_API_KEY=sk-ant-planted-in-tests",
		"PAIDONCE_CONSUMER_LEASE=1s", "PAIDONCE_CONSUMER_DRAIN=5s")
	return ms
}

// file writes a file into the world's directory.
func (w *world) file(name, text string) {
	w.t.Helper()
	if !w.moved {
		w.t.Fatalf("%s would be written into the sources: the test wants newWorld", name)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

type output struct {
	code           int
	stdout, stderr string
}

// do runs one command as a process of its own would.
func (w *world) do(stdin string, args ...string) output {
	w.t.Helper()
	var stdout, stderr bytes.Buffer
	code := Run(w.t.Context(), Process{Args: args, Environ: w.env, Stdin: strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr, Ledger: w.ledger, Queue: w.queue})
	w.clean("worker "+strings.Join(args, " "), stdout.String()+stderr.String())
	return output{code, stdout.String(), stderr.String()}
}

// clean wants no secret in what was printed: those of all tests can be recognised.
func (w *world) clean(what, text string) {
	w.t.Helper()
	for _, found := range planted.Find(text) {
		w.t.Errorf("%s shows a secret: %s", what, found)
	}
}

// must runs a command that has to succeed, and returns its stdout.
func (w *world) must(stdin string, args ...string) string {
	w.t.Helper()
	o := w.do(stdin, args...)
	if o.code != exitDone {
		w.t.Fatalf("worker %s: exit %d\n%s%s", strings.Join(args, " "), o.code, o.stdout, o.stderr)
	}
	return o.stdout
}

// refused runs a command that has to end with the code and say all of the words.
func (w *world) refused(code int, stdin string, args []string, words ...string) {
	w.t.Helper()
	o := w.do(stdin, args...)
	if o.code != code {
		w.t.Errorf("worker %s: exit %d, want %d\n%s%s", strings.Join(args, " "), o.code, code, o.stdout, o.stderr)
	}
	for _, word := range words {
		if !strings.Contains(o.stderr, word) {
			w.t.Errorf("worker %s does not say %q:\n%s", strings.Join(args, " "), word, o.stderr)
		}
	}
}

// state is the job's, "" if there is none: as `jobs show --json` tells it where the ledger is not the world's own. A
// command costs some hundredths of a second with the race detector, too much for asking again and again.
func (w *world) state(key string) string {
	if w.ownLedger() {
		k, err := job.ParseKey(key)
		if err != nil {
			w.t.Fatal(err)
		}
		j, err := w.ledger.Job(w.t.Context(), k)
		if err != nil && !errors.Is(err, ledger.ErrNotFound) {
			w.t.Fatal(err)
		}
		return string(j.State)
	}
	o := w.do("", "jobs", "show", key, "--json")
	var d struct{ State string }
	if o.code == exitFindings {
		return ""
	}
	if err := json.Unmarshal([]byte(o.stdout), &d); err != nil {
		w.t.Fatalf("jobs show %s --json: %v\n%s%s", key, err, o.stdout, o.stderr)
	}
	return d.State
}

// ownLedger says whether the world's commands use its memory: ledger. A later setting hides one before.
func (w *world) ownLedger() (own bool) {
	for _, e := range w.env {
		if url, ok := strings.CutPrefix(e, "PAIDONCE_LEDGER_URL="); ok {
			own = url == "memory:"
		}
	}
	return own && w.ledger != nil
}

// until waits for the job to be in a state.
func (w *world) until(key, state string) {
	w.t.Helper()
	eventually(w.t, func() (bool, string) { s := w.state(key); return s == state, key + " is " + s + ", want " + state })
}

// patience bounds each wait, on a machine that does much else.
const patience = 2 * time.Minute

// eventually waits for what other goroutines and processes do.
func eventually(t *testing.T, ok func() (bool, string)) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		good, what := ok()
		if good {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it does not happen: %s", what)
		}
	}
}

// running is a `worker run` in the background.
type running struct {
	t      *testing.T
	cancel context.CancelFunc
	ended  chan struct{}
	code   int
	log    lockedBuffer
}

func (w *world) start(args ...string) *running {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	r := &running{t: w.t, cancel: cancel, ended: make(chan struct{})}
	p := Process{Args: append([]string{"run"}, args...), Environ: w.env, Stdin: strings.NewReader(""), Stdout: &r.log, Stderr: &r.log, Ledger: w.ledger, Queue: w.queue}
	go func() {
		defer close(r.ended)
		r.code = Run(ctx, p)
	}()
	w.t.Cleanup(func() {
		cancel()
		<-r.ended
		w.clean("worker run", r.log.String())
		if w.t.Failed() {
			w.t.Logf("worker run ended with %d:\n%s", r.code, r.log.String())
		}
	})
	return r
}

// stop ends it as a supervisor would, and wants exit 0.
func (r *running) stop() {
	r.t.Helper()
	r.cancel()
	r.wait()
}

func (r *running) wait() {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(patience):
		r.t.Fatalf("worker run does not end\n%s", r.log.String())
	}
	if r.code != exitDone {
		r.t.Errorf("worker run: exit %d\n%s", r.code, r.log.String())
	}
}

// says waits for a line of its log that matches, and returns the first group.
func (r *running) says(pattern string) string {
	r.t.Helper()
	re := regexp.MustCompile(pattern)
	var found string
	eventually(r.t, func() (bool, string) {
		m := re.FindStringSubmatch(r.log.String())
		if len(m) > 1 {
			found = m[1]
		}
		return m != nil, pattern + " in\n" + r.log.String()
	})
	return found
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// golden compares with a file of the package's testdata; the world works elsewhere.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join(packageDir, "testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update writes it anew); got\n%s", name, got)
	}
}

var packageDir string

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	packageDir = dir
	// For all, since a test that sets its environment cannot run beside others.
	if err := errors.Join(os.Setenv("AWS_ACCESS_KEY_ID", "test"), os.Setenv("AWS_SECRET_ACCESS_KEY", "test")); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
