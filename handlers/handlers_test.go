// Package handlers_test runs the bundled handlers through the vendors' SDKs against the
// stand-in model server.
package handlers_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/handlers/agent"
	"github.com/paidonce/paidonce/handlers/invoice"
	"github.com/paidonce/paidonce/handlers/moderate"
	"github.com/paidonce/paidonce/handlers/provider"
	"github.com/paidonce/paidonce/handlers/summarize"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/memory"
)

const (
	ticket   = `{"tenant":"acme","ticket":"48213","revision":3,"thread":"The invoice was charged twice."}`
	document = `{"tenant":"acme","document":"9821","revision":3,"text":"Invoice R-17 of 2026-03-01 by Initech: 119.00 EUR"}`
	content  = `{"tenant":"acme","content":"7714","revision":2,"text":"You are all wonderful."}`
	answer   = `{"number":"R-17","currency":"EUR","total_cents":11900,"supplier":"Initech","date":"2026-03-01"}`
)

// bench is one job on a ledger of its own.
type bench struct {
	t      *testing.T
	models *modelserver.Server
	ledger *memory.Ledger
	reg    job.Registry
	worker ledger.WorkerID
}

// newBench registers the handlers with one route each, to the named provider.
func newBench(t *testing.T, via string, generate func(modelserver.Request) string) *bench {
	t.Helper()
	return benchOf(t, modelserver.Options{Generate: generate}, agent.Options{}, via)
}

