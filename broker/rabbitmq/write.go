package rabbitmq

import (
	"cmp"
	"context"
	"fmt"
	"runtime"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/paidonce/paidonce/broker"
)

// writing is one thing to tell the broker of a delivery.
type writing struct {
	tag  uint64
	back bool         // it is given back; otherwise it is acknowledged
	done chan<- error // has room
}

// maxBurst bounds what is told in one go.
const maxBurst = 256

// write tells the broker what settles deliveries, until the session's end: the driver writes one frame at a time, so callers
// would only wait for each other in it, and for as long as a write takes. What is there at the same time is written in one go.
func (s *session) write(driver amqp.Acknowledger) {
	var burst []writing
	for {
		select {
		case w := <-s.writes:
			burst = append(burst[:0], w)
		case <-s.dead:
			return
		}
		// One answer of the ledger ends many deliveries. Their callers are ready to run, but this goroutine is the next one:
		// without this each would be written by itself.
		runtime.Gosched()
		burst = s.gather(burst)
		s.tell(driver, burst)
	}
}

// gather adds to burst what waits to be written.
func (s *session) gather(burst []writing) []writing {
	for len(burst) < maxBurst {
		select {
		case w := <-s.writes:
			burst = append(burst, w)
		default:
			return burst
		}
	}
	return burst
}

// tell writes burst in one go, and says to each of it whether it was written.
func (s *session) tell(driver amqp.Acknowledger, burst []writing) {
	errs := make([]error, len(burst))
	s.link.cork.cork()
	for i, w := range burst {
		if w.back {
			errs[i] = driver.Nack(w.tag, false, true)
		} else {
			errs[i] = driver.Ack(w.tag, false)
		}
	}
	err := s.link.cork.uncork()
	if err != nil {
		s.link.kill() // the driver took it for written
	}
	for i, w := range burst {
		w.done <- cmp.Or(errs[i], err)
	}
}

// queue hands w to write, unless the session ends before.
func (s *session) queue(w writing) {
	select {
	case s.writes <- w:
	case <-s.dead:
	}
}

// tell has the session's one writer tell the broker that h is acknowledged, or given back, and waits for it no longer than
// ctx: one that the driver does not finish keeps all others waiting.
func (h *held) tell(ctx context.Context, back bool) error {
	written := make(chan error, 1)
	w := writing{h.tag, back, written}
	late := func() error {
		return fmt.Errorf("not written in time: %w: %w", broker.ErrUnavailable, context.Cause(ctx))
	}
	select {
	case h.session.writes <- w:
	case <-h.session.dead:
		return broker.ErrNotHeld
	case <-ctx.Done():
		go h.session.queue(w) // it is on its way all the same
		return late()
	}
	select {
	case err := <-written:
		if err != nil { // the channel is gone, and what it held with it
			return fmt.Errorf("%w: %w", broker.ErrNotHeld, err)
		}
		return nil
	case <-h.session.dead:
		return broker.ErrNotHeld
	case <-ctx.Done():
		return late()
	}
}
