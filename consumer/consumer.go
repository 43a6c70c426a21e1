// Package consumer runs handlers on messages so that what they pay for is paid once.
//
// The story of a delivery is told in process.go: decode, look, claim, run the handler
// (each of its calls: look for a saved answer, send once, settle), complete,
// acknowledge. keeper.go keeps leases and deliveries alive meanwhile, sweeper.go
// finds what died, reconciler.go looks for evidence of calls whose outcome is
// unknown, steps.go starts what follows a result, relay.go publishes what it asks for, tally.go counts what was avoided, drain.go ends it all in order.
package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// Consumer runs handlers. Make one with New, run it once.
//
// It lives under three kinds of context. The receive context is Run's own and
// ends when the drain begins. The work context of a run is the handler's: it ends
// with a cause (the lease is lost, the run deadline or the drain time is over, a
// person cancelled). Paid calls under way have a context that ends with the
// drain time alone. What must be written goes under a settle context, which has
// a timeout and is cancelled by nothing.
type Consumer struct {
	cfg    Config
	store  ledger.Store
	log    *slog.Logger
	trace  *tracer
	slots  *slots
	acks   *recent
	asking chan struct{} // one token for each claim that asks the ledger
	tally  tally

	runner *job.Worker // of all runs; made by Run

	worker   atomic.Pointer[ledger.WorkerID]
	lease    atomic.Pointer[time.Time]     // the worker's deadline; nil: not joined
	settles  atomic.Pointer[sharedContext] // the latest; nil: none yet
	drainEnd atomic.Pointer[time.Time]     // when paid calls are given up; nil: not draining

	mu      sync.Mutex
	active  map[*work]struct{}
	waiting int                        // of these, deliveries that have no slot
	orphans map[ledger.Key][]ledger.ID // tokens of claims that got no answer
	unheard []ledger.Stored            // jobs that the ledger carries, of such claims
	said    map[string]bool            // what is logged once

	asked      chan *ledger.Stored    // steps of results that were committed here
	outbox     chan []ledger.Outgoing // messages of such results, each of one
	unread     int                    // the sweeper's own: listed jobs that it could not read the last time
	wake       chan struct{}          // the keeper has something new to keep
	nextKeep   atomic.Int64           // when the keeper wakes by itself, in Unix nanoseconds
	renewDue   atomic.Bool            // the keeper should renew at once
	renewFails bool                   // the keeper's own: the last renewal did not go through
	freed      chan struct{}          // a slot was given back
	claims     chan struct{}          // a run has begun
	runs       sync.WaitGroup         // every goroutine that processes a delivery or a job
	hurry      chan struct{}          // closed: the drain waits no longer
	hurryOnce  sync.Once
	deadOnce   sync.Once // it was said that there is no dead-letter queue
}

// Status is what a readiness probe wants to know.
type Status struct {
	Joined   bool // the ledger knows this worker and its lease is good
	Draining bool
	Running  int // deliveries and jobs in hand
}

// New checks cfg and makes a consumer. Its error joins every problem.
func New(cfg Config) (*Consumer, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	c := &Consumer{cfg: cfg, log: cfg.Log.With("worker", cfg.Name), acks: newRecent(4096),
		active: make(map[*work]struct{}), orphans: make(map[ledger.Key][]ledger.ID), said: make(map[string]bool), wake: make(chan struct{}, 1), freed: make(chan struct{}, 1), claims: make(chan struct{}, 1), hurry: make(chan struct{}),
		asked: make(chan *ledger.Stored, cfg.Workers), outbox: make(chan []ledger.Outgoing, cfg.Workers)}
	c.trace = &tracer{Trace: cfg.Trace, log: c.log}
	c.store = &timed{cfg.Store, c.trace}
	c.slots, c.asking = newSlots(cfg.Workers), make(chan struct{}, claimsAtOnce)
	return c, nil
}

// Run receives and runs until ctx ends, then drains: it receives nothing new, lets
// running handlers finish for up to Config.Drain, records calls still under
// way as unknown, gives everything else back, and returns nil. It waits for every
// goroutine that it started, except for handlers that ignore their context past the
// drain time. It returns an error only when it cannot go on: the source or
// the ledger refuses for good.
func (c *Consumer) Run(ctx context.Context) error {
	c.uncounted()
	if err := c.join(ctx); err != nil {
		return ignoreEnd(ctx, err)
	}
	// The lives of a drain: receiving ends first, background work when the last run
	// has ended, paid calls when the drain time is over.
	receive, stop := context.WithCancelCause(ctx)
	background, done := context.WithCancel(context.WithoutCancel(ctx))
	paid, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	c.runner = c.inCommon(paid)

	var loops, keeping sync.WaitGroup
	keeping.Go(func() { c.keep(background) })
	keeping.Go(func() { c.tallies(background) })
	keeping.Go(func() { c.heed(background) })
	if c.cfg.Publisher != nil {
		keeping.Go(func() { c.relay(background) })
	}
	loops.Go(func() { stop(c.receive(receive, paid)) })
	loops.Go(func() { c.sweep(receive, paid) })
	loops.Go(func() { c.steps(receive, paid) })
	loops.Go(func() { c.reconcile(receive) })

	<-receive.Done()
	c.drain(cut, &loops)
	done()
	keeping.Wait()
	keeping.Go(c.flush) // beside the other: a ledger that hangs holds the process up once
	c.leave()
	keeping.Wait()
	return ignoreEnd(ctx, context.Cause(receive))
}

