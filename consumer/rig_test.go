package consumer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	memledger "github.com/paidonce/paidonce/ledger/memory"
)

// ask is the message of the tests: a paid call for a document.
type ask struct {
	Tenant, Doc string
	Rev         int
	Pad         string `json:",omitempty"` // makes the input as large as a test wants
	Note        string `json:",omitempty"`
}

func (a ask) JobKey() job.Key { return job.K(a.Tenant, "ask", a.Doc).Rev(a.Rev) }

func key(doc string) ledger.Key { return ask{Tenant: "acme", Doc: doc}.JobKey().Ledger() }

// provider stands for a model API: what it is asked it generates and bills.
type provider struct {
	mu   sync.Mutex
	bill map[string]int // generations by document
	// script is what happens to the n-th generation of a document, from 1. nil: an
	// answer after a second.
	script func(doc string, n int) (time.Duration, error)
}

// generate bills first, as a provider does that has read the request, and answers
// when it is done. Its caller may be gone by then.
func (p *provider) generate(ctx context.Context, doc string) (string, error) {
	p.mu.Lock()
	p.bill[doc]++
	n := p.bill[doc]
	p.mu.Unlock()
	took, err := time.Second, error(nil)
	if p.script != nil {
		took, err = p.script(doc, n)
	}
	select {
	case <-ctx.Done():
		return "", fmt.Errorf("waiting for the answer: %w", ctx.Err())
	case <-time.After(took):
		return "answer to " + doc, err
	}
}

// billed counts the generations of a document.
func (p *provider) billed(doc string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bill[doc]
}

// rig is everything around the consumers of one test.
type rig struct {
	*testing.T
	q      *memory.Queue
	led    *memledger.Ledger
	prov   *provider
	runs   atomic.Int64 // handler runs
	call   job.Call[ask, string]
	before func(ctx context.Context, j *job.Run, in ask) error // user code before the call
	after  func(ctx context.Context, j *job.Run, in ask) error // and after it
	redact func(job.Part, []byte) []byte
	cfg    consumer.Config

	mu      sync.Mutex
	avoided map[string]int // by cause
	saw     []job.Seen
}

// bubble runs a test under simulated time.
func bubble(t *testing.T, opts memory.Options, f func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, q: memory.New(opts), led: memledger.New(), prov: &provider{bill: map[string]int{}}, avoided: map[string]int{}}
		r.call = job.Call[ask, string]{Name: "generate", Routes: []job.Route[ask, string]{{
			Name: "primary", Provider: "fake", Model: "m1", Timeout: 2 * time.Minute,
			Do: func(ctx context.Context, a *job.Attempt, in ask) (string, error) {
				if err := a.Sent(ctx); err != nil {
					return "", err
				}
				return r.prov.generate(ctx, in.Doc)
			}}}}
		r.cfg = consumer.Config{Workers: 4, Lease: 30 * time.Second}
		f(r)
	})
}

// node is one worker process.
type node struct {
	*consumer.Consumer
	stop context.CancelFunc
	kill func()
	done chan error
}

// start runs a worker. It is stopped at the latest when the test ends.
func (r *rig) start(name string, change ...func(*consumer.Config)) *node {
	r.Helper()
	cut := new(atomic.Bool)
	src := r.q.Source()
	cfg := r.cfg
	cfg.Name, cfg.Source, cfg.Store = name, severedSource{src, cut}, severedStore{r.led, cut}
	cfg.Log = slog.New(slog.NewTextHandler(r.Output(), nil))
	cfg.Handlers = r.handlers()
	cfg.Trace.Avoided = func(_, cause string, _ *ledger.Nano) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.avoided[cause]++
	}
	cfg.Trace.Called = func(_ string, s job.Seen) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.saw = append(r.saw, s)
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := consumer.New(cfg)
	if err != nil {
		r.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	n := &node{Consumer: c, stop: stop, done: make(chan error, 1)}
	n.kill = func() { // the process is gone: nothing it does reaches anybody
		cut.Store(true)
		c.Hurry()
		stop()
	}
	go func() { n.done <- c.Run(ctx) }()
	r.Cleanup(func() { stop() })
	return n
}

