package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// childCommand is the command by which this program starts its workers. They are told a plan
// and say what happens on standard output: signFull, and at the end a report.
const childCommand = "child"

// What a worker says beside its report.
const (
	signReady = "READY" // it receives
	signFull  = "FULL"  // every message is a call under way: the report comes after plan.Hold
)

// report is what a worker knows of its turn. Times are seconds since its start, latencies
// milliseconds since a message was sent.
type report struct {
	Calls    int     // paid
	Twice    int     // of these, for a key that was paid before
	Acked    int     // messages
	Done     float64 // when the last job had its result; in a storm, its answer
	P50, P99 float64 // of jobs: until their results were durable
	CPU      float64 // seconds, user and system
	Memory   int     // most resident, in KiB
	Renewals []float64
}

// worker counts what a system does. The systems run in it.
type worker struct {
	plan
	answer string // of every paid call
	began  time.Time
	over   chan struct{} // closed when every job has its result; in a storm, every message its answer

	mu       sync.Mutex
	calls    map[string]int // by key
	under    int            // calls under way
	done     map[string]bool
	acked    int
	last     time.Time // result of a job
	waited   []float64 // of jobs, in ms
	renewals []float64 // how long each took, in ms
}

// lastAcks is how long a worker lives on after its report: an ack that was only just written is lost when its connection
// ends, and the message would be left.
const lastAcks = 300 * time.Millisecond

// child is a worker's whole life.
func child(ctx context.Context, args []string) error {
	w := &worker{over: make(chan struct{}), calls: map[string]int{}, done: map[string]bool{}}
	if len(args) != 1 {
		return fmt.Errorf("a worker wants one plan, not %d", len(args))
	}
	if err := json.Unmarshal([]byte(args[0]), &w.plan); err != nil {
		return fmt.Errorf("read the plan: %w", err)
	}
	w.answer = text(rand.New(rand.NewPCG(1, 1)), w.Size)
	stop, err := w.profiled()
	if err != nil {
		return err
	}
	w.began = time.Now()
	failed := make(chan error, 1)
	go func() { failed <- systems[w.System].work(ctx, w) }()
	select {
	case err := <-failed:
		if err != nil {
			return fmt.Errorf("%s: %w", w.System, err)
		}
		<-w.over // it works on by itself
	case <-w.over:
	}
	r := w.report()
	time.Sleep(lastAcks)
	if err := stop(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

func (w *worker) report() report {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := report{Acked: w.acked, CPU: ownCPU(), Renewals: w.renewals}
	if len(w.waited) > 0 {
		r.Done = w.last.Sub(w.began).Seconds()
		r.P50, r.P99 = percentile(w.waited, 50), percentile(w.waited, 99)
	}
	for _, n := range w.calls {
		r.Calls += n
		r.Twice += n - 1
	}
	r.Memory, _ = memory(os.Getpid(), "VmHWM")
	return r
}

// ready says that the system receives.
func (w *worker) ready() { fmt.Println(signReady) }

// handle is the paid call for key.
func (w *worker) handle(key string) string {
	w.mu.Lock()
	w.calls[key]++
	w.under++
	full := w.Mode == modeInflight && w.under == w.Messages
	w.mu.Unlock()
	if full {
		w.filled()
	}
	if w.Work > 0 {
		time.Sleep(w.Work)
	}
	w.mu.Lock()
	w.under--
	w.mu.Unlock()
	return w.answer
}

// filled says that all calls are under way, and ends the turn a while later.
func (w *worker) filled() {
	w.mu.Lock()
	w.renewals = nil // those of the way here
	w.mu.Unlock()
	fmt.Println(signFull)
	time.AfterFunc(w.Hold, func() { close(w.over) })
}

// settled notes that the result of key is durable and a message of it, sent at that time (Unix
// nanoseconds), is acknowledged.
func (w *worker) settled(key string, sent int64) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acked++
	first := !w.done[key]
	if first {
		w.done[key], w.last = true, now
		w.waited = append(w.waited, float64(now.UnixNano()-sent)/1e6)
	}
	if w.Mode == modeStorm && w.acked == w.Messages || w.Mode != modeStorm && first && len(w.done) == w.Distinct {
		close(w.over)
	}
}

// pool opens the connections of a system that is no more than a loop over SQL.
func (w *worker) pool(ctx context.Context) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(w.Postgres)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(w.Conns)
	return pgxpool.NewWithConfig(ctx, cfg)
}

// sentAt reads the attribute published.
func sentAt(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func ownCPU() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
