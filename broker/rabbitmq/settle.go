package rabbitmq

import (
	"context"
	"fmt"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/paidonce/paidonce/broker"
)

// held is a delivery that the broker waits to hear about.
type held struct {
	original
	session *session
	sub     *subscription
	tag     uint64
	arrived time.Time
	state   holding // under c.mu
}

// holding says who has a delivery.
type holding int8

const (
	waiting  holding = iota // nobody: it is in the buffer
	out                     // whoever received it
	settling                // a call that settles it
)

// budget is how long a delivery may be held.
func (s *settings) budget() time.Duration { return s.AckTimeout / 5 * 4 }

func (h *held) deadline() time.Time { return h.arrived.Add(h.session.c.b.cfg.budget()) }

func (h *held) delivery() broker.Delivery {
	_, again := h.headers.number(headerReceives) // it is a copy of ours
	return broker.Delivery{Message: h.message(), Receipt: h.session.receipt(h.tag), Receives: h.receives(), Again: again, Deadline: h.deadline()}
}

// forget ends the hold. The lock is held.
func (h *held) forget() {
	c := h.session.c
	delete(h.session.held, h.tag)
	h.sub.out--
	if h.state == waiting {
		c.buffer = slices.DeleteFunc(c.buffer, func(o *held) bool { return o == h })
	}
}

// Ack removes the message. A nil error says that the ack was written; Close makes
// sure that it arrives.
//
// Errors: ErrNotHeld, ErrClosed, and the cause of ctx, together with
// ErrUnavailable if the ack was on its way by then.
func (b *Broker) Ack(ctx context.Context, d broker.Delivery) error {
	return b.settle(ctx, "ack", d, func(h *held) error { return h.ack(ctx) })
}

// Nack gives the message back. Without a delay it is the broker's own requeue,
// which every broker before 4.3 counts as a hand-out, whatever d.Receives is. With
// a delay a copy waits in a retry queue, for the next longer delay of
// Config.Retry, or the last; its count goes on from d.Receives. The original is
// acknowledged when the copy is stored. If that is not certain the delivery stays
// held; trying again can only make one copy more.
//
// Errors: ErrNotHeld, ErrClosed, the cause of ctx, and those of Publish.
func (b *Broker) Nack(ctx context.Context, d broker.Delivery, delay time.Duration) error {
	return b.settle(ctx, "nack", d, func(h *held) error {
		if delay <= 0 {
			return h.tell(ctx, true)
		}
		return b.move(ctx, h, b.cfg.rungQueue(b.cfg.rung(delay)), amqp.Table{headerReceives: int64(max(0, d.Receives))})
	})
}

// DeadLetter stores a copy with the reason in the dead-letter queue and
// acknowledges the original when it is stored. The broker's own dead-lettering
// would know no reason.
//
// Errors: as Nack.
func (b *Broker) DeadLetter(ctx context.Context, d broker.Delivery, reason string) error {
	return b.settle(ctx, "dead-letter", d, func(h *held) error {
		return b.move(ctx, h, b.cfg.DeadLetter, amqp.Table{
			headerReceives: int64(h.receives()),
			headerReason:   reason[:min(len(reason), maxReason)],
			headerDeadAt:   time.Now().UnixMilli(),
		})
	})
}

// maxReason bounds the reason of a dead letter, in bytes; the rest is cut off.
const maxReason = 16 << 10

// Extend says until when the delivery is held: d.Deadline, unchanged, while now+by is
// no later. The broker's ack timeout cannot be moved.
//
// Errors: ErrLimit with the deadline when now+by is past it; ErrNotHeld when the
// delivery's session has ended; ErrClosed; the cause of ctx.
func (b *Broker) Extend(ctx context.Context, d broker.Delivery, by time.Duration) (time.Time, error) {
	h, err := b.find(ctx, d)
	if err != nil {
		return time.Time{}, fmt.Errorf("extend %s: %w", d.Receipt, err)
	}
	deadline := h.deadline()
	if time.Now().Add(by).After(deadline) {
		return deadline, fmt.Errorf("extend %s by %v: %w", d.Receipt, by, broker.ErrLimit)
	}
	return deadline, nil
}

// find returns what d names, if it is held now.
func (b *Broker) find(ctx context.Context, d broker.Delivery) (*held, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c := b.consumer
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, broker.ErrClosed
	}
	if c.session == nil || c.session.ch.IsClosed() { // the driver knows first
		return nil, broker.ErrNotHeld
	}
	h := c.session.named(d.Receipt)
	if h == nil || h.state != out {
		return nil, broker.ErrNotHeld
	}
	return h, nil
}

// settle runs one call that ends the delivery d, alone. d is held as before only
// after an error from before anything about it was told to the broker.
func (b *Broker) settle(ctx context.Context, what string, d broker.Delivery, how func(*held) error) error {
	c := b.consumer
	h, err := b.find(ctx, d)
	if err == nil && !c.begin(h) {
		err = broker.ErrNotHeld
	}
	if err == nil {
		err = how(h)
		c.finish(h, err)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, d.Receipt, b.cfg.secrets.error(err))
	}
	return nil
}

// begin gives h to one call. It is false when another one has it, or had it.
func (c *consumer) begin(h *held) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.session != h.session || h.session.held[h.tag] != h || h.state != out {
		return false
	}
	h.state = settling
	c.settling++
	return true
}

// finish ends the call: h is gone, or held again after an error that says that
// nothing was told to the broker.
func (c *consumer) finish(h *held, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settling--
	if c.session == h.session && h.session.held[h.tag] == h {
		if _, kept := err.(*untold); kept {
			h.state = out
		} else {
			h.forget()
		}
	}
	c.lookIfLacking() // there may be room for more
	if c.settling == 0 && c.closed {
		c.broadcast()
	}
}

// untold is an error before anything about the delivery was told to the broker.
type untold struct{ error }

func (e *untold) Unwrap() error { return e.error }

// move stores a copy of h in a queue and then acknowledges h.
func (b *Broker) move(ctx context.Context, h *held, queue string, own amqp.Table) error {
	p, err := h.copied(own)
	if err == nil {
		err = b.publisher.publish(ctx, queue, p)
	}
	if err != nil {
		return &untold{err}
	}
	b.count(func(s *status) { s.Copies++ })
	if err := h.ack(ctx); err != nil {
		b.count(func(s *status) { s.Doubled++ })
		b.cfg.Logger.Warn("message is there twice: its copy was stored, the original not acknowledged",
			"message_id", h.id, "copy_in", queue, "error", b.cfg.secrets.text(err.Error()))
		return err
	}
	return nil
}

func (h *held) ack(ctx context.Context) error {
	return h.tell(ctx, false)
}
