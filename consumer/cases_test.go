package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// spy is a source that remembers what it was asked.
type spy struct {
	broker.Source
	mu      sync.Mutex
	handed  []broker.Delivery
	nacks   []time.Duration
	extends []time.Duration
	deaf    bool // the broker is out of reach for extensions
}

func (s *spy) on(c *consumer.Config) { s.Source, c.Source = c.Source, s }

func (s *spy) Receive(ctx context.Context, n int) ([]broker.Delivery, error) {
	ds, err := s.Source.Receive(ctx, n)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handed = append(s.handed, ds...)
	return ds, err
}

func (s *spy) Nack(ctx context.Context, d broker.Delivery, delay time.Duration) error {
	s.mu.Lock()
	s.nacks = append(s.nacks, delay)
	s.mu.Unlock()
	return s.Source.Nack(ctx, d, delay)
}

func (s *spy) Extend(ctx context.Context, d broker.Delivery, by time.Duration) (time.Time, error) {
	s.mu.Lock()
	s.extends = append(s.extends, by)
	deaf := s.deaf
	s.mu.Unlock()
	if deaf {
		return time.Time{}, broker.ErrUnavailable
	}
	return s.Source.Extend(ctx, d, by)
}

// given are the delays of the nacks so far.
func (s *spy) given() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.nacks)
}

// first is the first delivery that was handed out.
func (s *spy) first() broker.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handed[0]
}

// Case 7: visibility changes do not get through for a whole visibility timeout, so that the message is
// handed out again while its job runs: the lease still holds.
func TestExtensionsHeldUpCostNoCall(t *testing.T) {
	bubble(t, sqs(0), func(r *rig) {
		r.call.Routes[0].Timeout = 5 * time.Minute
		r.prov.script = func(string, int) (time.Duration, error) { return 4 * time.Minute, nil }
		var s spy
		s.deaf = true
		r.send("1")
		a := r.start("a", s.on)
		time.Sleep(time.Second)
		b := r.start("b")
		time.Sleep(2 * time.Minute)
		s.mu.Lock()
		s.deaf = false
		s.mu.Unlock()
		time.Sleep(10 * time.Minute)
		r.end(a, b)
		r.want("1", done1)
		r.queue(memory.Depth{})
		r.avoids(map[string]int{"redelivered": 1})
	})
}

// Case 9: with nothing configured the queue's own visibility is what a delivery is extended by.
func TestTheQueuesVisibilityHolds(t *testing.T) {
	bubble(t, memory.Options{Visibility: 2 * time.Minute}, func(r *rig) {
		r.prov.script = func(string, int) (time.Duration, error) { return 90 * time.Second, nil }
		var s spy
		r.send("1")
		a := r.start("a", s.on)
		time.Sleep(time.Minute)
		a.kill()
		<-a.done
		s.mu.Lock()
		if len(s.extends) != 1 || s.extends[0] != 2*time.Minute {
			t.Errorf("extended by %v after 40 s, want 2m", s.extends)
		}
		s.mu.Unlock()
		time.Sleep(99 * time.Second)
		r.queue(memory.Depth{Held: 1})
		time.Sleep(2 * time.Second)
		r.queue(memory.Depth{Ready: 1})
	})
}

// Case 16: whatever ends a run, its lease or its own limit, no second one runs beside it.
func TestRunsOfAJobNeverOverlap(t *testing.T) {
	bubble(t, memory.Options{Visibility: 20 * time.Second}, func(r *rig) {
		r.cfg.MaxRun = 10 * time.Minute
		var mu sync.Mutex
		now, most := 0, 0
		r.before = func(ctx context.Context, _ *job.Run, _ ask) error {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			defer func() { mu.Lock(); now--; mu.Unlock() }()
			if r.runs.Load() < 3 {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			time.Sleep(5 * time.Minute) // ten leases
			return nil
		}
		r.send("1", "1")
		f := &frozen{Store: r.led}
		a := r.start("a", func(c *consumer.Config) { c.Store = f })
		time.Sleep(time.Minute)
		f.stopped.Store(true) // the first run ends with its lease, which gives it back
		time.Sleep(r.cfg.Lease + 5*time.Second)
		b := r.start("b")
		time.Sleep(5 * time.Minute)
		f.stopped.Store(false)
		time.Sleep(2 * time.Hour)
		r.end(a, b)
		if most != 1 {
			t.Errorf("%d runs at once", most)
		}
		if n := r.runs.Load(); n != 3 {
			t.Errorf("%d runs, want one that lost its lease, one past its limit, and the last", n)
		}
		r.want("1", want{state: ledger.Done, runs: 2, bill: 1, attempts: []ledger.AttemptState{ledger.Received}})
		r.queue(memory.Depth{})
	})
}

// Case 3: errors, panics and bodies that nobody can read neither take a slot with them nor
// give one away.
func TestSlotsAreNeitherLostNorMade(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		const slots = 3
		r.cfg.Workers, r.cfg.MaxRuns = slots, 2
		var mu sync.Mutex
		now, most := 0, 0
		r.before = func(_ context.Context, _ *job.Run, in ask) error {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			defer func() { mu.Lock(); now--; mu.Unlock() }()
			switch in.Doc[0] {
			case 'e':
				return errors.New("no")
			case 'p':
				panic("boom")
			}
			time.Sleep(time.Minute)
			return nil
		}
		a := r.start("a")
		for i := range 10 {
			if err := r.q.Publish(t.Context(), broker.Message{Body: []byte("not json")}); err != nil {
				t.Fatal(err)
			}
			r.send(fmt.Sprint("e", i), fmt.Sprint("p", i))
		}
		time.Sleep(time.Hour)
		mu.Lock()
		most = 0
		mu.Unlock()
		for i := range 4 * slots {
			r.send(fmt.Sprint("good", i))
		}
		time.Sleep(4*time.Minute + 30*time.Second)
		r.end(a)
		if most != slots {
			t.Errorf("%d handlers at once, want %d", most, slots)
		}
		for i := range 4 * slots {
			r.want(fmt.Sprint("good", i), done1)
		}
		for i := range 10 {
			r.want(fmt.Sprint("e", i), want{state: ledger.Failed, runs: 2, errClass: "exhausted"})
			r.want(fmt.Sprint("p", i), want{state: ledger.Failed, runs: 2, errClass: "exhausted"})
		}
		r.queue(memory.Depth{}, slices.Repeat([]string{"PO401"}, 10)...)
	})
}

