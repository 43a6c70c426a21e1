// Package mortal runs workers that can be killed at any point, under simulated time. The consumer, the memory ledger and the memory broker are
// the real ones; pipes stand for the network, which a bubble of synctest must not have.
//
//	mortal.Bubble(t, func(w *mortal.World) {
//		sink, err := smtpsink.Start(smtpsink.Options{Listener: w.Net.Listen("mail.test:25")})
//		w.Register = func(reg *job.Registry) { job.RegisterStep(reg, …) }
//		w.Send("email", `{…}`)
//		n := w.Start("a", mortal.Death(3, false))
//		…
//	})
package mortal

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
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

// World is a queue, a ledger and a network, and the workers that share them.
type World struct {
	*testing.T
	Queue  *memory.Queue
	Ledger *memledger.Ledger
	Net    *Net
	// Register registers the handlers of a worker, each time anew.
	Register func(*job.Registry)
	// Config is that of every worker; what it must have it gets.
	Config consumer.Config
	// Real has the workers use the machine's network instead of Net.
	Real bool
	// Level is the lowest that the workers log.
	Level slog.Level
	// Watch is told of everything that a worker asks of the ledger about a job, and of the broker about a message, before it
	// arrives and after it was done. It may freeze or kill the worker there. Before an ack it may say that the ack is lost: the worker
	// is told that all is well. nil: nobody watches.
	Watch func(n *Node, op Op, after bool) (lost bool)
	// Way may put something between a worker that is about to start and its ledger and broker, which cfg names already, and change the rest
	// of its configuration. What is asked comes to it from a living process alone. nil: nothing is between.
	Way func(n *Node, cfg *consumer.Config)
}

// Op is one thing that a worker asks.
type Op struct {
	Verb string     // claim, look, send, settle, complete, release; receive, ack, nack, dead_letter
	Key  ledger.Key // of the job; zero for settle and for what is asked of the broker
	// Arg is what is asked with: a ledger.Request, CallRef, Attempt, Settling, Result or Outcome, a broker.Delivery, or what was received.
	Arg   any
	Fence int64 // of the lease; 0: none
	Err   error // after: how it went
}

// Settling is the Arg of settle.
type Settling struct {
	ID       ledger.AttemptID
	Evidence ledger.Evidence
}

// Bubble runs f in a bubble.
func Bubble(t *testing.T, f func(*World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(New(t)) })
}

// New makes a world outside of a bubble, where time and sockets are real.
func New(t *testing.T) *World {
	return &World{T: t, Queue: memory.New(memory.Options{Visibility: time.Minute}), Ledger: memledger.New(), Net: newNet(),
		Config: consumer.Config{Workers: 4, Lease: 30 * time.Second}}
}

// Client is an HTTP client of the world's network.
func (w *World) Client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: w.Net.Dial, DisableKeepAlives: true}}
}

// Send puts a message for a job into the queue.
func (w *World) Send(name, body string) {
	w.Helper()
	m := broker.Message{Body: []byte(body), Attributes: map[string]string{consumer.Attribute: name}}
	if err := w.Queue.Publish(w.Context(), m); err != nil {
		w.Fatal(err)
	}
}

// Job reads a job or a step; ok: there is one.
func (w *World) Job(tenant, key string) (j ledger.Job, ok bool) {
	w.Helper()
	j, err := w.Ledger.Job(context.Background(), ledger.Key{Tenant: tenant, Text: key})
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		w.Fatal(err)
	}
	return j, err == nil
}

// Node is one worker process.
type Node struct {
	*consumer.Consumer
	Name string
	net  *Net
	stop context.CancelFunc
	done chan error
	gone atomic.Bool

	mu     sync.Mutex
	worker ledger.WorkerID    // its latest life
	awake  context.Context    // ends when it freezes
	freeze context.CancelFunc // ends awake; nil: it is frozen
	thawed chan struct{}      // closed when it is not frozen
}

func newNode(name string, net *Net) *Node {
	n := &Node{Name: name, net: net, done: make(chan error, 1), thawed: make(chan struct{})}
	n.awake, n.freeze = context.WithCancel(context.Background())
	close(n.thawed)
	return n
}

// Kill ends the process: nothing it does reaches the ledger or the broker any more. Its handlers go on in vain, until they
// ask for something.
func (n *Node) Kill() {
	n.gone.Store(true)
	n.Hurry()
	n.stop()
	n.Thaw()
}

