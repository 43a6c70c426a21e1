// Package rabbitmq is the adapter for RabbitMQ 3.10 and later.
//
// It consumes and publishes on two connections, so that an alarm, which blocks
// publishing, does not stop acks. Each is kept by one goroutine that dials,
// declares, and begins a new session after a loss, with growing pauses and for
// ever. Receiving begins with the first Receive; without one, a Broker is a
// producer only.
//
// What differs from other brokers:
//
//   - A delivery is held for as long as its channel lives, at most for the
//     broker's ack timeout. Its Deadline is four fifths of that and cannot be
//     moved. One that is kept past nine tenths is given back by the adapter,
//     because the broker would take back all others of the channel with it.
//   - Nack without a delay is the broker's own requeue. With one it stores a copy
//     in a retry queue, awaits the confirm, and acknowledges the original; a
//     crash in between leaves two, which the ledger makes harmless.
//   - Receives is what the copies counted plus what the broker counts. The broker
//     counts hand-outs that were never received too: a lost connection, a Nack
//     without a delay.
//   - There is no automatic acknowledgement.
package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/paidonce/paidonce/broker"
)

const (
	// closeLimit bounds Close when its context does not.
	closeLimit = 20 * time.Second
	// shortest is the first pause before an attempt to connect, and the least one when
	// there are several.
	shortest = 500 * time.Millisecond
	// steady is how long a session must live for the next pause to be short again.
	steady = 30 * time.Second
)

// Broker is one queue of one RabbitMQ. Its methods may be called at the same time.
type Broker struct {
	cfg       *settings
	life      context.Context // ends with Close
	end       context.CancelFunc
	publisher *publisher
	consumer  *consumer
	broken    chan struct{} // closed when err is set

	mu      sync.Mutex
	status  status
	reached chan struct{} // closed and made anew when a session begins
	err     error         // why this can never work
	closed  bool
}

var (
	_ broker.Source      = (*Broker)(nil)
	_ broker.Publisher   = (*Broker)(nil)
	_ broker.DeadLetters = (*Broker)(nil)
	_ broker.Replier     = (*Broker)(nil)
)

// Open checks the configuration and makes a first attempt to connect and to
// prepare the queues. A broker that cannot be reached is no error: attempts go
// on until Close, and State shows how they fare.
//
// Errors: ErrConfig, ErrMismatch, and the cause of a ctx that ended.
func Open(ctx context.Context, c Config) (*Broker, error) {
	cfg, err := c.resolve()
	if err != nil {
		return nil, err
	}
	b := &Broker{cfg: cfg, broken: make(chan struct{}), reached: make(chan struct{})}
	b.life, b.end = context.WithCancel(context.Background())
	b.publisher = &publisher{b: b, requests: make(chan *publication), stopping: make(chan struct{}), stopped: make(chan struct{})}
	b.consumer = newConsumer(b)
	first, err := b.publisher.open(ctx)
	if err != nil {
		if errors.Is(err, ErrMismatch) || ctx.Err() != nil {
			b.end()
			return nil, fmt.Errorf("open queue %s: %w", cfg.Queue, err)
		}
		b.note("publisher", err, 0)
	}
	go b.publisher.run(b.life, first)
	return b, nil
}

// Close stops receiving, gives back what was prefetched and not received, waits
// until what was acknowledged has reached the broker, and for the confirms of
// what was published, in this order. Deliveries still held go back to the queue.
// It takes no longer than ctx and 20 s; what a broker that does not answer leaves
// open then is cut off, and the error says so. Everything else returns ErrClosed
// from now on.
func (b *Broker) Close(ctx context.Context) error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	b.mu.Unlock()
	if !first {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, closeLimit)
	defer cancel()
	defer b.end()
	err := b.consumer.close(ctx)
	b.publisher.closing = ctx
	close(b.publisher.stopping)
	// Whatever still dials or waits has ctx from here.
	stop := context.AfterFunc(ctx, b.end)
	defer stop()
	<-b.publisher.stopped
	return b.cfg.secrets.error(err)
}

// usable returns why nothing can be done any more, or nil.
func (b *Broker) usable() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return broker.ErrClosed
	}
	return b.err
}

// breakDown ends all hope because of err, and returns true, unless the queues have
// been right before: then somebody changes them just now, and may change them back.
func (b *Broker) breakDown(err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.status.prepared {
		return false
	}
	if b.err == nil {
		b.err = err
		close(b.broken)
		b.cfg.Logger.Error("broker cannot be used", "error", err)
	}
	return true
}

// begun says that a session of either connection has begun.
func (b *Broker) begun(change func(*status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.status)
	close(b.reached)
	b.reached = make(chan struct{})
}

// pause waits before the next attempt. It returns false when there must be none.
func (b *Broker) pause(ctx context.Context, stopping <-chan struct{}, role string, err error, d time.Duration) bool {
	select {
	case <-stopping:
		return false
	case <-ctx.Done():
		return false
	default:
	}
	b.note(role, err, d)
	b.mu.Lock()
	reached := b.reached
	b.mu.Unlock()
	short := min(d, shortest)
	// The other connection being made says that the broker is back.
	return wait(ctx, stopping, short, nil) && wait(ctx, stopping, d-short, reached)
}

// wait returns true after d, or when early is closed, and false when there is nothing
// to wait for any more.
func wait(ctx context.Context, stopping <-chan struct{}, d time.Duration, early <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-early:
		return true
	case <-stopping:
		return false
	case <-ctx.Done():
		return false
	}
}

// newBackoff makes the pauses between attempts: 0.5 s to 30 s, for ever.
func newBackoff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(shortest), backoff.WithMultiplier(2),
		backoff.WithMaxInterval(30*time.Second), backoff.WithMaxElapsedTime(0))
}
