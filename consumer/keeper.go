package consumer

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// held is a delivery in hand. The keeper extends it until somebody takes the right
// to settle it.
type held struct {
	span time.Duration // how long the broker gave at first; meaningless without a deadline

	mu      sync.Mutex
	d       broker.Delivery
	renewed time.Time // when the deadline was last pushed out
	busy    bool      // an extension is under way
	taken   bool
	lost    bool // the broker took it back before anybody settled it
}

func (h *held) delivery() broker.Delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.d
}

// take gives the right to settle to one caller, once. Of what was lost only an ack is left.
func (h *held) take(ack bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.taken || h.lost && !ack {
		return false
	}
	h.taken = true
	return true
}

// lose notes that the broker took the delivery back. It is false when it was settled before.
func (h *held) lose() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = !h.taken
	return h.lost
}

func (h *held) isLost() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost
}

// gone reports whether the delivery was settled, handed off or lost.
func (h *held) gone() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.taken || h.lost
}

// extendAt is when the delivery wants an extension: after a third of what is
// left, so that two may go wrong. Half of that wait is enough when another one is extended
// anyway, because adapters send together what is asked for at once. ok is false when it
// never wants one.
func (h *held) extendAt() (at, early time.Time, ok bool) {
	if h == nil {
		return time.Time{}, time.Time{}, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.taken || h.lost || h.busy || h.d.Deadline.IsZero() {
		return time.Time{}, time.Time{}, false
	}
	// Never at once: the deadline may be over, and the broker out of reach.
	wait := max(h.d.Deadline.Sub(h.renewed)/3, min(h.span/3, time.Second), 100*time.Millisecond)
	return h.renewed.Add(wait), h.renewed.Add(wait / 2), true
}

// keep renews the worker's lease, then extends deliveries, for everything in hand.
// It is the one goroutine that does, for as long as anything may be in hand.
func (c *Consumer) keep(ctx context.Context) {
	var extending sync.WaitGroup
	defer extending.Wait()
	renewAt := time.Now().Add(c.cfg.Lease / 3)
	for {
		c.nextKeep.Store(math.MaxInt64) // whatever begins during the look wakes the keeper
		next := c.nextExtension(renewAt)
		c.nextKeep.Store(next.UnixNano())
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-c.wake:
			timer.Stop()
		case <-timer.C:
		}
		if c.renewDue.CompareAndSwap(true, false) || !time.Now().Before(renewAt) {
			renewAt = time.Now().Add(c.renew(ctx))
		}
		now := time.Now()
		if c.nextExtension(renewAt).After(now) {
			continue
		}
		c.each(func(w *work) {
			if _, early, ok := w.held.extendAt(); ok && !early.After(now) {
				w.held.begin()
				extending.Go(func() { c.extend(ctx, w) })
			}
		})
	}
}

// nextExtension is when the next delivery wants an extension, or the limit if that is sooner.
func (c *Consumer) nextExtension(limit time.Time) time.Time {
	c.each(func(w *work) {
		if at, _, ok := w.held.extendAt(); ok && at.Before(limit) {
			limit = at
		}
	})
	return limit
}

func (c *Consumer) wakeKeeper() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// renewSoon makes the keeper renew at once: a claim was told that the epoch is closed.
func (c *Consumer) renewSoon() {
	c.renewDue.Store(true)
	c.wakeKeeper()
}

// renew prolongs the worker's lease and returns when to do so next.
func (c *Consumer) renew(ctx context.Context) time.Duration {
	rctx, cancel := settling(ctx)
	defer cancel()
	before := *c.lease.Load()
	got, err := c.store.Renew(rctx, *c.worker.Load(), c.cfg.Lease)
	switch {
	case errors.Is(err, ledger.ErrClosed):
		// This process was silent for longer than its lease, and its jobs were
		// given to others. It starts a new life; paid calls under way go on, and
		// their answers are still recorded.
		c.log.WarnContext(ctx, "lease lapsed; joining again", "silent_for", time.Since(before)+c.cfg.Lease)
		c.lose()
		if err := c.join(ctx); err != nil && ctx.Err() == nil {
			c.log.ErrorContext(ctx, "not joined again", "error", err)
			return time.Second
		}
	case err != nil:
		level := slog.LevelDebug // once is enough until it works again
		if !c.renewFails {
			level = slog.LevelWarn
		}
		c.renewFails = true
		c.log.Log(ctx, level, "lease not renewed", "error", err, "left", time.Until(before))
		if time.Now().After(before) {
			c.lose()
		}
		return min(c.cfg.Lease/10, time.Second)
	default:
		if c.renewFails {
			c.log.InfoContext(ctx, "lease renewed again")
		}
		c.renewFails = false
		c.trace.renewed(time.Until(before))
		c.lease.Store(&got.Deadline)
		c.cancelled(got.Cancelled)
	}
	return c.cfg.Lease / 3
}

