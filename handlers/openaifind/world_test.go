package openaifind_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	memledger "github.com/paidonce/paidonce/ledger/memory"
)

// note is the message: a text to read.
type note struct{ Tenant, Doc string }

func (n note) JobKey() job.Key { return job.K(n.Tenant, "note.read", n.Doc) }

// reading is what a call makes of an answer.
type reading struct{ Text string }

// world is a provider, a ledger and a worker, on real sockets.
type world struct {
	*testing.T
	models *modelserver.Server
	ledger *memledger.Ledger
	queue  *memory.Queue
	call   job.Call[note, reading]
	handle func(ctx context.Context, j *job.Run, in note) (reading, error)
	told   chan string // what reconcilers found
}

func (w *world) client(a *job.Attempt) openai.Client {
	opts := []option.RequestOption{option.WithBaseURL(w.models.URL() + "/v1/"), option.WithAPIKey("k")}
	if a != nil {
		opts = append(opts, option.WithHTTPClient(a.HTTP()))
	}
	return openai.NewClient(opts...)
}

func newWorld(t *testing.T, timeout time.Duration, way func(w *world, ctx context.Context, a *job.Attempt, in note) (reading, error)) *world {
	ms, err := modelserver.Start(modelserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ms.Close(); err != nil {
			t.Errorf("closing the model server: %v", err)
		}
	})
	w := &world{T: t, models: ms, ledger: memledger.New(), queue: memory.New(memory.Options{}), told: make(chan string, 100)}
	w.call = job.Call[note, reading]{Name: "read", Routes: []job.Route[note, reading]{{
		Name: "primary", Provider: "openai", Model: "gpt-5-mini", Timeout: timeout,
		Do: func(ctx context.Context, a *job.Attempt, in note) (reading, error) { return way(w, ctx, a, in) }}}}
	w.handle = func(ctx context.Context, j *job.Run, in note) (reading, error) { return w.call.Run(ctx, j, in) }
	return w
}

// run sends the message and starts a worker.
func (w *world) run() {
	w.Helper()
	w.send()
	w.work("w1", w.ledger)
}

func (w *world) send() {
	w.Helper()
	m := broker.Message{Body: []byte(`{"Tenant":"acme","Doc":"1"}`), Attributes: map[string]string{consumer.Attribute: "note.read"}}
	if err := w.queue.Publish(w.Context(), m); err != nil {
		w.Fatal(err)
	}
}

// work starts a worker, which lives until the test ends or the returned function kills it.
func (w *world) work(name string, store ledger.Store) (kill func()) {
	w.Helper()
	reg := new(job.Registry)
	job.Register(reg, job.Def[note, reading]{Name: "note.read", Uses: job.Uses(w.call), Handle: w.handle})
	cfg := consumer.Config{Source: w.queue.Source(), Store: store, Handlers: reg, Name: name, Workers: 2, Lease: time.Second, Tick: 20 * time.Millisecond,
		SettleWindow: 2 * time.Second, Hold: time.Hour, Log: slog.New(slog.NewTextHandler(w.Output(), nil))}
	cfg.Trace.Reconciled = func(_, _, finding string) {
		if finding != "hold" {
			w.told <- finding
		}
	}
	c, err := consumer.New(cfg)
	if err != nil {
		w.Fatal(err)
	}
	ctx, stop := context.WithCancel(w.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	end := sync.OnceValue(func() error { stop(); return <-done })
	w.Cleanup(func() {
		if err := end(); err != nil {
			w.Errorf("Run of %s returned %v", name, err)
		}
	})
	return func() {
		c.Hurry()
		end()
	}
}

// severed is a ledger that is out of reach for a worker that is to be dead.
type severed struct {
	ledger.Store
	cut atomic.Bool
}

var errGone = errors.New("this process was killed")

func (s *severed) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	if s.cut.Load() {
		return ledger.Settled{}, errGone
	}
	return s.Store.Settle(ctx, id, e)
}

func (s *severed) Release(ctx context.Context, l ledger.Lease, o ledger.Outcome) (ledger.Released, error) {
	if s.cut.Load() {
		return ledger.Released{}, errGone
	}
	return s.Store.Release(ctx, l, o)
}

func (s *severed) Renew(ctx context.Context, id ledger.WorkerID, ttl time.Duration) (ledger.Renewed, error) {
	if s.cut.Load() {
		return ledger.Renewed{}, errGone
	}
	return s.Store.Renew(ctx, id, ttl)
}

func (s *severed) Leave(ctx context.Context, id ledger.WorkerID) error {
	if s.cut.Load() {
		return errGone
	}
	return s.Store.Leave(ctx, id)
}

func (w *world) job() ledger.Job {
	w.Helper()
	j, err := w.ledger.Job(w.Context(), note{"acme", "1"}.JobKey().Ledger())
	if err != nil {
		w.Fatal(err)
	}
	return j
}

// until waits for the job to be as ok says.
func (w *world) until(what string, ok func(ledger.Job) bool) ledger.Job {
	w.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		j, err := w.ledger.Job(w.Context(), note{"acme", "1"}.JobKey().Ledger())
		if err == nil && ok(j) {
			return j
		}
		if time.Now().After(end) {
			w.Fatalf("the job is never %s: %+v, %v", what, j, err)
		}
	}
}

func is(s ledger.State) func(ledger.Job) bool { return func(j ledger.Job) bool { return j.State == s } }

// found waits until a look had this finding, and returns those before it, each once.
func (w *world) found(want string) (before []string) {
	w.Helper()
	for end := time.After(20 * time.Second); ; {
		select {
		case f := <-w.told:
			if f == want {
				return before
			}
			if !slices.Contains(before, f) {
				before = append(before, f)
			}
		case <-end:
			w.Fatalf("no look had the finding %s", want)
		}
	}
}

// paid compares the whole end state with one answer that was paid for and booked, and the bill's one line.
func (w *world) paid(j ledger.Job, class string) {
	w.Helper()
	bill := w.models.Bill()
	if len(bill) != 1 || w.models.Requests() != 1 {
		w.Fatalf("%d requests and a bill of %+v", w.models.Requests(), bill)
	}
	a := j.Attempts[0]
	if len(j.Attempts) != 1 || j.State != ledger.Done || j.OpenCalls != 0 || a.State != ledger.Received || a.Surplus || a.Evidence.Class != class {
		w.Errorf("the job is %s with %d open calls and the attempts %+v", j.State, j.OpenCalls, j.Attempts)
	}
	e, line := a.Evidence, bill[0]
	if e.ObjectID != line.ObjectID || e.Usage.In == nil || *e.Usage.In != line.In || *e.Usage.Cached != line.Cached || *e.Usage.Out != line.Out ||
		e.Cost == nil || int64(*e.Cost) != line.Price || j.Cost == nil || *j.Cost != *e.Cost || e.CostSource != "computed" {
		w.Errorf("on record %+v, and the job cost %v; on the bill %+v", e, j.Cost, line)
	}
	want := fmt.Sprintf(`{"Text":%q}`, modelserver.Summary(modelserver.Request{Prompt: "Read document 1"}))
	if j.Result == nil || string(j.Result.Body) != want {
		w.Errorf("the result is %+v, want %s", j.Result, want)
	}
}

// acked says that nothing is left of the message.
func (w *world) acked() {
	w.Helper()
	if d := w.queue.Depth(); d != (memory.Depth{}) {
		w.Errorf("the queue holds %+v", d)
	}
}