// end stops a worker and waits for it.
func (r *rig) end(nodes ...*node) {
	r.Helper()
	for _, n := range nodes {
		n.stop()
		if err := <-n.done; err != nil {
			r.Errorf("Run returned %v", err)
		}
	}
}

func (r *rig) handlers(more ...job.Used) *job.Registry {
	reg := new(job.Registry)
	job.Register(reg, job.Def[ask, string]{Name: "ask", Uses: append(job.Uses(r.call), more...), Volatile: []string{"Pad"}, Redact: r.redact,
		Handle: func(ctx context.Context, j *job.Run, in ask) (string, error) {
			r.runs.Add(1)
			if r.before != nil {
				if err := r.before(ctx, j, in); err != nil {
					return "", err
				}
			}
			out, err := r.call.Run(ctx, j, in)
			if err == nil && r.after != nil {
				err = r.after(ctx, j, in)
			}
			return out, err
		}})
	return reg
}

// send publishes one message for each document.
func (r *rig) send(docs ...string) {
	r.Helper()
	for _, d := range docs {
		r.publish(ask{Tenant: "acme", Doc: d})
	}
}

func (r *rig) publish(in ask) {
	r.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		r.Fatal(err)
	}
	m := broker.Message{Body: body, Attributes: map[string]string{consumer.Attribute: "ask"}}
	if err := r.q.Publish(r.Context(), m); err != nil {
		r.Fatal(err)
	}
}

// job reads a row; a missing one ends the test.
func (r *rig) job(doc string) ledger.Job {
	r.Helper()
	j, err := r.led.Job(context.Background(), key(doc))
	if err != nil {
		r.Fatalf("job %s: %v", doc, err)
	}
	return j
}

// want is the whole end state of one document's job.
type want struct {
	state    ledger.State
	runs     int
	open     int
	bill     int                   // generations that the provider billed
	attempts []ledger.AttemptState // in the order of their gates
	errClass string
}

func (r *rig) want(doc string, w want) {
	r.Helper()
	j := r.job(doc)
	got := want{state: j.State, runs: j.Runs, open: j.OpenCalls, bill: r.prov.billed(doc)}
	for _, a := range j.Attempts {
		got.attempts = append(got.attempts, a.State)
	}
	if j.Error != nil && j.State != ledger.Done {
		got.errClass = j.Error.Class
	}
	if fmt.Sprint(got) != fmt.Sprint(w) {
		r.Errorf("job %s is\n\t%+v, want\n\t%+v", doc, got, w)
	}
	if j.State == ledger.Done && string(j.Result.Body) != fmt.Sprintf("%q", "answer to "+doc) {
		r.Errorf("job %s has the result %s", doc, j.Result.Body)
	}
	if j.State != ledger.Running && j.Owner.ID != "" && j.State != ledger.Unknown {
		r.Errorf("job %s is %s and has the owner %s", doc, j.State, j.Owner.ID)
	}
}

// queue is the whole end state of the broker.
func (r *rig) queue(want memory.Depth, dead ...string) {
	r.Helper()
	if got := r.q.Depth(); got != want {
		r.Errorf("the queue holds %+v, want %+v", got, want)
	}
	letters := r.q.DeadLetters()
	if len(letters) != len(dead) {
		r.Errorf("%d dead letters, want %d: %+v", len(letters), len(dead), letters)
		return
	}
	for _, reason := range dead { // deliveries that are handled side by side are set aside in any order
		i := slices.IndexFunc(letters, func(l broker.DeadLetter) bool { return strings.HasPrefix(l.Reason, reason) })
		if i < 0 {
			r.Errorf("no dead letter has the reason %q: %+v", reason, letters)
			return
		}
		letters = slices.Delete(letters, i, i+1)
	}
}

