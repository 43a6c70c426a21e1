package consumer

import (
	"context"

	"github.com/paidonce/paidonce/ledger"
)

// follow hands the steps of a result that is on record to whoever starts them. More than there are slots for are left
// to the sweep, which finds them as it finds those of a worker that died here.
func (c *Consumer) follow(steps []ledger.StepAsk) {
	for _, s := range steps {
		select {
		case c.asked <- &ledger.Stored{Key: s.Key, Action: s.Action, InputHash: s.InputHash, Input: s.Input, Origin: s.Origin}:
		default:
			return
		}
	}
}

// steps starts what results ask for as soon as there is a slot, ahead of new messages: what was begun is brought to its end
// first. A step that was asked for before, by whomever, is answered by its claim.
func (c *Consumer) steps(ctx, paid context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-c.asked:
			h, ok := c.cfg.Handlers.Lookup(s.Action)
			if !ok || c.slots.retake(ctx) != nil {
				continue // the sweep of a worker that can run it has it
			}
			c.runs.Go(func() { c.revive(ctx, paid, *s, h) })
		}
	}
}
