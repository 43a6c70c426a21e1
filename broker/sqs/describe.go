package sqs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/paidonce/paidonce/broker"
)

// Description is a queue as it is set up at SQS.
type Description struct {
	URL        string
	ARN        string
	FIFO       bool
	Visibility time.Duration // the queue's own visibility timeout
	Wait       time.Duration // the queue's own wait of a receive
	Retention  time.Duration // how long a message is kept, counted from when it was sent
	Delay      time.Duration // how long a new message is held back
	MaxMessage int           // bytes, attributes included

	RedriveTarget string // ARN of the queue that too many receives send to; "": none
	MaxReceives   int    // as many; 0: no limit

	Dead DeadQueue // where DeadLetter sends to
}

// DeadQueue is the dead-letter queue of a queue.
type DeadQueue struct {
	Configured bool // by Config.DeadLetter or a redrive policy
	Exists     bool // if not, all below is zero
	URL        string
	ARN        string
	FIFO       bool
	Retention  time.Duration
	MaxMessage int
}

// Describe asks SQS how the queue and its dead-letter queue are set up, now. It makes
// nothing.
//
// Errors: ErrUnroutable when the queue does not exist, ErrRefused, ErrUnavailable,
// ErrQueue, and the cause of ctx.
func (b *Broker) Describe(ctx context.Context) (Description, error) {
	d, err := b.description(ctx)
	if err != nil {
		return Description{}, fmt.Errorf("describe queue %s: %w", nameOf(b.cfg.Queue), sendError(ctx, err))
	}
	return d, nil
}

func (b *Broker) description(ctx context.Context) (Description, error) {
	ctx, cancel := call(ctx)
	defer cancel()
	url, err := b.urlOf(ctx, b.cfg.Queue, "")
	if err != nil {
		return Description{}, err
	}
	q, err := b.describe(ctx, url)
	if err != nil {
		return Description{}, err
	}
	a := q.attributes
	d := Description{
		URL: url, ARN: a[string(types.QueueAttributeNameQueueArn)], FIFO: q.fifo, Visibility: q.visibility, MaxMessage: q.maxBody,
		Wait:      seconds(a, types.QueueAttributeNameReceiveMessageWaitTimeSeconds),
		Retention: seconds(a, types.QueueAttributeNameMessageRetentionPeriod), Delay: seconds(a, types.QueueAttributeNameDelaySeconds),
		RedriveTarget: q.redrive.Target,
	}
	if n, err := q.redrive.Max.Int64(); err == nil {
		d.MaxReceives = int(n)
	}
	d.Dead, err = b.describeDead(ctx, q)
	return d, err
}

func (b *Broker) describeDead(ctx context.Context, q *queue) (DeadQueue, error) {
	name, owner := b.deadName(q)
	if name == "" {
		return DeadQueue{}, nil
	}
	d := DeadQueue{Configured: true}
	url, err := b.urlOf(ctx, name, owner)
	var dead *queue
	if err == nil {
		dead, err = b.describe(ctx, url)
	}
	if f, ok := errors.AsType[*failure](err); ok && f.class == missing {
		return d, nil
	}
	if err != nil {
		return d, fmt.Errorf("dead-letter queue %s: %w", nameOf(name), err)
	}
	d.Exists, d.URL, d.FIFO, d.MaxMessage = true, url, dead.fifo, dead.maxBody
	d.ARN = dead.attributes[string(types.QueueAttributeNameQueueArn)]
	d.Retention = seconds(dead.attributes, types.QueueAttributeNameMessageRetentionPeriod)
	return d, nil
}

// findDead asks again for a dead-letter queue that was not there.
func (b *Broker) findDead(ctx context.Context, q *queue) (string, error) {
	ctx, cancel := call(ctx)
	defer cancel()
	found := *q
	var err error
	if found.dead, err = b.deadQueue(ctx, &found); err != nil {
		return "", fmt.Errorf("dead-letter queue of %s: %w", nameOf(q.url), sendError(ctx, err))
	}
	if found.dead == "" {
		return "", fmt.Errorf("%s has no dead-letter queue: %w", nameOf(q.url), broker.ErrUnroutable)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queue == q {
		b.queue = &found
	}
	return found.dead, nil
}
