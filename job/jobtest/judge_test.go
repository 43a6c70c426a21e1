package jobtest

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/internal/mortal"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// No handler breaks the rules that are the framework's own, so the judge is shown ends that cannot be.
func TestJudge(t *testing.T) {
	done := ledger.Job{Key: ledger.Key{Tenant: "acme", Text: "acme:a:1"}, Action: "a", State: ledger.Done, History: []ledger.Event{{Reason: "J10 complete"}}}
	end := func(change func(*outcome)) *outcome {
		o := &outcome{job: done, rows: []ledger.Job{done}}
		change(o)
		return o
	}
	g := &gate{Attempt: ledger.Attempt{Call: ledger.CallRef{Name: "sort"}}, job: "a", key: done.Key}
	paid := &line{gate: g, paid: true, status: 200}
	refused := &line{gate: g, paid: true, status: 429}
	polled := &line{gate: &gate{Attempt: ledger.Attempt{Call: ledger.CallRef{Name: "sort", InputKey: ledger.NewID().String()}}, job: "a", key: done.Key}, paid: true, status: 200}
	other := &line{gate: &gate{Attempt: g.Attempt, job: "a", key: ledger.Key{Tenant: "acme", Text: "acme:a:2"}}, paid: true, status: 200}
	for name, c := range map[string]struct {
		o    *outcome
		want string // "": nothing
	}{
		"good":                {end(func(*outcome) {}), ""},
		"paid once":           {end(func(o *outcome) { o.lines = []*line{paid} }), ""},
		"refused, then paid":  {end(func(o *outcome) { o.lines = []*line{refused, paid} }), ""},
		"paid twice":          {end(func(o *outcome) { o.lines = []*line{paid, paid} }), "call sort was paid 2 times for one input"},
		"replayed":            {end(func(o *outcome) { o.lines = []*line{paid, paid}; o.rows[0].Replays = 1 }), ""},
		"polled":              {end(func(o *outcome) { o.lines = []*line{polled, polled} }), ""},
		"two results":         {end(func(o *outcome) { o.job.History = append(done.History, done.History...) }), "the job has 2 results"},
		"two jobs":            {end(func(o *outcome) { o.rows = append(o.rows, done) }), "one message became 2 jobs"},
		"two jobs, each paid": {end(func(o *outcome) { o.rows, o.lines = append(o.rows, done), []*line{paid, other} }), "one message became 2 jobs"},
		"still queued":        {end(func(o *outcome) { o.depth = memory.Depth{Delayed: 1} }), "still in the queue"},
		"dead letter":         {end(func(o *outcome) { o.dead = []broker.DeadLetter{{Reason: "PO406 key"}} }), "dead-lettered: PO406"},
		"never ran":           {end(func(o *outcome) { o.job, o.rows = ledger.Job{}, nil }), "does not end well: there is no job"},
		"still running":       {end(func(o *outcome) { o.job.State = ledger.Running }), "does not end well: it is running"},
		"failed": {end(func(o *outcome) {
			o.job.State, o.job.Error = ledger.Failed, &ledger.JobError{Class: "permanent", Text: "PO9"}
		}), "it is failed: PO9"},
		"given up by policy":   {end(func(o *outcome) { o.job.State, o.job.Error = ledger.Failed, &ledger.JobError{Class: "held"} }), ""},
		"held for good":        {end(func(o *outcome) { o.job.State = ledger.Unknown }), ""},
		"thrown away":          {end(func(o *outcome) { o.rows[0].Attempts = []ledger.AttemptRow{{Attempt: g.Attempt, Surplus: true}} }), "call sort was paid for and thrown away"},
		"surplus by a replay":  {end(func(o *outcome) { o.rows[0].Attempts, o.rows[0].Replays = []ledger.AttemptRow{{Surplus: true}}, 1 }), ""},
		"done twice":           {end(func(o *outcome) { o.did = map[string]int{"mail": 2} }), "mail was done 2 times"},
		"sent by the handler":  {end(func(o *outcome) { o.lines = []*line{{what: "POST x", paid: true}} }), "POST x was sent by the handler itself"},
		"asked by the handler": {end(func(o *outcome) { o.lines = []*line{{what: "GET x"}} }), ""},
	} {
		ps := judge(end(func(*outcome) {}), c.o)
		if c.want == "" && len(ps) > 0 || c.want != "" && (len(ps) != 1 || !strings.Contains(ps[0].what, c.want) || ps[0].fix == "") {
			t.Errorf("%s: %+v, want %q", name, ps, c.want)
		}
	}
}

// An ack before the outcome is durable is seen.
func TestEarlyAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{World: mortal.New(t), c: &subject{name: "ticket.sort", key: in.JobKey()}, passed: map[Point]int{}}
		id, err := w.Ledger.Join(t.Context(), ledger.Worker{ID: "a", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		c, err := w.Ledger.Claim(t.Context(), ledger.Request{Key: in.JobKey().Ledger(), Action: "ticket.sort", Worker: id, Token: ledger.NewID(), MaxRun: time.Hour, Carrier: ledger.CarriedByBroker})
		if err != nil {
			t.Fatal(err)
		}
		w.acking(nil, false)
		if len(w.problems) != 1 || !strings.Contains(w.problems[0].what, "acknowledged while the job was running") {
			t.Errorf("an early ack: %+v", w.problems)
		}
		if err := w.Ledger.Complete(t.Context(), c.Lease, ledger.Result{ID: ledger.NewID(), Body: []byte("1")}); err != nil {
			t.Fatal(err)
		}
		w.acking(nil, false)
		if len(w.problems) != 1 {
			t.Errorf("an ack in time: %+v", w.problems)
		}
	})
}

// A Reconcile that denies a call that was made has it paid twice, and is found out.
func TestReconcileLies(t *testing.T) {
	call := sortCall()
	call.Reconcile = func(context.Context, job.Open) (sorted, job.Finding, error) { return sorted{}, job.Absent, nil }
	everywhere(t, plain(call2(call), call), model).only(t, "call sort was paid 2 times for one input", "when:  the worker dies after the provider got the request of call sort, before it answers",
		"fix:   Reconcile said of a call that was made that it was not")
}

// A policy that allows paying twice is no fault.
func TestReplayIsAllowed(t *testing.T) {
	call := sortCall()
	call.OnUnknown = job.Replay(1)
	e := Run(t, plain(call2(call), call), in, model, LoseAnswer())
	if e.State != ledger.Done || e.Sends["sort"] != 2 || e.Job.Replays != 1 {
		t.Errorf("%s, sent %v, %d replays", e.State, e.Sends, e.Job.Replays)
	}
}
