package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/prices"
)

// told is what a trace was told of money.
type told struct{ lines []string }

func (m *told) listen(c *consumer.Config) {
	c.Trace.Found = func(name string, s job.Seen) {
		cost := "unknown" // a trace that panics would be logged alone
		if s.Cost != nil {
			cost = fmt.Sprint(*s.Cost)
		}
		m.lines = append(m.lines, fmt.Sprintf("%s found %s/%s %s %s surplus %t", name, s.Provider, s.Model, s.State, cost, s.Surplus))
	}
	c.Trace.Wasted = func(name string, cost ledger.Nano) {
		m.lines = append(m.lines, fmt.Sprintf("%s wasted %d", name, cost))
	}
}

func (m *told) want(t *testing.T, lines ...string) {
	t.Helper()
	if got := strings.Join(m.lines, ", "); got != strings.Join(lines, ", ") {
		t.Errorf("the trace was told %q, want %q", got, lines)
	}
}

// An answer that a reconciler found is booked by the price of the day on which it was sent.
func TestFoundAnswerIsBooked(t *testing.T) {
	table, err := prices.Read("t", strings.NewReader("provider,model,from,currency,input,output\nopenai,m1,1999-01-01,USD,1,10\nopenai,m1,2000-01-02,USD,5,50\n"))
	if err != nil {
		t.Fatal(err)
	}
	bubble(t, memory.Options{}, func(r *rig) {
		r.prov.script = firstIsLost
		r.call.Routes[0].Provider = "openai"
		began := time.Now()
		r.call.Reconcile = func(_ context.Context, o job.Open) (string, job.Finding, error) {
			if time.Since(began) < 24*time.Hour { // the price has changed when it is found
				return "", job.StillRunning, nil
			}
			o.Answered([]byte(`{"id":"resp_1","model":"m1-2025-01-01","usage":{"input_tokens":1000,"output_tokens":100,"input_tokens_details":{"cached_tokens":5}}}`))
			return "answer to 1", job.Happened, nil
		}
		var m told
		r.send("1")
		a := r.start("a", m.listen, func(c *consumer.Config) { c.Prices = table })
		time.Sleep(48 * time.Hour)
		r.end(a)
		r.want("1", done1)
		j := r.job("1")
		e := j.Attempts[0].Evidence
		if j.Cost == nil || *j.Cost != 2_000_000 || *e.Cost != 2_000_000 || e.CostSource != "computed" || e.ObjectID != "resp_1" || *e.Usage.In != 1000 || *e.Usage.Cached != 5 || *e.Usage.Out != 100 {
			t.Errorf("the job cost %v, its attempt has %+v", j.Cost, e)
		}
		m.want(t, "ask found openai/m1 received 0.002 surplus false")
	})
}

// What a failure that a reconciler found was billed is booked, where the provider says so. Of one that says nothing
// nobody knows, which is not worth a word.
func TestFoundFailureIsBooked(t *testing.T) {
	table, err := prices.Read("t", strings.NewReader("provider,model,from,currency,input,output\nopenai,m1,1999-01-01,USD,1,10\n"))
	if err != nil {
		t.Fatal(err)
	}
	for object, cost := range map[string]ledger.Nano{`{"id":"resp_1","usage":{"input_tokens":1000,"output_tokens":100}}`: 2_000_000, `{"id":"resp_1"}`: 0} {
		bubble(t, memory.Options{}, func(r *rig) {
			r.prov.script = firstIsLost
			r.call.Routes[0].Provider = "openai"
			r.call.Reconcile = func(_ context.Context, o job.Open) (string, job.Finding, error) {
				o.Answered([]byte(object))
				return "", job.Failed, nil
			}
			var m told
			var log strings.Builder
			finding := ""
			r.send("1")
			a := r.start("a", m.listen, func(c *consumer.Config) {
				c.Prices, c.Log = table, slog.New(slog.NewTextHandler(&log, nil))
				c.Trace.Reconciled = func(_, _, f string) { finding = f }
			})
			time.Sleep(time.Hour)
			r.end(a)
			if finding != "failed" || strings.Contains(log.String(), "cost not known") {
				t.Errorf("the last look had the finding %s, and the log says\n%s", finding, log.String())
			}
			r.want("1", want{state: ledger.Done, runs: 1, bill: 2, attempts: []ledger.AttemptState{ledger.FailedAttempt, ledger.Received}})
			e := r.job("1").Attempts[0].Evidence
			if e.ObjectID != "resp_1" || e.Class != "reconciled" || e.Reason == "" {
				t.Errorf("the attempt has %+v", e)
			}
			if cost == 0 {
				m.want(t)
			} else {
				m.want(t, fmt.Sprintf("ask found openai/m1 failed %s surplus false", cost))
			}
			if (e.Cost == nil) != (cost == 0) || e.Cost != nil && *e.Cost != cost {
				t.Errorf("%s: the cost on record is %v", object, e.Cost)
			}
		})
	}
}

// reading counts how often a job is read.
type reading struct {
	ledger.Store
	n *atomic.Int64
}

func (s reading) Job(ctx context.Context, k ledger.Key) (ledger.Job, error) {
	s.n.Add(1)
	return s.Store.Job(ctx, k)
}

