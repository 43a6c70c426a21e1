package consumer

import (
	"context"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/prices"
)

// price is what a call cost. nil: nobody knows, which is logged once for each model and reason.
func (c *Consumer) price(call prices.Call) *ledger.Nano {
	cost, err := c.cfg.Prices.Cost(call)
	if err == nil {
		return &cost
	}
	if c.first(err.Error()) {
		c.log.Warn("cost not known; said once for each model and reason", "provider", call.Provider, "model", call.Model, "answered", call.Answered, "usage", call.Usage, "error", err)
	}
	return nil
}

// wasted tells of answers that a job was done without, which only its row knows. Those that came
// after it was done were told of when they came.
func (c *Consumer) wasted(ctx context.Context, w *work) {
	ctx, cancel := settling(ctx)
	defer cancel()
	j, err := c.store.Job(ctx, w.request.Key)
	if err != nil {
		w.log.WarnContext(ctx, "answers not needed were not counted", "error", err)
		return
	}
	for _, a := range j.Attempts {
		if a.Surplus && a.Generation == j.Generation && !a.EndedAt.After(j.DoneAt) && a.Evidence.Cost != nil {
			c.trace.wasted(w.job, *a.Evidence.Cost)
		}
	}
}
