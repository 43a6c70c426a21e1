package consumer_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/prices"
)

// bounded are handlers whose job has limits; do is what it does, and may swallow what it is told.
func (r *rig) bounded(limits job.Limits, do func(ctx context.Context, j *job.Run, in ask) error, more ...job.Used) func(*consumer.Config) {
	reg := new(job.Registry)
	job.Register(reg, job.Def[ask, string]{Name: "ask", Uses: append(job.Uses(r.call), more...), Limits: limits,
		Handle: func(ctx context.Context, j *job.Run, in ask) (string, error) {
			r.runs.Add(1)
			return "answer to " + in.Doc, do(ctx, j, in)
		}})
	return func(c *consumer.Config) { c.Handlers = reg }
}

// retried has job 1 run again in the same generation.
func (r *rig) retried() {
	r.Helper()
	if _, err := r.led.Reopen(r.Context(), ledger.Reopening{Key: key("1"), Reason: "the limit was raised", Who: "kim"}); err != nil {
		r.Fatal(err)
	}
	time.Sleep(time.Minute)
}

// A job that may send one call sends one, whatever its handler makes of the refusal, and goes on under a raised limit without
// paying for the first again.
func TestCallsAreLimited(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		second := r.second()
		do := func(ctx context.Context, j *job.Run, in ask) error {
			if _, err := r.call.Run(ctx, j, in); err != nil {
				t.Errorf("the first call: %v", err)
			}
			if _, err := second.Run(ctx, j, in); err != nil && !errors.Is(err, job.ErrCalls) {
				t.Errorf("the second call: %v", err)
			}
			return nil
		}
		r.send("1")
		a := r.start("a", r.bounded(job.Limits{Calls: 1}, do, second))
		time.Sleep(time.Hour)
		held := want{state: ledger.Failed, runs: 1, bill: 1, errClass: "calls", attempts: []ledger.AttemptState{ledger.Received}}
		r.want("1", held)
		if text := r.job("1").Error.Text; !strings.Contains(text, "PO623") {
			t.Errorf("the error says %s", text)
		}
		r.retried() // under the same limit
		r.want("1", held)
		r.end(a)
		b := r.start("b", r.bounded(job.Limits{Calls: 2}, do, second))
		r.retried()
		r.want("1", want{state: ledger.Done, runs: 1, bill: 2, attempts: []ledger.AttemptState{ledger.Received, ledger.Received}})
		r.end(b)
		r.queue(memory.Depth{})
	})
}

// Calls made at once are not more than the job may send.
func TestCallsAtOnceAreLimited(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.call.Memo = job.ByInput
		r.send("1")
		a := r.start("a", r.bounded(job.Limits{Calls: 3}, func(ctx context.Context, j *job.Run, in ask) error {
			var all sync.WaitGroup
			for n := range 8 {
				all.Go(func() {
					if _, err := r.call.Run(ctx, j, ask{Tenant: in.Tenant, Doc: in.Doc, Rev: n + 1}); err != nil && !errors.Is(err, job.ErrCalls) {
						t.Errorf("call %d: %v", n, err)
					}
				})
			}
			all.Wait()
			return nil
		}))
		time.Sleep(time.Hour)
		r.end(a)
		r.want("1", want{state: ledger.Failed, runs: 1, bill: 3, errClass: "calls", attempts: []ledger.AttemptState{ledger.Received, ledger.Received, ledger.Received}})
		r.queue(memory.Depth{})
	})
}

// Nothing is sent for a job that is past its lifetime, however often it is tried, and an order to run it anew begins another.
func TestLifetimeIsLimited(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		do := func(ctx context.Context, j *job.Run, in ask) error {
			if j.Number() == 1 {
				return job.RetryIn(2*time.Hour, errors.New("what it needs is not there yet"))
			}
			if _, err := r.call.Run(ctx, j, in); err != nil && !errors.Is(err, job.ErrLifetime) {
				t.Errorf("the call: %v", err)
			}
			return nil
		}
		r.send("1")
		a := r.start("a", r.bounded(job.Limits{Lifetime: time.Hour}, do))
		time.Sleep(59 * time.Minute)
		r.want("1", want{state: ledger.Ready, runs: 1, errClass: "retry"})
		time.Sleep(4 * time.Hour)
		r.want("1", want{state: ledger.Failed, runs: 2, errClass: "lifetime"})
		if text := r.job("1").Error.Text; !strings.Contains(text, "PO625") {
			t.Errorf("the error says %s", text)
		}
		r.end(a)
		b := r.start("b", r.bounded(job.Limits{Lifetime: 24 * time.Hour}, do))
		r.retried()
		time.Sleep(4 * time.Hour)
		r.want("1", want{state: ledger.Done, runs: 2, bill: 1, attempts: []ledger.AttemptState{ledger.Received}})
		time.Sleep(24 * time.Hour)
		if _, err := r.led.Reopen(r.Context(), ledger.Reopening{Key: key("1"), Token: "t1", Reason: "another prompt", Who: "kim"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Hour)
		r.want("1", want{state: ledger.Done, runs: 2, bill: 2, attempts: []ledger.AttemptState{ledger.Received, ledger.Received}})
		r.end(b)
		r.queue(memory.Depth{})
	})
}

// A worker says at its start which routes its limits in dollars do not count.
func TestUncountedRoutesAreNamed(t *testing.T) {
	table, err := prices.Read("prices.csv", strings.NewReader("provider,model,from,currency,input,output\nfake,m1,2000-01-01,USD,1,1\n"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		limits  job.Limits
		budgets consumer.Budgets
		want    int
	}{
		"no limits":                {job.Limits{Calls: 1, Lifetime: time.Hour}, consumer.Budgets{}, 0},
		"the job's":                {job.Limits{USD: 1}, consumer.Budgets{}, 1},
		"each tenant's":            {job.Limits{}, consumer.Budgets{TenantDay: 1}, 1},
		"one tenant's":             {job.Limits{}, consumer.Budgets{Tenants: map[string]ledger.Nano{"acme": 1}}, 1},
		"the action's":             {job.Limits{}, consumer.Budgets{ActionDay: map[string]ledger.Nano{"ask": 1}}, 1},
		"another action's":         {job.Limits{}, consumer.Budgets{ActionDay: map[string]ledger.Nano{"other": 1}}, 0},
		"a tenant that has no one": {job.Limits{}, consumer.Budgets{Tenants: map[string]ledger.Nano{"acme": 0}}, 0},
	} {
		bubble(t, memory.Options{}, func(r *rig) {
			var log strings.Builder
			second, third := r.second(), r.second()
			second.Routes[0].Model = "m2"
			third.Name, third.Routes[0].Model, third.Routes[0].Free = "third", "m3", true
			a := r.start("a", r.bounded(c.limits, nil, second, third), func(cfg *consumer.Config) {
				cfg.Budgets, cfg.Prices, cfg.Log = c.budgets, table, slog.New(slog.NewTextHandler(&log, nil))
			})
			time.Sleep(time.Minute)
			r.end(a)
			if n := strings.Count(log.String(), "PO626"); n != c.want || c.want > 0 && !strings.Contains(log.String(), "call=second route=primary provider=fake model=m2") {
				t.Errorf("%s: %d routes are named, want %d:\n%s", name, n, c.want, log.String())
			}
		})
	}
}
