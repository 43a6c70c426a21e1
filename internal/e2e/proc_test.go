package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Proc is a `worker run`, a real process.
type Proc struct {
	w     *World
	name  string
	cmd   *exec.Cmd
	log   buffer
	ended chan struct{} // closed when it was reaped
	reap  func() error  // lets its reaper go
}

// Start runs a worker with more environment variables (PAIDONCE_…=…) than the world's,
// and returns when it has begun to listen.
func (w *World) Start(name string, env ...string) *Proc {
	w.t.Helper()
	p := &Proc{w: w, name: name, cmd: command(w, "run"), ended: make(chan struct{})}
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	w.begin(p)
	p.Says(`"setting":"http.listen","address":"([^"]+)"`)
	return p
}

// command is one of the program's, in the world's directory and environment.
func command(w *World, args ...string) *exec.Cmd {
	w.t.Helper()
	cmd := exec.Command(binary(w.t), args...)
	cmd.Env, cmd.Dir = append([]string{}, w.env...), w.dir
	return cmd
}

// begin starts a process that ends with the test.
func (w *World) begin(p *Proc) {
	w.t.Helper()
	if err := p.cmd.Start(); err != nil {
		w.t.Fatalf("start worker %s: %v", p.name, err)
	}
	p.reap = reaper(w.t, p.cmd.Process.Pid)
	go func() {
		_ = p.cmd.Wait() // read from ProcessState
		close(p.ended)
	}()
	w.procs = append(w.procs, p)
	w.t.Cleanup(func() {
		p.Kill()
		if err := p.reap(); err != nil {
			w.t.Errorf("worker %s: its reaper: %v", p.name, err)
		}
		w.clean("the log of worker "+p.name, p.log.String())
		if w.t.Failed() {
			w.t.Logf("log of worker %s:\n%s", p.name, tail(p.log.String(), 12_000))
		}
	})
}

// reaper kills the process if this one ends without having done so (a test's time
// limit), however it ends: it waits for a line on a pipe.
func reaper(t *testing.T, pid int) func() error {
	t.Helper()
	cmd := exec.Command("sh", "-c", fmt.Sprintf("read line || kill -9 %d", pid))
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatalf("start a reaper: %v", err)
	}
	return func() error {
		if _, err := io.WriteString(in, "\n"); err != nil {
			return err
		}
		return cmd.Wait()
	}
}

// Alive reports whether the process has not ended.
func (p *Proc) Alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Signal sends a signal.
func (p *Proc) Signal(s os.Signal) {
	p.w.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.w.t.Fatalf("%v to worker %s: %v", s, p.name, err)
	}
}

// Kill ends it as a machine's death would, and waits for that. Repeated, it does nothing.
func (p *Proc) Kill() {
	_ = p.cmd.Process.Kill() // ErrProcessDone: it has ended already
	<-p.ended
}

// Freeze stops the process between two instructions, Thaw lets it go on.
func (p *Proc) Freeze() { p.w.t.Helper(); p.Signal(syscall.SIGSTOP) }

// Thaw undoes Freeze.
func (p *Proc) Thaw() { p.w.t.Helper(); p.Signal(syscall.SIGCONT) }

// Term asks it to leave.
func (p *Proc) Term() { p.w.t.Helper(); p.Signal(syscall.SIGTERM) }

// Leave is Term, and waits for exit 0.
func (p *Proc) Leave() { p.w.t.Helper(); p.w.Leave(p) }

// Leave asks all of them to leave at once, and waits for exit 0.
func (w *World) Leave(procs ...*Proc) {
	w.t.Helper()
	for _, p := range procs {
		p.Term()
	}
	for _, p := range procs {
		p.Left()
	}
}

// Left waits for the process to end and wants exit 0.
func (p *Proc) Left() {
	p.w.t.Helper()
	p.w.Eventually(func() (bool, string) { return !p.Alive(), "the end of worker " + p.name })
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.w.t.Errorf("worker %s: exit %d", p.name, code)
	}
}

// Says waits for a line of its log that matches, and returns the first group.
func (p *Proc) Says(pattern string) (found string) {
	p.w.t.Helper()
	re := regexp.MustCompile(pattern)
	p.w.Eventually(func() (bool, string) {
		m := re.FindStringSubmatch(p.log.String())
		if len(m) > 1 {
			found = m[1]
		}
		if m == nil && !p.Alive() {
			p.w.t.Fatalf("worker %s ended with %v before it said %s:\n%s", p.name, p.cmd.ProcessState, pattern, tail(p.log.String(), 4000))
		}
		return m != nil, pattern + " in the log of worker " + p.name
	})
	return found
}

// Metrics are the samples of its /metrics, by series as printed:
// paidonce_calls_avoided_total{cause="redelivered",job="ticket.summary"}.
func (p *Proc) Metrics() map[string]float64 {
	p.w.t.Helper()
	r, err := http.Get("http://" + p.Says(`"setting":"http.listen","address":"([^"]+)"`) + "/metrics")
	if err != nil {
		p.w.t.Fatalf("metrics of worker %s: %v", p.name, err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		p.w.t.Fatalf("metrics of worker %s: %s, %v", p.name, r.Status, err)
	}
	p.w.clean("/metrics of worker "+p.name, string(body))
	ms := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			v, err := strconv.ParseFloat(strings.TrimSpace(line[i:]), 64)
			if err != nil {
				p.w.t.Fatalf("metrics of worker %s: %q", p.name, line)
			}
			ms[line[:i]] = v
		}
	}
	return ms
}

// Sum adds up every series of a metric over the living processes. labels, such as
// job="ticket.summary", must all be in the series.
func (w *World) Sum(metric string, labels ...string) (sum float64) {
	w.t.Helper()
	for _, p := range w.procs {
		if p.Alive() {
			sum += p.Sum(metric, labels...)
		}
	}
	return sum
}

// Sum adds up every series of a metric of this process.
func (p *Proc) Sum(metric string, labels ...string) (sum float64) {
	p.w.t.Helper()
	found := false
	for name, v := range p.Metrics() {
		base, _, _ := strings.Cut(name, "{")
		if base == metric && !slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(name, l) }) {
			found, sum = true, sum+v
		}
	}
	if !found {
		p.w.t.Fatalf("worker %s has no series %s %v", p.name, metric, labels)
	}
	return sum
}

// buffer is a log that is read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }
