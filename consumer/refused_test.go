package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/ledger"
)

// refusing answers claims with err, and counts them.
type refusing struct {
	ledger.Store
	err   error
	asked *atomic.Int64
}

func (s refusing) Claim(context.Context, ledger.Request) (ledger.Claimed, error) {
	s.asked.Add(1)
	return ledger.Claimed{}, s.err
}

// refusingSource answers acks with err, and counts them.
type refusingSource struct {
	broker.Source
	err   error
	asked *atomic.Int64
}

func (s refusingSource) Ack(context.Context, broker.Delivery) error {
	s.asked.Add(1)
	return s.err
}

// What is refused for good is asked once.
func TestRefusedForGood(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(cfg *consumer.Config, asked *atomic.Int64)
		queue  memory.Depth
		dead   []string
	}{
		{"a claim", func(cfg *consumer.Config, asked *atomic.Int64) {
			cfg.Store = refusing{cfg.Store, fmt.Errorf("PO999 no such claim: %w", ledger.ErrRequest), asked}
		}, memory.Depth{}, []string{"PO999"}},
		{"an ack of what is not held", func(cfg *consumer.Config, asked *atomic.Int64) {
			cfg.Source = refusingSource{cfg.Source, broker.ErrNotHeld, asked}
		}, memory.Depth{Held: 1}, nil},
		{"an ack that is too large", func(cfg *consumer.Config, asked *atomic.Int64) {
			cfg.Source = refusingSource{cfg.Source, broker.ErrTooLarge, asked}
		}, memory.Depth{Held: 1}, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			bubble(t, memory.Options{}, func(r *rig) {
				var asked atomic.Int64
				a := r.start("a", func(cfg *consumer.Config) { c.change(cfg, &asked) })
				r.send("1")
				time.Sleep(10 * time.Second)
				if n := asked.Load(); n != 1 {
					r.Errorf("asked %d times", n)
				}
				r.queue(c.queue, c.dead...)
				r.end(a)
			})
		})
	}
}

// A claim that is tried again when the drain begins is tried no more: another worker should have the message soon.
func TestDrainEndsClaims(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		var asked atomic.Int64
		a := r.start("a", func(cfg *consumer.Config) { cfg.Store = refusing{cfg.Store, errDown, &asked} })
		r.send("1")
		time.Sleep(time.Second)
		tried, began := asked.Load(), time.Now()
		r.end(a)
		if took := time.Since(began); tried < 2 || asked.Load() != tried || took > 5*time.Second {
			r.Errorf("asked %d times, then %d; the drain took %v", tried, asked.Load(), took)
		}
		r.queue(memory.Depth{Ready: 1})
	})
}

// unjoined refuses workers with err.
type unjoined struct {
	ledger.Store
	err error
}

func (s unjoined) Join(context.Context, ledger.Worker) (ledger.WorkerID, error) {
	return ledger.WorkerID{}, s.err
}

// A ledger of another schema ends a worker at once. One that is away is asked again until the worker is stopped, which ends it at once too.
func TestNotJoined(t *testing.T) {
	for _, c := range []struct{ err, want error }{{ledger.ErrSchema, ledger.ErrSchema}, {errDown, nil}} {
		bubble(t, memory.Options{}, func(r *rig) {
			a := r.start("a", func(cfg *consumer.Config) { cfg.Store = unjoined{cfg.Store, c.err} })
			began := time.Now()
			if c.want == nil {
				time.Sleep(time.Minute)
				began = time.Now()
				a.stop()
			}
			if err := <-a.done; !errors.Is(err, c.want) || time.Since(began) > 0 {
				r.Errorf("%v: ended with %v after %v", c.err, err, time.Since(began))
			}
		})
	}
}
