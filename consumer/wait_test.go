package consumer_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// sqs is a queue that counts every hand-out.
func sqs(limit int) memory.Options {
	return memory.Options{Visibility: time.Minute, MaxReceives: limit, CountAll: true}
}

// Two workers, one key, a call of a minute, a receive limit of 3, on a broker that counts
// every hand-out: the duplicate waits for a lease of the owner each time.
func TestABusyDuplicateUsesOneReceivePerLease(t *testing.T) {
	for _, c := range []struct {
		call  time.Duration
		limit int
	}{{time.Minute, 3}, {10 * time.Minute, 18}} {
		bubble(t, sqs(c.limit), func(r *rig) {
			r.cfg.Lease = time.Minute
			r.call.Routes[0].Timeout = 20 * time.Minute
			r.cfg.SettleWindow, r.cfg.Hold = 30*time.Minute, 30*time.Minute
			r.prov.script = func(string, int) (time.Duration, error) { return c.call, nil }
			var sa, sb spy
			r.send("1", "1")
			a, b := r.start("a", sa.on), r.start("b", sb.on)
			time.Sleep(time.Hour)
			r.end(a, b)
			r.want("1", done1)
			r.queue(memory.Depth{})
			nacks := append(sa.given(), sb.given()...)
			for _, d := range nacks {
				if d < 40*time.Second || d > 75*time.Second {
					t.Errorf("given back for %s, want what is left of a lease of a minute", d)
				}
			}
			if len(nacks) == 0 {
				t.Error("the duplicate was never given back")
			}
		})
	}
}

// A lease of hours does not hide a duplicate for hours.
func TestABusyDuplicateComesBackInAQuarterOfAnHour(t *testing.T) {
	bubble(t, sqs(0), func(r *rig) {
		r.cfg.Lease = 4 * time.Hour
		r.prov.script = func(string, int) (time.Duration, error) { return time.Minute, nil }
		var s spy
		r.send("1", "1")
		a := r.start("a", s.on)
		time.Sleep(time.Hour)
		r.end(a)
		r.want("1", done1)
		r.queue(memory.Depth{})
		if len(s.given()) != 1 || s.given()[0] != 15*time.Minute {
			t.Errorf("given back for %v, want 15m", s.given())
		}
	})
}

// short is a rig where everything that is busy is so for less than 5 s.
func short(t *testing.T, f func(*rig)) {
	bubble(t, memory.Options{Visibility: 3 * time.Second, MaxReceives: 1, CountAll: true}, func(r *rig) {
		r.cfg.Lease, r.cfg.Workers = 3*time.Second, 1
		r.prov.script = func(doc string, _ int) (time.Duration, error) {
			if doc == "1" {
				return time.Minute, nil
			}
			return time.Second, nil
		}
		f(r)
	})
}

// A duplicate whose job is soon free stays in hand, uses up no receive and no slot: a
// queue that hands everything out once loses nothing.
func TestAShortWaitStaysInTheProcess(t *testing.T) {
	short(t, func(r *rig) {
		var s spy
		r.send("1")
		a := r.start("a")
		time.Sleep(100 * time.Millisecond)
		r.send("1")
		var busy, all atomic.Int64
		b := r.start("b", s.on, func(c *consumer.Config) {
			c.Trace.Slots = func(n, of int) { busy.Store(max(busy.Load(), int64(n))); all.Store(int64(of)) }
		})
		time.Sleep(time.Second)
		r.send("2")
		time.Sleep(10 * time.Second)
		r.want("2", done1) // in the one slot of b
		if d := r.q.Depth(); d != (memory.Depth{Held: 2}) {
			t.Errorf("the queue holds %+v, want both messages of the job held", d)
		}
		time.Sleep(2 * time.Minute)
		r.end(a, b)
		r.want("1", done1)
		r.queue(memory.Depth{})
		r.avoids(map[string]int{"duplicate_message": 1})
		if busy.Load() != 1 || all.Load() != 1 || len(s.given()) > 0 {
			t.Errorf("%d of %d slots in use, given back %v", busy.Load(), all.Load(), s.given())
		}
	})
}

