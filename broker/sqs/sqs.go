// Package sqs is the adapter for Amazon SQS, standard and FIFO queues.
//
// What differs from other brokers:
//
//   - A delivery is hidden for the visibility timeout. On a standard queue the handle
//     of an expired one still acts on the message, also on the hold of whoever received it
//     since. So each delivery has a deadline of this process's own clock, and after it nothing
//     is sent for it but a delete: Ack of a late delivery removes the message and
//     returns ErrNotHeld. On a FIFO queue not even that.
//   - A poll is never cancelled: SQS would hand a message to nobody and hide it.
//     When the ctx of Receive ends, its poll goes on until the server answers. What it
//     brings is kept for a quarter of a second for the next Receive and then
//     given back.
//   - Of a FIFO group one message is handed out at a time. Those that came with it wait
//     here, are extended with it, and follow when it was acknowledged. When it is given
//     back or lost they go back too, last one first.
//   - Deletes and visibility changes of all callers travel in batches. A caller whose
//     ctx ends leaves its entry in the batch; it may still happen.
//   - Receives counts what was never received too: a lost reply, a message given back
//     unused.
//   - No delivery is held longer than 12 hours from its receive.
package sqs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/paidonce/paidonce/broker"
)

const (
	// strandMargin is what Close keeps of its time to cut a poll that is still open.
	strandMargin = 2 * time.Second
	// shortest and longest are the pauses between receives that do not succeed.
	shortest, longest = 200 * time.Millisecond, 30 * time.Second
)

// Broker is one queue. Its methods may be called at the same time.
type Broker struct {
	cfg     *settings
	id      string // begins every receipt
	clients *clients
	deletes *batcher
	changes *batcher

	life    context.Context // of everything but polls; ends with Close
	end     context.CancelFunc
	polling context.Context // of polls
	cut     context.CancelFunc

	preparing chan struct{} // has room for one: who asks SQS for the queue

	mu          sync.Mutex
	queue       *queue    // nil until SQS said what it is
	described   time.Time // when it was asked last
	undescribed bool      // it did not answer, and the log says so
	visibility  time.Duration
	holds       map[string]*hold // by receipt
	groups      map[string]*group
	kept        []*hold // wait for a Receive, oldest first
	keeping     bool    // a timer looks after kept
	waiters     []*waiter
	polls       map[*poll]struct{}
	target      int // polls that may be open at once
	fulls       int // answers since target changed, all of them full
	pauses      *backoff.ExponentialBackOff
	serial      int64 // of receipts
	busy        int   // polls and background work that Close waits for
	changed     chan struct{}
	stopping    chan struct{} // closed by Close
	closed      bool
	dropped     time.Time
	stats       status
	replies     map[string]string // URLs of queues that answers went to, by what a message called them
}

var (
	_ broker.Source      = (*Broker)(nil)
	_ broker.Publisher   = (*Broker)(nil)
	_ broker.DeadLetters = (*Broker)(nil)
	_ broker.Replier     = (*Broker)(nil)
)

// Open checks the configuration and asks SQS for the queue. A queue that is missing or
// cannot be reached is no error: the adapter asks again when it is used, and State
// says how that fares. A queue without a dead-letter queue gives a warning in the log.
//
// Errors: ErrConfig, ErrQueue, and the cause of a ctx that ended.
func Open(ctx context.Context, c Config) (*Broker, error) {
	cfg, err := c.resolve()
	if err != nil {
		return nil, err
	}
	cs, err := cfg.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("open queue %s: %w", nameOf(cfg.Queue), err)
	}
	b := newBroker(cfg, cs)
	if _, err := b.prepare(ctx); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", broker.ErrUnavailable, context.Cause(ctx))
		}
		if errors.Is(err, ErrQueue) || ctx.Err() != nil {
			b.end()
			cs.close()
			return nil, fmt.Errorf("open queue %s: %w", nameOf(cfg.Queue), err)
		}
		b.note("the queue is not there yet", err, 0)
	}
	return b, nil
}

func newBroker(cfg *settings, cs *clients) *Broker {
	b := &Broker{cfg: cfg, id: rand.Text()[:8], clients: cs, holds: map[string]*hold{}, groups: map[string]*group{}, polls: map[*poll]struct{}{},
		target: 1, preparing: make(chan struct{}, 1), changed: make(chan struct{}), stopping: make(chan struct{})}
	b.life, b.end = context.WithCancel(context.Background())
	b.polling, b.cut = context.WithCancel(b.life)
	b.deletes = &batcher{b: b, send: b.deleteBatch}
	b.changes = &batcher{b: b, change: true, send: b.changeBatch}
	b.pauses = backoff.NewExponentialBackOff(backoff.WithInitialInterval(shortest), backoff.WithMultiplier(2),
		backoff.WithMaxInterval(longest), backoff.WithMaxElapsedTime(0))
	return b
}

