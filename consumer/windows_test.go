package consumer_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// frozen is a ledger whose client stands still between freeze and thaw, as a
// process under SIGSTOP does as far as others can see.
type frozen struct {
	ledger.Store
	stopped atomic.Bool
}

func (f *frozen) Renew(ctx context.Context, id ledger.WorkerID, ttl time.Duration) (ledger.Renewed, error) {
	if f.stopped.Load() {
		return ledger.Renewed{}, errors.New("frozen")
	}
	return f.Store.Renew(ctx, id, ttl)
}

// The worker is silent for longer than its lease while its call runs. The other
// worker finds the job unknown and leaves it alone; the answer, when it comes, is
// the result. The first worker starts a new life.
func TestZombieKeepsItsAnswer(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.prov.script = func(string, int) (time.Duration, error) { return 100 * time.Second, nil }
		f := &frozen{Store: r.led}
		r.send("1")
		a := r.start("a", func(c *consumer.Config) { c.Store = f })
		time.Sleep(10 * time.Second)
		b := r.start("b")
		f.stopped.Store(true)
		time.Sleep(70 * time.Second)
		r.want("1", want{state: ledger.Unknown, runs: 1, open: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Sent}})
		f.stopped.Store(false)
		time.Sleep(5 * time.Minute)
		if !a.Status().Joined {
			t.Error("the first worker did not join again")
		}
		r.end(a, b)
		r.want("1", want{state: ledger.Done, runs: 2, bill: 1, attempts: []ledger.AttemptState{ledger.Received}})
		r.queue(memory.Depth{})
	})
}

// stalled is a ledger that does not answer renewals until the stall is over, and
// answers them truthfully then: the process slept.
type stalled struct {
	ledger.Store
	until atomic.Int64
}

func (s *stalled) Renew(ctx context.Context, id ledger.WorkerID, ttl time.Duration) (ledger.Renewed, error) {
	time.Sleep(time.Until(time.Unix(0, s.until.Load())))
	return s.Store.Renew(ctx, id, ttl)
}

// A process that slept past its lease finds its epoch closed: its runs end with
// that cause.
func TestClosedEpochEndsTheRuns(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		st := &stalled{Store: r.led}
		ended := make(chan error, 1)
		r.before = func(ctx context.Context, _ *job.Run, _ ask) error {
			if r.runs.Load() == 1 {
				<-ctx.Done()
				ended <- context.Cause(ctx)
			}
			return nil
		}
		r.send("1")
		a := r.start("a", func(c *consumer.Config) { c.Store = st })
		time.Sleep(time.Second)
		st.until.Store(time.Now().Add(2 * time.Minute).UnixNano())
		b := r.start("b")
		time.Sleep(3 * time.Minute)
		select {
		case cause := <-ended:
			if !errors.Is(cause, job.ErrLost) {
				t.Errorf("the run ended with %v, want ErrLost", cause)
			}
		default:
			t.Error("the run goes on under a lost lease")
			a.Hurry()
		}
		time.Sleep(30 * time.Minute)
		r.end(a, b)
		r.want("1", want{state: ledger.Done, runs: 2, bill: 1, attempts: []ledger.AttemptState{ledger.Received}})
	})
}

// A lease that is lost between the look for an answer and the gate stops the call
// too, and so does a message that comes while this worker cannot claim: it stays in the queue.
func TestLostLeaseStopsAtTheGate(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		f := &frozen{Store: r.led}
		do := r.call.Routes[0].Do
		r.call.Routes[0].Timeout = 5 * time.Minute
		r.call.Routes[0].Do = func(ctx context.Context, a *job.Attempt, in ask) (string, error) {
			if r.runs.Load() == 1 {
				time.Sleep(2 * time.Minute)
			}
			return do(ctx, a, in)
		}
		r.send("1")
		a := r.start("a", func(c *consumer.Config) { c.Store = f })
		time.Sleep(time.Second)
		f.stopped.Store(true)
		time.Sleep(3 * time.Minute)
		r.want("1", want{state: ledger.Ready, errClass: "lost"})
		r.send("2")
		time.Sleep(time.Minute)
		if d := r.q.Depth(); d.Held > 0 {
			t.Errorf("the queue holds %+v: a worker that cannot claim took a message", d)
		}
		f.stopped.Store(false)
		time.Sleep(30 * time.Minute)
		r.end(a)
		r.want("1", done1)
		r.want("2", done1)
	})
}