// Case 5: the only slot is taken by a job that hangs. When its time is over the next job
// runs, and the log says why.
func TestAHangingJobGivesItsSlotBack(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.cfg.Workers, r.cfg.MaxRun, r.cfg.MaxRuns = 1, 10*time.Minute, 1
		r.before = func(ctx context.Context, _ *job.Run, in ask) error {
			if in.Doc == "hangs" {
				<-ctx.Done()
			}
			return context.Cause(ctx)
		}
		var log bytes.Buffer
		r.send("hangs", "next")
		a := r.start("a", func(c *consumer.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		time.Sleep(9 * time.Minute)
		if _, err := r.led.Job(t.Context(), key("next")); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("reading the next job before the time is over: %v", err)
		}
		time.Sleep(time.Hour)
		r.end(a)
		r.want("hangs", want{state: ledger.Failed, runs: 1, errClass: "exhausted"})
		r.want("next", done1)
		r.queue(memory.Depth{})
		if !strings.Contains(log.String(), "PO340") {
			t.Errorf("the log does not say that the run was past its deadline:\n%s", &log)
		}
	})
}

// Case 33: three workers sweep at ten times the usual rate while a job of many leases runs.
func TestHastySweepersLeaveARunningJobAlone(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.call.Routes[0].Timeout = 5 * time.Minute
		r.prov.script = func(string, int) (time.Duration, error) { return 4 * time.Minute, nil }
		r.before = func(context.Context, *job.Run, ask) error { time.Sleep(4 * time.Minute); return nil }
		hasty := func(c *consumer.Config) { c.Tick, c.Grace = time.Second, time.Second }
		r.send("1")
		ns := []*node{r.start("a", hasty), r.start("b", hasty), r.start("c", hasty)}
		time.Sleep(30 * time.Minute)
		r.end(ns...)
		r.want("1", done1)
		r.queue(memory.Depth{})
		r.avoids(map[string]int{})
		if n := r.runs.Load(); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

// Case 39: a job that takes its worker down with it is set aside after so many deaths, and
// the jobs beside it are done.
func TestAJobThatKillsItsWorkers(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		const deaths = 3
		r.cfg.MaxRuns = deaths
		deadly := make(chan bool, 1)
		r.before = func(ctx context.Context, _ *job.Run, in ask) error {
			if in.Doc == "deadly" {
				deadly <- true
				<-ctx.Done()
			}
			return ctx.Err()
		}
		r.send("deadly")
		for i := range deaths {
			r.send(fmt.Sprint(i))
			n := r.start(fmt.Sprint("victim ", i))
			<-deadly
			time.Sleep(time.Minute) // the job beside it: a death in its call would leave that unknown
			n.kill()
		}
		last := r.start("last")
		time.Sleep(time.Hour)
		r.end(last)
		r.want("deadly", want{state: ledger.Failed, runs: deaths, errClass: "exhausted"})
		for i := range deaths {
			r.want(fmt.Sprint(i), done1)
		}
		r.queue(memory.Depth{})
	})
}

// Case 14: a long call needs nothing but its route's timeout. The windows that nobody set
// grow with it, so that no policy acts on a call that may still land.
func TestALongCallNeedsItsTimeoutOnly(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.call.Routes[0].Timeout, r.call.OnUnknown = 20*time.Minute, job.FailUnknown()
		r.prov.script = func(string, int) (time.Duration, error) { return 19 * time.Minute, nil }
		r.send("1")
		a := r.start("a")
		time.Sleep(time.Hour)
		r.end(a)
		r.want("1", want{state: ledger.Done, runs: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Received}})

		r.send("2")
		a = r.start("a")
		time.Sleep(10 * time.Second) // under way
		a.kill()
		b := r.start("b")
		time.Sleep(24 * time.Minute)
		r.want("2", want{state: ledger.Unknown, runs: 1, open: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Sent}})
		time.Sleep(24 * time.Hour)
		r.end(b)
		r.want("2", want{state: ledger.Failed, runs: 1, bill: 1, errClass: "held", attempts: []ledger.AttemptState{ledger.UnknownAttempt}})
		r.queue(memory.Depth{})
	})
}
