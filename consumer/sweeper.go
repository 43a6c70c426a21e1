package consumer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/paidonce/paidonce/internal/jitter"
	"github.com/paidonce/paidonce/ledger"
)

// sweepBatch bounds what one look at the ledger takes on.
const (
	sweepBatch = 100
	// unreadMost bounds what is listed beside it of jobs that another worker can read.
	unreadMost = 5000
	// soon is when the next look comes where there is more to do than one brings, and
	// bounds the first: what waited while no worker was there should not wait for a tick too.
	soon = time.Second
)

// sweep finds what died: workers whose lease is over, runs past their deadline, and
// jobs that the ledger carries. It starts those for which a slot is free.
func (c *Consumer) sweep(ctx, paid context.Context) {
	sleep(ctx, jitter.Below(min(soon, c.cfg.Tick)))
	for ctx.Err() == nil {
		if c.sweepOnce(ctx, paid) {
			sleep(ctx, min(soon, c.cfg.Tick))
			select {
			case <-c.freed:
			case <-ctx.Done():
			}
			continue
		}
		c.tick(ctx)
	}
}

// tick waits for the next round, with jitter so that workers that started
// together do not sweep together. It is false when the drain began.
func (c *Consumer) tick(ctx context.Context) bool {
	sleep(ctx, c.cfg.Tick*3/4+jitter.Below(c.cfg.Tick/2+1))
	return ctx.Err() == nil
}

// sweepOnce reports whether others wait for the next slot.
func (c *Consumer) sweepOnce(ctx, paid context.Context) (more bool) {
	sctx, cancel := settling(ctx)
	defer cancel()
	swept, err := c.store.Sweep(sctx, sweepBatch)
	if err != nil {
		c.log.WarnContext(ctx, "sweep did not finish", "error", err)
		return false
	}
	if swept.Epochs > 0 || len(swept.Lapsed) > 0 {
		c.log.WarnContext(ctx, "dead workers found", "workers", swept.Epochs, "jobs_now_unknown", len(swept.Lapsed))
	}
	due, err := c.due(sctx)
	if err != nil {
		c.log.WarnContext(ctx, "due jobs not listed", "error", err)
		return false
	}
	unheard, started := c.takeUnheard(), false
	for i, s := range append(unheard, due...) {
		if forOthers(s) {
			if c.first(s.Fault.Error()) {
				c.log.WarnContext(ctx, "jobs that wait are left to others", "job", s.Action, "key", s.Key.Text, "error", s.Fault)
			}
			continue
		}
		h, _ := c.cfg.Handlers.Lookup(s.Action)
		if !c.slots.demand(ctx) {
			c.putUnheard(unheard[min(i, len(unheard)):])
			return true
		}
		started = true
		c.runs.Go(func() { c.revive(ctx, paid, s, h) })
	}
	return started && len(due) >= sweepBatch // of those that were left to others none ends here
}

// forOthers: this worker cannot read the job's input, and another one can.
func forOthers(s ledger.Stored) bool { return s.Fault != nil && !errors.Is(s.Fault, ledger.ErrDamaged) }

// due lists whatever waits, so that jobs nobody has a handler for are told of. Where they
// fill the list, it is asked again for the ones that this worker can run. Those that it could not read
// the last time are listed beside as many as ever, up to a limit, and do not hide who is behind them.
func (c *Consumer) due(ctx context.Context) (due []ledger.Stored, err error) {
	n := sweepBatch + min(c.unread, unreadMost)
	defer func() {
		c.unread = 0
		for _, s := range due {
			if forOthers(s) {
				c.unread++
			}
		}
	}()
	due, err = c.store.Due(ctx, n, c.cfg.Grace)
	all := len(due)
	due = slices.DeleteFunc(due, func(s ledger.Stored) bool {
		_, ok := c.cfg.Handlers.Lookup(s.Action)
		if !ok {
			c.noHandler(ctx, s.Action)
		}
		return !ok
	})
	if all < n || len(due) == all {
		return due, err
	}
	return c.store.Due(ctx, n, c.cfg.Grace, c.cfg.Handlers.Names()...)
}

// takeUnheard takes the jobs whose claims may have been granted without an answer: the
// ledger does not list what a live worker runs.
func (c *Consumer) takeUnheard() []ledger.Stored {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.unheard
	c.unheard = nil
	return all
}

func (c *Consumer) putUnheard(rest []ledger.Stored) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unheard = append(c.unheard, rest...)
}

// noHandler logs once for each job name that this worker cannot run.
func (c *Consumer) noHandler(ctx context.Context, name string) {
	if c.first(name) {
		c.log.WarnContext(ctx, "no handler for a job that waits", "job", name, "registered", c.cfg.Handlers.Names())
	}
}

// first reports whether this is said for the first time.
func (c *Consumer) first(why string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.said[why]
	c.said[why] = true
	return !known
}

// recent remembers the last n message ids that were acknowledged, to tell a lost
// ack from any other redelivery.
type recent struct {
	mu   sync.Mutex
	seen map[string]bool
	ring []string // in no order but that of next
	next int      // where the oldest is, or nothing yet
}

func newRecent(n int) *recent {
	return &recent{seen: make(map[string]bool, n), ring: make([]string, n)}
}

func (r *recent) add(id string) {
	if id == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[id] {
		return
	}
	delete(r.seen, r.ring[r.next])
	r.ring[r.next], r.seen[id] = id, true
	r.next = (r.next + 1) % len(r.ring)
}

func (r *recent) has(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[id]
}
