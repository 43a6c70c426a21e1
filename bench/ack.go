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

func runAckEach(_ context.Context, w *worker) error {
	return w.acknowledgeAll(func(d amqp.Delivery, _ int) (bool, error) { return true, d.Ack(false) })
}

func runAckMany(_ context.Context, w *worker) error {
	return w.acknowledgeAll(func(d amqp.Delivery, waiting int) (bool, error) {
		if waiting > 0 {
			return false, nil
		}
		return true, d.Ack(true)
	})
}

// acknowledgeAll receives until the end. ack is told how many more have arrived, and whether it has acknowledged all
// so far is what it returns.
func (w *worker) acknowledgeAll(ack func(d amqp.Delivery, waiting int) (bool, error)) error {
	deliveries, err := receive(w.plan)
	if err != nil {
		return err
	}
	w.ready()
	var open []amqp.Delivery
	for d := range deliveries {
		open = append(open, d)
		done, err := ack(d, len(deliveries))
		if err != nil {
			return err
		}
		if !done && len(open) < w.Handlers/2 {
			continue
		}
		if !done {
			if err := d.Ack(true); err != nil {
				return err
			}
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
