package consumer_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/ledger"
)

// counter is a ledger that hears of counts. deaf says which of them, from 1, are done and answered
// with an error; away, which are not done.
type counter struct {
	ledger.Store
	deaf, away func(n int) bool

	mu    sync.Mutex
	heard []int64 // deliveries of each call
}

func (s *counter) on(c *consumer.Config) { s.Store, c.Store = c.Store, s }

func (s *counter) Count(ctx context.Context, id ledger.WorkerID, batch ledger.ID, all []ledger.Avoided) error {
	s.mu.Lock()
	var sum int64
	for _, a := range all {
		sum += a.Count
	}
	s.heard = append(s.heard, sum)
	n := len(s.heard)
	s.mu.Unlock()
	if s.away != nil && s.away(n) {
		return errors.New("the ledger is away")
	}
	err := s.Store.Count(ctx, id, batch, all)
	if s.deaf != nil && s.deaf(n) {
		return errors.New("no reply")
	}
	return err
}

// writes is what it heard so far.
func (s *counter) writes() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.heard)
}

// counted is what the ledger knows.
func (r *rig) counted() (all ledger.Cost) {
	r.Helper()
	c, err := r.led.Costs(r.Context(), ledger.CostFilter{})
	if err != nil {
		r.Fatal(err)
	}
	return c.Total
}

// finished makes a done job of each document.
func (r *rig) finished(docs ...string) {
	r.Helper()
	r.send(docs...)
	n := r.start("first")
	time.Sleep(time.Minute)
	r.end(n)
}

// A storm of duplicates is counted with a write a tick, and each of them once, whatever the trace and the
// metrics do.
func TestDuplicatesAreCountedByTicks(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.finished("1", "2")
		s := &counter{}
		n := r.start("a", s.on, func(c *consumer.Config) { c.Tick = 10 * time.Second })
		for range 300 {
			r.send("1", "2")
		}
		time.Sleep(9 * time.Second)
		r.send("1")
		time.Sleep(time.Minute)
		if w := s.writes(); len(w) == 0 || len(w) > 3 {
			t.Errorf("%d writes for one storm: %v", len(w), w)
		}
		if got := r.counted().Avoided[ledger.DuplicateMessage]; got != 601 {
			t.Errorf("%d counted before the drain, want 601", got)
		}
		r.send("2")
		time.Sleep(time.Second)
		r.end(n) // the last are written at the drain
		got := r.counted()
		if got.Avoided[ledger.DuplicateMessage] != 602 || got.AvoidedCalls() != 602 || got.SavedUnpriced != 602 || got.Saved != 0 {
			t.Errorf("counted %+v", got)
		}
		r.avoids(map[string]int{"duplicate_message": 602})
	})
}

// The ledger is away for a while, or its replies are lost: what was avoided is counted once.
func TestCountsSurviveTheLedgersAbsence(t *testing.T) {
	for name, s := range map[string]*counter{
		"away":       {away: func(n int) bool { return n <= 3 }},
		"no replies": {deaf: func(n int) bool { return n <= 3 }},
		"never":      {away: func(int) bool { return true }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, memory.Options{}, func(r *rig) {
				r.finished("1")
				n := r.start("a", s.on)
				for range 5 {
					r.send("1", "1")
					time.Sleep(15 * time.Second)
				}
				time.Sleep(2 * time.Minute)
				r.end(n)
				want := int64(10)
				if name == "never" {
					want = 0
				}
				if got := r.counted().AvoidedCalls(); got != want {
					t.Errorf("counted %d, want %d; heard %v", got, want, s.writes())
				}
			})
		})
	}
}

// A ledger that hangs at the end holds the drain up once, not twice.
func TestCountsDoNotHoldTheDrainUp(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.finished("1")
		s := &hanging{}
		n := r.start("a", s.on)
		r.send("1")
		time.Sleep(time.Second)
		begun := time.Now()
		r.end(n)
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("the drain took %s", took)
		}
		if got := r.counted().AvoidedCalls(); got != 0 {
			t.Errorf("counted %d", got)
		}
	})
}

// hanging is a ledger that answers neither counts nor the end of an epoch.
type hanging struct{ ledger.Store }

func (s *hanging) on(c *consumer.Config) { s.Store, c.Store = c.Store, s }

func (s *hanging) Count(ctx context.Context, _ ledger.WorkerID, _ ledger.ID, _ []ledger.Avoided) error {
	<-ctx.Done()
	return ctx.Err()
}

func (s *hanging) Leave(ctx context.Context, _ ledger.WorkerID) error {
	<-ctx.Done()
	return ctx.Err()
}