// Status may be called at any time.
func (c *Consumer) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Status{Joined: c.joined(), Draining: c.drainEnd.Load() != nil, Running: len(c.active)}
}

// joined reports whether this worker's lease is good as far as it can know.
func (c *Consumer) joined() bool {
	d := c.lease.Load()
	return d != nil && time.Now().Before(*d)
}

// join opens an epoch of this worker, and tries until it has one.
func (c *Consumer) join(ctx context.Context) error {
	host, _ := os.Hostname() // for people; an empty one is no fault
	w := ledger.Worker{ID: c.cfg.Name, TTL: c.cfg.Lease, Host: host, PID: os.Getpid(), Version: c.cfg.Version, Config: c.cfg.ConfigHash}
	return repeat(ctx.Done(), pauses{first: 200 * time.Millisecond, ceil: 10 * time.Second}, 0, func() error {
		asked := time.Now()
		jctx, cancel := context.WithTimeout(ctx, settleTimeout)
		defer cancel()
		id, err := c.store.Join(jctx, w)
		if errors.Is(err, ledger.ErrSchema) {
			return permanent{fmt.Errorf("joining the ledger: %w", err)}
		}
		if err != nil {
			c.log.WarnContext(ctx, "ledger not joined", "error", err)
			return err
		}
		deadline := asked.Add(c.cfg.Lease)
		c.worker.Store(&id)
		c.lease.Store(&deadline)
		c.log.InfoContext(ctx, "joined the ledger", "epoch", id.Epoch, "lease", c.cfg.Lease)
		return nil
	})
}

func (c *Consumer) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	if err := c.store.Leave(ctx, *c.worker.Load()); err != nil && !errors.Is(err, ledger.ErrClosed) {
		c.log.WarnContext(ctx, "epoch not closed; jobs given back wait for its lease to end", "error", err)
	}
}

// receive takes slots, fills them with deliveries and starts a goroutine for each.
func (c *Consumer) receive(ctx, paid context.Context) error {
	wait := pauses{first: 100 * time.Millisecond, ceil: 10 * time.Second}
	for {
		for !c.joined() && ctx.Err() == nil { // a message taken now could not be claimed
			sleep(ctx, c.cfg.Lease/20)
		}
		n, err := c.slots.take(ctx, c.cfg.Workers)
		if err != nil {
			return nil // the drain began
		}
		var ds []broker.Delivery
		c.slots.poll(ctx, func(ctx context.Context) { ds, err = c.cfg.Source.Receive(ctx, n) })
		c.slots.give(n - len(ds))
		for _, d := range ds {
			w := c.begin(&held{d: d, span: time.Until(d.Deadline), renewed: time.Now()})
			c.runs.Go(func() { c.deliver(ctx, paid, w) })
		}
		switch {
		case err == nil:
			wait.reset()
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errYield), errors.Is(err, context.Canceled):
			// Whoever wants the slot may only be about to take it: on one processor it does not get to it while polls
			// begin and end here.
			runtime.Gosched()
		case errors.Is(err, broker.ErrUnavailable):
			c.log.WarnContext(ctx, "nothing can be received", "error", err)
			sleep(ctx, wait.next())
		default:
			return fmt.Errorf("receiving from the broker: %w", err)
		}
	}
}

// settleTimeout bounds one write to the ledger or the broker that must be tried
// whatever was cancelled.
const settleTimeout = 10 * time.Second

// settling is the context of such a write.
func settling(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
}

// shareFor is how long a settle context is given to writes that begin.
const shareFor = time.Second

// sharedContext is a settle context for what is written of every delivery, its claim, its end, its ack: with a context and a timer for each, they
// would be a good part of what a duplicate takes. Writes that begin within shareFor have one in common, so it ends up to
// shareFor later than one of their own would, and never sooner.
type sharedContext struct {
	context.Context
	until time.Time // who begins later gets another one
}

// common is the settle context of those who write now. ctx is any below Run's: all of them have its values.
func (c *Consumer) common(ctx context.Context) context.Context {
	now := time.Now()
	if s := c.settles.Load(); s != nil && now.Before(s.until) {
		return s.Context
	}
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout+shareFor)
	context.AfterFunc(sctx, cancel) // it ends by its time alone
	c.settles.Store(&sharedContext{sctx, now.Add(shareFor)})
	return sctx
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// ignoreEnd makes an orderly end of ctx no error.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
