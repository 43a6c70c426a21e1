package ledgertest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// The times of the suite are so long that none passes by itself: the harness
// makes them pass.
const (
	ttl     = time.Hour     // of workers
	maxRun  = 2 * time.Hour // of runs
	timeout = time.Hour     // of routes
	window  = time.Hour     // settle window
	long    = 3 * time.Hour // longer than any of them
)

// cent is the reserve of the suite's attempts and the usual cost.
const cent = ledger.USD / 100

const (
	tenant = "acme"
	action = "invoice.extract"
)

var errBoom = errors.New("boom")

// env is what a case works with: the test, its harness, and the checks that
// cases share.
type env struct {
	*testing.T
	*Harness
	worker ledger.WorkerID // the usual one
}

// job is one job of a case: what is known of the run that was claimed last.
type job struct {
	*env
	key   ledger.Key
	req   ledger.Request
	lease ledger.Lease
}

// join makes another worker.
func (e *env) join(id string) ledger.WorkerID {
	e.Helper()
	w, err := e.Store.Join(e.Context(), ledger.Worker{ID: id, TTL: ttl, Host: "localhost", PID: 1, Version: "v0", Config: "c0"})
	if err != nil {
		e.Fatalf("join %s: %v", id, err)
	}
	return w
}

// die ends a worker: its jobs are free at once.
func (e *env) die(w ledger.WorkerID) {
	e.Helper()
	if err := e.Store.Leave(e.Context(), w); err != nil {
		e.Fatalf("leave: %v", err)
	}
}

// request asks for the job with that name, as the suite usually does.
func (e *env) request(name string) ledger.Request {
	return ledger.Request{Key: ledger.Key{Tenant: tenant, Text: tenant + ":" + action + ":" + name}, Action: action,
		InputHash: ledger.Hash{1}, Input: []byte(`{"doc":"` + name + `"}`), Carrier: ledger.CarriedByBroker, Worker: e.worker,
		Token: ledger.NewID(), MaxRun: maxRun, Budget: ledger.USD, Receives: 1}
}

// claim makes a claim that must not err.
func (e *env) claim(r ledger.Request) ledger.Claimed {
	e.Helper()
	c, err := e.Store.Claim(e.Context(), r)
	if err != nil {
		e.Fatalf("claim %s: %v", r.Key, err)
	}
	return c
}

// run claims a new job.
func (e *env) run(name string) *job {
	e.Helper()
	return e.start(e.request(name))
}

// bare claims a new job whose input is not kept.
func (e *env) bare(name string) *job {
	e.Helper()
	r := e.request(name)
	r.Input = nil
	return e.start(r)
}

func (e *env) start(r ledger.Request) *job {
	e.Helper()
	j := &job{env: e, key: r.Key, req: r}
	j.again()
	return j
}

// again claims the job once more, with a new token, and must be told Run.
func (j *job) again() *job {
	j.Helper()
	j.req.Token = ledger.NewID()
	c := j.claim(j.req)
	if c.Verdict != ledger.Run {
		j.Fatalf("claim %s: verdict %s, want run", j.key, c.Verdict)
	}
	j.lease = c.Lease
	return j
}

// verdict claims with a new token and checks the verdict.
func (j *job) verdict(want ledger.Verdict) ledger.Claimed {
	j.Helper()
	r := j.req
	r.Token = ledger.NewID()
	c := j.claim(r)
	if c.Verdict != want {
		j.Errorf("claim %s: verdict %s, want %s", j.key, c.Verdict, want)
	}
	return c
}

// call is an attempt of a call as the suite usually makes it.
func call(name string) ledger.Attempt {
	return ledger.Attempt{ID: ledger.NewID(), Call: ledger.CallRef{Name: name}, Route: "primary", Provider: "openai", Model: "m1",
		Config: "p7", ClientRequestID: "client-1", Timeout: timeout, Reserve: cent}
}

// send passes the gate for a new attempt of the call.
func (j *job) send(name string) ledger.AttemptID {
	j.Helper()
	a := call(name)
	looked, err := j.Store.Look(j.Context(), j.lease, a.Call)
	if err != nil {
		j.Fatalf("look for call %s: %v", name, err)
	}
	a.LateSeen = looked.Late
	if err := j.Store.Send(j.Context(), j.lease, a); err != nil {
		j.Fatalf("send call %s: %v", name, err)
	}
	return j.attempt(a.ID)
}

func (j *job) attempt(id ledger.ID) ledger.AttemptID {
	return ledger.AttemptID{Tenant: j.key.Tenant, Job: j.lease.Job, ID: id}
}

// answer is evidence of an answer that cost as much as given.
func answer(cost ledger.Nano) ledger.Evidence {
	return ledger.Evidence{State: ledger.Received, By: ledger.BySender, Who: "w1", Status: 200, Cost: &cost, CostSource: "computed",
		Response: &ledger.Response{Codec: "http", Body: []byte("HTTP/1.1 200 OK\r\n\r\n{}")}}
}

