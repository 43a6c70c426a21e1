package consumer

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// work is one delivery or job in hand.
type work struct {
	held        *held        // nil: the ledger carries it
	handler     *job.Handler // nil: not known yet, or none
	key         ledger.Key   // "": not known yet
	in          job.Content
	origin      *ledger.Origin // nil: nothing is known
	reply       *address       // who wants to be told of the end; nil: nobody
	since       time.Time
	undecodable error       // the stored input is damaged, or does not decode any more
	tried       atomic.Bool // a run on this delivery ended in an error
	abandoned   atomic.Bool // a drain ends it
	rerun       bool        // a person had the claimed job run again

	// Written under Consumer.mu by whoever works on it, who alone reads them without it. The
	// keeper and a drain speak of it too, with called.
	job string
	log *slog.Logger

	// Guarded by Consumer.mu:
	lease   *ledger.Lease           // nil: not claimed
	cancel  context.CancelCauseFunc // ends the work context
	waiting bool                    // it has no slot
}

// begin takes something in hand, with the slot that its caller took for it.
func (c *Consumer) begin(h *held) *work {
	w := &work{held: h, since: time.Now(), job: "unknown"}
	w.log = c.logger(w, "", 0, 0)
	c.count(func() { c.active[w] = struct{}{} })
	if at, _, ok := h.extendAt(); ok && at.UnixNano() < c.nextKeep.Load() {
		c.wakeKeeper()
	}
	return w
}

// end is the end of it: its slot is free.
func (c *Consumer) end(w *work) {
	slot := true
	c.count(func() {
		delete(c.active, w)
		if w.waiting {
			slot = false
			c.waiting--
		}
	})
	if slot {
		c.slots.give(1)
	}
	select {
	case c.freed <- struct{}{}:
	default: // the sweeper knows
	}
}

// count changes what is in hand, and says how many slots that leaves in use.
func (c *Consumer) count(change func()) {
	c.mu.Lock()
	change()
	busy := len(c.active) - c.waiting
	c.mu.Unlock()
	c.trace.slots(busy, c.cfg.Workers)
}

// each calls f for what is in hand, without holding the lock.
func (c *Consumer) each(f func(*work)) {
	c.mu.Lock()
	all := make([]*work, 0, len(c.active))
	for w := range c.active {
		all = append(all, w)
	}
	c.mu.Unlock()
	for _, w := range all {
		f(w)
	}
}

// named sets what the work is called in metrics and in the log, with the number and the fence of its run if it has one.
func (c *Consumer) named(w *work, job string, run int, fence int64) {
	log := c.logger(w, job, run, fence)
	c.mu.Lock()
	defer c.mu.Unlock()
	w.job, w.log = job, log
}

// called is what was named, for others than who works on it.
func (c *Consumer) called(w *work) (job string, log *slog.Logger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return w.job, w.log
}

// owns sets what the work may change, and how to stop it.
func (c *Consumer) owns(w *work, l *ledger.Lease, cancel context.CancelCauseFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.lease, w.cancel = l, cancel
	select {
	case c.claims <- struct{}{}:
	default: // whoever heeds cancels knows
	}
}

// owned is the work's lease, nil before its claim.
func (c *Consumer) owned(w *work) (*ledger.Lease, context.CancelCauseFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return w.lease, w.cancel
}
