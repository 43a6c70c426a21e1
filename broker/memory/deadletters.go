package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/paidonce/paidonce/broker"
)

// dead is a dead letter.
type dead struct {
	broker.DeadLetter
	reviewed bool // a Review has it
}

// setAside makes m a dead letter.
func (q *Queue) setAside(m *message, reason string) {
	q.dead = append(q.dead, &dead{DeadLetter: broker.DeadLetter{
		Message: m.Message, Reason: reason, Receives: m.receives, At: time.Now()}})
}

// DeadLetters lists what was set aside, oldest first, also what a Review has just now.
// The reason is that of DeadLetter, or "receive limit of N reached".
func (q *Queue) DeadLetters() []broker.DeadLetter {
	q.mu.Lock()
	defer q.mu.Unlock()
	ds := make([]broker.DeadLetter, len(q.dead))
	for i, d := range q.dead {
		ds[i] = d.show()
	}
	return ds
}

func (d *dead) show() broker.DeadLetter {
	c := d.DeadLetter
	c.Message = clone(d.Message)
	return c
}

// Review shows up to n dead letters to decide, oldest first, and does what it says. The
// queue may be used meanwhile, by decide too.
//
// Errors: ErrClosed, ErrUnroutable for what is redriven after the queue's Delete, and
// the cause of ctx.
func (s *Source) Review(ctx context.Context, n int, decide func(broker.DeadLetter) broker.Fate) error {
	q := s.q
	var kept []*dead
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, d := range kept {
			d.reviewed = false
		}
	}()
	for range n {
		d, err := s.takeDead(ctx)
		if d == nil || err != nil {
			return err
		}
		kept = append(kept, d) // until it is gone, also if decide panics
		if err := q.end(d, decide(d.show())); err != nil {
			return err
		}
	}
	return nil
}

// takeDead returns the oldest dead letter that no review has; nil: there is none.
func (s *Source) takeDead(ctx context.Context) (*dead, error) {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("review dead letters: %w", context.Cause(ctx))
	case s.closed || s.q.closed:
		return nil, fmt.Errorf("review dead letters: %w", broker.ErrClosed)
	}
	for _, d := range s.q.dead {
		if !d.reviewed {
			d.reviewed = true
			return d, nil
		}
	}
	return nil, nil
}

// end does with d what was decided.
func (q *Queue) end(d *dead, f broker.Fate) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch f {
	case broker.Keep:
		return nil
	case broker.Redrive:
		if q.deleted {
			return fmt.Errorf("redrive %s: %w", d.ID, broker.ErrUnroutable)
		}
		q.ready.push(&message{Message: d.Message})
		q.wake()
	case broker.Drop:
	default:
		panic(fmt.Sprintf("memory: fate %d", f))
	}
	q.dead = slices.DeleteFunc(q.dead, func(other *dead) bool { return other == d })
	return nil
}
