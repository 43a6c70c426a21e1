package consumer_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// slowRelease is a ledger that takes its time.
type slowRelease struct{ ledger.Store }

func (s slowRelease) Release(ctx context.Context, l ledger.Lease, o ledger.Outcome) (ledger.Released, error) {
	time.Sleep(4 * time.Second)
	return s.Store.Release(ctx, l, o)
}

// Many handlers ignore their context: all of their jobs are given back in the time
// that one of them takes.
func TestAbandonedRunsDoNotQueueUp(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.before = func(context.Context, *job.Run, ask) error {
			if r.runs.Load() <= 4 {
				time.Sleep(time.Hour)
			}
			return nil
		}
		r.send("1", "2", "3", "4")
		a := r.start("a", func(c *consumer.Config) { c.Store, c.Drain = slowRelease{r.led}, 20*time.Second })
		time.Sleep(10 * time.Second)
		began := time.Now()
		r.end(a)
		if took := time.Since(began); took > 25*time.Second {
			t.Errorf("Run returned %v after the drain began", took)
		}
		for _, d := range []string{"1", "2", "3", "4"} {
			r.want(d, want{state: ledger.Ready, errClass: "drain"})
		}
		time.Sleep(2 * time.Hour) // the handlers come to their ends, and may send nothing
		b := r.start("b")
		time.Sleep(time.Minute)
		r.end(b)
		for _, d := range []string{"1", "2", "3", "4"} {
			r.want(d, done1)
		}
		r.queue(memory.Depth{})
	})
}

// lateRelease is a ledger to which a run's own end comes late: while the reply to that of the
// drain is on its way.
type lateRelease struct{ ledger.Store }

func (s lateRelease) Release(ctx context.Context, l ledger.Lease, o ledger.Outcome) (ledger.Released, error) {
	if !strings.Contains(o.Error.Text, "did not end within the drain time") {
		time.Sleep(4 * time.Second)
		return s.Store.Release(ctx, l, o)
	}
	defer time.Sleep(4 * time.Second)
	return s.Store.Release(ctx, l, o)
}

// givenBack counts what is given back.
type givenBack struct {
	broker.Source
	n *atomic.Int64
}

func (s givenBack) Nack(ctx context.Context, d broker.Delivery, delay time.Duration) error {
	s.n.Add(1)
	return s.Source.Nack(ctx, d, delay)
}

// A run ends just as the drain gives up on it: one of the two settles its delivery, and the other
// does not give it back beside that.
func TestAbandonedAsItEnds(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.prov.script = func(string, int) (time.Duration, error) { return time.Hour, nil }
		r.send("1")
		var back atomic.Int64
		a := r.start("a", func(c *consumer.Config) {
			c.Source, c.Store, c.Drain = givenBack{c.Source, &back}, lateRelease{c.Store}, 20*time.Second
		})
		time.Sleep(time.Second)
		r.end(a)
		time.Sleep(time.Minute)
		r.want("1", want{state: ledger.Unknown, open: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Sent}, errClass: "drain"})
		r.queue(memory.Depth{})
		if n := back.Load(); n != 0 {
			t.Errorf("it was given back %d times", n)
		}
	})
}

// slowReply is a ledger whose replies to a run's own end take long.
type slowReply struct{ ledger.Store }

func (s slowReply) Release(ctx context.Context, l ledger.Lease, o ledger.Outcome) (ledger.Released, error) {
	if !strings.Contains(o.Error.Text, "did not end within the drain time") {
		defer time.Sleep(2500 * time.Millisecond)
	}
	return s.Store.Release(ctx, l, o)
}

// A run that ended by itself, shortly before the drain gave up on it, settles its delivery before
// the worker is gone.
func TestEndedAsItIsAbandoned(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.prov.script = func(string, int) (time.Duration, error) { return time.Hour, nil }
		r.send("1")
		a := r.start("a", func(c *consumer.Config) { c.Store, c.Drain = slowReply{c.Store}, 20*time.Second })
		time.Sleep(time.Second)
		r.end(a)
		r.queue(memory.Depth{})
		r.want("1", want{state: ledger.Unknown, open: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Sent}, errClass: "drain"})
	})
}
