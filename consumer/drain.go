package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// drain ends the runs in hand, in one of three ways: finished while there is time,
// given back when nothing is open, recorded as unknown when calls are still under way
// shortly before the end.
func (c *Consumer) drain(cut context.CancelCauseFunc, loops *sync.WaitGroup) {
	margin := min(5*time.Second, c.cfg.Drain/5)
	limit := time.Now().Add(c.cfg.Drain - margin)
	c.drainEnd.Store(&limit)
	c.trace.draining()
	c.log.Info("draining", "running", c.Status().Running, "drain", c.cfg.Drain)

	ended := make(chan struct{})
	go func() {
		loops.Wait() // nothing new starts
		c.runs.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return
	case <-time.After(time.Until(limit)):
	case <-c.hurry:
	}
	c.log.Warn("drain time is over; calls under way become unknown", "running", c.Status().Running)
	c.each(func(w *work) {
		if _, cancel := c.owned(w); cancel != nil {
			cancel(errDrainOver)
		}
	})
	cut(errDrainOver)
	select {
	case <-ended:
		return
	case <-time.After(margin / 2):
	}
	begun := time.Now()
	var all sync.WaitGroup // at once: behind a slow ledger the process would be killed before the last
	c.each(func(w *work) { all.Go(func() { c.abandon(w) }) })
	all.Wait()
	select { // a run that ended by itself meanwhile still settles its delivery
	case <-ended:
	case <-time.After(margin/2 - time.Since(begun)):
	}
}

// Hurry ends a drain's waiting at once: calls under way are recorded as unknown
// and Run returns. Before the drain it makes the coming one short. It may be called again.
func (c *Consumer) Hurry() { c.hurryOnce.Do(func() { close(c.hurry) }) }

// abandon speaks for a handler that ignores its context: the process is about to
// end, and the ledger should know before the lease is over.
func (c *Consumer) abandon(w *work) {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	w.abandoned.Store(true)
	lease, _ := c.owned(w)
	if lease == nil {
		c.nack(ctx, w, 0, true)
		return
	}
	rel, err := c.store.Release(ctx, *lease, ledger.Outcome{GiveBack: true, Who: c.cfg.Name,
		Error: ledger.JobError{Class: "drain", Text: "the handler did not end within the drain time"}})
	_, log := c.called(w)
	if err != nil {
		log.Warn("handler abandoned and job not given back; its lease will lapse", "error", err)
		return
	}
	log.Warn("handler abandoned", "state", string(rel.State))
	if (rel.State.Terminal() || rel.Carrier == ledger.CarriedByLedger) && !c.awaited(w) {
		c.ack(ctx, w)
	} else {
		c.nack(ctx, w, rel.RetryIn, true)
	}
}

// drainLeft says how long paid calls may still take, and whether that is bounded.
func (c *Consumer) drainLeft() (time.Duration, bool) {
	end := c.drainEnd.Load()
	if end == nil {
		return 0, false
	}
	return time.Until(*end), true
}
