package consumer

import (
	"context"
	"errors"
	"sync"
)

// errYield ends a poll for messages because a job or a delivery that is here already wants a slot.
var errYield = errors.New("somebody else wants the slot")

// slots bounds the handlers that run at once. A slot is taken before a message is
// received, so that nothing waits in memory while its visibility runs. A poll
// with nothing to hand out holds slots that others may want, jobs from the ledger and
// deliveries that waited: such a poll yields.
type slots struct {
	sem chan struct{} // one token for each slot in use

	mu     sync.Mutex
	yield  context.CancelCauseFunc // ends the poll under way; nil: none
	wanted int                     // who waits for a slot: no poll lasts meanwhile
}

func newSlots(n int) *slots { return &slots{sem: make(chan struct{}, n)} }

// take blocks for one slot, then takes up to n-1 more that are free at once.
func (s *slots) take(ctx context.Context, n int) (int, error) {
	select {
	case s.sem <- struct{}{}:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	got := 1
	for got < n {
		select {
		case s.sem <- struct{}{}:
			got++
			continue
		default:
		}
		break
	}
	return got, nil
}

func (s *slots) give(n int) {
	for range n {
		<-s.sem
	}
}

// poll runs f, a blocking receive, under a context that demand may end.
func (s *slots) poll(ctx context.Context, f func(context.Context)) {
	pctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	s.yield = cancel
	if s.wanted > 0 {
		cancel(errYield)
	}
	s.mu.Unlock()
	f(pctx)
	s.mu.Lock()
	s.yield = nil
	s.mu.Unlock()
	cancel(nil)
}

// demand takes one slot for a job from the ledger, ending a poll if need be. ok
// is false when every slot runs a handler.
func (s *slots) demand(ctx context.Context) (ok bool) {
	select {
	case s.sem <- struct{}{}:
		return true
	default:
	}
	s.mu.Lock()
	polling := s.yield != nil
	s.mu.Unlock()
	return polling && s.retake(ctx) == nil
}

// retake waits for one slot, ahead of every poll.
func (s *slots) retake(ctx context.Context) error {
	s.want(1)
	defer s.want(-1)
	_, err := s.take(ctx, 1)
	return err
}

func (s *slots) want(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted += n
	if s.wanted > 0 && s.yield != nil {
		s.yield(errYield)
	}
}

// claimsAtOnce bounds the claims that ask the ledger at the same time; the others wait for that where their stacks are small. New
// goroutines begin with as much stack as those have in use, on average, that the collector has seen last: with thousands of claims
// waiting for the ledger that is twice what a handler needs. No batch of a ledger wants more.
const claimsAtOnce = 256
