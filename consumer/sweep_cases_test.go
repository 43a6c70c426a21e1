package consumer_test

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// stale is a ledger whose list of due jobs takes a minute to arrive.
type stale struct{ ledger.Store }

func (s stale) Due(ctx context.Context, n int, grace time.Duration, actions ...string) ([]ledger.Stored, error) {
	defer time.Sleep(time.Minute)
	return s.Store.Due(ctx, n, grace, actions...)
}

func staleList(c *consumer.Config) { c.Store, c.Tick = stale{c.Store}, time.Hour }

// Case 34: a job is done between the list that a sweeper read and what the sweeper does about it: it stays done.
func TestAStaleListChangesNothing(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.carry("1")
		b := r.start("b", staleList)
		time.Sleep(2 * time.Second) // b has its list
		a := r.start("a")
		time.Sleep(30 * time.Second)
		r.want("1", done1)
		before := r.job("1")
		time.Sleep(5 * time.Minute)
		r.end(a, b)
		if after := r.job("1"); !reflect.DeepEqual(after, before) || r.runs.Load() != 1 {
			t.Errorf("the finished job was\n%+v, and is\n%+v; %d runs", before, after, r.runs.Load())
		}
		r.queue(memory.Depth{})
	})
}

// Case 37: two sweepers hold one list. Each job on it is run by one of them, once.
func TestTwoSweepersHoldOneList(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		const jobs = 8
		r.prov.script = func(string, int) (time.Duration, error) { return 10 * time.Second, nil }
		for i := range jobs {
			r.carry(fmt.Sprint(i))
		}
		busy := 0
		count := func(c *consumer.Config) {
			c.Workers = jobs
			c.Trace.Claimed = func(_ string, v ledger.Verdict) {
				r.mu.Lock()
				defer r.mu.Unlock()
				if v != ledger.Run {
					busy++
				}
			}
		}
		a, b := r.start("a", staleList, count), r.start("b", staleList, count)
		time.Sleep(5 * time.Minute)
		r.end(a, b)
		for i := range jobs {
			r.want(fmt.Sprint(i), done1)
		}
		if n := r.runs.Load(); n != jobs || busy == 0 {
			t.Errorf("%d runs, and %d claims that were refused, of %d jobs on two lists", n, busy, jobs)
		}
	})
}

// threeLeft kills a worker with three jobs in hand: one before its call, one in it, one after its answer.
func (r *rig) threeLeft() {
	r.Helper()
	r.call.OnUnknown = job.FailUnknown()
	r.prov.script = func(doc string, _ int) (time.Duration, error) {
		if doc == "open" {
			return time.Hour, nil
		}
		return time.Second, nil
	}
	wedged := func(at string) func(context.Context, *job.Run, ask) error {
		return func(ctx context.Context, j *job.Run, in ask) error {
			if in.Doc == at && j.Number() == 1 {
				<-ctx.Done()
			}
			return ctx.Err()
		}
	}
	r.before, r.after = wedged("early"), wedged("late")
	r.call.Routes[0].Timeout = 2 * time.Hour
	r.cfg.SettleWindow, r.cfg.Hold, r.cfg.MaxRun = 3*time.Hour, 3*time.Hour, 3*time.Hour
	r.send("early", "open", "late")
	a := r.start("a")
	time.Sleep(10 * time.Second)
	a.kill()
}

// ended is what becomes of them.
func (r *rig) ended() {
	r.Helper()
	answered := want{state: ledger.Done, runs: 2, bill: 1, attempts: []ledger.AttemptState{ledger.Received}}
	r.want("early", answered)
	r.want("late", answered)
	r.want("open", want{state: ledger.Failed, runs: 1, bill: 1, attempts: []ledger.AttemptState{ledger.UnknownAttempt}, errClass: "held"})
	r.queue(memory.Depth{})
}

// Case 40: within one lease and one sweep nothing runs without a live lease.
func TestNothingRunsForTheDead(t *testing.T) {
	bubble(t, memory.Options{Visibility: 20 * time.Second}, func(r *rig) {
		const tick = 10 * time.Second
		r.cfg.Tick = tick
		r.threeLeft()
		b := r.start("b")
		time.Sleep(r.cfg.Lease + tick*5/4 + 5*time.Second)
		for _, doc := range []string{"early", "open", "late"} {
			if j := r.job(doc); j.State == ledger.Running && j.Owner.ID != "b" {
				t.Errorf("job %s is running for %v, who is dead", doc, j.Owner)
			}
		}
		r.want("open", want{state: ledger.Unknown, runs: 1, open: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Sent}})
		time.Sleep(12 * time.Hour)
		r.end(b)
		r.ended()
	})
}

// restarted is a ledger that goes away as the first sweep begins, for two minutes.
type restarted struct {
	*outage
	began bool
}

func (s *restarted) Sweep(ctx context.Context, n int) (swept ledger.Swept, err error) {
	if !s.began {
		s.began = true
		s.until.Store(time.Now().Add(2 * time.Minute).UnixNano())
	}
	err = s.down(func() (err error) { swept, err = s.Store.Sweep(ctx, n); return err })
	return swept, err
}

func (s *restarted) Due(ctx context.Context, n int, grace time.Duration, actions ...string) (due []ledger.Stored, err error) {
	err = s.down(func() (err error) { due, err = s.Store.Due(ctx, n, grace, actions...); return err })
	return due, err
}

func (s *restarted) Adopt(ctx context.Context, a ledger.Adoption) (all []ledger.Adopted, err error) {
	err = s.down(func() (err error) { all, err = s.Store.Adopt(ctx, a); return err })
	return all, err
}

func (s *restarted) Renew(ctx context.Context, id ledger.WorkerID, ttl time.Duration) (n ledger.Renewed, err error) {
	err = s.down(func() (err error) { n, err = s.Store.Renew(ctx, id, ttl); return err })
	return n, err
}

// Case 38: the ledger goes away in the middle of the recovery of what a dead worker left, with what was written then or
// without it, for longer than a lease. All jobs end.
func TestLedgerRestartsDuringASweep(t *testing.T) {
	for _, lossy := range []bool{false, true} {
		t.Run(map[bool]string{false: "refused", true: "replies lost"}[lossy], func(t *testing.T) {
			bubble(t, memory.Options{Visibility: 20 * time.Second}, func(r *rig) {
				r.threeLeft()
				time.Sleep(time.Minute) // there is something to sweep
				o := &restarted{outage: &outage{Store: r.led, lossy: lossy}}
				b := r.start("b", func(c *consumer.Config) { c.Store = o })
				time.Sleep(24 * time.Hour)
				r.end(b)
				r.ended()
			})
		})
	}
}
