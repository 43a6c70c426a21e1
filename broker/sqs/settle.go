package sqs

import (
	"context"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/broker"
)

// settlement is the end of a delivery under way. It goes on when its caller's ctx ends;
// a caller who asks for the same again waits for it.
type settlement struct {
	how  string
	late bool // begun after the deadline
	done chan struct{}
	err  error // good when done is closed
}

// Ack deletes the message, and tries for up to five minutes; Close waits for it. When
// the delivery's deadline has passed, a standard queue deletes the message all the
// same, and the error is ErrNotHeld; a FIFO queue would refuse, so nothing is sent.
//
// Errors: ErrNotHeld, ErrUnavailable, ErrRefused, ErrClosed, and the cause of ctx,
// together with ErrUnavailable if the delete was on its way by then.
func (b *Broker) Ack(ctx context.Context, d broker.Delivery) error {
	return b.settle(ctx, "ack", d, b.delete)
}

// Nack makes the message visible again after delay, rounded up to whole seconds
// and cut to what is left of the 12 hours. On a FIFO queue those that wait behind it go
// back first.
//
// Errors: as Ack. Nothing is sent after the delivery's deadline.
func (b *Broker) Nack(ctx context.Context, d broker.Delivery, delay time.Duration) error {
	return b.settle(ctx, "nack", d, func(h *hold, _ *settlement) error {
		b.mu.Lock()
		var ops []*op
		for _, back := range b.abandon(h) {
			b.stats.Released++
			ops = append(ops, newChange(back, 0))
		}
		last := newChange(h, max(0, min(delay, time.Until(h.end))))
		b.mu.Unlock()
		b.change(append(ops, last))
		if last.fail != nil && last.fail.class == limit {
			return nil // it comes back when its time is over
		}
		return last.fail.wrap()
	})
}

// Extend hides the message for by from now on, at least a second and at most for what
// is left of the 12 hours, and returns until when. On a FIFO queue those that wait behind it
// are extended with it.
//
// Errors: ErrLimit with the deadline when nothing is left to give; else as Ack.
// Nothing is sent after the delivery's deadline.
func (b *Broker) Extend(ctx context.Context, d broker.Delivery, by time.Duration) (time.Time, error) {
	deadline, err := b.extend(ctx, d, by)
	if err != nil {
		return deadline, fmt.Errorf("extend %s by %v: %w", d.Receipt, by, err)
	}
	return deadline, nil
}

func (b *Broker) extend(ctx context.Context, d broker.Delivery, by time.Duration) (time.Time, error) {
	if ctx.Err() != nil {
		return time.Time{}, context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	h, err := b.find(d)
	if err != nil {
		return time.Time{}, err
	}
	now := time.Now()
	give := min(max(by, time.Second), h.end.Sub(now))
	if give < time.Second || give < by && h.end.Sub(h.deadline) < time.Second {
		return h.deadline, broker.ErrLimit
	}
	first := newChange(h, give)
	ops := []*op{first}
	if h.group != nil {
		ops = append(ops, b.extension(h.group, by)[1:]...)
	}
	changed := make(chan struct{})
	b.background(func() {
		b.change(ops)
		close(changed)
	})
	b.mu.Unlock()
	select {
	case <-changed:
		err = first.fail.wrap()
	case <-ctx.Done():
		err = fmt.Errorf("not confirmed in time: %w: %w", broker.ErrUnavailable, context.Cause(ctx))
	}
	b.mu.Lock()
	if err != nil {
		b.stats.ExtensionsFailed++
	} else {
		b.stats.Extensions++
	}
	return h.deadline, err
}

// find returns what d names, if a caller has it, nobody settles it and its deadline is
// ahead. b.mu is held.
func (b *Broker) find(d broker.Delivery) (*hold, error) {
	if b.closed {
		return nil, broker.ErrClosed
	}
	h := b.holds[d.Receipt]
	if h == nil || !h.out || h.settling != nil {
		return nil, broker.ErrNotHeld
	}
	if h.lapsed(time.Now()) {
		b.lose(h)
		return nil, broker.ErrNotHeld
	}
	return h, nil
}

// settle runs one call that ends the delivery d, alone.
func (b *Broker) settle(ctx context.Context, how string, d broker.Delivery, do func(*hold, *settlement) error) error {
	s, err := b.begin(ctx, how, d, do)
	if err == nil {
		select {
		case <-s.done:
			err = s.err
		case <-ctx.Done():
			err = fmt.Errorf("not confirmed in time: %w: %w", broker.ErrUnavailable, context.Cause(ctx))
		}
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", how, d.Receipt, err)
	}
	return nil
}

func (b *Broker) begin(ctx context.Context, how string, d broker.Delivery, do func(*hold, *settlement) error) (*settlement, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.holds[d.Receipt]; h != nil && h.settling != nil && h.settling.how == how {
		return h.settling, nil
	}
	h, err := b.find(d)
	s := &settlement{how: how, done: make(chan struct{})}
	if err != nil {
		// What is late on a standard queue is still in the books.
		h = b.holds[d.Receipt]
		if b.closed || how != "ack" || h == nil || h.settling != nil || !h.out {
			return nil, err
		}
		s.late = true
	}
	h.settling = s
	b.background(func() {
		err := do(h, s)
		b.mu.Lock()
		defer b.mu.Unlock()
		s.err = err
		b.settled(h, err)
		close(s.done)
	})
	return s, nil
}

// settled takes the end of a settlement into the books. b.mu is held.
func (b *Broker) settled(h *hold, err error) {
	late, how := h.settling.late, h.settling.how
	h.settling = nil
	switch {
	case err == nil:
		b.forget(h)
		if how == "nack" {
			break
		}
		b.promote(h.group)
	case late:
		b.forget(h)
	case isNotHeld(err):
		b.lose(h)
		if how == "ack" {
			b.forget(h)
		}
	}
	if b.closed {
		b.releaseAll() // it was spared while it was being settled
	}
}

// delete is the ack of h.
func (b *Broker) delete(h *hold, s *settlement) error {
	o := newDelete(h)
	b.deletes.add(o)
	<-o.done
	b.mu.Lock()
	defer b.mu.Unlock()
	f := o.fail
	if f != nil && f.class == invalid {
		// The message comes again and the ledger answers it; there is nothing to repeat.
		f = &failure{class: gone, code: f.code, err: f.err}
	}
	switch {
	case f == nil:
		b.stats.AcksSent++
	default:
		b.stats.AcksLost++
	}
	if s.late {
		b.stats.LateAcks++
		if f != nil {
			return fmt.Errorf("%w: %w", broker.ErrNotHeld, f.err)
		}
		return broker.ErrNotHeld
	}
	return f.wrap()
}
