package consumer

import (
	"context"
	"time"

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

// uncounted warns of routes whose calls a limit in dollars does not count, since nobody knows what their models cost: an answer
// of unknown cost frees what was held back for it. A budget of a single tenant may be of any job.
func (c *Consumer) uncounted() {
	days := c.cfg.Budgets.TenantDay
	for _, n := range c.cfg.Budgets.Tenants {
		days = max(days, n)
	}
	for _, name := range c.cfg.Handlers.Names() {
		h, _ := c.cfg.Handlers.Lookup(name)
		if max(h.Limits().USD, days, c.cfg.Budgets.ActionDay[name]) == 0 {
			continue
		}
		for _, call := range h.Calls() {
			info, _ := h.Call(call)
			for _, r := range info.Routes {
				if err := c.cfg.Prices.Has(r.Provider, r.Model, time.Now()); err != nil && !r.Free {
					c.log.Warn("PO626 the job's limits in dollars do not count what this route costs", "job", name, "call", call, "route", r.Name,
						"provider", r.Provider, "model", r.Model, "error", err)
				}
			}
		}
	}
}

// wasted tells of answers that a job was done without, which only its row knows. Those that came
// after it was done were told of when they came.
func (c *Consumer) wasted(ctx context.Context, w *work) {
	ctx, cancel := settling(ctx)
	defer cancel()
	j, err := c.store.Job(ctx, w.key)
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
