package agent_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/handlers/agent"
	"github.com/paidonce/paidonce/handlers/provider"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	memledger "github.com/paidonce/paidonce/ledger/memory"
)

const (
	message = `{"tenant":"acme","task":"1077","goal":"[key:the task] Work."}`
	taskKey = "acme:agent.task:1077"
)

// rig is one task, the workers that it meets, and a provider, under simulated time. The SDK and the model server are
// the real ones; pipes stand for the network, which a bubble must not have.
type rig struct {
	*testing.T
	q      *memory.Queue
	led    *memledger.Ledger
	models *modelserver.Server
	net    *pipes
	set    provider.Settings
	opt    agent.Options
	cfg    consumer.Config

	mu    sync.Mutex
	asked []string       // the inputs of generations, in order
	turn  map[string]int // of a generation, by the client's id of the request
	used  map[string]int // runs of the tools' functions
}

// bubble runs a test with a model that asks for tools in each of some turns, and then answers.
func bubble(t *testing.T, turns [][]modelserver.ToolCall, f func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, q: memory.New(memory.Options{Visibility: time.Minute}), led: memledger.New(), net: newPipes(), turn: map[string]int{}, used: map[string]int{}}
		var err error
		r.models, err = modelserver.Start(modelserver.Options{Listener: r.net, Latency: time.Second,
			CallTools: func(q modelserver.Request) []modelserver.ToolCall {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.asked = append(r.asked, q.Prompt)
				r.turn[q.ClientID()] = q.Turn
				if q.Turn > len(turns) {
					return nil
				}
				return turns[q.Turn-1]
			},
			Generate: func(modelserver.Request) string { return "Done." }})
		if err != nil {
			t.Fatal(err)
		}
		defer r.models.Close()
		r.set = provider.Settings{
			Routes:    []provider.Route{{Name: "only", Provider: provider.Anthropic, Model: "claude-haiku-4-5", Timeout: 90 * time.Second}},
			Anthropic: provider.Account{BaseURL: r.models.URL(), APIKey: "k"},
		}
		r.opt = agent.Options{Tools: append(agent.Builtin(), r.counted("slow", 5*time.Second), r.counted("fast", time.Second))}
		r.cfg = consumer.Config{Workers: 4, Lease: 30 * time.Second}
		f(r)
	})
}

// counted is a free tool that takes its time.
func (r *rig) counted(name string, took time.Duration) agent.Tool {
	return agent.Tool{Name: name, Func: func(ctx context.Context, u agent.Use) (string, error) {
		r.mu.Lock()
		r.used[name+u.Arguments]++
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(took):
			return name + " says " + u.Arguments, nil
		}
	}}
}

// uses counts the runs of the tools' functions so far.
func (r *rig) uses() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.used)
}

// node is one worker process.
type node struct {
	*consumer.Consumer
	stop context.CancelFunc
	done chan error
	gone atomic.Bool
}

// kill ends the process: nothing it does reaches anybody any more.
func (n *node) kill() {
	n.gone.Store(true)
	n.Hurry()
	n.stop()
}

// start runs a worker whose ledger is asked through before, which may kill it.
func (r *rig) start(name string, before func(n *node, verb string) (after bool)) *node {
	r.Helper()
	n := &node{done: make(chan error, 1)}
	reg := new(job.Registry)
	job.Register(reg, agent.New(r.set, r.opt))
	cfg := r.cfg
	cfg.Name, cfg.Handlers, cfg.Wire = name, reg, &http.Transport{DialContext: r.net.dial}
	cfg.Source, cfg.Store = mortalSource{r.q.Source(), n}, mortalStore{r.led, n, before}
	cfg.Log = slog.New(slog.NewTextHandler(r.Output(), nil))
	c, err := consumer.New(cfg)
	if err != nil {
		r.Fatal(err)
	}
	n.Consumer = c
	var ctx context.Context
	ctx, n.stop = context.WithCancel(context.Background())
	go func() { n.done <- c.Run(ctx) }()
	r.Cleanup(n.stop)
	return n
}

func (r *rig) end(n *node) {
	r.Helper()
	n.stop()
	if err := <-n.done; err != nil {
		r.Errorf("Run returned %v", err)
	}
}

func (r *rig) send() {
	r.Helper()
	m := broker.Message{Body: []byte(message), Attributes: map[string]string{consumer.Attribute: agent.Name}}
	if err := r.q.Publish(r.Context(), m); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) job() ledger.Job {
	r.Helper()
	j, err := r.led.Job(context.Background(), ledger.Key{Tenant: "acme", Text: taskKey})
	if err != nil {
		r.Fatal(err)
	}
	return j
}

// want compares the whole end state: of the job, its attempts (how many of which call in which state), and the bill,
// which has each input of a turn once.
func (r *rig) want(state ledger.State, attempts map[string]int, bill int) ledger.Job {
	r.Helper()
	j := r.job()
	got := map[string]int{}
	for _, a := range j.Attempts {
		got[fmt.Sprint(a.Call.Name, " ", a.State)]++
	}
	if j.State != state || !maps.Equal(got, attempts) {
		r.Errorf("the job is %s (error %v) with %v, want %s with %v", j.State, j.Error, got, state, attempts)
	}
	if state == ledger.Done && (j.Result == nil || string(j.Result.Body) != `{"answer":"Done."}`) {
		r.Errorf("the result is %+v", j.Result)
	}
	r.once(bill)
	if d := r.q.Depth(); d != (memory.Depth{}) || len(r.q.DeadLetters()) != 0 {
		r.Errorf("the queue holds %+v, and %d dead letters", d, len(r.q.DeadLetters()))
	}
	return j
}