// no is a sender's evidence that there is no answer.
func no(s ledger.AttemptState) ledger.Evidence {
	return ledger.Evidence{State: s, By: ledger.BySender, Who: "w1", Class: "refused"}
}

// settle records evidence, which must not err.
func (e *env) settle(id ledger.AttemptID, ev ledger.Evidence) ledger.Settled {
	e.Helper()
	s, err := e.Store.Settle(e.Context(), id, ev)
	if err != nil {
		e.Fatalf("settle as %s: %v", ev.State, err)
	}
	return s
}

// complete commits a result, which must not err.
func (j *job) complete(used ...ledger.AttemptID) ledger.Result {
	j.Helper()
	r := ledger.Result{ID: ledger.NewID(), Body: []byte(`{"n":1}`), Schema: "invoice/1"}
	for _, id := range used {
		r.Used = append(r.Used, id.ID)
	}
	if err := j.Store.Complete(j.Context(), j.lease, r); err != nil {
		j.Fatalf("complete: %v", err)
	}
	return r
}

// outcome is how the suite usually ends a run without a result.
func outcome() ledger.Outcome {
	return ledger.Outcome{Error: ledger.JobError{Class: "retry", Text: "try again"}, Who: "w1"}
}

// release ends the run, which must not err, and checks the state that comes of it.
func (j *job) release(o ledger.Outcome, want ledger.State) ledger.Released {
	j.Helper()
	r, err := j.Store.Release(j.Context(), j.lease, o)
	if err != nil {
		j.Fatalf("release: %v", err)
	}
	if r.State != want {
		j.Errorf("release: the job is %s, want %s", r.State, want)
	}
	return r
}

// resolve gives a verdict on the job, which must not err.
func (j *job) resolve(a ledger.Action, fence int64) ledger.Released {
	j.Helper()
	r, err := j.Store.Resolve(j.Context(), j.resolution(a, fence))
	if err != nil {
		j.Fatalf("resolve %s: %v", a, err)
	}
	return r
}

func (j *job) resolution(a ledger.Action, fence int64) ledger.Resolution {
	return ledger.Resolution{Key: j.key, Fence: fence, Action: a, Reason: "looked at it", By: ledger.ByPerson, Who: "kim"}
}

// sweep sweeps everything.
func (e *env) sweep() ledger.Swept {
	e.Helper()
	s, err := e.Store.Sweep(e.Context(), 1000)
	if err != nil {
		e.Fatalf("sweep: %v", err)
	}
	return s
}

// adoption asks for so many jobs, with a new token.
func adoption(w ledger.WorkerID, n int) ledger.Adoption {
	return ledger.Adoption{Worker: w, Token: ledger.NewID(), Max: n}
}

// adopt adopts everything that is due for a look.
func (e *env) adopt(w ledger.WorkerID) []ledger.Adopted {
	e.Helper()
	as, err := e.Store.Adopt(e.Context(), adoption(w, 1000))
	if err != nil {
		e.Fatalf("adopt: %v", err)
	}
	return as
}

// is checks that err is want; a nil want is no error.
func (e *env) is(what string, err, want error) {
	e.Helper()
	if !errors.Is(err, want) || want == nil && err != nil {
		e.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

// unchanged runs fn and checks that it left the whole row as it was.
func (j *job) unchanged(what string, fn func()) {
	j.Helper()
	before := j.dump(j.key)
	fn()
	if after := j.dump(j.key); after != before {
		j.Errorf("%s changed the row\nbefore:\n%s\nafter:\n%s", what, before, after)
	}
}

// absent checks that there is no such job.
func (e *env) absent(k ledger.Key) {
	e.Helper()
	_, err := e.Store.Job(e.Context(), k)
	e.is("read a job that must not be there", err, ledger.ErrNotFound)
}

// look reads what is known of a call.
func (j *job) look(name string) ledger.Looked {
	j.Helper()
	k, err := j.Store.Look(j.Context(), j.lease, ledger.CallRef{Name: name})
	if err != nil {
		j.Fatalf("look for call %s: %v", name, err)
	}
	return k
}

// played checks that a run is given the answer of the attempt.
func (j *job) played(name string, id ledger.AttemptID, want ledger.Evidence) {
	j.Helper()
	got := j.look(name).Answer
	switch {
	case got == nil:
		j.Errorf("call %s: the answer is lost", name)
	case got.Attempt != id.ID || got.Response.Codec != want.Response.Codec || !bytes.Equal(got.Response.Body, want.Response.Body):
		j.Errorf("call %s: played back %s %.80q of attempt %s, want %.80q of %s", name, got.Response.Codec, got.Response.Body, got.Attempt,
			want.Response.Body, id.ID)
	}
}

func names(ks []ledger.Key) string {
	var s []string
	for _, k := range ks {
		s = append(s, k.Text[strings.LastIndex(k.Text, ":")+1:])
	}
	return fmt.Sprint(s)
}
