package consumer

import (
	"context"
	"errors"
	"sync"
)

// errYield ends a poll for messages because a job that the ledger carries wants a slot.
var errYield = errors.New("a job carried by the ledger wants the slot")

// slots bounds the handlers that run at once. A slot is taken before a message is
// received, so that nothing waits in memory while its visibility runs. A poll
// with nothing to hand out holds slots that jobs from the ledger may want:
// demand ends such a poll.
type slots struct {
	sem chan struct{} // one token for each slot in use

	mu    sync.Mutex
	yield context.CancelCauseFunc // ends the poll under way; nil: none
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
	if polling {
		s.yield(errYield)
	}
	s.mu.Unlock()
	if !polling {
		return false
	}
	n, _ := s.take(ctx, 1)
	return n == 1
}
