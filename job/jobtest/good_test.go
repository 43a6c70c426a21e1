package jobtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// ticket is the message of the tests' handlers.
type ticket struct{ Tenant, ID, Text string }

func (m ticket) JobKey() job.Key { return job.K(m.Tenant, "ticket.sort", m.ID) }

// sorted is their result.
type sorted struct{ Topic string }

// mail is the message of their step.
type mail struct{ Tenant, ID, Topic string }

func (m mail) JobKey() job.Key { return job.K(m.Tenant, "mail", m.ID) }

var in = ticket{"acme", "48213", "It broke."}

// model answers {"topic":"billing"}, as a provider of the tests' own.
var model = Options{Provider: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"id":"resp-1","topic":"billing"}`)
})}

const modelURL = "https://models.example/v1/sort"

// post asks the model with a client.
func post(ctx context.Context, c *http.Client, text string) (sorted, error) {
	var out sorted
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, modelURL, strings.NewReader(text))
	if err != nil {
		return out, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return out, fmt.Errorf("the model says %d %s: %w", resp.StatusCode, body, err)
	}
	return out, json.Unmarshal(body, &out)
}

// sortCall is a call as it should be.
func sortCall() job.Call[ticket, sorted] {
	return job.Call[ticket, sorted]{Name: "sort", Routes: []job.Route[ticket, sorted]{{Name: "only", Provider: "example", Model: "m", Timeout: time.Minute,
		Do: func(ctx context.Context, a *job.Attempt, m ticket) (sorted, error) {
			return post(ctx, a.HTTP(), m.Text)
		}}}}
}

// mailStep is a step as it should be, with a mail server that is a fake.
func mailStep() job.Step[mail, string] {
	return job.Step[mail, string]{Name: "mail", Timeout: time.Minute, Do: func(ctx context.Context, a *job.Attempt, m mail) (string, error) {
		if err := a.Sent(ctx); err != nil {
			return "", err
		}
		Did("mail about " + m.ID)
		return "sent", nil
	}}
}

// sorter is a handler as it should be: one call, and one step.
func sorter() job.Def[ticket, sorted] {
	call, step := sortCall(), mailStep()
	return job.Def[ticket, sorted]{Name: "ticket.sort", Uses: job.Uses(call), Steps: job.Steps(step),
		Handle: func(ctx context.Context, j *job.Run, m ticket) (sorted, error) {
			out, err := call.Run(ctx, j, m)
			if err != nil {
				return out, err
			}
			return out, step.After(j, mail{m.Tenant, m.ID, out.Topic})
		}}
}

func withMail(o Options) Options {
	o.Steps = func(reg *job.Registry) { job.RegisterStep(reg, mailStep()) }
	return o
}

// want is the whole end of a good job.
func want(t testing.TB, e End[sorted]) {
	t.Helper()
	if e.State != ledger.Done || e.Result.Topic != "billing" || e.Sends["sort"] != 1 || e.Sends["mail"] != 1 || e.Did["mail about 48213"] != 1 ||
		e.Steps["acme:mail:48213"] != ledger.Done || e.Job.OpenCalls != 0 || len(e.Steps) != 1 {
		t.Errorf("%s: the end is %s %+v, sends %v, did %v, steps %v (%s)", e.When, e.State, e.Result, e.Sends, e.Did, e.Steps, e.Error)
	}
}

// A good handler has no findings at any point, and most points are what they are called.
func TestCrashEverywhere(t *testing.T) {
	whens := map[string]bool{}
	held := 0
	CrashEverywhere(t, sorter(), in, func(t testing.TB, e End[sorted]) {
		whens[e.When] = true
		if e.Held {
			held++
		}
		want(t, e)
	}, withMail(model))
	for _, w := range []string{"nothing happens to the run", "the worker dies before ticket.sort is claimed", "the worker dies after the send gate of call sort, before the request goes out",
		"the worker dies after the provider got the request of call sort, before it answers", "the worker dies after the provider answered call sort, before settle",
		"the worker dies after the outcome of call sort is settled, before the handler hears of it", "the worker dies before the outcome of step mail is settled",
		"the worker dies after the commit of ticket.sort, before the ack", "the worker dies after the ack of ticket.sort"} {
		if !whens[w] {
			t.Errorf("nothing happened as %q; there are %v", w, slices.Sorted(maps.Keys(whens)))
		}
	}
	if held < 6 { // around the wire of the call and of the step
		t.Errorf("%d runs were held: deaths in the middle of a call were not among them", held)
	}
}

func TestSevenPaths(t *testing.T) { SevenPaths(t, sorter(), in, withMail(model)) }

// Each fault comes to pass, and does not matter: there is one call, one mail and one result.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		Fault
		runs, deliveries int
		held             bool
	}{
		{CrashAt(After(Send)), 2, 3, true},
		{CrashAt(After(Claim).In("mail")), 1, 2, false},
		{Pause(After(Wire)), 2, 3, true},
		{Pause(Before(Settle)), 2, 3, true},
		{Pause(After(Claim)).Resume(5 * time.Second), 1, 2, false}, // its lease is good still
		{Pause(After(Claim)), 2, 3, false},
		{Pause(After(Send).In("mail")), 1, 2, true},
		{Restart(After(Send)), 1, 2, false},
		{LoseLease(After(Claim)), 2, 3, false},
		{LoseLease(After(Wire)), 2, 3, false},
		{LoseLease(Before(Complete)), 2, 3, false},
		{DropAck(), 1, 3, false},
		{SlowAnswer(), 1, 2, false},
		{LateAnswer(), 1, 2, true},
		{LoseAnswer(), 1, 2, true},
		{Redeliver(1), 1, 4, false}, // the second finds it busy, and comes again
		{Redeliver(5), 1, 8, false},
		{Concurrent(2), 1, 4, false},
		{Concurrent(5), 1, 10, false},
		{SubmitAgain(After(Send)), 1, 3, false},
		{SubmitAgain(After(Ack)), 1, 3, false},
	} {
		t.Run(c.String(), func(t *testing.T) {
			e := Run(t, sorter(), in, withMail(model), c.Fault)
			want(t, e)
			deliveries := e.Deliveries
			if strings.Contains(c.String(), "mail") && deliveries == c.deliveries+1 {
				deliveries-- // the step begins beside the ack of its message, which dies with it or does not
			}
			if e.Runs != c.runs || deliveries != c.deliveries || e.Held != c.held {
				t.Errorf("%d runs, %d deliveries, held %t; want %d, %d, %t", e.Runs, e.Deliveries, e.Held, c.runs, c.deliveries, c.held)
				for _, l := range e.Job.History {
					t.Log(l)
				}
			}
		})
	}
}

// Faults can be had together.
func TestFaultsTogether(t *testing.T) {
	want(t, Run(t, sorter(), in, withMail(model), DropAck(), CrashAt(After(Wire)), Concurrent(2)))
	want(t, Run(t, sorter(), in, withMail(model), Pause(After(Wire)), CrashAt(After(Claim).Nth(2))))
}

// A call that goes by Sent has no log that could be asked: its job stays unknown.
func TestNoLog(t *testing.T) {
	call := job.Call[ticket, sorted]{Name: "sort", Routes: []job.Route[ticket, sorted]{{Name: "only", Provider: "example", Timeout: time.Minute,
		Do: func(ctx context.Context, a *job.Attempt, m ticket) (sorted, error) {
			return sorted{"billing"}, a.Sent(ctx)
		}}}}
	def := job.Def[ticket, sorted]{Name: "ticket.sort", Uses: job.Uses(call), Handle: call2(call)}
	unknown := 0
	CrashEverywhere(t, def, in, func(t testing.TB, e End[sorted]) {
		if e.State == ledger.Unknown {
			unknown++
			return
		}
		if e.State != ledger.Done || e.Result.Topic != "billing" || e.Sends["sort"] != 1 {
			t.Errorf("%s: %s %+v, sends %v", e.When, e.State, e.Result, e.Sends)
		}
	})
	if unknown != 2 {
		t.Errorf("%d runs ended as unknown, want those that died after the gate and before the outcome was settled", unknown)
	}
	SevenPaths(t, def, in)
	if e := Run(t, def, in, Pause(After(Send))); e.State != ledger.Done || !e.Held || e.Sends["sort"] != 1 || len(e.Job.Attempts) != 2 {
		t.Errorf("a zombie that wakes after the send window: %s, held %t, sent %v", e.State, e.Held, e.Sends)
	}
	if e := Run(t, def, in, Pause(Before(Settle))); e.State != ledger.Done || e.Sends["sort"] != 1 {
		t.Errorf("a zombie that wakes with an answer: %s, sent %v", e.State, e.Sends)
	}
}

// call2 is a handler that makes the call and nothing else.
func call2(c job.Call[ticket, sorted]) func(context.Context, *job.Run, ticket) (sorted, error) {
	return func(ctx context.Context, j *job.Run, m ticket) (sorted, error) { return c.Run(ctx, j, m) }
}

// What a job publishes goes to the jobs under test, and else nowhere.
func TestPublish(t *testing.T) {
	call := sortCall()
	def := job.Def[ticket, sorted]{Name: "ticket.sort", Uses: job.Uses(call), Handle: func(ctx context.Context, j *job.Run, m ticket) (sorted, error) {
		out, err := call.Run(ctx, j, m)
		if err != nil {
			return out, err
		}
		if err := j.Publish("elsewhere", mail{m.Tenant, m.ID, out.Topic}); err != nil {
			return out, err
		}
		return out, j.Publish("here", mail{m.Tenant, m.ID, out.Topic})
	}}
	opt := model
	opt.Steps = func(reg *job.Registry) {
		job.Register(reg, job.Def[mail, bool]{Name: "here", Handle: func(context.Context, *job.Run, mail) (bool, error) { return true, nil }})
	}
	CrashEverywhere(t, def, in, func(t testing.TB, e End[sorted]) {
		if e.State != ledger.Done || len(e.Steps) != 1 || e.Steps["acme:mail:48213"] != ledger.Done {
			t.Errorf("%s: %s, %v", e.When, e.State, e.Steps)
		}
	}, opt)
}

// The points of a run under a fault are that run's: of a lost answer none is after it.
func TestCrashEverywhereUnderFault(t *testing.T) {
	CrashEverywhere(t, sorter(), in, want, withMail(model), LoseAnswer())
}