// wasting makes the job of a document replay a call within its run, whose first answer arrives before the
// job is done with the second.
func (r *rig) wasting(doc string) {
	r.call.OnUnknown, r.call.Retry = job.Replay(1), job.Backoff{Max: 1}
	do, first := r.call.Routes[0].Do, true
	r.call.Routes[0].Do = func(ctx context.Context, a *job.Attempt, in ask) (string, error) {
		if in.Doc != doc || !first {
			return do(ctx, a, in)
		}
		first = false
		if err := a.Sent(ctx); err != nil {
			return "", err
		}
		time.Sleep(3 * time.Minute) // an SDK that has no ear for its context
		return "", errReset
	}
	r.after = func(ctx context.Context, _ *job.Run, in ask) error {
		if in.Doc != doc {
			return nil
		}
		j := r.job(doc)
		_, err := r.led.Settle(ctx, ledger.AttemptID{Tenant: "acme", Job: j.ID, ID: j.Attempts[0].ID}, ledger.Evidence{State: ledger.Received, By: ledger.ByPerson,
			Who: "p", Cost: new(ledger.Nano(7)), CostSource: "provider", Response: &ledger.Response{Codec: "json", Body: []byte(`"an answer"`)}})
		return err
	}
}

// A replay within a run pays twice, and the first answer arrives before the job is done with the
// second: what it cost is wasted. A job that cannot have wasted anything is not read for it.
func TestWasteIsTold(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.wasting("1")
		var m told
		var reads atomic.Int64
		r.send("1", "2")
		a := r.start("a", m.listen, func(c *consumer.Config) { c.Store = reading{c.Store, &reads} })
		time.Sleep(time.Hour)
		r.end(a)
		received := []ledger.AttemptState{ledger.Received, ledger.Received}
		r.want("1", want{state: ledger.Done, runs: 1, bill: 1, attempts: received})
		r.want("2", done1)
		if j := r.job("1"); !j.Attempts[0].Surplus || j.Attempts[1].Surplus || *j.Cost != 7 {
			t.Errorf("the job cost %v, its attempts are %+v", j.Cost, j.Attempts)
		}
		m.want(t, "ask wasted 7")
		if reads.Load() != 1 {
			t.Errorf("jobs were read %d times, want once", reads.Load())
		}
	})
}

// outrun is a ledger to which a sender brings each answer just before a reconciler does.
type outrun struct{ ledger.Store }

func (s outrun) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	if e.By == ledger.ByReconciler && e.State == ledger.Received {
		first := e
		first.By, first.Cost, first.CostSource = ledger.BySender, new(ledger.Nano(7)), "computed"
		if _, err := s.Store.Settle(ctx, id, first); err != nil {
			return ledger.Settled{}, err
		}
	}
	return s.Store.Settle(ctx, id, e)
}

// An answer that its sender brought, late, just before a reconciler found it is told of by the sender alone.
func TestFoundAnswerThatIsKnown(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.prov.script = firstIsLost
		r.call.Reconcile = func(context.Context, job.Open) (string, job.Finding, error) { return "answer to 1", job.Happened, nil }
		var m told
		r.send("1")
		a := r.start("a", m.listen, func(c *consumer.Config) { c.Store = outrun{c.Store} })
		time.Sleep(time.Hour)
		r.end(a)
		r.want("1", done1)
		if j := r.job("1"); j.Cost == nil || *j.Cost != 7 {
			t.Errorf("the job cost %v", j.Cost)
		}
		m.want(t)
	})
}

// costing books 7 for each answer.
type costing struct{ ledger.Store }

func (s costing) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	if e.State == ledger.Received && e.Cost == nil {
		e.Cost, e.CostSource = new(ledger.Nano(7)), "computed"
	}
	return s.Store.Settle(ctx, id, e)
}

// A job fails with an answer, and goes on by a person's order in a way that does not need it.
func TestWasteAfterRetry(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		var mended atomic.Bool
		other := r.call
		other.Name = "other"
		reg := new(job.Registry)
		job.Register(reg, job.Def[ask, string]{Name: "ask", Uses: job.Uses(r.call, other),
			Handle: func(ctx context.Context, j *job.Run, in ask) (string, error) {
				if mended.Load() {
					return other.Run(ctx, j, in)
				}
				_, err := r.call.Run(ctx, j, in)
				return "", job.Fail(errors.Join(errors.New("a bug"), err))
			}})
		var m told
		r.send("1")
		a := r.start("a", m.listen, func(c *consumer.Config) { c.Handlers, c.Store = reg, costing{c.Store} })
		time.Sleep(time.Minute)
		mended.Store(true)
		if _, err := r.led.Reopen(t.Context(), ledger.Reopening{Key: key("1"), Reason: "r", Who: "p"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		r.end(a)
		if j := r.job("1"); j.State != ledger.Done || !j.Attempts[0].Surplus || j.Attempts[1].Surplus {
			t.Errorf("the job is %s with %+v", j.State, j.Attempts)
		}
		m.want(t, "ask wasted 7")
	})
}

// A duplicate of a job that was run again saves what one of its generations cost, which nobody adds up.
func TestSavedAfterRerun(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		var saved []*ledger.Nano
		r.send("1", "1")
		a := r.start("a", func(c *consumer.Config) {
			c.Store, c.Workers = costing{c.Store}, 1
			c.Trace.Avoided = func(_, _ string, n *ledger.Nano) { saved = append(saved, n) }
		})
		time.Sleep(time.Minute)
		if _, err := r.led.Reopen(t.Context(), ledger.Reopening{Key: key("1"), Token: "t", Reason: "r", Who: "p"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		r.send("1")
		time.Sleep(time.Hour)
		r.end(a)
		if j := r.job("1"); j.Generation != 2 || len(j.Attempts) != 2 {
			t.Fatalf("%+v", j)
		}
		if len(saved) != 2 || saved[0] == nil || *saved[0] != 7 || saved[1] != nil {
			t.Errorf("saved %v, want 7 and then what nobody knows", saved)
		}
	})
}
