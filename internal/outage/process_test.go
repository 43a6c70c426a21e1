package outage_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/handlers/summarize"
	"github.com/paidonce/paidonce/internal/modelserver"
)

const (
	jobsInFlight = 1000
	// KiB of private memory: 89 to 94 were measured, 38 of it stacks, and 5 when idle;
	// docs/design.md says what they are. The 40 MiB of the program's own pages come from its
	// file, and are shared.
	mostMemory = 115 << 10
)

// process is the program itself.
type process struct {
	*testing.T
	cmd *exec.Cmd
	log *output
}

// output is what a process says, for reading while it speaks.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// launch builds the worker and runs it against the rig. It is built as the tests are,
// so that most of it is in the build cache.
func (r *rig) launch(env ...string) *process {
	r.Helper()
	bin := filepath.Join(r.TempDir(), "worker")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", bin, "../../cmd/worker")
	if out, err := build.CombinedOutput(); err != nil {
		r.Fatalf("go build: %v\n%s", err, out)
	}
	p := &process{T: r.T, cmd: exec.Command(bin, "run"), log: &output{}}
	p.cmd.Dir = r.TempDir()
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"),
		"PAIDONCE_LEDGER_URL=" + r.direct, "PAIDONCE_BROKER_URL=" + r.rabbit.conf.URL, "PAIDONCE_BROKER_QUEUE=" + r.rabbit.conf.Queue,
		"PAIDONCE_PROVIDERS_OPENAI_BASE_URL=" + r.models.URL() + "/v1/", "PAIDONCE_PROVIDERS_OPENAI_API_KEY=sk-of-tests",
		"PAIDONCE_PROVIDERS_ANTHROPIC_BASE_URL=" + r.models.URL(), "PAIDONCE_PROVIDERS_ANTHROPIC_API_KEY=sk-ant-of-tests",
		"PAIDONCE_HTTP_LISTEN=127.0.0.1:0"}, env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		p.cmd.Process.Kill()
		p.cmd.Wait() // a second time if the test has ended it in order
		if r.Failed() {
			r.Logf("the worker said\n%.4000s", p.log.String())
		}
	})
	return p
}

// memory is what the process has for itself, in KiB.
func (p *process) memory() int {
	p.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "RssAnon:" {
			n, err := strconv.Atoi(f[1])
			if err != nil {
				p.Fatal(err)
			}
			return n
		}
	}
	p.Fatalf("no RssAnon in\n%s", b)
	return 0
}

// ticks is the CPU time that the process has used, in hundredths of a second.
func (p *process) ticks() int {
	p.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		p.Fatal(err)
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	user, err1 := strconv.Atoi(f[11]) // fields 14 and 15 of proc(5)
	system, err2 := strconv.Atoi(f[12])
	if err1 != nil || err2 != nil {
		p.Fatalf("CPU times %s and %s", f[11], f[12])
	}
	return user + system
}

// end stops the process in the orderly way.
func (p *process) end() {
	p.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		p.Errorf("the worker ended with %v\n%.4000s", err, p.log.String())
	}
}

// ticket is a message of the bundled handler, as large as a short thread.
func ticket(n int) broker.Message {
	body := fmt.Sprintf(`{"tenant":"acme","ticket":"%d","revision":1,"thread":"%s"}`, n, strings.Repeat("The invoice was charged twice. ", 30))
	return broker.Message{Body: []byte(body), Attributes: map[string]string{consumer.Attribute: summarize.Name}}
}

func ticketKey(n int) string {
	return fmt.Sprintf("acme:%s:%d:v1:%s", summarize.Name, n, summarize.Prompt)
}

// A thousand paid calls are under way in one small process, which idles before and after.
func TestThousandInFlight(t *testing.T) {
	r := newRig(t, modelserver.Options{})
	r.models.ScriptAny(modelserver.Fault{Hold: true, Times: -1})
	p := r.launch(fmt.Sprint("PAIDONCE_CONSUMER_WORKERS=", jobsInFlight))
	r.eventually("the worker has joined", func() bool { return r.count("select count(*) from paidonce.worker") == 1 })
	time.Sleep(2 * time.Second) // past the start
	t.Logf("idle: %d KiB", p.memory())

	before := p.ticks()
	time.Sleep(10 * time.Second)
	if used := p.ticks() - before; used > 10 {
		t.Errorf("the idle worker used %d0 ms of CPU in 10 s, want at most 1 %% of a core", used)
	} else {
		t.Logf("idle: %d0 ms of CPU in 10 s", used)
	}

	var ms []broker.Message
	for i := range jobsInFlight {
		ms = append(ms, ticket(i))
	}
	r.send(ms...)
	r.awaitBilled(jobsInFlight) // each answer is held
	most := 0
	for range 20 {
		most = max(most, p.memory())
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("%d calls under way: %d KiB", jobsInFlight, most)
	if most > mostMemory {
		t.Errorf("%d calls under way take %d KiB, want at most %d", jobsInFlight, most, mostMemory)
	}
	for i := range jobsInFlight {
		if r.models.Release(ticketKey(i)) != 1 {
			t.Errorf("the call of ticket %d is not held", i)
		}
	}
	r.awaitDone(jobsInFlight)
	r.awaitEmpty()
	p.end()
	for key, lines := range r.models.BillByKey() {
		if len(lines) != 1 {
			t.Errorf("%s was paid %d times", key, len(lines))
		}
	}
	if n := r.count("select count(*) from paidonce.job where state = 'done' and runs = 1 and attempts = 1 and open_calls = 0"); n != jobsInFlight {
		t.Errorf("%d jobs are done in one run with one call, want %d", n, jobsInFlight)
	}
	r.wantQueues(0, 0)
}
