package consumer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

var errReset = errors.New("connection reset")

// firstIsLost makes the first generation end without an answer.
func firstIsLost(_ string, n int) (time.Duration, error) {
	if n == 1 {
		return time.Second, errReset
	}
	return time.Second, nil
}

func TestReconciler(t *testing.T) {
	sent, received, notSent, unknown := ledger.Sent, ledger.Received, ledger.NotSent, ledger.UnknownAttempt
	list := func(s ...ledger.AttemptState) []ledger.AttemptState { return s }
	for _, c := range []struct {
		name   string
		policy job.Policy
		find   func(asked time.Duration) (string, job.Finding, error) // nil: no Reconcile
		after  map[time.Duration]want                                 // states on the way
		want   want
	}{
		{name: "hold is for ever", policy: job.Hold(),
			want: want{state: ledger.Unknown, open: 1, bill: 1, attempts: list(sent), errClass: "held"}},
		{name: "replay waits for hold", policy: job.Replay(1),
			after: map[time.Duration]want{14 * time.Minute: {state: ledger.Unknown, open: 1, bill: 1, attempts: list(sent), errClass: "held"}},
			want:  want{state: ledger.Done, runs: 1, bill: 2, attempts: list(unknown, received)}},
		{name: "fail", policy: job.FailUnknown(),
			after: map[time.Duration]want{14 * time.Minute: {state: ledger.Unknown, open: 1, bill: 1, attempts: list(sent), errClass: "held"}},
			want:  want{state: ledger.Failed, bill: 1, attempts: list(unknown), errClass: "held"}},
		{name: "it happened", policy: job.Hold(),
			find:  func(time.Duration) (string, job.Finding, error) { return "answer to 1", job.Happened, nil },
			after: map[time.Duration]want{time.Minute: {state: ledger.Done, runs: 1, bill: 1, attempts: list(received)}},
			want:  want{state: ledger.Done, runs: 1, bill: 1, attempts: list(received)}},
		{name: "absent counts after the settle window", policy: job.Hold(),
			find:  func(time.Duration) (string, job.Finding, error) { return "", job.Absent, nil },
			after: map[time.Duration]want{9 * time.Minute: {state: ledger.Unknown, open: 1, bill: 1, attempts: list(sent), errClass: "held"}},
			want:  want{state: ledger.Done, runs: 1, bill: 2, attempts: list(notSent, received)}},
		{name: "a failure counts after the settle window", policy: job.Hold(),
			find:  func(time.Duration) (string, job.Finding, error) { return "", job.Failed, nil },
			after: map[time.Duration]want{9 * time.Minute: {state: ledger.Unknown, open: 1, bill: 1, attempts: list(sent), errClass: "held"}},
			want:  want{state: ledger.Done, runs: 1, bill: 2, attempts: list(ledger.FailedAttempt, received)}},
		{name: "still running, then it happened", policy: job.Hold(),
			find: func(asked time.Duration) (string, job.Finding, error) {
				if asked < 5*time.Minute {
					return "", job.StillRunning, nil
				}
				return "answer to 1", job.Happened, nil
			},
			want: want{state: ledger.Done, runs: 1, bill: 1, attempts: list(received)}},
		{name: "a look-up that fails or panics leaves it to the policy", policy: job.FailUnknown(),
			find: func(asked time.Duration) (string, job.Finding, error) {
				if asked > 5*time.Minute {
					panic("boom")
				}
				return "", job.CannotTell, errors.New("no route")
			},
			want: want{state: ledger.Failed, bill: 1, attempts: list(unknown), errClass: "held"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, memory.Options{}, func(r *rig) {
				r.prov.script = firstIsLost
				r.call.OnUnknown = c.policy
				began := time.Now()
				if c.find != nil {
					r.call.Reconcile = func(_ context.Context, o job.Open) (string, job.Finding, error) {
						if o.Key != key("1") || len(o.Input) == 0 || o.ClientRequestID == "" || o.Provider != "fake" {
							t.Errorf("asked about %+v", o)
						}
						return c.find(time.Since(began))
					}
				}
				r.send("1")
				a, b := r.start("a"), r.start("b")
				for at, w := range c.after {
					time.Sleep(at - time.Since(began))
					r.want("1", w)
				}
				time.Sleep(24 * time.Hour)
				r.end(a, b)
				r.want("1", c.want)
				r.queue(memory.Depth{})
			})
		})
	}
}

// The policy allows two replays, and both are lost as well: then it holds.
func TestReplaysAreBounded(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.call.OnUnknown = job.Replay(2)
		r.prov.script = func(string, int) (time.Duration, error) { return time.Second, errReset }
		r.send("1")
		a := r.start("a")
		time.Sleep(48 * time.Hour)
		r.end(a)
		r.want("1", want{state: ledger.Unknown, open: 1, bill: 3, errClass: "held",
			attempts: []ledger.AttemptState{ledger.UnknownAttempt, ledger.UnknownAttempt, ledger.Sent}})
	})
}
