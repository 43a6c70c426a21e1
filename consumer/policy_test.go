package consumer_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// Two calls of one run are unknown. The policy of one allows it to pay twice; it does
// not speak for the other one.
func TestReplayWithinARunSparesAHeldCall(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		var mu sync.Mutex
		sent := map[string]int{}
		call := func(name string, p job.Policy, took time.Duration) job.Call[ask, string] {
			return job.Call[ask, string]{Name: name, OnUnknown: p, Routes: []job.Route[ask, string]{{
				Name: "primary", Provider: "fake", Timeout: 2 * time.Minute,
				Do: func(ctx context.Context, a *job.Attempt, in ask) (string, error) {
					if err := a.Sent(ctx); err != nil {
						return "", err
					}
					mu.Lock()
					sent[name]++
					n := sent[name]
					mu.Unlock()
					if n > 1 {
						return "answer to 1", nil
					}
					time.Sleep(took) // an SDK that has no ear for its context
					return "", errReset
				}}}}
		}
		held, again := call("held", job.Hold(), time.Second), call("again", job.Replay(1), 3*time.Minute)
		reg := new(job.Registry)
		job.Register(reg, job.Def[ask, string]{Name: "ask", Uses: job.Uses(held, again),
			Handle: func(ctx context.Context, j *job.Run, in ask) (string, error) {
				var errs [2]error
				var wg sync.WaitGroup
				for i, c := range []job.Call[ask, string]{held, again} {
					wg.Go(func() { _, errs[i] = c.Run(ctx, j, in) })
				}
				wg.Wait()
				return "answer to 1", errors.Join(errs[:]...)
			}})
		r.send("1")
		n := r.start("a", func(cfg *consumer.Config) { cfg.Handlers = reg })
		time.Sleep(24 * time.Hour)
		r.end(n)
		if sent["held"] != 1 {
			t.Errorf("the call whose policy is hold was sent %d times", sent["held"])
		}
		r.want("1", want{state: ledger.Unknown, open: 2, errClass: "held", attempts: []ledger.AttemptState{ledger.Sent, ledger.Sent}})
	})
}

// The look that was to come before the policy is cut short by a drain: it says
// nothing, and the next worker asks again.
func TestDrainDuringALookDecidesNothing(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.prov.script = firstIsLost
		r.call.OnUnknown = job.FailUnknown()
		asking := make(chan bool, 1)
		began, drained := time.Now(), false
		r.call.Reconcile = func(ctx context.Context, _ job.Open) (string, job.Finding, error) {
			switch {
			case drained:
				return "answer to 1", job.Happened, nil
			case time.Since(began) < 15*time.Minute:
				return "", job.CannotTell, nil
			}
			asking <- true
			<-ctx.Done()
			return "", job.CannotTell, ctx.Err()
		}
		r.send("1")
		a := r.start("a")
		<-asking
		drained = true
		r.end(a)
		r.want("1", want{state: ledger.Unknown, open: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Sent}, errClass: "held"})
		b := r.start("b")
		time.Sleep(time.Hour)
		r.end(b)
		r.want("1", done1)
	})
}

// The provider is at it: no policy speaks before it has an answer.
func TestStillRunningIsWaitedFor(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.prov.script = firstIsLost
		r.call.OnUnknown = job.Replay(1)
		began := time.Now()
		r.call.Reconcile = func(context.Context, job.Open) (string, job.Finding, error) {
			if time.Since(began) < time.Hour {
				return "", job.StillRunning, nil
			}
			return "answer to 1", job.Happened, nil
		}
		r.send("1")
		a := r.start("a")
		time.Sleep(3 * time.Hour)
		r.end(a)
		r.want("1", want{state: ledger.Done, runs: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Received}})
	})
}

// A finding that does not exist is no evidence, and does not end the process.
func TestInventedFindingIsNoEvidence(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.prov.script = firstIsLost
		r.call.Reconcile = func(context.Context, job.Open) (string, job.Finding, error) { return "", job.Finding(7), nil }
		r.send("1")
		a := r.start("a")
		time.Sleep(time.Hour)
		r.end(a)
		r.want("1", want{state: ledger.Unknown, open: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Sent}, errClass: "held"})
	})
}

// forgetful is a ledger whose verbs on unknown jobs lose a reply each.
type forgetful struct {
	ledger.Store
	adopts, resolves int
}

func (f *forgetful) Adopt(ctx context.Context, a ledger.Adoption) ([]ledger.Adopted, error) {
	as, err := f.Store.Adopt(ctx, a)
	if f.adopts--; f.adopts >= 0 && len(as) > 0 {
		return nil, errDown
	}
	return as, err
}

func (f *forgetful) Resolve(ctx context.Context, v ledger.Resolution) (ledger.Released, error) {
	if f.resolves--; f.resolves >= 0 {
		return ledger.Released{}, errDown
	}
	return f.Store.Resolve(ctx, v)
}

// An unknown job that was adopted is looked at again, although the worker that
// owns it since lives on and has never heard of it, or could not put it back.
func TestAdoptedJobIsNotForgotten(t *testing.T) {
	for name, f := range map[string]forgetful{"adoption unheard": {adopts: 1}, "not put back": {resolves: 1}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, memory.Options{}, func(r *rig) {
				r.prov.script = firstIsLost
				began := time.Now()
				r.call.Reconcile = func(context.Context, job.Open) (string, job.Finding, error) {
					if time.Since(began) < time.Minute {
						return "", job.CannotTell, nil
					}
					return "answer to 1", job.Happened, nil
				}
				f.Store = r.led
				r.send("1")
				a := r.start("a", func(c *consumer.Config) { c.Store = &f })
				time.Sleep(time.Hour)
				r.want("1", want{state: ledger.Done, runs: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Received}})
				r.end(a)
			})
		})
	}
}

// A job that nobody can tell anything about is looked at for weeks. Its history says in one
// line how often, when last, by whom, and what was found.
func TestHeldJobKeepsAShortHistory(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.prov.script = firstIsLost
		asked, last := 0, time.Time{}
		r.call.Reconcile = func(context.Context, job.Open) (string, job.Finding, error) {
			asked, last = asked+1, time.Now()
			return "", job.CannotTell, nil
		}
		r.send("1")
		a := r.start("a")
		time.Sleep(14 * 24 * time.Hour)
		r.end(a)
		r.want("1", want{state: ledger.Unknown, open: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Sent}, errClass: "held"})
		j := r.job("1")
		if len(j.History) != 4 { // claimed, gated, given back, looked at
			r.Errorf("after %d looks the history has %d lines", asked, len(j.History))
		}
		want := ledger.Event{At: last, From: ledger.Unknown, To: ledger.Unknown, Actor: "a", Reason: "kept: attempt 1 cannot_tell", Looks: asked}
		if got := j.History[len(j.History)-1]; got != want || asked < 1000 {
			r.Errorf("the history ends with %+v, want %+v", got, want)
		}
	})
}
