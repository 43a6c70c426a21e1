package consumer

import (
	"errors"
	"time"

	"github.com/paidonce/paidonce/internal/jitter"
)

// pauses are exponential waits: each half as much again as the one before, with jitter of half as much more or less. They never give up.
type pauses struct {
	first, ceil time.Duration
	last        time.Duration // without jitter; 0: there was none
}

// next is how long to wait now.
func (p *pauses) next() time.Duration {
	if p.last == 0 {
		p.last = p.first
	} else {
		p.last = min(p.last+p.last/2, p.ceil)
	}
	return p.last/2 + jitter.Below(p.last+1)
}

// reset makes the first wait the next one.
func (p *pauses) reset() { p.last = 0 }

// permanent is an error that no further try would change.
type permanent struct{ error }

// repeat tries until it succeeds, its error is permanent, end is closed (nil: never is), or no further try could begin within most of
// the first one (0: there is no such limit). Nearly every first try succeeds, so what that takes is all that this costs.
func repeat(end <-chan struct{}, p pauses, most time.Duration, try func() error) error {
	began := time.Now()
	for {
		err := try()
		if err == nil {
			return nil
		}
		if final, ok := errors.AsType[permanent](err); ok {
			return final.error
		}
		wait := p.next()
		if most > 0 && time.Since(began)+max(wait, p.last) > most { // with its jitter too it ends in time
			return err
		}
		select {
		case <-end:
			return err
		case <-time.After(wait):
		}
	}
}