// benchOf registers the handlers with a route to each of the named providers.
func benchOf(t *testing.T, o modelserver.Options, tools agent.Options, via ...string) *bench {
	t.Helper()
	o.KeyOf = func(modelserver.Request) string { return "the job" }
	ms, err := modelserver.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ms.Close(); err != nil {
			t.Errorf("closing the model server: %v", err)
		}
	})
	b := &bench{t: t, models: ms, ledger: memory.New()}
	s := provider.Settings{
		Retry:     job.Backoff{Max: 1, First: time.Millisecond},
		OpenAI:    provider.Account{BaseURL: ms.URL() + "/v1/", APIKey: "k"},
		Anthropic: provider.Account{BaseURL: ms.URL(), APIKey: "k"},
	}
	for i, p := range via {
		s.Routes = append(s.Routes, provider.Route{Name: []string{"only", "second"}[i], Provider: p, Model: "a-model", Timeout: 5 * time.Second})
	}
	job.Register(&b.reg, summarize.New(s, summarize.Tell{}))
	job.Register(&b.reg, invoice.New(s, nil))
	job.Register(&b.reg, moderate.New(s))
	job.Register(&b.reg, agent.New(s, tools))
	if b.worker, err = b.ledger.Join(t.Context(), ledger.Worker{ID: "w", TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	return b
}

// run claims the job, runs it once and commits or releases it.
func (b *bench) run(name, body string) (string, error) {
	b.t.Helper()
	ctx := b.t.Context()
	h, ok := b.reg.Lookup(name)
	if !ok {
		b.t.Fatalf("no handler %s", name)
	}
	in, err := h.Decode([]byte(body))
	if err != nil {
		b.t.Fatal(err)
	}
	c, err := b.ledger.Claim(ctx, ledger.Request{Key: in.Key.Ledger(), Action: name, InputHash: in.Hash, Input: in.Body, Carrier: ledger.CarriedByLedger,
		Worker: b.worker, Token: ledger.NewID(), MaxRun: time.Hour})
	if err != nil || c.Verdict != ledger.Run {
		b.t.Fatalf("claim: %s, %v", c.Verdict, err)
	}
	r := job.NewRun(job.RunConfig{Worker: job.NewWorker(job.Worker{Ledger: b.ledger, Who: "w", Paid: context.WithoutCancel(ctx)}), Lease: &c.Lease, Number: c.Run})
	out, err := h.Run(ctx, r, &in.Content)
	if err == nil {
		err = b.ledger.Complete(ctx, c.Lease, r.Result(out))
	} else if _, rerr := b.ledger.Release(ctx, c.Lease, ledger.Outcome{Error: ledger.JobError{Class: "retry", Text: err.Error()}}); rerr != nil {
		b.t.Fatal(rerr)
	}
	return string(out), err
}

func (b *bench) job(name, body string) ledger.Job {
	b.t.Helper()
	h, _ := b.reg.Lookup(name)
	in, err := h.Decode([]byte(body))
	if err != nil {
		b.t.Fatal(err)
	}
	j, err := b.ledger.Job(b.t.Context(), in.Key.Ledger())
	if err != nil {
		b.t.Fatal(err)
	}
	return j
}

func TestAnswers(t *testing.T) {
	for _, via := range provider.Names() {
		for _, c := range []struct{ name, body, model, want, object string }{
			{summarize.Name, ticket, "Charged twice.", `{"summary":"Charged twice."}`, ""},
			{invoice.Name, document, answer, answer, ""},
			{moderate.Name, content, `{"flagged":false,"categories":[]}`, `{"flagged":false,"categories":[]}`, ""},
			{moderate.Name, content, `{"flagged":true,"categories":["spam"]}`, `{"flagged":true,"categories":["spam"]}`, ""},
			{invoice.Name, document, `{"number":"","currency":"","total_cents":0,"supplier":"","date":""}`, `{"number":"","currency":"","total_cents":0,"supplier":"","date":""}`, ""},
		} {
			t.Run(via+" "+c.name, func(t *testing.T) {
				b := newBench(t, via, func(r modelserver.Request) string {
					if structured := r.Schema != nil; structured != (c.name != summarize.Name) {
						t.Errorf("the request has the schema %s", r.Schema)
					}
					return c.model
				})
				out, err := b.run(c.name, c.body)
				if err != nil || out != c.want {
					t.Fatalf("result %s, %v; want %s", out, err, c.want)
				}
				j := b.job(c.name, c.body)
				if j.State != ledger.Done || len(j.Attempts) != 1 || j.Attempts[0].State != ledger.Received || len(b.models.Bill()) != 1 {
					t.Errorf("job %s with attempts %+v, and %d lines on the bill", j.State, j.Attempts, len(b.models.Bill()))
				}
				a := j.Attempts[0]
				if a.Model != "a-model" || a.Provider != via || a.Evidence.ObjectID != b.models.Bill()[0].ObjectID || a.Evidence.Usage.Out == nil {
					t.Errorf("attempt %+v does not say what the bill says", a)
				}
			})
		}
	}
}

// What a handler cannot use is a permanent failure, and is not asked for again.
func TestUselessAnswers(t *testing.T) {
	for _, via := range provider.Names() {
		for _, c := range []struct{ name, body, model, want string }{
			{invoice.Name, document, "I would rather not", "PO355"},
			{invoice.Name, document, `{"number":"R-17","currency":"EUR","total_cents":"11900","supplier":"","date":""}`, "PO355"},
			{invoice.Name, document, `{"number":"R-17","currency":"EUR","total_cents":1,"supplier":"","date":"1.3.2026"}`, "PO355"},
			{moderate.Name, content, `{"flagged":true,"categories":[]}`, "PO357"},
		} {
			b := newBench(t, via, func(modelserver.Request) string { return c.model })
			_, err := b.run(c.name, c.body)
			if class, _ := job.ClassOf(err); class != job.Permanent || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s %s: error %v (%s), want a permanent %s", via, c.model, err, class, c.want)
			}
			if n := len(b.models.Bill()); n != 1 {
				t.Errorf("%s %s: %d calls", via, c.model, n)
			}
		}
	}
}

// Bad input is refused before anything is paid.
func TestNothingToAsk(t *testing.T) {
	b := newBench(t, provider.OpenAI, nil)
	for name, body := range map[string]string{
		summarize.Name: `{"tenant":"acme","ticket":"1","thread":""}`,
		invoice.Name:   `{"tenant":"acme","document":"1","text":""}`,
		moderate.Name:  `{"tenant":"acme","content":"1","text":""}`,
		agent.Name:     `{"tenant":"acme","task":"1","goal":""}`,
	} {
		_, err := b.run(name, body)
		if class, _ := job.ClassOf(err); class != job.Permanent {
			t.Errorf("%s: error %v (%s), want a permanent one", name, err, class)
		}
	}
	if n := b.models.Requests(); n != 0 {
		t.Errorf("%d requests", n)
	}
}