// lose ends the work context of every run: its lease may be somebody else's.
func (c *Consumer) lose() {
	c.each(func(w *work) {
		if _, cancel := c.owned(w); cancel != nil {
			cancel(job.ErrLost)
		}
	})
}

// cancelled ends the work context of the runs of these jobs. What is flagged stays so until its calls have ended, and is
// named each time, so thousands at once are looked for in one pass.
func (c *Consumer) cancelled(keys []ledger.Key) {
	if len(keys) == 0 {
		return
	}
	flagged := make(map[ledger.Key]bool, len(keys))
	for _, k := range keys {
		flagged[k] = true
	}
	c.each(func(w *work) {
		if l, cancel := c.owned(w); l != nil && flagged[l.Key] {
			cancel(job.ErrCancelled)
		}
	})
}

// heedEvery is how often a worker that runs something asks which of its jobs were cancelled: a person who cancels one
// sees it end within a second. It is one read, of an index that has flagged jobs alone.
const heedEvery = 800 * time.Millisecond

// heed ends the work context of runs whose jobs a person cancelled. It is a goroutine of its own: a ledger that
// hangs must not hold the keeper up. What is missed here the next renewal tells. While nothing runs it rests.
func (c *Consumer) heed(ctx context.Context) {
	for ctx.Err() == nil {
		if !c.runsAny() {
			select {
			case <-ctx.Done():
			case <-c.claims:
			}
			continue
		}
		if sleep(ctx, heedEvery); ctx.Err() != nil {
			return
		}
		hctx, cancel := context.WithTimeout(ctx, settleTimeout)
		keys, err := c.store.Flagged(hctx, *c.worker.Load())
		cancel()
		if err != nil && ctx.Err() == nil {
			c.log.DebugContext(ctx, "cancelled jobs not asked for", "error", err)
		}
		c.cancelled(keys)
	}
}

// runsAny reports whether this worker has any lease.
func (c *Consumer) runsAny() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.active {
		if w.lease != nil {
			return true
		}
	}
	return false
}

func (h *held) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy = true
}

func (h *held) finish(deadline time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy, h.renewed = false, time.Now()
	if !deadline.IsZero() {
		h.d.Deadline = deadline
	}
}

// extend pushes one delivery's deadline out. A broker that holds it no longer
// is told that the ledger carries the job from here.
func (c *Consumer) extend(ctx context.Context, w *work) {
	h := w.held
	by := c.cfg.Visibility
	if by == 0 {
		by = h.span
	}
	ectx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(time.Until(h.delivery().Deadline), time.Second))
	defer cancel()
	deadline, err := c.cfg.Source.Extend(ectx, h.delivery(), by)
	job, log := c.called(w)
	switch {
	case err == nil:
		c.trace.extended("ok")
	case errors.Is(err, broker.ErrLimit):
		c.trace.extended("limit")
		c.handOff(ctx, w)
	case errors.Is(err, broker.ErrNotHeld) && !h.lose():
		// It was settled while the extension was on its way: nothing was lost.
	case errors.Is(err, broker.ErrNotHeld):
		// The message may be handed to another worker, who will find the job
		// running. The lease goes on, so the work does too, and its ack is sent all the same.
		c.trace.extended("lost")
		c.trace.delivered(job, "lost")
		log.WarnContext(ctx, "the broker took the delivery back; the lease is kept and the job goes on")
	default:
		c.trace.extended("error")
		log.WarnContext(ctx, "delivery not extended", "error", err)
	}
	h.finish(deadline)
	c.wakeKeeper()
}

// handOff makes the ledger the job's carrier and acknowledges the delivery, before
// the broker takes it back. A job whose input is not stored keeps its message: it
// is given back, and its next hand-out finds the job busy until it is done.
func (c *Consumer) handOff(ctx context.Context, w *work) {
	lease, _ := c.owned(w)
	_, log := c.called(w)
	err := error(ledger.ErrNoInput)
	if lease != nil {
		sctx, cancel := settling(ctx)
		err = c.store.Carry(sctx, *lease)
		cancel()
	}
	switch {
	case err == nil && c.awaited(w):
		log.InfoContext(ctx, "the ledger carries the job, and its message is given back for its answer")
		c.nack(ctx, w, c.cfg.Lease, true)
	case err == nil:
		log.InfoContext(ctx, "handed off: the ledger carries the job")
		c.ackAs(ctx, w, "handed_off")
	case errors.Is(err, ledger.ErrNoInput), errors.Is(err, ledger.ErrLost):
		c.nack(ctx, w, c.cfg.Lease, true)
	default:
		log.WarnContext(ctx, "not handed off yet", "error", err) // the keeper tries again
	}
}
