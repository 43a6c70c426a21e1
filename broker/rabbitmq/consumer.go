package rabbitmq

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/paidonce/paidonce/broker"
)

// consumer owns the connection that receives. One goroutine, supervise, makes all
// requests to the broker; the pump of each subscription only reads, and callers
// only settle.
type consumer struct {
	b        *Broker
	id       string        // begins every receipt: those of another Source are not ours
	wake     chan struct{} // has room for one: supervise looks again
	stopping chan struct{} // closed by close
	stopped  chan struct{} // closed when supervise is gone
	closing  context.Context
	closeErr error

	mu        sync.Mutex
	started   bool
	closed    bool
	session   *session // nil while there is none
	buffer    []*held  // arrived and not received, oldest first
	waiting   int      // Receive calls that wait
	quit      bool     // the last of them gave up
	idleSince time.Time
	settling  int           // calls that settle
	changed   chan struct{} // closed and made anew when a waiter should look again
}

var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func newConsumer(b *Broker) *consumer {
	return &consumer{b: b, id: rand.Text()[:8], wake: make(chan struct{}, 1), stopping: make(chan struct{}),
		stopped: make(chan struct{}), changed: make(chan struct{})}
}

// Receive takes 1 to n deliveries (n below 1 counts as 1), oldest first. The
// first call makes the connection. It waits out every loss of the connection.
//
// What is prefetched while nobody receives goes back to the queue: at once when
// ctx ends, after 2 s (or a tenth of AckTimeout) otherwise.
//
// Errors: the cause of ctx, ErrClosed, ErrMismatch.
func (b *Broker) Receive(ctx context.Context, n int) ([]broker.Delivery, error) {
	c := b.consumer
	for {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("receive: %w", context.Cause(ctx))
		}
		if err := b.usable(); err != nil {
			return nil, fmt.Errorf("receive: %w", err)
		}
		ds, changed := c.take(n)
		if len(ds) > 0 {
			return ds, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-b.broken:
		}
		c.leave(ctx.Err() != nil)
	}
}

// take hands out what is there, or makes the caller one that waits.
func (c *consumer) take(n int) ([]broker.Delivery, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started && !c.closed {
		c.started = true
		go c.supervise(c.b.life)
	}
	c.quit, c.idleSince = false, time.Now()
	ds := make([]broker.Delivery, min(max(n, 1), len(c.buffer)))
	for i, h := range c.buffer[:len(ds)] {
		h.state = out
		ds[i] = h.delivery()
	}
	c.buffer = slices.Delete(c.buffer, 0, len(ds))
	if len(ds) == 0 {
		c.waiting++
		c.lookIfLacking()
	}
	if c.closed {
		return ds, closedChan // nobody will broadcast any more
	}
	return ds, c.changed
}

// leave ends the wait of one caller.
func (c *consumer) leave(gaveUp bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting--
	c.idleSince = time.Now()
	if c.waiting == 0 && gaveUp {
		c.quit = true
		c.look()
	}
}

// look makes supervise look again. It may be called with and without the lock.
func (c *consumer) look() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// lookIfLacking spares supervise the look that would change nothing. The lock is held.
func (c *consumer) lookIfLacking() {
	if c.session != nil && c.session.lacking() {
		c.look()
	}
}

// broadcast wakes whoever waits for a change. The lock is held.
func (c *consumer) broadcast() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// supervise keeps a session until close.
func (c *consumer) supervise(ctx context.Context) {
	defer close(c.stopped)
	pauses := newBackoff()
	var l *link
	defer func() {
		if l != nil {
			l.kill()
		}
	}()
	for {
		s, err := c.open(ctx, &l)
		if err == nil {
			began := time.Now()
			err = s.run(ctx)
			c.drop(s)
			if s.delivered.Load() || time.Since(began) > steady {
				pauses.Reset()
			}
			if errors.Is(err, broker.ErrClosed) {
				return
			}
		}
		if errors.Is(err, ErrMismatch) && c.b.breakDown(err) {
			return
		}
		if !c.b.pause(ctx, c.stopping, "consumer", err, pauses.NextBackOff()) {
			return
		}
	}
}

// open begins a session, on the link that is there or on a new one.
func (c *consumer) open(ctx context.Context, l **link) (*session, error) {
	ctx, cancel := whileOpen(ctx, c.stopping)
	defer cancel()
	if *l == nil || (*l).conn.IsClosed() {
		*l = nil
		fresh, err := c.b.dial(ctx, "consumer")
		if err != nil {
			return nil, err
		}
		*l = fresh
	}
	if err := c.b.prepare(ctx, *l); err != nil {
		return nil, c.b.cfg.secrets.error(err)
	}
	s := &session{c: c, link: *l, held: map[uint64]*held{}, dead: make(chan struct{}), lost: make(chan struct{}, 1), writes: make(chan writing)}
	err := s.link.do(ctx, callLimit, func() (err error) {
		if s.ch, err = s.link.conn.Channel(); err != nil {
			return err
		}
		s.chClosed = s.ch.NotifyClose(make(chan *amqp.Error, 1))
		s.cancels = s.ch.NotifyCancel(make(chan string, 8))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	c.b.begun(func(st *status) {
		st.Generation++
		st.consumerUp, st.prepared, st.Version = true, true, s.link.version
		s.generation = st.Generation
	})
	s.receipts = c.id + "-" + strconv.FormatInt(s.generation, 10) + "-"
	go s.write(s.ch)
	c.mu.Lock()
	c.session = s
	c.mu.Unlock()
	return s, nil
}

// drop ends s: what it held is the broker's again, and settling it does nothing.
func (c *consumer) drop(s *session) {
	c.mu.Lock()
	c.session = nil
	c.buffer = nil
	n := len(s.held)
	clear(s.held)
	close(s.dead)
	c.broadcast()
	c.mu.Unlock()
	c.b.count(func(st *status) {
		st.consumerUp = false
		st.TakenBack += int64(n)
	})
	// Not waited for: on a link that is in trouble this takes its time.
	go s.link.do(context.Background(), 5*time.Second, s.ch.Close)
}

// close ends supervise, in the order that loses no ack.
func (c *consumer) close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	started := c.started
	c.broadcast()
	c.mu.Unlock()
	if !started {
		return nil
	}
	c.closing = ctx
	close(c.stopping)
	<-c.stopped
	return c.closeErr
}

// held counts the deliveries of the session, received or not. The lock is held.
func (c *consumer) held() int {
	if c.session == nil {
		return 0
	}
	return len(c.session.held)
}

// oldest is the age of the oldest delivery here. The lock is held.
func (c *consumer) oldest() time.Duration {
	var age time.Duration
	if c.session != nil {
		for _, h := range c.session.held {
			age = max(age, time.Since(h.arrived))
		}
	}
	return age
}

// whileOpen is a context that also ends when stopping is closed.
func whileOpen(ctx context.Context, stopping <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