// Case 42: one request an attempt whatever the SDKs want; a definite refusal is tried again by the
// handler's own backoff.
func TestRefusals(t *testing.T) {
	for _, via := range provider.Names() {
		b := newBench(t, via, nil)
		b.models.Script("the job", modelserver.Fault{Kind: modelserver.ServerError, Times: 2})
		if _, err := b.run(summarize.Name, ticket); err == nil {
			t.Errorf("%s: two refusals and a backoff of one gave a result", via)
		}
		if n := b.models.Requests(); n != 2 {
			t.Errorf("%s: %d requests, want one an attempt", via, n)
		}
		if j := b.job(summarize.Name, ticket); j.State != ledger.Ready || j.OpenCalls != 0 || len(j.Attempts) != 2 {
			t.Errorf("%s: job %+v", via, j)
		}
	}
}

// An answer that was lost on the way is found in OpenAI's store; Anthropic has none. Until
// then nothing is sent.
func TestLostAnswer(t *testing.T) {
	for _, via := range provider.Names() {
		for _, c := range []struct{ name, body, model, call string }{
			{summarize.Name, ticket, "Charged twice.", "summarise"}, {invoice.Name, document, answer, "extract"},
			{moderate.Name, content, `{"flagged":true,"categories":["spam"]}`, "moderate"},
		} {
			t.Run(via+" "+c.name, func(t *testing.T) {
				b := newBench(t, via, func(modelserver.Request) string { return c.model })
				b.models.Script("the job", modelserver.Fault{Kind: modelserver.Reset})
				if _, err := b.run(c.name, c.body); !errors.Is(err, job.ErrHeld) {
					t.Fatalf("error %v, want ErrHeld", err)
				}
				j := b.job(c.name, c.body)
				if j.State != ledger.Unknown || j.OpenCalls != 1 {
					t.Fatalf("job %+v", j)
				}
				h, _ := b.reg.Lookup(c.name)
				call, ok := h.Call(c.call)
				if !ok {
					t.Fatalf("no call %s", c.call)
				}
				open := job.Open{Key: j.Key, Attempt: j.Attempts[0].ID, ClientRequestID: j.Attempts[0].ClientRequestID, Route: "only", Model: "a-model"}
				found, err := call.Reconcile(t.Context(), open)
				if via == provider.Anthropic {
					if found.Finding != job.CannotTell || err != nil {
						t.Fatalf("finding %s, %v", found.Finding, err)
					}
					return
				}
				if err != nil || found.Finding != job.Happened {
					t.Fatalf("finding %s, %v", found.Finding, err)
				}
				line, u := b.models.Bill()[0], found.Call.Usage
				if found.ObjectID != line.ObjectID || found.Call.Answered != line.Model || found.Call.NoUsage ||
					u.In != line.In || u.CacheRead != line.Cached || u.Out != line.Out || u.In == 0 || *found.Usage.In != u.In {
					t.Errorf("found %+v, the bill says %+v", found, line)
				}
				if err := call.Reads(found.Response.Body); err != nil {
					t.Errorf("the answer found does not read: %v", err)
				}
				id := ledger.AttemptID{Tenant: "acme", Job: j.ID, ID: j.Attempts[0].ID}
				if _, err := b.ledger.Settle(t.Context(), id, ledger.Evidence{State: ledger.Received, By: ledger.ByReconciler, Response: found.Response}); err != nil {
					t.Fatal(err)
				}
				if _, err := b.run(c.name, c.body); err != nil {
					t.Fatal(err)
				}
				if n := len(b.models.Bill()); n != 1 {
					t.Errorf("%d calls on the bill", n)
				}
				// Another attempt is not in the store, which proves nothing.
				open.ClientRequestID = ledger.NewID().String()
				if found, err = call.Reconcile(t.Context(), open); found.Finding != job.CannotTell || err != nil {
					t.Errorf("finding %s, %v for an attempt that is not there", found.Finding, err)
				}
			})
		}
	}
}

// Keys do not show when settings are printed.
func TestAccountHidesKey(t *testing.T) {
	a := provider.Account{BaseURL: "https://h", APIKey: "sk-planted"}
	for _, s := range []string{a.String(), a.GoString()} {
		if strings.Contains(s, "planted") || !strings.Contains(s, "https://h") {
			t.Errorf("an account prints as %s", s)
		}
	}
}