// As many deliveries wait as there are slots; the next one is given back.
func TestShortWaitsAreBounded(t *testing.T) {
	bubble(t, memory.Options{Visibility: time.Minute, CountAll: true}, func(r *rig) {
		r.cfg.Lease, r.cfg.Workers = 3*time.Second, 1
		r.prov.script = func(string, int) (time.Duration, error) { return time.Minute, nil }
		var s spy
		r.send("1")
		a := r.start("a")
		time.Sleep(100 * time.Millisecond)
		r.send("1", "1", "1")
		b := r.start("b", s.on)
		time.Sleep(900 * time.Millisecond)
		if d := r.q.Depth(); d != (memory.Depth{Held: 2, Delayed: 2}) || len(s.given()) != 2 || b.Status().Running != 1 {
			t.Errorf("the queue holds %+v, given back %v, %+v: want one delivery waiting and two given back", d, s.given(), b.Status())
		}
		time.Sleep(2 * time.Minute)
		r.end(a, b)
		r.want("1", done1)
		r.queue(memory.Depth{})
	})
}

// A drain gives a waiting delivery to the others at once.
func TestADrainEndsAShortWait(t *testing.T) {
	short(t, func(r *rig) {
		var s spy
		r.send("1")
		a := r.start("a")
		time.Sleep(100 * time.Millisecond)
		r.send("1")
		b := r.start("b", s.on)
		time.Sleep(500 * time.Millisecond)
		began := time.Now()
		r.end(b)
		if took := time.Since(began); took != 0 || len(s.given()) != 1 || s.given()[0] != 0 {
			t.Errorf("the drain took %s, given back for %v: want both at once", took, s.given())
		}
		r.queue(memory.Depth{Held: 1, Ready: 1})
		time.Sleep(2 * time.Minute)
		r.end(a)
		r.want("1", done1)
	})
}

// A delivery that waited has the slot that comes free before any poll; when none does it
// goes to a worker that has one.
func TestAShortWaitThatFindsNoSlot(t *testing.T) {
	for _, c := range []struct {
		other time.Duration // the call that has the slot
		nacks []time.Duration
	}{{4 * time.Second, nil}, {time.Minute, []time.Duration{0}}} {
		bubble(t, memory.Options{Visibility: time.Minute, CountAll: true}, func(r *rig) {
			r.cfg.Lease, r.cfg.Workers = 3*time.Second, 1
			r.prov.script = func(doc string, _ int) (time.Duration, error) {
				if doc == "2" {
					return c.other, nil
				}
				return time.Minute, nil
			}
			var s spy
			var busy atomic.Int64
			r.send("1")
			a := r.start("a")
			time.Sleep(100 * time.Millisecond)
			r.send("1")
			b := r.start("b", s.on, func(c *consumer.Config) { c.Trace.Slots = func(n, _ int) { busy.Store(int64(n)) } })
			time.Sleep(100 * time.Millisecond)
			r.send("2")
			time.Sleep(20 * time.Second)
			if !slices.Equal(s.given(), c.nacks) {
				t.Errorf("given back for %v, want %v", s.given(), c.nacks)
			}
			time.Sleep(5 * time.Minute)
			r.end(a, b)
			r.want("1", done1)
			r.want("2", done1)
			r.queue(memory.Depth{})
			if busy.Load() != 0 {
				t.Errorf("%d slots in use at the end", busy.Load())
			}
		})
	}
}

// A delivery on which a run ended in an error has counted, even if its next run is given back.
func TestARunThatWasTriedCounts(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.before = func(ctx context.Context, _ *job.Run, _ ask) error {
			switch r.runs.Load() {
			case 1:
				return errors.New("not yet")
			case 2:
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		var waited atomic.Int64
		r.send("1")
		a := r.start("a", func(c *consumer.Config) {
			c.Trace.Ended = func(_ string, _ ledger.State, w, _ time.Duration) { waited.Store(max(waited.Load(), int64(w))) }
		})
		time.Sleep(time.Minute)
		r.end(a)
		r.want("1", want{state: ledger.Ready, runs: 1, errClass: "drain"})
		b := r.start("b")
		time.Sleep(time.Minute)
		r.end(b)
		r.want("1", want{state: ledger.Done, runs: 2, bill: 1, attempts: []ledger.AttemptState{ledger.Received}})
		if j := r.job("1"); j.Receives != 2 || waited.Load() != 0 {
			t.Errorf("receives %d, want 2; a run waited %s for its slot", j.Receives, time.Duration(waited.Load()))
		}
	})
}

