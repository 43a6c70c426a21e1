package demo

import (
	"context"
	"fmt"
	"sync"

	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// counter counts, by key, what a consumer without a ledger would have paid for again. The
// scenes are played one after the other, so events belong to the key that was sent last.
type counter struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
	now     string        // the key of the scene
	tallies map[string]*tally
}

// tally is one key's.
type tally struct {
	messages int
	answered int // deliveries that got the saved result
	reused   int // runs that used a kept answer
	held     int // deliveries that found the job unknown
}

// avoided is how many calls were not made.
func (t *tally) avoided() int { return t.answered + t.reused + t.held }

func newCounter() *counter {
	return &counter{changed: make(chan struct{}), tallies: map[string]*tally{}}
}

// add changes the tally of the scene's key.
func (c *counter) add(change func(*tally)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c.tallies[c.now])
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *counter) sent(key string) {
	c.mu.Lock()
	c.now = key
	if c.tallies[key] == nil {
		c.tallies[key] = &tally{}
	}
	c.mu.Unlock()
	c.add(func(t *tally) { t.messages++ })
}

func (c *counter) of(key string) tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *c.tallies[key]
}

// wait waits until the tally of the scene's key satisfies ok.
func (c *counter) wait(ctx context.Context, ok func(tally) bool) error {
	for {
		c.mu.Lock()
		now, key, changed := *c.tallies[c.now], c.now, c.changed
		c.mu.Unlock()
		if ok(now) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the deliveries of %s, so far %+v: %w", key, now, context.Cause(ctx))
		}
	}
}

func (c *counter) trace() consumer.Trace {
	return consumer.Trace{
		Avoided: func(string, string, *ledger.Nano) { c.add(func(t *tally) { t.answered++ }) },
		Called: func(_ string, s job.Seen) {
			if s.Replayed {
				c.add(func(t *tally) { t.reused++ })
			}
		},
		Claimed: func(_ string, v ledger.Verdict) {
			if v == ledger.HeldUnknown {
				c.add(func(t *tally) { t.held++ })
			}
		},
	}
}