// Case 12: a run that lost its lease before its call does not send it.
func TestLostLeaseSendsNothing(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		f := &frozen{Store: r.led}
		var cause error
		r.before = func(ctx context.Context, _ *job.Run, _ ask) error {
			if r.runs.Load() == 1 {
				<-ctx.Done()
				cause = context.Cause(ctx)
			}
			return nil // goes on to the call all the same
		}
		r.send("1")
		a := r.start("a", func(c *consumer.Config) { c.Store = f })
		time.Sleep(time.Second)
		f.stopped.Store(true)
		time.Sleep(2 * time.Minute)
		r.want("1", want{state: ledger.Ready, runs: 0, bill: 0, errClass: "lost"})
		if !errors.Is(cause, job.ErrLost) {
			t.Errorf("the work context ended with %v, want ErrLost", cause)
		}
		f.stopped.Store(false)
		b := r.start("b")
		time.Sleep(30 * time.Minute)
		r.end(a, b)
		r.want("1", done1)
	})
}

func TestRunDeadlineEndsTheRun(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.cfg.MaxRun = 10 * time.Minute
		var cause error
		r.before = func(ctx context.Context, _ *job.Run, _ ask) error {
			if r.runs.Load() == 1 {
				<-ctx.Done()
				cause = context.Cause(ctx)
				return cause
			}
			return nil
		}
		r.send("1")
		a, b := r.start("a"), r.start("b")
		time.Sleep(9 * time.Minute)
		r.want("1", want{state: ledger.Running, runs: 1})
		time.Sleep(time.Hour)
		r.end(a, b)
		if cause == nil || !strings.Contains(cause.Error(), "PO340") {
			t.Errorf("the work context ended with %v", cause)
		}
		r.want("1", want{state: ledger.Done, runs: 2, bill: 1, attempts: []ledger.AttemptState{ledger.Received}})
	})
}

// A broker that holds a delivery for no longer than the ack timeout: the ledger takes the
// job over and the delivery is acknowledged while the call runs.
func TestHandOffBeforeTheAckTimeout(t *testing.T) {
	for _, c := range []struct {
		name     string
		change   func(*consumer.Config)
		during   memory.Depth
		outcomes map[string]int
	}{
		{"input kept", func(*consumer.Config) {}, memory.Depth{}, map[string]int{"handed_off": 1}},
		{"input too large to keep", keepsNoInput, memory.Depth{Delayed: 1}, map[string]int{"acked": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, memory.Options{Visibility: 4 * time.Minute, MaxHold: 4 * time.Minute}, func(r *rig) {
				r.call.Routes[0].Timeout = 15 * time.Minute
				r.cfg.SettleWindow, r.cfg.Hold = 20*time.Minute, 20*time.Minute
				r.prov.script = func(string, int) (time.Duration, error) { return 11 * time.Minute, nil }
				r.send("1")
				outcomes := map[string]int{}
				a := r.start("a", c.change, func(c *consumer.Config) {
					c.Trace.Delivered = func(_, outcome string) {
						r.mu.Lock()
						defer r.mu.Unlock()
						outcomes[outcome]++
					}
				})
				time.Sleep(3*time.Minute - time.Second)
				if d := r.q.Depth(); d.Held+d.Ready+d.Delayed != c.during.Delayed {
					t.Errorf("the queue holds %+v during the call, want %+v", d, c.during)
				}
				time.Sleep(time.Hour)
				r.end(a)
				r.want("1", done1)
				r.queue(memory.Depth{})
				if j := r.job("1"); j.Receives != 1 {
					t.Errorf("receives %d: a parked copy counted", j.Receives)
				}
				delete(outcomes, "nacked") // the copy, once for every lease that it waits
				if !maps.Equal(outcomes, c.outcomes) {
					t.Errorf("deliveries ended as %v, want %v", outcomes, c.outcomes)
				}
			})
		})
	}
}

func TestDrain(t *testing.T) {
	for _, c := range []struct {
		name string
		call time.Duration
		wait bool // before the call, until the context ends
		want want
		left memory.Depth
	}{
		{"finished", 10 * time.Second, false, done1, memory.Depth{}},
		{"given back", 0, true, want{state: ledger.Ready, errClass: "drain"}, memory.Depth{Ready: 1}},
		{"recorded as unknown", time.Minute, false,
			want{state: ledger.Unknown, open: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Sent}, errClass: "drain"}, memory.Depth{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, memory.Options{}, func(r *rig) {
				r.prov.script = func(string, int) (time.Duration, error) { return c.call, nil }
				r.before = func(ctx context.Context, _ *job.Run, _ ask) error {
					if c.wait {
						<-ctx.Done()
					}
					return nil
				}
				r.send("1")
				a := r.start("a")
				time.Sleep(time.Second)
				began := time.Now()
				r.end(a)
				if took := time.Since(began); took > 25*time.Second {
					t.Errorf("the drain took %s of 25s", took)
				}
				r.want("1", c.want)
				r.queue(c.left)

				// Whatever the outcome was, the next worker makes no second call.
				r.before, c.wait = nil, false
				b := r.start("b")
				time.Sleep(time.Minute)
				r.end(b)
				if r.prov.billed("1") != 1 {
					t.Errorf("billed %d times", r.prov.billed("1"))
				}
			})
		})
	}
}

