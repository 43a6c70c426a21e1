package sqs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/paidonce/paidonce/broker"
)

const (
	// reviewHold hides dead letters from other reviews for as long as one takes.
	reviewHold = 5 * time.Minute
	// reviewWait is how long the dead-letter queue is asked for more.
	reviewWait = time.Second
)

// Review looks at dead letters as broker.DeadLetters says. While it runs, those it has
// seen are hidden, for up to 5 minutes each; each look raises the receive count that SQS
// keeps. Of a FIFO group ten are seen at most, because the rest cannot be received while
// those are hidden.
//
// What SQS moved itself has the reason "maxReceiveCount", where the server says that it
// did. A redriven message is a new one to SQS: its receives begin at 1.
//
// Errors: ErrUnroutable when there is no dead-letter queue, ErrUnavailable, ErrRefused,
// ErrClosed, and the cause of ctx. What was decided before an error is done.
func (b *Broker) Review(ctx context.Context, n int, decide func(broker.DeadLetter) broker.Fate) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return fmt.Errorf("review dead letters: %w", broker.ErrClosed)
	}
	b.busy++
	b.mu.Unlock()
	defer b.done()
	r := &review{b: b, decide: decide, seen: map[string]broker.Fate{}}
	err := r.run(ctx, n)
	if back := r.keep(ctx); err == nil {
		err = back
	}
	if err != nil {
		return fmt.Errorf("review dead letters of %s: %w", nameOf(b.cfg.Queue), err)
	}
	return nil
}

// review is one run of Review.
type review struct {
	b      *Broker
	q      *queue
	decide func(broker.DeadLetter) broker.Fate
	seen   map[string]broker.Fate // by message id
	kept   []*op                  // the changes that show again what stays
}

func (r *review) run(ctx context.Context, n int) error {
	q, err := r.b.prepare(ctx)
	if err != nil {
		return sendError(ctx, err)
	}
	dead := q.dead
	if dead == "" {
		if dead, err = r.b.findDead(ctx, q); err != nil {
			return err
		}
	}
	r.q = &queue{url: dead, fifo: q.fifo}
	for len(r.seen) < n {
		asked := time.Now()
		ms, err := r.take(ctx, min(batchSize, n-len(r.seen)))
		if err != nil || len(ms) == 0 {
			return err
		}
		for i, m := range ms {
			err := r.one(ctx, q, m, asked)
			if err == nil {
				continue
			}
			for _, left := range ms[i:] {
				r.stays(left, asked)
			}
			return err
		}
	}
	return nil
}

// take receives dead letters. A receive that is cancelled by ctx hides what it was
// bringing for reviewHold, so it is short and not cancelled.
func (r *review) take(ctx context.Context, n int) ([]types.Message, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	short, cancel := context.WithTimeoutCause(r.b.life, reviewWait+pollGrace, errSilent)
	defer cancel()
	out, err := r.b.clients.receive.ReceiveMessage(short, &sqs.ReceiveMessageInput{
		QueueUrl: &r.q.url, MaxNumberOfMessages: int32(n), WaitTimeSeconds: timeout(reviewWait), VisibilityTimeout: timeout(reviewHold),
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll}, MessageAttributeNames: []string{"All"},
	})
	if err != nil {
		return nil, failed(err).wrap()
	}
	return out.Messages, nil
}

// one decides about one dead letter.
func (r *review) one(ctx context.Context, main *queue, m types.Message, asked time.Time) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	id := deref(m.MessageId)
	fate, again := r.seen[id]
	if !again {
		fate = broker.Keep
		if intact(m) { // what cannot be read stays for the next look
			fate = r.decide(deadLetter(m))
		}
		r.seen[id] = fate
	}
	switch {
	case fate == broker.Keep:
		r.stays(m, asked)
		return nil
	case fate == broker.Redrive && !again:
		if err := r.redrive(ctx, main, m); err != nil {
			return err
		}
	}
	return r.remove(ctx, deref(m.ReceiptHandle))
}

// stays notes that m is to be shown again at the end.
func (r *review) stays(m types.Message, asked time.Time) {
	r.kept = append(r.kept, &op{h: &hold{handle: deref(m.ReceiptHandle)}, until: asked.Add(reviewHold)})
}

func (r *review) redrive(ctx context.Context, main *queue, m types.Message) error {
	e := again(m)
	if main.fifo {
		e.MessageDeduplicationId = m.MessageId // so that a repetition within five minutes is none
	}
	if err := r.b.sendAll(ctx, main.url, []types.SendMessageBatchRequestEntry{e}); err != nil {
		return fmt.Errorf("redrive: %w", sendError(ctx, err))
	}
	return nil
}

func (r *review) remove(ctx context.Context, handle string) error {
	ctx, cancel := call(context.WithoutCancel(ctx)) // what was stored in the queue must go from here
	defer cancel()
	out, err := r.b.clients.settle.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: &r.q.url,
		Entries: []types.DeleteMessageBatchRequestEntry{{Id: entryID(0), ReceiptHandle: &handle}}})
	if err != nil {
		return failed(err).wrap()
	}
	for _, e := range out.Failed {
		return failedEntry(e).wrap()
	}
	return nil
}

// keep makes visible what stays, last one first. What cannot be shown now comes back when
// reviewHold is over.
func (r *review) keep(ctx context.Context) error {
	ctx, cancel := call(context.WithoutCancel(ctx))
	defer cancel()
	slices.Reverse(r.kept)
	var errs []error
	for part := range slices.Chunk(r.kept, batchSize) {
		if err := r.show(ctx, part); err != nil {
			errs = append(errs, fmt.Errorf("show again, or wait up to %v: %w", reviewHold, err))
		}
	}
	return errors.Join(errs...)
}

// show makes up to ten visible. Those that SQS did not take for now are tried again. One without an
// answer may be visible and in other hands by now, whose hold a repetition would end; on a FIFO queue
// an old handle does nothing.
func (r *review) show(ctx context.Context, ops []*op) (err error) {
	pause := shortest
	for try := 1; ; try++ {
		now := time.Now()
		ops = slices.DeleteFunc(slices.Clone(ops), func(o *op) bool { return passed(o.until, now) })
		if len(ops) == 0 {
			return err
		}
		var left []*op
		for i, f := range r.b.changeBatch(ctx, r.q, ops) {
			switch {
			case f == nil || f.class == gone: // it was removed meanwhile
			case f.class == temporary && (!f.silent || r.q.fifo) && try < sendTries:
				left = append(left, ops[i])
			default:
				err = f.wrap()
			}
		}
		ops = left
		if len(ops) > 0 && !sleep(ctx, pause) {
			return fmt.Errorf("%w: %w", broker.ErrUnavailable, context.Cause(ctx))
		}
		pause *= 2
	}
}

// deadLetter is what a person sees of m.
func deadLetter(m types.Message) broker.DeadLetter {
	_, n := unnoted(m.MessageAttributes)
	d := broker.DeadLetter{Message: message(m), Reason: n.Reason, Receives: n.Receives}
	if n.At > 0 {
		d.At = time.UnixMilli(n.At)
	}
	if d.Reason == "" && m.Attributes[string(types.MessageSystemAttributeNameDeadLetterQueueSourceArn)] != "" {
		d.Reason = "maxReceiveCount"
	}
	return d
}
