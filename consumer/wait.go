package consumer

import (
	"context"
	"time"

	"github.com/paidonce/paidonce/internal/jitter"
	"github.com/paidonce/paidonce/ledger"
)

const (
	// shortWait is what a delivery that comes back costs, and more: a shorter wait is
	// spent in the process and uses up no receive.
	shortWait = 5 * time.Second
	// longestWait bounds the wait for somebody else's run or look: it may end at any time.
	longestWait = 15 * time.Minute
)

// later is when a delivery wants its next look.
type later struct {
	in     time.Duration
	unused bool // no run was tried, so the hand-out does not count where the adapter counts
}

// lookIn is when to look at a job again that cannot run now. One look for each lease of
// the owner is enough: while it lives its lease is renewed.
func (c *Consumer) lookIn(claimed *ledger.Claimed) time.Duration {
	switch claimed.Verdict {
	case ledger.HeldUnknown:
		return c.heldFor(claimed.RetryIn)
	case ledger.NotDue: // until then nothing but a person can change that, and the ledger carries what a person re-opens
		return spaced(claimed.RetryIn)
	}
	return min(spaced(claimed.RetryIn), longestWait)
}

// heldFor is when to look again at an unknown job that its message carries: nothing changes soon by itself.
func (c *Consumer) heldFor(next time.Duration) time.Duration {
	return min(spaced(max(next, c.cfg.Lease)), longestWait)
}

// spaced adds up to a quarter, so that duplicates that wait for one job do not
// come back all at once. It is a second at least.
func spaced(d time.Duration) time.Duration {
	d = max(d, time.Second)
	return jitter.Quarter(d)
}

// wait brings about the next look at a delivery: here, when that is soon, else by giving
// it back. A delivery that waits here is kept like any other, and has no slot. When no
// slot is free afterwards it is given back too, for a worker that has one. It reports
// whether to look again.
func (c *Consumer) wait(ctx context.Context, w *work, l later) (again bool) {
	if !l.unused {
		w.tried.Store(true)
	}
	if l.in >= shortWait || w.held == nil || !c.giveSlot(w) {
		c.nack(ctx, w, l.in, l.unused)
		return false
	}
	w.log.DebugContext(ctx, "waiting in the process", "for", l.in)
	sleep(ctx, l.in)
	if !c.retakeSlot(ctx, w) {
		c.nack(ctx, w, 0, l.unused)
		return false
	}
	if w.tried.Load() {
		w.since = time.Now() // the next run waited from here
	}
	return !w.held.gone() // the message may be in other hands: they will look
}

// giveSlot makes work wait without its slot and its ended run. It is false when as
// many deliveries wait as there are slots.
func (c *Consumer) giveSlot(w *work) bool {
	c.count(func() {
		if c.waiting < c.cfg.Workers {
			c.waiting++
			w.waiting, w.lease, w.cancel = true, nil, nil
			c.slots.give(1)
		}
	})
	return w.waiting
}

// retakeSlot ends the waiting. It is false when no slot came free for a while, or the
// drain began: then the work is still without one.
func (c *Consumer) retakeSlot(ctx context.Context, w *work) bool {
	ctx, cancel := context.WithTimeout(ctx, shortWait)
	defer cancel()
	if c.slots.retake(ctx) != nil {
		return false
	}
	c.count(func() {
		c.waiting--
		w.waiting = false
	})
	return true
}