// A call that cannot end within the drain time is not begun.
func TestNoCallIsBegunInADrain(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.before = func(context.Context, *job.Run, ask) error { time.Sleep(5 * time.Second); return nil }
		r.send("1")
		a := r.start("a")
		time.Sleep(time.Second)
		r.end(a)
		r.want("1", want{state: ledger.Ready, errClass: "drain"})
		r.queue(memory.Depth{Ready: 1})
	})
}

// Case 28: a handler that ignores its context does not keep the worker from ending, and the ledger
// knows that a call is open.
func TestDrainAbandonsAWedgedHandler(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.before = func(context.Context, *job.Run, ask) error { time.Sleep(time.Hour); return nil }
		r.send("1")
		a := r.start("a")
		time.Sleep(time.Second)
		began := time.Now()
		r.end(a)
		if took := time.Since(began); took > 25*time.Second {
			t.Errorf("the drain took %s of 25s", took)
		}
		r.want("1", want{state: ledger.Ready, errClass: "drain"})
		r.queue(memory.Depth{Ready: 1})
		time.Sleep(2 * time.Hour) // the handler ends at last; it sends nothing
		r.want("1", want{state: ledger.Ready, errClass: "drain"})
	})
}

// Case 29: a second order to stop ends the drain.
func TestHurryEndsTheDrain(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.prov.script = func(string, int) (time.Duration, error) { return 10 * time.Second, nil }
		r.send("1")
		a := r.start("a")
		time.Sleep(time.Second)
		began := time.Now()
		a.Hurry()
		r.end(a)
		if took := time.Since(began); took > time.Second {
			t.Errorf("the hurried drain took %s", took)
		}
		r.want("1", want{state: ledger.Unknown, open: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Sent}, errClass: "drain"})
	})
}

// With one slot, taken by a poll that finds nothing, a job that the ledger carries
// still runs.
func TestAPollYieldsToTheLedger(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.cfg.Workers = 1
		r.prov.script = func(string, int) (time.Duration, error) { return 10 * time.Second, nil }
		r.send("1")
		a := r.start("a")
		time.Sleep(time.Second)
		a.Hurry()
		r.end(a) // unknown, carried by the ledger
		j := r.job("1")
		b := r.start("b")
		time.Sleep(time.Minute)
		if _, err := r.led.Settle(t.Context(), ledger.AttemptID{Tenant: "acme", Job: j.ID, ID: j.Attempts[0].ID},
			ledger.Evidence{State: ledger.NotSent, By: ledger.ByPerson, Who: "ann"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		r.end(b)
		r.want("1", want{state: ledger.Done, runs: 1, bill: 2, attempts: []ledger.AttemptState{ledger.NotSent, ledger.Received}})
	})
}

// Case 60: cancelled by a person while it waits, and while its handler runs.
func TestCancel(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.before = func(ctx context.Context, _ *job.Run, in ask) error {
			if in.Doc == "running" {
				<-ctx.Done()
				return ctx.Err()
			}
			return errors.New("not yet")
		}
		r.cfg.Retry = consumer.Backoff{First: time.Hour, Ceil: time.Hour}
		r.send("running", "waiting")
		a := r.start("a")
		time.Sleep(time.Minute)
		for _, d := range []string{"running", "waiting"} {
			if _, err := r.led.Resolve(t.Context(), ledger.Resolution{Key: key(d), Action: ledger.Cancel, By: ledger.ByPerson, Who: "ann", Reason: "test"}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if j := r.job("running"); j.State != ledger.Cancelled {
			t.Errorf("the running job is %s a minute after it was cancelled", j.State)
		}
		time.Sleep(3 * time.Hour)
		r.end(a)
		for _, d := range []string{"running", "waiting"} {
			if j := r.job(d); j.State != ledger.Cancelled || j.Runs != 1 || r.prov.billed(d) != 0 {
				t.Errorf("job %s is %s after %d runs and %d calls", d, j.State, j.Runs, r.prov.billed(d))
			}
		}
		r.queue(memory.Depth{})
	})
}