// Stop begins its drain.
func (n *Node) Stop() { n.stop() }

// Freeze stops the process where it asks for something or reads from the network next. One that is never thawed is dead, with
// its handlers stopped as by SIGKILL; the world must Kill it in the end.
func (n *Node) Freeze() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.freeze != nil && !n.gone.Load() {
		n.freeze()
		n.freeze, n.thawed = nil, make(chan struct{})
	}
}

// Thaw lets a frozen process go on.
func (n *Node) Thaw() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.freeze == nil {
		n.awake, n.freeze = context.WithCancel(context.Background())
		close(n.thawed)
	}
}

// Frozen reports whether it is.
func (n *Node) Frozen() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.freeze == nil
}

// Worker is its latest life in the ledger.
func (n *Node) Worker() ledger.WorkerID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.worker
}

// Runs waits while the process is frozen, and says whether it is alive.
func (n *Node) Runs() bool { return n.runs() }

func (n *Node) runs() bool {
	for {
		n.mu.Lock()
		frozen, thawed := n.freeze == nil, n.thawed
		n.mu.Unlock()
		if !frozen {
			return !n.Gone()
		}
		<-thawed
	}
}

// nodeKey finds a process in the contexts of its handlers.
type nodeKey struct{}

// NodeOf is the process that a context of a handler belongs to; nil: none.
func NodeOf(ctx context.Context) *Node {
	n, _ := ctx.Value(nodeKey{}).(*Node)
	return n
}

// Gone reports whether the process was killed.
func (n *Node) Gone() bool { return n.gone.Load() }

// Buried waits until a killed process has no goroutine left.
func (n *Node) Buried() { <-n.done }

// Fate says, before a process asks the ledger something about a job, whether it dies: at once, by calling Kill, or once that was
// done and before it hears of it (after).
type Fate func(n *Node, verb string) (after bool)

// Death kills a process at the nth thing, from 1, that it asks of the ledger about a job: before it arrives, or after it was done
// and before the answer is heard. asked counts them.
func Death(nth int, after bool, asked *atomic.Int64) Fate {
	return func(n *Node, _ string) bool {
		if int(asked.Add(1)) != nth {
			return false
		}
		if !after {
			n.Kill()
		}
		return after
	}
}

// Start runs a worker. fate nil: it lives.
func (w *World) Start(name string, fate Fate) *Node {
	w.Helper()
	n := newNode(name, w.Net)
	cfg := w.Config
	cfg.Handlers = new(job.Registry)
	w.Register(cfg.Handlers)
	if cfg.Name = name; !w.Real {
		cfg.Wire = &http.Transport{DialContext: n.dial, DialTLSContext: n.dial}
	}
	cfg.Source, cfg.Store = w.Queue.Source(), w.Ledger
	if w.Way != nil {
		w.Way(n, &cfg)
	}
	cfg.Source, cfg.Store = source{cfg.Source, n, w.Watch}, store{cfg.Store, n, fate, w.Watch}
	if cfg.Publisher != nil {
		cfg.Publisher = publisher{cfg.Publisher, n}
	}
	cfg.Log = slog.New(slog.NewTextHandler(w.Output(), &slog.HandlerOptions{Level: w.Level}))
	c, err := consumer.New(cfg)
	if err != nil {
		w.Fatal(err)
	}
	n.Consumer = c
	var ctx context.Context
	ctx, n.stop = context.WithCancel(context.WithValue(context.Background(), nodeKey{}, n))
	go func() {
		n.done <- c.Run(ctx)
		close(n.done)
	}()
	w.Cleanup(n.stop)
	return n
}

// End stops a worker in order.
func (w *World) End(n *Node) {
	w.Helper()
	n.stop()
	if err := <-n.done; err != nil {
		w.Errorf("Run returned %v", err)
	}
}

// Idle runs one worker for d, and ends it.
func (w *World) Idle(d time.Duration) {
	w.Helper()
	n := w.Start("idle", nil)
	time.Sleep(d)
	w.End(n)
}

// Drained wants an empty queue without dead letters.
func (w *World) Drained() {
	w.Helper()
	if d := w.Queue.Depth(); d != (memory.Depth{}) || len(w.Queue.DeadLetters()) != 0 {
		w.Errorf("the queue holds %+v, and %d dead letters", d, len(w.Queue.DeadLetters()))
	}
}
