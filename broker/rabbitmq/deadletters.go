package rabbitmq

import (
	"context"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/paidonce/paidonce/broker"
)

// Review shows up to n messages of the dead-letter queue to decide, oldest first, and does
// what it says. What the broker set aside itself has its word as the reason
// (delivery_limit), no count of receives and no time. What is kept goes back to the
// queue when Review returns.
//
// Errors: ErrUnavailable, the cause of ctx; for what is redriven as Publish.
func (b *Broker) Review(ctx context.Context, n int, decide func(broker.DeadLetter) broker.Fate) error {
	if err := b.usable(); err != nil {
		return fmt.Errorf("review %s: %w", b.cfg.DeadLetter, err)
	}
	err := b.eachDead(ctx, n, func(r *deadLink, d amqp.Delivery) error {
		o := originalOf(&d)
		switch fate := decide(o.deadLetter(d.Headers)); fate {
		case broker.Keep:
			return nil
		case broker.Redrive:
			p, err := o.copied(nil)
			if err != nil {
				return err
			}
			if err := b.publisher.publish(ctx, b.cfg.Queue, p); err != nil {
				return err
			}
		case broker.Drop:
		default:
			panic(fmt.Sprintf("rabbitmq: fate %d", fate))
		}
		return r.do(ctx, func() error { return r.ch.Ack(d.DeliveryTag, false) })
	})
	if err != nil {
		return fmt.Errorf("review %s: %w", b.cfg.DeadLetter, err)
	}
	return nil
}

// eachDead takes up to n dead letters, one after the other, on a connection of its
// own. Those that do has not acknowledged go back when it closes.
func (b *Broker) eachDead(ctx context.Context, n int, do func(*deadLink, amqp.Delivery) error) error {
	l, err := b.dial(ctx, "dead letters")
	if err != nil {
		return fmt.Errorf("%w: %w", broker.ErrUnavailable, err)
	}
	defer l.kill()
	r := &deadLink{b: b, l: l}
	if err := r.do(ctx, func() (err error) { r.ch, err = l.conn.Channel(); return }); err != nil {
		return err
	}
	for range n {
		var d amqp.Delivery
		var ok bool
		if err := r.do(ctx, func() (err error) { d, ok, err = r.ch.Get(b.cfg.DeadLetter, false); return }); err != nil {
			return err
		}
		if !ok {
			break
		}
		if err := do(r, d); err != nil {
			return err
		}
	}
	return r.do(ctx, func() error {
		// As in an orderly close of the consumer: the last acks must arrive.
		if _, err := r.ch.QueueDeclarePassive(b.cfg.DeadLetter, true, false, false, false, nil); err != nil {
			return err
		}
		time.Sleep(flushTime)
		if err := r.ch.Close(); err != nil {
			return err
		}
		return l.conn.Close()
	})
}

// deadLink is the connection of one review.
type deadLink struct {
	b  *Broker
	l  *link
	ch *amqp.Channel
}

// do runs calls to the driver.
func (r *deadLink) do(ctx context.Context, calls func() error) error {
	err := r.l.do(ctx, callLimit, calls)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("%w: %w", broker.ErrUnavailable, r.b.cfg.secrets.error(err))
}

func (o *original) deadLetter(headers amqp.Table) broker.DeadLetter {
	dl := broker.DeadLetter{Message: o.message()}
	dl.Reason, _ = headers[headerReason].(string)
	if n, ok := headers[headerReceives].(int64); ok {
		dl.Receives = int(n)
	}
	if ms, ok := headers[headerDeadAt].(int64); ok {
		dl.At = time.UnixMilli(ms)
	}
	if dl.Reason == "" {
		dl.Reason, _ = headers["x-first-death-reason"].(string)
	}
	return dl
}
