package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/paidonce/paidonce/broker"
)

// maxUnconfirmed bounds what is sent and not confirmed. As many returns can be
// waiting, so the channel for them never fills, which would stop the driver's reader.
const maxUnconfirmed = 256

// publication is one message on its way to a queue.
type publication struct {
	ctx   context.Context
	queue string
	reply bool // the queue is its reader's, who may have gone: not ours to declare
	msg   amqp.Publishing
	done  chan error // its outcome; has room for it
}

// publisher owns the connection that publishes, apart from the one that consumes:
// an alarm blocks a connection that publishes as a whole. One goroutine runs it.
type publisher struct {
	b        *Broker
	requests chan *publication
	stopping chan struct{} // closed by Close
	stopped  chan struct{} // closed when the goroutine is gone
	closing  context.Context
}

// Publish stores ms in the queue, all sent before the first confirm is awaited.
// It waits while the connection is being made. A message without an ID gets one.
// Attributes whose names RabbitMQ gives a meaning (x-death, CC, …) are left out.
//
// Errors: ErrUnroutable, ErrTooLarge, ErrClosed, ErrMismatch, and ErrUnavailable
// when the broker does not confirm (also together with the cause of a ctx that
// ended), or has blocked publishing because it runs out of memory or disk.
func (b *Broker) Publish(ctx context.Context, ms ...broker.Message) error {
	if err := b.usable(); err != nil {
		return fmt.Errorf("publish to %s: %w", b.cfg.Queue, err)
	}
	var ps []amqp.Publishing
	for _, m := range ms {
		p, err := outgoing(m)
		if err == nil && b.cfg.MaxBody > 0 && len(p.Body) > b.cfg.MaxBody {
			err = tooLarge(len(p.Body), b.cfg.MaxBody)
		}
		if err != nil {
			return fmt.Errorf("publish to %s: %w", b.cfg.Queue, err)
		}
		ps = append(ps, p)
	}
	return b.publisher.publish(ctx, b.cfg.Queue, ps...)
}

// Reply implements broker.Replier. to is the name of a queue, which may be one of RabbitMQ's direct
// replies (amq.rabbitmq.reply-to.…). It has no content type but JSON.
func (b *Broker) Reply(ctx context.Context, to string, m broker.Message) error {
	if err := b.usable(); err != nil {
		return fmt.Errorf("reply to %s: %w", to, err)
	}
	if to == "" || len(to) > maxProperty || b.cfg.owns(to) {
		return fmt.Errorf("reply to %.100q, which takes no replies: %w", to, broker.ErrUnroutable)
	}
	p, err := outgoing(m)
	if err != nil {
		return fmt.Errorf("reply to %s: %w", to, err)
	}
	p.ContentType = "application/json"
	return b.publisher.post(ctx, to, true, p)
}

// publish returns nil when every one of ps is stored in the queue, which is one of ours.
func (p *publisher) publish(ctx context.Context, queue string, ps ...amqp.Publishing) error {
	return p.post(ctx, queue, false, ps...)
}

// post is publish, for a queue of replies too.
func (p *publisher) post(ctx context.Context, queue string, reply bool, ps ...amqp.Publishing) error {
	var sent []*publication
	var errs []error
	for _, msg := range ps {
		r := &publication{ctx: ctx, queue: queue, reply: reply, msg: msg, done: make(chan error, 1)}
		if err := p.hand(ctx, r); err != nil {
			errs = append(errs, err)
			break
		}
		sent = append(sent, r)
	}
	for _, r := range sent {
		select {
		case err := <-r.done:
			errs = append(errs, err)
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("not confirmed in time, stored or not: %w: %w", broker.ErrUnavailable, context.Cause(ctx)))
		}
	}
	for _, err := range errs {
		if err != nil {
			p.b.count(func(s *status) { s.Unstored++ })
			return fmt.Errorf("publish to %s: %w", queue, err)
		}
	}
	return nil
}

// hand gives r to the goroutine that publishes.
func (p *publisher) hand(ctx context.Context, r *publication) error {
	select {
	case p.requests <- r:
		return nil
	case <-p.stopping:
		return broker.ErrClosed
	case <-p.b.broken:
		return p.b.usable()
	case <-ctx.Done():
		return fmt.Errorf("not sent: %w: %w%s", broker.ErrUnavailable, context.Cause(ctx), p.b.lastError())
	}
}

// run keeps the connection until Close. first is one that is open already, or nil.
func (p *publisher) run(ctx context.Context, first *publishing) {
	defer close(p.stopped)
	pauses := newBackoff()
	for s := first; ; s = nil {
		var err error
		if s == nil {
			s, err = p.open(ctx)
		}
		if err == nil {
			began := time.Now()
			err = s.serve(ctx)
			if s.confirmedAny || time.Since(began) > steady {
				pauses.Reset()
			}
		}
		if errors.Is(err, ErrMismatch) && p.b.breakDown(err) {
			return
		}
		if !p.b.pause(ctx, p.stopping, "publisher", err, pauses.NextBackOff()) {
			return
		}
	}
}

// open makes a session of the publisher.
func (p *publisher) open(ctx context.Context) (*publishing, error) {
	ctx, cancel := whileOpen(ctx, p.stopping)
	defer cancel()
	l, err := p.b.dial(ctx, "publisher")
	if err != nil {
		return nil, err
	}
	s := &publishing{p: p, link: l, outcomes: make(chan outcome), over: make(chan struct{}), returned: map[string]int{}}
	if err := s.init(ctx); err != nil {
		l.kill()
		return nil, p.b.cfg.secrets.error(err)
	}
	p.b.begun(func(s *status) {
		s.publisherUp, s.Version = true, l.version
		s.prepared = s.prepared || p.b.cfg.Declare
	})
	return s, nil
}

func tooLarge(size, limit int) error {
	return fmt.Errorf("body of %d bytes, at most %d: %w", size, limit, broker.ErrTooLarge)
}
