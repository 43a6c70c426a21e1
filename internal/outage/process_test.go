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
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/internal/planted"
	"github.com/paidonce/paidonce/internal/progtest"
)

const (
	jobsInFlight = 1000
	// KiB, with the pages of the program's file: 69 to 71 thousand were measured; docs/design.md
	// says what they are.
	mostBare = 80 << 10
	// KiB of the same where calls keep no connection and no request: 45 to 54 thousand were
	// measured.
	mostAsleep = 56 << 10
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

// program builds a main package as it is released and returns a command that runs it.
func (r *rig) program(pkg string, args ...string) *exec.Cmd {
	r.Helper()
	bin := filepath.Join(r.TempDir(), filepath.Base(pkg))
	if err := progtest.BuildAsReleased("", pkg, bin); err != nil {
		r.Fatal(err)
	}
	cmd := exec.Command(bin, args...)
	cmd.Dir, cmd.Env = r.TempDir(), []string{"PATH=" + os.Getenv("PATH")}
	return cmd
}

// begin starts a program, and ends it with the test.
func (r *rig) begin(cmd *exec.Cmd) *process {
	r.Helper()
	p := &process{T: r.T, cmd: cmd, log: &output{}}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		p.cmd.Process.Kill()
		p.cmd.Wait() // a second time if the test has ended it in order
		for _, found := range planted.Find(p.log.String()) {
			r.Errorf("the worker logs a secret: %s", found)
		}
		if r.Failed() {
			r.Logf("the worker said\n%.4000s", p.log.String())
		}
	})
	return p
}

// memory is a line of the process's status, such as VmRSS or RssAnon, in KiB.
func (p *process) memory(name string) int {
	p.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name+":" {
			n, err := strconv.Atoi(f[1])
			if err != nil {
				p.Fatal(err)
			}
			return n
		}
	}
	p.Fatalf("no %s in\n%s", name, b)
	return 0
}

// wantIdle checks that a worker without a message needs no CPU.
func (r *rig) wantIdle(p *process) {
	r.Helper()
	r.eventually("the worker has joined", func() bool { return r.count("select count(*) from paidonce.worker") == 1 })
	time.Sleep(2 * time.Second) // past the start
	before := p.ticks()
	time.Sleep(10 * time.Second)
	used := p.ticks() - before
	r.Logf("idle: %d KiB of private memory, %d0 ms of CPU in 10 s", p.memory("RssAnon"), used)
	if used > 10 {
		r.Errorf("the idle worker used %d0 ms of CPU in 10 s, want at most 1 %% of a core", used)
	}
}

// most is the most memory that the process has for two seconds, in KiB: for itself, and with the
// pages of its file.
func (p *process) most() (private, all int) {
	p.Helper()
	for range 20 {
		private, all = max(private, p.memory("RssAnon")), max(all, p.memory("VmRSS"))
		time.Sleep(100 * time.Millisecond)
	}
	return private, all
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

// A thousand paid calls are under way in a worker of nothing but the framework: a handler that
// uses net/http, no SDK.
func TestThousandBare(t *testing.T) {
	r := newRig(t, modelserver.Options{})
	r.models.ScriptAny(modelserver.Fault{Hold: true, Times: -1})
	p := r.begin(r.program("./bare", r.direct, r.rabbit.conf.URL, r.rabbit.conf.Queue, r.models.URL()+modelserver.ChatCompletions, fmt.Sprint(jobsInFlight)))
	name := func(i int) string { return fmt.Sprint("d", i) }
	_, all := r.thousand(p, func(i int) broker.Message {
		return message(doc{Tenant: "acme", Doc: name(i), Text: strings.Repeat("The invoice was charged twice. ", 30)})
	}, func(i int) string { return key(name(i)).Text })
	if all > mostBare {
		t.Errorf("%d calls under way take %d KiB, want at most %d", jobsInFlight, all, mostBare)
	}
}

// The framework's own part of that: calls that keep no connection and no request. Before it has
// any, the worker idles.
func TestThousandAsleep(t *testing.T) {
	r := newRig(t, modelserver.Options{})
	p := r.begin(r.program("./bare", r.direct, r.rabbit.conf.URL, r.rabbit.conf.Queue, "asleep", fmt.Sprint(jobsInFlight)))
	r.wantIdle(p)
	var ms []broker.Message
	for i := range jobsInFlight {
		ms = append(ms, message(doc{Tenant: "acme", Doc: fmt.Sprint("d", i), Text: strings.Repeat("The invoice was charged twice. ", 30)}))
	}
	r.send(ms...)
	r.eventually("every call is under way", func() bool {
		return r.count("select count(*) from paidonce.attempt where state = 'sent'") == jobsInFlight
	})
	private, all := p.most()
	t.Logf("%d calls asleep: %d KiB, %d of it private", jobsInFlight, all, private)
	if all > mostAsleep {
		t.Errorf("%d calls asleep take %d KiB, want at most %d", jobsInFlight, all, mostAsleep)
	}
	if err := p.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	r.awaitDone(jobsInFlight)
	r.awaitEmpty()
	p.end()
	r.wantDoneAtOnce()
}

// thousand sends a thousand jobs, whose answers are held, to a process and returns the most
// memory that it had meanwhile, in KiB: for itself, and with the pages of its file. Then it lets
// the jobs end, each done in one run with one call.
func (r *rig) thousand(p *process, m func(int) broker.Message, key func(int) string) (private, all int) {
	r.Helper()
	var ms []broker.Message
	for i := range jobsInFlight {
		ms = append(ms, m(i))
	}
	r.send(ms...)
	r.awaitBilled(jobsInFlight)
	private, all = p.most()
	r.Logf("%d calls under way: %d KiB, %d of it private", jobsInFlight, all, private)
	for i := range jobsInFlight {
		if r.models.Release(key(i)) != 1 {
			r.Errorf("the call of %s is not held", key(i))
		}
	}
	r.awaitDone(jobsInFlight)
	r.awaitEmpty()
	p.end()
	for key, lines := range r.models.BillByKey() {
		if len(lines) != 1 {
			r.Errorf("%s was paid %d times", key, len(lines))
		}
	}
	r.wantDoneAtOnce()
	return private, all
}

// wantDoneAtOnce checks that each of the thousand was done in one run with one call.
func (r *rig) wantDoneAtOnce() {
	r.Helper()
	if n := r.count("select count(*) from paidonce.job where state = 'done' and runs = 1 and attempts = 1 and open_calls = 0"); n != jobsInFlight {
		r.Errorf("%d jobs are done in one run with one call, want %d", n, jobsInFlight)
	}
	r.wantQueues(0, 0)
}
