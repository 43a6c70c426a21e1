package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	// deliveryLimit is explicit because RabbitMQ 4 has 20 by default, and every lost
	// connection counts for all it had prefetched: jobs that never ran would be
	// dead-lettered. It must be positive: 3.10 takes -1 as "none left".
	deliveryLimit = 1000
	// deadDeliveryLimit: looking at a dead letter counts too.
	deadDeliveryLimit = 1_000_000
)

// queue is one queue and the arguments it is declared with.
type queue struct {
	name string
	args amqp.Table
}

// topology lists the queues in the order of declaration: a queue comes after the
// one it dead-letters to, or the first messages would wait 3 minutes for it.
//
// Arguments never change under a name (a delay is part of its queue's), and are
// the same for every version of the broker. There is no TTL on the work queue: one
// that ran out while a delivery was held would turn its nack into a dead letter.
func (s *settings) topology() []queue {
	qs := []queue{
		{s.DeadLetter, amqp.Table{
			"x-queue-type":     "quorum",
			"x-delivery-limit": int64(deadDeliveryLimit),
		}},
		{s.Queue, withDeadLetters(s.DeadLetter, amqp.Table{
			"x-delivery-limit": int64(deliveryLimit),
		})},
	}
	for _, r := range s.rungs {
		qs = append(qs, queue{s.rungQueue(r), withDeadLetters(s.Queue, amqp.Table{
			"x-message-ttl": r.Milliseconds(),
		})})
	}
	return qs
}

// owns reports whether a queue is one of the worker's own: what is published there becomes a message of the worker, or a dead letter.
// Those of rungs that this configuration does not have may be left of another one.
func (s *settings) owns(name string) bool {
	return name == s.Queue || name == s.DeadLetter || strings.HasPrefix(name, s.Queue+rungInfix)
}

// withDeadLetters adds what makes a quorum queue hand its dead letters on without
// loss: at-least-once, which silently is at-most-once without reject-publish.
func withDeadLetters(to string, args amqp.Table) amqp.Table {
	args["x-queue-type"] = "quorum"
	args["x-dead-letter-exchange"] = ""
	args["x-dead-letter-routing-key"] = to
	args["x-dead-letter-strategy"] = "at-least-once"
	args["x-overflow"] = "reject-publish"
	return args
}

// rungInfix stands between the queue's name and the delay.
const rungInfix = ".retry."

// rungQueue is where copies wait out a delay.
func (s *settings) rungQueue(r time.Duration) string {
	return fmt.Sprintf("%s%s%d", s.Queue, rungInfix, r.Milliseconds())
}

// prepare declares the queues, or checks that they are there, on channels of its
// own: an error closes the channel it happened on.
func (b *Broker) prepare(ctx context.Context, l *link) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errSilent)
	defer cancel()
	var missing []error
	var ch *amqp.Channel
	for _, q := range b.cfg.topology() {
		if ch == nil || ch.IsClosed() {
			err := l.do(ctx, callLimit, func() (err error) { ch, err = l.conn.Channel(); return })
			if err != nil {
				return fmt.Errorf("open a channel for the queues: %w", err)
			}
		}
		err := l.do(ctx, callLimit, func() error { return b.prepareOne(ch, q) })
		switch e, ok := errors.AsType[*amqp.Error](err); {
		case err == nil:
		case ok && e.Code == amqp.PreconditionFailed && b.cfg.Declare:
			return fmt.Errorf("%w: %s: rename the queue in the configuration, delete it once it is empty, or set declare to false: %w", ErrMismatch, q.name, err)
		case ok && e.Code == amqp.NotFound:
			missing = append(missing, fmt.Errorf("queue %s (arguments %v): %w", q.name, q.args, err))
		default:
			return fmt.Errorf("prepare queue %s: %w", q.name, err)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: create the queues or set declare to true: %w", errMissing, errors.Join(missing...))
	}
	return l.do(ctx, callLimit, ch.Close)
}

// errMissing: queues that are somebody else's to create are not there yet.
var errMissing = errors.New("queues are missing")

func (b *Broker) prepareOne(ch *amqp.Channel, q queue) error {
	if b.cfg.Declare {
		_, err := ch.QueueDeclare(q.name, true, false, false, false, q.args)
		return err
	}
	_, err := ch.QueueDeclarePassive(q.name, true, false, false, false, nil)
	return err
}
