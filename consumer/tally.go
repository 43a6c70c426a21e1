package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// tallyBatch bounds the rows of one write of counts.
const tallyBatch = 500

// tally counts avoided deliveries until they are written down, once a tick and at the end of a drain. A
// process that dies takes those of its last tick along: a duplicate must cost the ledger nothing.
type tally struct {
	mu     sync.Mutex
	counts map[ledger.Avoided]*ledger.Avoided // by what they have in common; its numbers are zero

	// Whoever flushes, one at a time:
	batch []ledger.Avoided // of which nobody knows whether the ledger has it; nil: none
	id    ledger.ID
}

// add counts one delivery. A nil cost is not known.
func (t *tally) add(tenant, action string, cause ledger.Cause, cost *ledger.Nano) {
	k := ledger.Avoided{Day: ledger.DayOf(time.Now()), Tenant: tenant, Action: action, Cause: cause}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[ledger.Avoided]*ledger.Avoided{}
	}
	a := t.counts[k]
	if a == nil {
		a = new(k)
		t.counts[k] = a
	}
	a.Count++
	if cost == nil {
		a.Unpriced++
		return
	}
	a.Saved += *cost
}

// take moves up to n counts out.
func (t *tally) take(n int) (batch []ledger.Avoided) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, a := range t.counts {
		if len(batch) == n {
			break
		}
		batch = append(batch, *a)
		delete(t.counts, k)
	}
	return batch
}

// flush writes all counts. What the ledger may have or not have is repeated as it was, at the next
// flush if not now: it counts it once.
func (t *tally) flush(ctx context.Context, count func(context.Context, ledger.ID, []ledger.Avoided) error) error {
	for {
		if t.batch == nil {
			t.batch, t.id = t.take(tallyBatch), ledger.NewID()
		}
		if t.batch == nil {
			return nil
		}
		err := count(ctx, t.id, t.batch)
		if err == nil || errors.Is(err, ledger.ErrRequest) { // else it may be stored later
			t.batch = nil
		}
		if err != nil {
			return err
		}
	}
}

// tallies writes down what was avoided, every tick until ctx ends.
func (c *Consumer) tallies(ctx context.Context) {
	for c.tick(ctx) {
		c.flush()
	}
}

// flush has a context of its own: what was avoided before a drain is written at its end.
func (c *Consumer) flush() {
	ctx, cancel := settling(context.Background())
	defer cancel()
	err := c.tally.flush(ctx, func(ctx context.Context, id ledger.ID, all []ledger.Avoided) error {
		return c.store.Count(ctx, *c.worker.Load(), id, all)
	})
	if err != nil {
		c.log.Warn("avoided calls not counted yet", "error", err)
	}
}