func (r *rig) avoids(want map[string]int) {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !maps.Equal(r.avoided, want) {
		r.Errorf("avoided %v, want %v", r.avoided, want)
	}
}

var done1 = want{state: ledger.Done, runs: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Received}}

var errGone = errors.New("this process was killed")

// severedSource is a source whose process may have been killed.
type severedSource struct {
	broker.Source
	cut *atomic.Bool
}

func (s severedSource) Receive(ctx context.Context, n int) ([]broker.Delivery, error) {
	if s.cut.Load() {
		return nil, errGone
	}
	return s.Source.Receive(ctx, n)
}

func (s severedSource) Ack(ctx context.Context, d broker.Delivery) error {
	if s.cut.Load() {
		return broker.ErrNotHeld
	}
	return s.Source.Ack(ctx, d)
}

func (s severedSource) DeadLetter(ctx context.Context, d broker.Delivery, reason string) error {
	if s.cut.Load() {
		return broker.ErrNotHeld
	}
	return s.Source.DeadLetter(ctx, d, reason)
}

func (s severedSource) Nack(ctx context.Context, d broker.Delivery, delay time.Duration) error {
	if s.cut.Load() {
		return broker.ErrNotHeld
	}
	return s.Source.Nack(ctx, d, delay)
}

func (s severedSource) Extend(ctx context.Context, d broker.Delivery, by time.Duration) (time.Time, error) {
	if s.cut.Load() {
		return time.Time{}, broker.ErrNotHeld
	}
	return s.Source.Extend(ctx, d, by)
}

// severedStore is a ledger whose client may have been killed.
type severedStore struct {
	ledger.Store
	cut *atomic.Bool
}

func (s severedStore) Claim(ctx context.Context, r ledger.Request) (ledger.Claimed, error) {
	if s.cut.Load() {
		return ledger.Claimed{}, ledger.ErrRequest
	}
	return s.Store.Claim(ctx, r)
}

func (s severedStore) Look(ctx context.Context, l ledger.Lease, c ledger.CallRef) (ledger.Looked, error) {
	if s.cut.Load() {
		return ledger.Looked{}, errGone
	}
	return s.Store.Look(ctx, l, c)
}

func (s severedStore) Send(ctx context.Context, l ledger.Lease, a ledger.Attempt) error {
	if s.cut.Load() {
		return errGone
	}
	return s.Store.Send(ctx, l, a)
}

func (s severedStore) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	if s.cut.Load() {
		return ledger.Settled{}, errGone
	}
	return s.Store.Settle(ctx, id, e)
}

func (s severedStore) Complete(ctx context.Context, l ledger.Lease, r ledger.Result) error {
	if s.cut.Load() {
		return errGone
	}
	return s.Store.Complete(ctx, l, r)
}

func (s severedStore) Release(ctx context.Context, l ledger.Lease, o ledger.Outcome) (ledger.Released, error) {
	if s.cut.Load() {
		return ledger.Released{}, errGone
	}
	return s.Store.Release(ctx, l, o)
}

func (s severedStore) Renew(ctx context.Context, id ledger.WorkerID, ttl time.Duration) (ledger.Renewed, error) {
	if s.cut.Load() {
		return ledger.Renewed{}, errGone
	}
	return s.Store.Renew(ctx, id, ttl)
}

func (s severedStore) Leave(ctx context.Context, id ledger.WorkerID) error {
	if s.cut.Load() {
		return errGone
	}
	return s.Store.Leave(ctx, id)
}

func (s severedStore) Count(ctx context.Context, id ledger.WorkerID, batch ledger.ID, all []ledger.Avoided) error {
	if s.cut.Load() {
		return errGone
	}
	return s.Store.Count(ctx, id, batch, all)
}
