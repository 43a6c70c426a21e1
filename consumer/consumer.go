// Package consumer runs handlers on messages so that what they pay for is paid once.
//
// The story of a delivery is told in process.go: decode, look, claim, run the handler
// (each of its calls: look for a saved answer, send once, settle), complete,
// acknowledge. keeper.go keeps leases and deliveries alive meanwhile, sweeper.go
// finds what died, reconciler.go looks for evidence of calls whose outcome is
// unknown, drain.go ends it all in order.
package consumer

import (
	"context"
)

// Consumer runs handlers. Make one with New.
type Consumer struct {
	cfg Config
}

// Status is what a readiness probe wants to know.
type Status struct {
	Joined   bool // the ledger knows this worker and its lease is good
	Draining bool
	Running  int // handlers
}

// New checks cfg and makes a consumer. Its error joins every problem.
func New(cfg Config) (*Consumer, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Consumer{cfg: cfg}, nil
}

// Run receives and runs until ctx ends, then drains: it receives nothing new, lets
// running handlers finish for up to Config.Drain, records calls still under
// way as unknown, gives everything else back, and returns nil. It waits for every
// goroutine that it started, except for handlers that ignore their context past the
// drain time. It returns an error only when it cannot go on: the source or
// the ledger refuses for good.
func (c *Consumer) Run(ctx context.Context) error { return nil }

// Status may be called at any time.
func (c *Consumer) Status() Status { return Status{} }