// once wants so many lines on the bill, and no two for one input.
func (r *rig) once(bill int) {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	inputs := slices.Compact(slices.Sorted(slices.Values(r.asked)))
	if lines := len(r.models.Bill()); lines != bill || len(r.asked) != lines || len(inputs) != lines {
		r.Errorf("%d lines on the bill, of %d inputs; want %d", lines, len(inputs), bill)
	}
}

// resolve says of every open call what happened to it: the provider's log is the bill.
func (r *rig) resolve(turns [][]modelserver.ToolCall) {
	r.Helper()
	j := r.job()
	for _, a := range j.Attempts {
		if a.State != ledger.Sent {
			continue
		}
		if a.Call.Name != "turn" {
			r.Errorf("a use of a tool is held: %+v", a)
		}
		e := ledger.Evidence{State: ledger.NotSent, By: ledger.ByPerson, Who: "ann", Reason: "not in the provider's log"}
		if n := r.turn[a.ClientRequestID]; n > 0 {
			e.State, e.Reason = ledger.Received, "found in the provider's log"
			e.Response = &ledger.Response{Codec: "json", Body: []byte(`{"text":"Done."}`)}
			if n <= len(turns) {
				e.Response.Body = fmt.Appendf(nil, `{"tools":[{"name":%q,"arguments":%q},{"name":%q,"arguments":%q}]}`,
					turns[n-1][0].Name, turns[n-1][0].Arguments, turns[n-1][1].Name, turns[n-1][1].Arguments)
			}
		}
		if _, err := r.led.Settle(r.Context(), ledger.AttemptID{Tenant: "acme", Job: j.ID, ID: a.ID}, e); err != nil {
			r.Fatal(err)
		}
	}
}

var errGone = errors.New("this process was killed")

// mortalSource is a source whose process may have been killed.
type mortalSource struct {
	broker.Source
	n *node
}

func (s mortalSource) Receive(ctx context.Context, n int) ([]broker.Delivery, error) {
	if s.n.gone.Load() {
		return nil, errGone
	}
	return s.Source.Receive(ctx, n)
}

func (s mortalSource) Ack(ctx context.Context, d broker.Delivery) error {
	if s.n.gone.Load() {
		return broker.ErrNotHeld
	}
	return s.Source.Ack(ctx, d)
}

func (s mortalSource) Nack(ctx context.Context, d broker.Delivery, delay time.Duration) error {
	if s.n.gone.Load() {
		return broker.ErrNotHeld
	}
	return s.Source.Nack(ctx, d, delay)
}

// mortalStore is a ledger whose client may be killed before what it asks arrives, or before the answer does.
type mortalStore struct {
	ledger.Store
	n      *node
	before func(n *node, verb string) (after bool) // nil: it lives
}

// ask does what a process asks of the ledger, if it still can, and answers if it still listens.
func ask[T any](s mortalStore, verb string, do func() (T, error)) (T, error) {
	var none T
	after := false
	if s.before != nil && !s.n.gone.Load() {
		after = s.before(s.n, verb)
	}
	if s.n.gone.Load() {
		return none, errGone
	}
	v, err := do()
	if after {
		s.n.kill()
	}
	if s.n.gone.Load() {
		return none, errGone
	}
	return v, err
}

func (s mortalStore) Claim(ctx context.Context, r ledger.Request) (ledger.Claimed, error) {
	return ask(s, "claim", func() (ledger.Claimed, error) { return s.Store.Claim(ctx, r) })
}

func (s mortalStore) Look(ctx context.Context, l ledger.Lease, c ledger.CallRef) (ledger.Looked, error) {
	return ask(s, "look", func() (ledger.Looked, error) { return s.Store.Look(ctx, l, c) })
}

func (s mortalStore) Send(ctx context.Context, l ledger.Lease, a ledger.Attempt) error {
	_, err := ask(s, "send", func() (int, error) { return 0, s.Store.Send(ctx, l, a) })
	return err
}

func (s mortalStore) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	return ask(s, "settle", func() (ledger.Settled, error) { return s.Store.Settle(ctx, id, e) })
}

func (s mortalStore) Complete(ctx context.Context, l ledger.Lease, r ledger.Result) error {
	_, err := ask(s, "complete", func() (int, error) { return 0, s.Store.Complete(ctx, l, r) })
	return err
}

func (s mortalStore) Release(ctx context.Context, l ledger.Lease, o ledger.Outcome) (ledger.Released, error) {
	return ask(s, "release", func() (ledger.Released, error) { return s.Store.Release(ctx, l, o) })
}

func (s mortalStore) Renew(ctx context.Context, id ledger.WorkerID, ttl time.Duration) (ledger.Renewed, error) {
	if s.n.gone.Load() {
		return ledger.Renewed{}, errGone
	}
	return s.Store.Renew(ctx, id, ttl)
}

func (s mortalStore) Leave(ctx context.Context, id ledger.WorkerID) error {
	if s.n.gone.Load() {
		return errGone
	}
	return s.Store.Leave(ctx, id)
}

// pipes are a network of one server.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	close func()
}

func newPipes() *pipes {
	p := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.done) })
	return p
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error { p.close(); return nil }

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return address{} }

type address struct{}

func (address) Network() string { return "pipe" }
func (address) String() string  { return "models.test:80" }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
