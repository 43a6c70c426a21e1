package brokertest

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/paidonce/paidonce/broker"
)

// The faults below wrap a real Source or Publisher and spoil one thing, so a
// test shows what one fault does. They can be put on top of each other.
//
// Where a fault has a field When, it spoils only the calls for which When is
// true; nil spoils all. When may be called by several goroutines at once.

// LostAck is a source whose acks get lost on the way: Ack returns nil, as an
// adapter that only wrote to a socket does, and the broker never hears of it, so
// the message comes back when its delivery lapses.
type LostAck struct {
	broker.Source
	When func(broker.Delivery) bool
}

// Ack returns nil without telling the broker.
func (f LostAck) Ack(ctx context.Context, d broker.Delivery) error {
	if f.When == nil || f.When(d) {
		return nil
	}
	return f.Source.Ack(ctx, d)
}

// FailingAck is a source whose acks fail and say so.
type FailingAck struct {
	broker.Source
	When func(broker.Delivery) bool
}

// Ack returns ErrUnavailable without telling the broker.
func (f FailingAck) Ack(ctx context.Context, d broker.Delivery) error {
	if f.When == nil || f.When(d) {
		return fmt.Errorf("ack %s: injected: %w", d.Receipt, broker.ErrUnavailable)
	}
	return f.Source.Ack(ctx, d)
}

// SlowExtend is a source whose extensions take By longer to reach the broker, so
// that one sent in time may arrive too late.
type SlowExtend struct {
	broker.Source
	By   time.Duration
	When func(broker.Delivery) bool
}

// Extend waits, unless ctx ends first, and then extends.
func (f SlowExtend) Extend(ctx context.Context, d broker.Delivery, by time.Duration) (time.Time, error) {
	if f.When == nil || f.When(d) {
		t := time.NewTimer(f.By)
		defer t.Stop()
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("extend %s: %w", d.Receipt, context.Cause(ctx))
		case <-t.C:
		}
	}
	return f.Source.Extend(ctx, d, by)
}

// FailExtend is a source that extends nothing. Err is what Extend returns; nil:
// ErrUnavailable.
type FailExtend struct {
	broker.Source
	Err  error
	When func(broker.Delivery) bool
}

// Extend returns the error without telling the broker.
func (f FailExtend) Extend(ctx context.Context, d broker.Delivery, by time.Duration) (time.Time, error) {
	if f.When != nil && !f.When(d) {
		return f.Source.Extend(ctx, d, by)
	}
	err := f.Err
	if err == nil {
		err = broker.ErrUnavailable
	}
	return time.Time{}, fmt.Errorf("extend %s: injected: %w", d.Receipt, err)
}

// Twice is a publisher through which every message is delivered twice: two
// messages with the same ID, body and attributes, each with hand-outs and
// receipts of its own, as after a sender's retry.
type Twice struct{ broker.Publisher }

// Publish stores two of each message.
func (f Twice) Publish(ctx context.Context, ms ...broker.Message) error {
	both := make([]broker.Message, 0, 2*len(ms))
	for _, m := range ms {
		both = append(both, m, m)
	}
	return f.Publisher.Publish(ctx, both...)
}

// Unavailable is a source whose broker can be made unreachable. While it is,
// every call returns ErrUnavailable and tells the broker nothing; a Receive that
// was waiting before goes on waiting, and gives back what it gets meanwhile.
// Deliveries stay held, unless their deadline ends them.
type Unavailable struct {
	broker.Source
	down atomic.Bool
}

// Set makes the broker unreachable, or reachable again.
func (f *Unavailable) Set(down bool) { f.down.Store(down) }

// Receive fails while the broker is unreachable.
func (f *Unavailable) Receive(ctx context.Context, n int) ([]broker.Delivery, error) {
	if err := f.check("receive"); err != nil {
		return nil, err
	}
	ds, err := f.Source.Receive(ctx, n)
	if err != nil {
		return nil, err
	}
	if down := f.check("receive"); down != nil {
		for _, d := range ds {
			d.Receives-- // given back unused
			if err := f.Source.Nack(context.WithoutCancel(ctx), d, 0); err != nil {
				return nil, fmt.Errorf("%w; give back %s: %w", down, d.Receipt, err)
			}
		}
		return nil, down
	}
	return ds, nil
}

// Ack fails while the broker is unreachable.
func (f *Unavailable) Ack(ctx context.Context, d broker.Delivery) error {
	if err := f.check("ack"); err != nil {
		return err
	}
	return f.Source.Ack(ctx, d)
}

// Nack fails while the broker is unreachable.
func (f *Unavailable) Nack(ctx context.Context, d broker.Delivery, delay time.Duration) error {
	if err := f.check("nack"); err != nil {
		return err
	}
	return f.Source.Nack(ctx, d, delay)
}

// Extend fails while the broker is unreachable.
func (f *Unavailable) Extend(ctx context.Context, d broker.Delivery, by time.Duration) (time.Time, error) {
	if err := f.check("extend"); err != nil {
		return time.Time{}, err
	}
	return f.Source.Extend(ctx, d, by)
}

// DeadLetter fails while the broker is unreachable.
func (f *Unavailable) DeadLetter(ctx context.Context, d broker.Delivery, reason string) error {
	if err := f.check("dead-letter"); err != nil {
		return err
	}
	return f.Source.DeadLetter(ctx, d, reason)
}

// check returns the error of an unreachable broker.
func (f *Unavailable) check(what string) error {
	if f.down.Load() {
		return fmt.Errorf("%s: injected: %w", what, broker.ErrUnavailable)
	}
	return nil
}

var (
	_ broker.Source    = LostAck{}
	_ broker.Source    = FailingAck{}
	_ broker.Source    = SlowExtend{}
	_ broker.Source    = FailExtend{}
	_ broker.Source    = (*Unavailable)(nil)
	_ broker.Publisher = Twice{}
)
