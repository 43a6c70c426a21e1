// Package memory is a queue inside the process: the broker of tests, examples
// and single-process trials. Nothing survives the process.
//
// Its clock is time.Now and it starts no goroutine, so it runs inside a
// testing/synctest bubble, where hours of visibility pass in no time. No lock is
// held while anything waits.
//
// It behaves like a strict SQS standard queue: a delivery is hidden for a
// visibility timeout and handed out again when that is over. [Options] turns it
// into the likeness of RabbitMQ: no deadline (held while connected), or a
// deadline that cannot be moved (an ack timeout).
package memory

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/paidonce/paidonce/broker"
)

// Options shape a queue. The zero value is a usable queue.
type Options struct {
	// Visibility is how long a delivery is hidden from others unless extended.
	// 0: 30 s.
	Visibility time.Duration

	// NoDeadline hands deliveries out with a zero Deadline: held until settled,
	// or until their source is dropped or closed. Visibility is then not used.
	NoDeadline bool

	// MaxHold is the longest a delivery is held from its hand-out on, however
	// often it is extended: the 12 hours of SQS, or, when equal to Visibility, the
	// ack timeout of RabbitMQ. Extend past it returns broker.ErrLimit. 0: no limit.
	// With NoDeadline the delivery is taken back then although it shows no
	// deadline, as by a broker whose ack timeout the adapter cannot know.
	MaxHold time.Duration

	// MaxReceives is the number of hand-outs after which the queue dead-letters a
	// message by itself, at the Receive that would be one more. 0: no limit.
	MaxReceives int

	// CountAll makes every hand-out count, as on SQS. Otherwise the count goes on from
	// what Nack is given, as with a broker where giving back is publishing a copy.
	CountAll bool

	// MaxBody is the size in bytes of the largest body Publish takes. 0: no limit.
	MaxBody int
}

// DefaultVisibility is the visibility timeout of a queue whose Options name none.
const DefaultVisibility = 30 * time.Second

// Depth counts the messages of a queue by what would have to happen before they
// are handed out.
type Depth struct {
	Ready   int // nothing
	Held    int // the end of the delivery that holds them
	Delayed int // the end of the delay of a Nack
}

// Queue is one queue with its dead letters. It is a broker.Publisher, and a
// broker.Source of its own beside those that Source opens.
type Queue struct {
	*source // the queue's own consumer

	opts Options

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when a waiting Receive should look again
	ready   fifo
	held    map[string]*message         // by receipt
	timed   timed                       // held with a deadline, and delayed
	dead    []*dead                     // oldest first
	replies map[string][]broker.Message // by the name that they were sent to
	closed  bool
	deleted bool
	serial  int // of ids, receipts and places in line
}

var (
	_ broker.Source      = (*Queue)(nil)
	_ broker.Publisher   = (*Queue)(nil)
	_ broker.DeadLetters = (*Queue)(nil)
	_ broker.Replier     = (*Queue)(nil)
	_ broker.Source      = (*Source)(nil)
	_ broker.DeadLetters = (*Source)(nil)
)

// New makes an empty queue.
func New(opts Options) *Queue {
	if opts.Visibility == 0 {
		opts.Visibility = DefaultVisibility
	}
	q := &Queue{opts: opts, changed: make(chan struct{}), held: map[string]*message{}}
	q.source = q.Source()
	return q
}

// Source opens one more consumer of the queue, as another process would be. Its
// deliveries are its own: another source that settles one gets ErrNotHeld.
func (q *Queue) Source() *Source { return &Source{q: q} }

// Publish stores ms, all or none of them. A message without an ID gets one.
//
// Errors: ErrTooLarge, ErrUnroutable after Delete, ErrClosed, and the cause of
// a ctx that has ended.
func (q *Queue) Publish(ctx context.Context, ms ...broker.Message) error {
	if ctx.Err() != nil {
		return fmt.Errorf("publish %d messages: %w", len(ms), context.Cause(ctx))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return fmt.Errorf("publish %d messages: %w", len(ms), broker.ErrClosed)
	case q.deleted:
		return fmt.Errorf("publish %d messages: %w", len(ms), broker.ErrUnroutable)
	}
	for _, m := range ms {
		if q.opts.MaxBody > 0 && len(m.Body) > q.opts.MaxBody {
			return fmt.Errorf("publish a body of %d bytes, limit %d: %w", len(m.Body), q.opts.MaxBody, broker.ErrTooLarge)
		}
	}
	for _, m := range ms {
		c := clone(m)
		if c.ID == "" {
			c.ID = fmt.Sprintf("m%d", q.next())
		}
		q.ready.push(&message{Message: c})
	}
	q.wake()
	return nil
}

// OpenReplies makes a place for answers by a name, which Replies empties.
func (q *Queue) OpenReplies(to string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.replies == nil {
		q.replies = map[string][]broker.Message{}
	}
	q.replies[to] = slices.Clip(q.replies[to])
}

// Reply implements broker.Replier, to the names that OpenReplies knows.
func (q *Queue) Reply(ctx context.Context, to string, m broker.Message) error {
	if ctx.Err() != nil {
		return fmt.Errorf("reply to %s: %w", to, context.Cause(ctx))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	kept, open := q.replies[to]
	switch {
	case q.closed:
		return fmt.Errorf("reply to %s: %w", to, broker.ErrClosed)
	case !open:
		return fmt.Errorf("reply to %q: %w", to, broker.ErrUnroutable)
	case q.opts.MaxBody > 0 && len(m.Body) > q.opts.MaxBody:
		return fmt.Errorf("reply with a body of %d bytes, limit %d: %w", len(m.Body), q.opts.MaxBody, broker.ErrTooLarge)
	}
	q.replies[to] = append(kept, clone(m))
	return nil
}

// Replies takes the answers that were sent to a name, oldest first.
func (q *Queue) Replies(to string) []broker.Message {
	q.mu.Lock()
	defer q.mu.Unlock()
	ms, open := q.replies[to]
	if open {
		q.replies[to] = nil
	}
	return ms
}

// Depth counts the messages as of now.
func (q *Queue) Depth() Depth {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.takeBackDue(time.Now())
	held := len(q.held)
	delayed := 0
	for _, m := range q.timed {
		if m.holder == nil {
			delayed++
		}
	}
	return Depth{Ready: q.ready.len(), Held: held, Delayed: delayed}
}

// Lapse takes d back now, as the end of its visibility would, and returns
// ErrNotHeld if no source holds it any more.
func (q *Queue) Lapse(d broker.Delivery) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	m, ok := q.held[d.Receipt]
	if !ok {
		return fmt.Errorf("lapse %s: %w", d.Receipt, broker.ErrNotHeld)
	}
	q.giveBack(m)
	q.wake()
	return nil
}

// Delete removes the queue and every message in it, dead letters excepted, under
// the feet of its users: Publish then returns ErrUnroutable, Receive
// ErrUnavailable (someone may declare the queue again), settling ErrNotHeld.
func (q *Queue) Delete() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.deleted = true
	q.ready, q.timed = fifo{}, nil
	clear(q.held)
	q.wake()
}

// Close closes the queue for all its sources and publishers. What is in it stays
// visible to Depth and DeadLetters.
func (q *Queue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, m := range q.heldBy(nil) {
		q.giveBack(m)
	}
	q.wake()
	return nil
}

// next returns a number that was not used before.
func (q *Queue) next() int {
	q.serial++
	return q.serial
}

// wake makes every waiting Receive look again.
func (q *Queue) wake() {
	close(q.changed)
	q.changed = make(chan struct{})
}
