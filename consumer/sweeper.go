package consumer

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// sweepBatch bounds what one look at the ledger takes on.
const sweepBatch = 100

// sweep finds what died: workers whose lease is over, runs past their deadline, and
// jobs that the ledger carries. It starts those for which a slot is free.
func (c *Consumer) sweep(ctx, paid context.Context) {
	for c.tick(ctx) {
		c.sweepOnce(ctx, paid)
	}
}

// tick waits for the next round, with jitter so that workers that started
// together do not sweep together. It is false when the drain began.
func (c *Consumer) tick(ctx context.Context) bool {
	sleep(ctx, c.cfg.Tick*3/4+time.Duration(rand.Int64N(int64(c.cfg.Tick)/2+1)))
	return ctx.Err() == nil
}

func (c *Consumer) sweepOnce(ctx, paid context.Context) {
	sctx, cancel := settling(ctx)
	defer cancel()
	swept, err := c.store.Sweep(sctx, sweepBatch)
	if err != nil {
		c.log.WarnContext(ctx, "sweep did not finish", "error", err)
		return
	}
	if swept.Epochs > 0 || len(swept.Lapsed) > 0 {
		c.log.WarnContext(ctx, "dead workers found", "workers", swept.Epochs, "jobs_now_unknown", len(swept.Lapsed))
	}
	due, err := c.store.Due(sctx, sweepBatch, c.cfg.Grace)
	if err != nil {
		c.log.WarnContext(ctx, "due jobs not listed", "error", err)
		return
	}
	for _, s := range due {
		h, ok := c.cfg.Handlers.Lookup(s.Action)
		if !ok {
			c.noHandler(ctx, s.Action)
			continue
		}
		if !c.slots.demand(ctx) {
			return
		}
		c.runs.Go(func() {
			defer c.slots.give(1)
			c.revive(ctx, paid, s, h)
		})
	}
}

// noHandler logs once for each job name that this worker cannot run.
func (c *Consumer) noHandler(ctx context.Context, name string) {
	c.mu.Lock()
	first := !c.gone[name]
	c.gone[name] = true
	c.mu.Unlock()
	if first {
		c.log.WarnContext(ctx, "no handler for a job that waits", "job", name, "registered", c.cfg.Handlers.Names())
	}
}

// recent remembers the last n message ids that were acknowledged, to tell a lost
// ack from any other redelivery.
type recent struct {
	mu   sync.Mutex
	n    int
	seen map[string]bool
	ring []string
}

func newRecent(n int) *recent { return &recent{n: n, seen: make(map[string]bool, n)} }

func (r *recent) add(id string) {
	if id == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[id] {
		return
	}
	if len(r.ring) == r.n {
		delete(r.seen, r.ring[0])
		r.ring = slices.Delete(r.ring, 0, 1)
	}
	r.ring = append(r.ring, id)
	r.seen[id] = true
}

func (r *recent) has(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[id]
}
