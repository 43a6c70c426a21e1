package e2e

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/paidonce/paidonce/handlers/invoice"
	"github.com/paidonce/paidonce/handlers/summarize"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/ledger"
)

// outcome is what one fault does to a job with one route, seen from outside.
type outcome struct {
	name     string
	fault    modelserver.Fault
	requests int // on the wire, in all
	bill     int
	state    ledger.State          // of the job in the end
	attempts []ledger.AttemptState // in the end
	class    string                // of the first attempt
}

var (
	sent     = []ledger.AttemptState{ledger.Sent}
	answered = []ledger.AttemptState{ledger.Received}
	retried  = []ledger.AttemptState{ledger.Rejected, ledger.Received}
)

// lost are the ways to lose an answer that was paid for. Anthropic keeps nothing, so
// the job stays unknown.
var lost = []outcome{
	{"closed", modelserver.Fault{Kind: modelserver.Close}, 1, 1, ledger.Unknown, sent, "closed"},
	{"reset", modelserver.Fault{Kind: modelserver.Reset}, 1, 1, ledger.Unknown, sent, "reset"},
	{"cut", modelserver.Fault{Kind: modelserver.Cut}, 1, 1, ledger.Unknown, sent, "cut_body"},
	{"half", modelserver.Fault{Kind: modelserver.CleanEnd}, 1, 1, ledger.Unknown, sent, ""},
	{"late", modelserver.Fault{After: 14 * time.Second}, 1, 1, ledger.Unknown, sent, "timeout"},
	{"502", modelserver.Fault{Kind: modelserver.BadGateway}, 1, 1, ledger.Unknown, sent, "http_502"},
	{"504", modelserver.Fault{Kind: modelserver.GatewayTime}, 1, 1, ledger.Unknown, sent, "http_504"},
	{"502 unpaid", modelserver.Fault{Kind: modelserver.BadGateway, Billed: new(false)}, 1, 0, ledger.Unknown, sent, "http_502"},
}

// definite are refusals: there is no answer, and what happens next is safe.
var definite = []outcome{
	{"429", modelserver.Fault{Kind: modelserver.RateLimit, RetryAfter: time.Second}, 2, 1, ledger.Done, retried, "rate_limited"},
	{"503", modelserver.Fault{Kind: modelserver.Overloaded}, 2, 1, ledger.Done, retried, "overloaded"},
	{"500", modelserver.Fault{Kind: modelserver.ServerError}, 2, 1, ledger.Done, []ledger.AttemptState{ledger.FailedAttempt, ledger.Received}, "provider_error"},
	{"400", modelserver.Fault{Kind: modelserver.BadRequest}, 1, 0, ledger.Failed, []ledger.AttemptState{ledger.Rejected}, "bad_request"},
	{"401", modelserver.Fault{Kind: modelserver.Unauthorized}, 1, 0, ledger.Failed, []ledger.AttemptState{ledger.Rejected}, "unauthorized"},
	{"none", modelserver.Fault{}, 1, 1, ledger.Done, answered, "done"},
}

// Case 46: what came back decides, through both vendors' SDKs: a definite end is acted on,
// anything else is never sent again.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	w := NewWorld(t, Options{Workers: 32, SettleWindow: 10 * time.Second, Hold: 10 * time.Second,
		Routes: map[string]string{summarize.Name: "anthropic 8s", invoice.Name: "openai 8s"}})
	cases := map[string]outcome{}
	e := Expect{States: map[string]ledger.State{}, Bill: map[string]int{}}
	var docs []Doc
	for _, o := range slices.Concat(lost, definite) {
		found := o
		if o.state == ledger.Unknown && o.bill > 0 { // OpenAI has it in its store
			found.state, found.attempts, found.class = ledger.Done, answered, "reconciled"
		}
		for d, o := range map[Doc]outcome{Ticket(o.name): o, Invoice(o.name): found} {
			w.Models.Script(d.Key, o.fault)
			docs = append(docs, d)
			cases[d.Key], e.States[d.Key], e.Bill[d.Key] = o, o.state, o.bill
		}
	}
	w.Submit(2, docs...)
	p := w.Start("only")
	w.Until(e)
	w.UntilQuiet()
	p.Leave()
	w.Check(e)
	requests := w.Models.RequestsByKey()
	for key, o := range cases {
		j := w.Job(key)
		var states []ledger.AttemptState
		for _, a := range j.Attempts {
			states = append(states, a.State)
		}
		if requests[key] != o.requests || !slices.Equal(states, o.attempts) || o.class != "" && j.Attempts[0].Evidence.Class != o.class {
			t.Errorf("%s: %d requests, attempts %v; want %d, %v, class %s\n%s", key, requests[key], states, o.requests, o.attempts, o.class, story(j))
		}
	}
}

// A route that refuses is followed by the next one; one that lost an answer is not.
func TestFallback(t *testing.T) {
	t.Parallel()
	routes := map[string]string{summarize.Name: "openai 8s\nanthropic 8s", invoice.Name: "anthropic 8s\nopenai 8s"}
	w := NewWorld(t, Options{SettleWindow: 10 * time.Second, Hold: 10 * time.Second, Routes: routes})
	refused, overloaded, cut := Ticket("refused"), Ticket("overloaded"), Invoice("cut")
	w.Models.Script(refused.Key, modelserver.Fault{Kind: modelserver.BadRequest})
	w.Models.Script(overloaded.Key, modelserver.Fault{Kind: modelserver.Overloaded, Times: 3})
	w.Models.Script(cut.Key, modelserver.Fault{Kind: modelserver.Cut})
	w.Submit(2, refused, overloaded, cut)
	p := w.Start("only")
	w.UntilState(ledger.Done, ledger.Unknown)
	w.UntilQuiet()
	p.Leave()
	w.Check(Expect{States: map[string]ledger.State{cut.Key: ledger.Unknown}})
	for key, n := range map[string]int{refused.Key: 2, overloaded.Key: 4, cut.Key: 1} {
		j := w.Job(key)
		if got := w.Models.RequestsByKey()[key]; got != n || len(j.Attempts) != n {
			t.Errorf("%s: %d requests, want %d\n%s", key, got, n, story(j))
		}
		if last := j.Attempts[len(j.Attempts)-1]; n > 1 && (last.Route != "route1" || last.State != ledger.Received) {
			t.Errorf("%s was not answered by its second route\n%s", key, story(j))
		}
	}
}

// A provider that is not there was sent nothing, and the next route is taken.
func TestRefusedConnection(t *testing.T) {
	t.Parallel()
	w := NewWorld(t, Options{Routes: map[string]string{summarize.Name: "openai 5s\nanthropic 5s"}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	d := Ticket("1")
	w.Submit(2, d)
	p := w.Start("only", "PAIDONCE_PROVIDERS_OPENAI_BASE_URL=http://"+l.Addr().String()+"/v1/")
	w.UntilState(ledger.Done)
	w.UntilQuiet()
	p.Leave()
	w.Check(Expect{})
	if j := w.Job(d.Key); len(j.Attempts) != 1 || j.Attempts[0].Provider != "anthropic" || w.Models.Requests() != 1 {
		t.Errorf("%d requests\n%s", w.Models.Requests(), story(j))
	}
}