// Close lets the open poll end, because cutting it would hide a message that is on
// its way, and gives back what it brings. Meanwhile it gives back every delivery that is
// still held, and waits until what was acknowledged is deleted. It takes up to
// Config.Wait when nothing is sent to the queue. In the last 2 s before the deadline of ctx it cuts
// the poll (State.Stranded counts it), at the end whatever is left, and the
// error says so; a ctx that is cancelled cuts the poll at once and leaves 2 s for the rest. The
// log has what it waits for and what it cut. Everything else returns ErrClosed from now on.
func (b *Broker) Close(ctx context.Context) error {
	limit := time.Now().Add(b.cfg.Wait + pollGrace + strandMargin)
	if d, ok := ctx.Deadline(); ok && d.Before(limit) {
		limit = d
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		ctx, cancel := context.WithDeadlineCause(ctx, limit, errSilent)
		defer cancel()
		return b.idle(ctx) // the first one does it
	}
	b.closed = true
	close(b.stopping)
	for _, w := range b.waiters {
		w.answer <- nil
	}
	b.waiters = nil
	b.releaseAll()
	b.announce(limit.Add(-strandMargin))
	b.mu.Unlock()

	err := b.finish(ctx, limit)
	b.end()
	b.clients.close()
	if err != nil {
		return fmt.Errorf("close queue %s: %w: %w", nameOf(b.cfg.Queue), broker.ErrUnavailable, err)
	}
	return nil
}

// announce says for how long Close may wait for polls, until the limit at most. b.mu is held.
func (b *Broker) announce(limit time.Time) {
	if len(b.polls) == 0 {
		return
	}
	left := time.Duration(0)
	for p := range b.polls {
		left = max(left, b.cfg.Wait+pollGrace-time.Since(p.since))
	}
	b.cfg.Logger.Info("closing when the open poll has ended; a second signal shortens that", "queue", nameOf(b.cfg.Queue),
		"polls", len(b.polls), "at_most", max(0, min(left, time.Until(limit))))
}

// finish waits for what is under way: for polls until strandMargin before the limit or until ctx
// ends, for the rest as long as that again.
func (b *Broker) finish(ctx context.Context, limit time.Time) error {
	calm, cancel := context.WithDeadlineCause(ctx, limit.Add(-strandMargin), errSilent)
	defer cancel()
	if b.idle(calm) == nil {
		return nil
	}
	b.cutPolls()
	if ctx.Err() != nil {
		limit = time.Now().Add(strandMargin)
	}
	rest, cancel := context.WithDeadlineCause(context.WithoutCancel(ctx), limit, errSilent)
	defer cancel()
	err := b.idle(rest)
	if err == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	settling := 0
	for _, h := range b.holds {
		if h.settling != nil {
			settling++
		}
	}
	b.cfg.Logger.Warn("closed with requests under way; their messages come again, at the latest when their visibility timeout is over",
		"queue", nameOf(b.cfg.Queue), "requests", b.busy, "settling", settling, "visibility", b.visibility)
	if cause := context.Cause(ctx); cause != nil {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// cutPolls ends polls that are still open. What SQS was about to answer is hidden for
// the visibility timeout.
func (b *Broker) cutPolls() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.polls); n > 0 {
		b.stats.Stranded += int64(n)
		b.cfg.Logger.Warn("poll cut while closing; what was on its way is hidden for the visibility timeout", "queue", nameOf(b.cfg.Queue),
			"polls", n, "visibility", b.visibility)
	}
	b.cut()
}

// idle waits until nothing is under way.
func (b *Broker) idle(ctx context.Context) error {
	for {
		b.mu.Lock()
		n, changed := b.busy, b.changed
		b.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d requests are still under way: %w", n, context.Cause(ctx))
		}
	}
}

// background runs f, and Close waits for it. b.mu is held.
func (b *Broker) background(f func()) {
	b.busy++
	go func() {
		defer b.done()
		f()
	}()
}

// done ends what background or a poll began.
func (b *Broker) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.busy--; b.busy == 0 {
		close(b.changed)
		b.changed = make(chan struct{})
	}
}

// releaseAll gives back everything that nobody is settling. b.mu is held.
func (b *Broker) releaseAll() {
	for _, g := range b.groups {
		first := g.holds[0]
		back := b.abandon(first)
		if first.settling == nil {
			b.forget(first)
			back = append(back, first)
		}
		b.giveBack(back, 0)
	}
	var back []*hold
	for _, h := range b.holds {
		if h.settling == nil && h.group == nil {
			b.forget(h)
			back = append(back, h)
		}
	}
	b.kept = nil
	b.giveBack(back, 0)
}
