package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/paidonce/paidonce/broker"
)

// DeadLetter is one message in the dead-letter queue.
type DeadLetter struct {
	broker.Message
	Reason   string    // what DeadLetter was called with; of a message that the broker set aside itself, its word (delivery_limit)
	Receives int       // hand-outs before it was set aside; 0: the broker set it aside
	At       time.Time // when; zero: the broker set it aside
}

// DeadLetters lists up to n dead letters, oldest first, and leaves them where they
// are. Two lists at the same time see different ones.
//
// Errors: ErrUnavailable, the cause of ctx.
func (b *Broker) DeadLetters(ctx context.Context, n int) ([]DeadLetter, error) {
	var ds []DeadLetter
	err := b.eachDead(ctx, n, func(_ *link, _ *amqp.Channel, d amqp.Delivery) error {
		ds = append(ds, deadLetter(d))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", b.cfg.DeadLetter, err)
	}
	return ds, nil
}

// Redrive puts the dead letters among the first n for which pick is true back
// into the queue, as their senders published them, and returns how many. Each is
// stored in the queue before it is removed here: after a crash in between it is
// in both.
//
// Errors: as Publish. What was redriven before the error stays redriven.
func (b *Broker) Redrive(ctx context.Context, n int, pick func(DeadLetter) bool) (int, error) {
	moved := 0
	err := b.eachDead(ctx, n, func(l *link, ch *amqp.Channel, d amqp.Delivery) error {
		if !pick(deadLetter(d)) {
			return nil
		}
		p, err := copyOf(d, nil)
		if err != nil {
			return err
		}
		if err := b.publisher.publish(ctx, b.cfg.Queue, p); err != nil {
			return err
		}
		moved++
		return l.do(ctx, callLimit, func() error { return ch.Ack(d.DeliveryTag, false) })
	})
	if err != nil {
		return moved, fmt.Errorf("redrive %s: %w", b.cfg.DeadLetter, err)
	}
	return moved, nil
}

// eachDead takes up to n dead letters, one after the other, on a connection of its
// own. Those that do has not acknowledged go back when it closes.
func (b *Broker) eachDead(ctx context.Context, n int, do func(*link, *amqp.Channel, amqp.Delivery) error) error {
	l, err := b.dial(ctx, "dead letters")
	if err != nil {
		return fmt.Errorf("%w: %w", broker.ErrUnavailable, err)
	}
	defer l.kill()
	err = b.takeDead(ctx, l, n, do)
	if e, ok := errors.AsType[*amqp.Error](err); ok && e.Code != 0 {
		err = fmt.Errorf("%w: %w", broker.ErrUnavailable, b.cfg.secrets.error(err))
	}
	return err
}

func (b *Broker) takeDead(ctx context.Context, l *link, n int, do func(*link, *amqp.Channel, amqp.Delivery) error) error {
	var ch *amqp.Channel
	if err := l.do(ctx, callLimit, func() (err error) { ch, err = l.conn.Channel(); return }); err != nil {
		return err
	}
	for range n {
		var d amqp.Delivery
		var ok bool
		err := l.do(ctx, callLimit, func() (err error) { d, ok, err = ch.Get(b.cfg.DeadLetter, false); return })
		if err != nil || !ok {
			if err == nil {
				break
			}
			return err
		}
		if err := do(l, ch, d); err != nil {
			return err
		}
	}
	return l.do(ctx, callLimit, func() error {
		// As in an orderly close of the consumer: the last acks must arrive.
		if _, err := ch.QueueDeclarePassive(b.cfg.DeadLetter, true, false, false, false, nil); err != nil {
			return err
		}
		time.Sleep(flushTime)
		if err := ch.Close(); err != nil {
			return err
		}
		return l.conn.Close()
	})
}

func deadLetter(d amqp.Delivery) DeadLetter {
	dl := DeadLetter{Message: message(d)}
	dl.Reason, _ = d.Headers[headerReason].(string)
	if n, ok := d.Headers[headerReceives].(int64); ok {
		dl.Receives = int(n)
	}
	if ms, ok := d.Headers[headerDeadAt].(int64); ok {
		dl.At = time.UnixMilli(ms)
	}
	if dl.Reason == "" {
		dl.Reason, _ = d.Headers["x-first-death-reason"].(string)
	}
	return dl
}
