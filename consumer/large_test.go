package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// A result that no ledger keeps fails its job at once. The answer that was paid for is kept, and
// a redelivery pays nothing.
func TestResultTooLarge(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		reg := new(job.Registry)
		job.Register(reg, job.Def[ask, string]{Name: "ask", Uses: job.Uses(r.call), Handle: func(ctx context.Context, j *job.Run, in ask) (string, error) {
			if _, err := r.call.Run(ctx, j, in); err != nil {
				return "", err
			}
			return strings.Repeat("x", ledger.MaxBody-1), nil // and two quotes
		}})
		a := r.start("a", func(c *consumer.Config) { c.Handlers = reg })
		r.send("1", "1")
		time.Sleep(20 * time.Minute)
		r.want("1", want{state: ledger.Failed, runs: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Received}, errClass: "result_too_large"})
		r.queue(memory.Depth{})
		r.end(a)
		j := r.job("1")
		got, err := r.led.Answer(context.Background(), ledger.AttemptID{Tenant: j.Key.Tenant, Job: j.ID, ID: j.Attempts[0].ID})
		if err != nil || string(got.Body) != fmt.Sprintf("%q", "answer to 1") {
			r.Errorf("the answer is %q, %v", got.Body, err)
		}
		if !strings.HasPrefix(j.Error.Text, "PO215") {
			r.Errorf("the error is %q", j.Error.Text)
		}
	})
}

// An answer that no ledger keeps whole fails its job at once, on the first route, and is never paid again.
func TestAnswerTooLarge(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		billed := 0
		route := job.Route[ask, string]{Name: "primary", Provider: "fake", Timeout: time.Minute, Do: func(ctx context.Context, a *job.Attempt, in ask) (string, error) {
			if err := a.Sent(ctx); err != nil {
				return "", err
			}
			billed++
			return strings.Repeat("x", ledger.MaxBody), nil
		}}
		fallback := route
		fallback.Name = "fallback"
		r.call = job.Call[ask, string]{Name: "generate", Routes: []job.Route[ask, string]{route, fallback}, Retry: job.Backoff{Max: 3}, OnUnknown: job.Replay(3)}
		a := r.start("a")
		r.send("1", "1")
		time.Sleep(20 * time.Minute)
		r.want("1", want{state: ledger.Failed, runs: 1, attempts: []ledger.AttemptState{ledger.Received}, errClass: "result_too_large"})
		r.queue(memory.Depth{})
		r.end(a)
		if billed != 1 {
			r.Errorf("paid %d times", billed)
		}
	})
}

// faulty is a ledger that cannot read the inputs of some jobs.
type faulty struct {
	ledger.Store
	fault error
}

func (f faulty) Due(ctx context.Context, n int, grace time.Duration, actions ...string) ([]ledger.Stored, error) {
	due, err := f.Store.Due(ctx, n, grace, actions...)
	for i, s := range due {
		if s.Key == key("bad") {
			due[i].Input, due[i].Fault = nil, f.fault
		}
	}
	return due, err
}

// A stored input that is damaged fails its job, and one that this worker cannot read waits for
// another; the jobs beside them run.
func TestInputFaults(t *testing.T) {
	for _, c := range []struct {
		fault error
		want  want
	}{
		{fmt.Errorf("%w: half of it", ledger.ErrDamaged), want{state: ledger.Failed, runs: 1, errClass: "permanent"}},
		{fmt.Errorf("another worker's key"), want{state: ledger.Ready}},
	} {
		bubble(t, memory.Options{}, func(r *rig) {
			r.carry("bad")
			r.carry("good")
			a := r.start("a", func(cfg *consumer.Config) { cfg.Store = faulty{cfg.Store, c.fault} })
			time.Sleep(20 * time.Minute)
			r.want("bad", c.want)
			r.want("good", done1)
			r.end(a)
		})
	}
}

// keyless is a ledger whose stored inputs cannot be read until a moment.
type keyless struct {
	ledger.Store
	until time.Time
}

func (k keyless) Due(ctx context.Context, n int, grace time.Duration, actions ...string) ([]ledger.Stored, error) {
	due, err := k.Store.Due(ctx, n, grace, actions...)
	for i := range due {
		if time.Now().Before(k.until) {
			due[i].Input, due[i].Fault = nil, errors.New("another worker's key")
		}
	}
	return due, err
}

// A whole batch of jobs that a worker cannot read does not end its sweeps: nothing of it was
// started, so no slot comes free.
func TestSweepsGoOnPastWhatCannotBeRead(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		const jobs = 150 // more than a batch
		for i := range jobs {
			r.carry(fmt.Sprint(i))
		}
		a := r.start("a", func(cfg *consumer.Config) { cfg.Store = keyless{cfg.Store, time.Now().Add(10 * time.Minute)} })
		time.Sleep(2 * time.Hour)
		for i := range jobs {
			r.want(fmt.Sprint(i), done1)
		}
		r.end(a)
	})
}

// unread is a ledger of which this worker can read the inputs of one job alone.
type unread struct {
	ledger.Store
	but ledger.Key
}

func (u unread) Due(ctx context.Context, n int, grace time.Duration, actions ...string) ([]ledger.Stored, error) {
	due, err := u.Store.Due(ctx, n, grace, actions...)
	for i := range due {
		if due[i].Key != u.but {
			due[i].Input, due[i].Fault = nil, errors.New("another worker's key")
		}
	}
	return due, err
}

// Several batches of jobs that a worker cannot read do not hide the one behind them that it can.
func TestWhatCannotBeReadHidesNobody(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		const jobs = 350
		for i := range jobs {
			r.carry(fmt.Sprint(i))
		}
		r.carry("last")
		a := r.start("a", func(cfg *consumer.Config) { cfg.Store = unread{cfg.Store, key("last")} })
		time.Sleep(10 * time.Minute)
		r.want("last", done1)
		for i := range jobs {
			r.want(fmt.Sprint(i), want{state: ledger.Ready})
		}
		r.end(a)
	})
}

// bare is a ledger that keeps no inputs, as of messages that are too large.
type bare struct{ ledger.Store }

func (b bare) Claim(ctx context.Context, r ledger.Request) (ledger.Claimed, error) {
	r.Input = nil
	return b.Store.Claim(ctx, r)
}

func keepsNoInput(c *consumer.Config) { c.Store = bare{c.Store} }
