package consumer_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// brief asks for another action on the same document.
type brief struct{ Tenant, Doc string }

// JobKey differs from that of an ask in the action alone.
func (b brief) JobKey() job.Key { return job.K(b.Tenant, "brief", b.Doc).Rev(0) }

// thief asks for another action under the key of the first.
type thief struct{ Tenant, Doc string }

func (b thief) JobKey() job.Key { return ask{Tenant: b.Tenant, Doc: b.Doc}.JobKey() }

// another registers a second handler beside that of the rig, with a policy of its own. Its calls are billed under "brief of".
func another[In job.Keyed](r *rig, name string, doc func(In) string) *job.Registry {
	call := job.Call[In, string]{Name: "generate", OnUnknown: job.FailUnknown(), Routes: []job.Route[In, string]{{Name: "primary", Provider: "fake", Model: "m1", Timeout: time.Minute,
		Do: func(ctx context.Context, a *job.Attempt, in In) (string, error) {
			if err := a.Sent(ctx); err != nil {
				return "", err
			}
			return r.prov.generate(ctx, "brief of "+doc(in))
		}}}}
	reg := r.handlers()
	job.Register(reg, job.Def[In, string]{Name: name, Uses: job.Uses(call),
		Handle: func(ctx context.Context, j *job.Run, in In) (string, error) { return call.Run(ctx, j, in) }})
	return reg
}

// sendTo publishes a message for a named job.
func (r *rig) sendTo(name string, in any) {
	r.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		r.Fatal(err)
	}
	if err := r.q.Publish(r.Context(), broker.Message{Body: body, Attributes: map[string]string{consumer.Attribute: name}}); err != nil {
		r.Fatal(err)
	}
}

// Cases 49 and 50: two handlers on one ledger, asked for the same document: two rows with their own keys, calls, results
// and policies.
func TestTwoActionsOnOneDocument(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.prov.script = func(doc string, _ int) (time.Duration, error) {
			if strings.HasSuffix(doc, "lost") {
				return time.Second, errors.New("connection reset")
			}
			return time.Second, nil
		}
		reg := another(r, "brief", func(b brief) string { return b.Doc })
		a := r.start("a", func(c *consumer.Config) { c.Handlers = reg })
		for _, doc := range []string{"1", "lost"} {
			for range 2 {
				r.send(doc)
				r.sendTo("brief", brief{"acme", doc})
			}
		}
		time.Sleep(24 * time.Hour)
		r.end(a)
		r.want("1", done1)
		r.want("lost", want{state: ledger.Unknown, open: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Sent}, errClass: "held"})
		for doc, end := range map[string]ledger.State{"1": ledger.Done, "lost": ledger.Failed} {
			j, err := r.led.Job(t.Context(), brief{"acme", doc}.JobKey().Ledger())
			if err != nil || j.Action != "brief" || j.State != end || len(j.Attempts) != 1 || r.prov.billed("brief of "+doc) != 1 {
				t.Errorf("brief of %s is %s (%v) with %d attempts, billed %d times; want %s by its own policy", doc, j.State, err, len(j.Attempts), r.prov.billed("brief of "+doc), end)
			}
			if end == ledger.Done && string(j.Result.Body) != `"answer to brief of 1"` {
				t.Errorf("the result of the second action is %s", j.Result.Body)
			}
		}
		r.queue(memory.Depth{})
	})
}

// Case 52: another handler's message has the key of a job that is under way, and then of one that is done: a conflict that
// names both. The first is unaffected.
func TestAKeyOfAnotherHandler(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.prov.script = func(string, int) (time.Duration, error) { return time.Minute, nil }
		reg := another(r, "thief", func(b thief) string { return b.Doc })
		a := r.start("a", func(c *consumer.Config) { c.Handlers = reg })
		r.send("1")
		time.Sleep(10 * time.Second)
		r.sendTo("thief", thief{"acme", "1"})
		time.Sleep(10 * time.Minute)
		r.sendTo("thief", thief{"acme", "1"})
		r.send("1")
		time.Sleep(10 * time.Minute)
		r.end(a)
		r.want("1", done1)
		r.queue(memory.Depth{}, "PO406", "PO406")
		r.avoids(map[string]int{"duplicate_message": 1})
		for _, l := range r.q.DeadLetters() {
			if !strings.Contains(l.Reason, "stands for job ask ") || !strings.Contains(l.Reason, "this message is job thief ") {
				t.Errorf("the reason does not name both: %s", l.Reason)
			}
		}
		if n := r.prov.billed("brief of 1"); n != 0 {
			t.Errorf("the second handler's call was billed %d times", n)
		}
	})
}

// two gives the call a second route.
func (r *rig) two(first, second func(context.Context, ask) (string, error)) {
	route := r.call.Routes[0]
	r.call.Routes = nil
	for i, do := range []func(context.Context, ask) (string, error){first, second} {
		route.Name = []string{"first", "second"}[i]
		route.Do = func(ctx context.Context, a *job.Attempt, in ask) (string, error) {
			if err := a.Sent(ctx); err != nil {
				return "", err
			}
			return do(ctx, in)
		}
		r.call.Routes = append(r.call.Routes, route)
	}
}

// Case 45: both routes fail. Each has its attempt, and the last provider's error is what people are shown.
func TestBothRoutesFail(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		refuse := func(who string) func(context.Context, ask) (string, error) {
			return func(context.Context, ask) (string, error) { return "", job.Fail(errors.New(who + " does not want to")) }
		}
		r.two(refuse("the first provider"), refuse("the second provider"))
		r.send("1", "1")
		a := r.start("a")
		time.Sleep(time.Hour)
		r.end(a)
		r.want("1", want{state: ledger.Failed, runs: 1, errClass: "permanent", attempts: []ledger.AttemptState{ledger.FailedAttempt, ledger.FailedAttempt}})
		j := r.job("1")
		if !strings.Contains(j.Error.Text, "the second provider does not want to") || j.Attempts[0].Route != "first" || j.Attempts[1].Route != "second" || j.Attempts[0].ID == j.Attempts[1].ID {
			t.Errorf("the error is %q, of attempts %+v", j.Error.Text, j.Attempts)
		}
		r.queue(memory.Depth{})
	})
}

// Case 44: a route's timeout ends the wait for an answer that may still come. Nothing is sent after it, by whatever route, until
// the policy says so, and then not before the timeout.
func TestATimeoutIsNoLeaveToSendAgain(t *testing.T) {
	for name, c := range map[string]struct {
		policy job.Policy
		end    want
	}{
		"hold":   {job.Hold(), want{state: ledger.Unknown, open: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Sent}, errClass: "held"}},
		"replay": {job.Replay(1), want{state: ledger.Done, runs: 1, bill: 2, attempts: []ledger.AttemptState{ledger.UnknownAttempt, ledger.Received}}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, memory.Options{}, func(r *rig) {
				r.prov.script = func(_ string, n int) (time.Duration, error) {
					return map[bool]time.Duration{true: time.Hour, false: time.Second}[n == 1], nil
				}
				ask := func(ctx context.Context, in ask) (string, error) { return r.prov.generate(ctx, in.Doc) }
				r.two(ask, ask)
				r.call.OnUnknown, r.call.Retry = c.policy, job.Backoff{Max: 5, First: time.Second}
				r.send("1", "1")
				a := r.start("a")
				time.Sleep(110 * time.Second)
				if n := r.prov.billed("1"); n != 1 {
					t.Errorf("%d calls within the route's timeout", n)
				}
				time.Sleep(24 * time.Hour)
				r.end(a)
				r.want("1", c.end)
				r.queue(memory.Depth{})
			})
		})
	}
}