// An unknown job whose input is too large to keep is carried by its message, which is looked at once
// for each lease.
func TestAnUnknownJobInItsMessage(t *testing.T) {
	bubble(t, sqs(0), func(r *rig) {
		r.prov.script = func(string, int) (time.Duration, error) { return time.Second, errors.New("connection reset") }
		var s spy
		r.send("1")
		a := r.start("a", s.on, keepsNoInput)
		time.Sleep(time.Hour)
		r.end(a)
		r.want("1", want{state: ledger.Unknown, open: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Sent}, errClass: "held"})
		r.queue(memory.Depth{Delayed: 1})
		for _, d := range s.given() {
			if d < 30*time.Second || d > 15*time.Minute {
				t.Errorf("given back for %s, want a lease at least", d)
			}
		}
		if len(s.given()) == 0 {
			t.Error("never given back")
		}
	})
}

// A waiting delivery that the broker takes back is not looked at again: whoever has the
// message looks.
func TestALostDeliveryWaitsForNothing(t *testing.T) {
	bubble(t, memory.Options{Visibility: 3 * time.Second, CountAll: true}, func(r *rig) {
		r.cfg.Retry = consumer.Backoff{First: 4 * time.Second, Ceil: 4 * time.Second}
		r.after = func(context.Context, *job.Run, ask) error {
			if r.runs.Load() == 1 {
				return errors.New("not yet")
			}
			return nil
		}
		var s spy
		r.send("1")
		a := r.start("a", s.on)
		time.Sleep(1500 * time.Millisecond)
		if err := r.q.Lapse(s.first()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		r.end(a)
		r.want("1", want{state: ledger.Done, runs: 2, bill: 1, attempts: []ledger.AttemptState{ledger.Received}})
		r.queue(memory.Depth{})
		r.avoids(map[string]int{})
	})
}

// A retry that is due soon needs no second receive.
func TestASoonRetryStaysInTheProcess(t *testing.T) {
	bubble(t, sqs(1), func(r *rig) {
		r.after = func(context.Context, *job.Run, ask) error {
			if r.runs.Load() == 1 {
				return errors.New("not yet")
			}
			return nil
		}
		r.send("1")
		a := r.start("a")
		time.Sleep(time.Minute)
		r.end(a)
		r.want("1", want{state: ledger.Done, runs: 2, bill: 1, attempts: []ledger.AttemptState{ledger.Received}})
		r.queue(memory.Depth{})
		if j := r.job("1"); j.Receives != 1 {
			t.Errorf("%d receives, want 1", j.Receives)
		}
	})
}

// The owner of the lease that a duplicate waits for dies meanwhile: the job runs, in
// the process that waited.
func TestTheLeaseEndsDuringAShortWait(t *testing.T) {
	short(t, func(r *rig) {
		r.before = func(ctx context.Context, _ *job.Run, _ ask) error {
			if r.runs.Load() == 1 {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		r.send("1")
		a := r.start("a")
		time.Sleep(100 * time.Millisecond)
		r.send("1")
		var s spy
		b := r.start("b", s.on)
		time.Sleep(time.Second)
		a.kill()
		time.Sleep(5 * time.Minute)
		r.end(b)
		r.want("1", want{state: ledger.Done, runs: 2, bill: 1, attempts: []ledger.AttemptState{ledger.Received}})
		// The message that the dead worker had is past its limit: the queue set it aside.
		r.queue(memory.Depth{}, "receive limit")
		if len(s.given()) > 0 {
			t.Errorf("given back for %v", s.given())
		}
	})
}
