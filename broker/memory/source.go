package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/broker"
)

// Source is one consumer of a queue. Its methods are those of broker.Source.
type Source struct {
	q      *Queue
	closed bool // under q.mu
}

// source lets Queue embed its own consumer beside its method Source.
type source = Source

// Receive takes 1 to n messages (n below 1 counts as 1), those first that have
// been ready longest.
//
// Errors: the cause of ctx, ErrClosed, ErrUnavailable after the queue's Delete.
func (s *Source) Receive(ctx context.Context, n int) ([]broker.Delivery, error) {
	for {
		// First, so that a receive whose caller has gone takes nothing.
		if ctx.Err() != nil {
			return nil, fmt.Errorf("receive: %w", context.Cause(ctx))
		}
		ds, wait, err := s.take(n)
		if len(ds) > 0 || err != nil {
			return ds, err
		}
		wait.until(ctx)
	}
}

// take hands out what is ready, or says what to wait for.
func (s *Source) take(n int) ([]broker.Delivery, wait, error) {
	q := s.q
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case s.closed || q.closed:
		return nil, wait{}, fmt.Errorf("receive: %w", broker.ErrClosed)
	case q.deleted:
		return nil, wait{}, fmt.Errorf("receive: queue was deleted: %w", broker.ErrUnavailable)
	}
	now := time.Now()
	q.takeBackDue(now)
	var ds []broker.Delivery
	for len(ds) < max(n, 1) && q.ready.len() > 0 {
		m := q.ready.pop()
		if q.opts.MaxReceives > 0 && m.receives >= q.opts.MaxReceives {
			q.setAside(m, fmt.Sprintf("receive limit of %d reached", q.opts.MaxReceives))
			continue
		}
		ds = append(ds, q.handOut(m, s, now))
	}
	w := wait{changed: q.changed}
	if len(q.timed) > 0 {
		w.due = q.timed[0].due
	}
	return ds, w, nil
}

// Ack removes the message. Errors: ErrNotHeld, ErrClosed, the cause of ctx.
func (s *Source) Ack(ctx context.Context, d broker.Delivery) error {
	return s.settle(ctx, "ack", d, func(*message) {})
}

// Nack makes the message ready again after delay, behind those that are ready
// then. The count of receives goes on from d.Receives, unless Options.CountAll says
// that it cannot be changed; it cannot be raised that way.
//
// Errors: ErrNotHeld, ErrClosed, the cause of ctx.
func (s *Source) Nack(ctx context.Context, d broker.Delivery, delay time.Duration) error {
	return s.settle(ctx, "nack", d, func(m *message) {
		if !s.q.opts.CountAll {
			m.receives = max(0, min(m.receives, d.Receives))
		}
		if delay <= 0 {
			s.q.ready.push(m)
		} else {
			s.q.schedule(m, time.Now().Add(delay))
		}
		s.q.wake()
	})
}

// DeadLetter moves the message to the queue's dead letters. Errors: ErrNotHeld,
// ErrClosed, the cause of ctx.
func (s *Source) DeadLetter(ctx context.Context, d broker.Delivery, reason string) error {
	return s.settle(ctx, "dead-letter", d, func(m *message) { s.q.setAside(m, reason) })
}

// Extend moves the deadline to now+by, also to an earlier time, and returns it.
// With Options.NoDeadline it returns the zero time.
//
// Errors: ErrLimit, with the unchanged deadline, when now+by is past
// Options.MaxHold; ErrNotHeld; ErrClosed; the cause of ctx.
func (s *Source) Extend(ctx context.Context, d broker.Delivery, by time.Duration) (time.Time, error) {
	q := s.q
	q.mu.Lock()
	defer q.mu.Unlock()
	m, err := s.holds(ctx, d)
	if err != nil {
		return time.Time{}, fmt.Errorf("extend %s: %w", d.Receipt, err)
	}
	if q.opts.NoDeadline {
		return time.Time{}, nil
	}
	due := time.Now().Add(by)
	if !m.limit.IsZero() && due.After(m.limit) {
		return m.due, fmt.Errorf("extend %s by %v: %w", d.Receipt, by, broker.ErrLimit)
	}
	q.schedule(m, due)
	q.wake() // a waiting Receive may be timed for a later deadline
	return due, nil
}

// Drop makes the broker take back, at once, everything s holds: the connection
// of its process is gone. s itself goes on, as after a reconnect.
func (s *Source) Drop() {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	s.giveBackAll()
}

// Close gives back what s holds. Receive, a waiting one included, and the
// settling methods return ErrClosed from then on. Other sources go on.
func (s *Source) Close() error {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	s.closed = true
	s.giveBackAll()
	return nil
}

// giveBackAll makes ready what s holds, in the order it was handed out.
func (s *Source) giveBackAll() {
	for _, m := range s.q.heldBy(s) {
		s.q.giveBack(m)
	}
	s.q.wake()
}

// settle ends the delivery d and lets end say where its message goes.
func (s *Source) settle(ctx context.Context, what string, d broker.Delivery, end func(*message)) error {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	m, err := s.holds(ctx, d)
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, d.Receipt, err)
	}
	s.q.release(m)
	end(m)
	return nil
}

// holds returns the message that d hands out, if s holds it now.
func (s *Source) holds(ctx context.Context, d broker.Delivery) (*message, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if s.closed || s.q.closed {
		return nil, broker.ErrClosed
	}
	s.q.takeBackDue(time.Now())
	m, ok := s.q.held[d.Receipt]
	if !ok || m.holder != s {
		return nil, broker.ErrNotHeld
	}
	return m, nil
}

// wait is what a Receive that found nothing waits for.
type wait struct {
	changed <-chan struct{}
	due     time.Time // when the next message becomes ready by itself; zero: none will
}

// until returns when the wait is over or ctx has ended.
func (w wait) until(ctx context.Context) {
	var due <-chan time.Time
	if !w.due.IsZero() {
		t := time.NewTimer(time.Until(w.due))
		defer t.Stop()
		due = t.C
	}
	select {
	case <-ctx.Done():
	case <-w.changed:
	case <-due:
	}
}
