package main

import (
	"context"
	"errors"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The two systems below do no work at all: what they make is the limit that the broker and its driver set to
// everybody else on the same machine.
var (
	ackEach = system{
		about: "ack: no work; receive and acknowledge each message, which is what the broker and its driver allow at most",
		bare:  true, prepare: prepareAck, work: runAckEach,
	}
	ackMany = system{
		about: "ackmany: the same, as many as have arrived acknowledged at once",
		bare:  true, prepare: prepareAck, work: runAckMany,
	}
)

func prepareAck(ctx context.Context, p plan) (publisher, error) { return newAMQP(ctx, p) }

var errQueueClosed = errors.New("the queue's channel is closed")

func runAckEach(_ context.Context, w *worker) error { return w.acknowledgeAll(1) }

// runAckMany waits with an ack for half of what the broker hands out without one: for all of it nothing more would come.
func runAckMany(_ context.Context, w *worker) error { return w.acknowledgeAll(max(1, w.Handlers/2)) }

// acknowledgeAll receives until the end, and acknowledges what has arrived together, most messages at most.
func (w *worker) acknowledgeAll(most int) error {
	deliveries, err := receive(w.plan)
	if err != nil {
		return err
	}
	w.ready()
	var open []amqp.Delivery
	for d := range deliveries {
		open = append(open, d)
		if len(open) < most && len(deliveries) > 0 {
			continue
		}
		if err := d.Ack(most > 1); err != nil {
			return err
		}
		for _, o := range open {
			key, _ := o.Headers[named].(string)
			sent, _ := o.Headers[published].(string)
			w.settled(key, sentAt(sent))
		}
		open = open[:0]
	}
	return errQueueClosed
}
