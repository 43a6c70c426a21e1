package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// readCases: what people and probes are told.
var readCases = []testCase{
	{"jobs", "people see jobs that they did not ask for, or miss some", jobs},
	{"origin", "what a message's broker said of it is lost, changed, or refuses the job", origin},
	{"unknowns", "the count of unknown jobs that people are woken by is wrong", unknowns},
	{"a cancelled context", "a verb whose caller is gone spends or blocks", deadContext},
}

// texts lists the jobs of a filter in their order.
func (e *env) texts(f ledger.Filter) string {
	e.Helper()
	var ks []ledger.Key
	for j, err := range e.Store.Jobs(e.Context(), f) {
		if err != nil {
			e.Fatalf("jobs %+v: %v", f, err)
		}
		if len(j.Attempts)+len(j.History) != 0 || j.Result != nil {
			e.Errorf("a list holds the attempts, history or body of %s", j.Key)
		}
		full := e.read(j.Key)
		full.Attempts, full.Result = nil, nil
		if summary(j) != summary(full) || !j.CreatedAt.Equal(full.CreatedAt) || !j.DoneAt.Equal(full.DoneAt) {
			e.Errorf("listed as\n%s\nread as\n%s", summary(j), summary(full))
		}
		ks = append(ks, j.Key)
	}
	return names(ks)
}

// origin: the claim that makes the row keeps it, whatever it holds; later ones change nothing.
func origin(e *env) {
	at := time.Date(2026, 11, 29, 10, 0, 0, 123456000, time.FixedZone("", 3600))
	full := ledger.Origin{Group: "tenant-7", Sent: at, First: at.Add(time.Second), AWSTrace: "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1",
		Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", TraceState: "rojo=00f067aa0ba902b7"}
	r := e.request("full")
	r.Origin = full
	j := e.start(r)
	j.release(outcome(), ledger.Ready)
	j.req.Origin = ledger.Origin{Group: "another"}
	j.req.Carrier = ledger.CarriedByLedger
	j.again().release(outcome(), ledger.Ready)

	r = e.request("odd")
	r.Origin = ledger.Origin{Group: "a\x00\xff", Trace: strings.Repeat("é", 1000), Sent: time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)}
	odd := e.start(r)
	odd.release(outcome(), ledger.Ready)
	plain := e.run("plain")
	plain.release(outcome(), ledger.Ready)

	cut := strings.Repeat("é", 254) + "…"
	for _, c := range []struct {
		j    *job
		want ledger.Origin
	}{{j, full.Clean()}, {odd, ledger.Origin{Group: "a\uFFFD\uFFFD", Trace: cut}}, {plain, ledger.Origin{}}} {
		if got := e.read(c.j.key).Origin; got != c.want {
			e.Errorf("origin of %s\n got %+v\nwant %+v", c.j.key, got, c.want)
		}
	}
	for l, err := range e.Store.Jobs(e.Context(), ledger.Filter{}) {
		if err != nil || l.Origin != e.read(l.Key).Origin {
			e.Errorf("listed with the origin %+v (%v)", l.Origin, err)
		}
	}
	due, err := e.Store.Due(e.Context(), 10, long)
	if err != nil || len(due) != 1 || due[0].Origin != full.Clean() {
		e.Errorf("due %+v (%v), want one with its origin", due, err)
	}
}

func jobs(e *env) {
	e.is("ping", e.Store.Ping(e.Context()), nil)
	if got := e.texts(ledger.Filter{}); got != "[]" {
		e.Errorf("an empty ledger lists %s", got)
	}
	one := e.run("one")
	one.settle(one.send("extract"), answer(cent))
	one.complete()
	two := e.run("two")
	two.release(outcome(), ledger.Ready)
	other := e.request("three")
	other.Action = "it's another"
	e.start(other)
	foreign := e.request("four")
	foreign.Key.Tenant = "globex"
	e.start(foreign)
	failure := outcome()
	failure.Fail = true
	e.run("five").release(failure, ledger.Failed)
	sixth := e.request("six")
	sixth.Key.Tenant = "globex"
	e.start(sixth).release(failure, ledger.Failed)
	for _, c := range []struct {
		f    ledger.Filter
		want string
	}{
		{ledger.Filter{}, "[six five four three two one]"},
		{ledger.Filter{Limit: 2}, "[six five]"},
		{ledger.Filter{Tenant: tenant}, "[five three two one]"},
		{ledger.Filter{Tenant: "nobody"}, "[]"},
		{ledger.Filter{Action: "it's another"}, "[three]"},
		{ledger.Filter{State: ledger.Running}, "[four three]"},
		{ledger.Filter{State: ledger.Done, Tenant: tenant, Action: action}, "[one]"},
		{ledger.Filter{State: ledger.Done, Tenant: "globex"}, "[]"},
		{ledger.Filter{State: ledger.Done}, "[one]"},
		{ledger.Filter{State: ledger.Ready, Limit: 1}, "[two]"},
		{ledger.Filter{State: ledger.Running, Tenant: tenant, Action: "it's another"}, "[three]"},
		{ledger.Filter{State: ledger.Running, Action: action}, "[four]"},
		{ledger.Filter{State: ledger.Failed}, "[six five]"},
		{ledger.Filter{State: ledger.Failed, Tenant: tenant}, "[five]"},
		{ledger.Filter{State: ledger.Failed, Action: action}, "[six five]"},
		{ledger.Filter{State: ledger.Failed, Action: action, Tenant: "globex"}, "[six]"},
		{ledger.Filter{State: ledger.Cancelled}, "[]"},
		{ledger.Filter{Action: action, Tenant: tenant}, "[five two one]"},
		{ledger.Filter{Action: action, Limit: 3}, "[six five four]"},
		{ledger.Filter{State: "no such"}, "[]"},
	} {
		if got := e.texts(c.f); got != c.want {
			e.Errorf("jobs %+v: %s, want %s", c.f, got, c.want)
		}
	}
	for range e.Store.Jobs(e.Context(), ledger.Filter{}) {
		break // a reader that stops early leaves nothing behind
	}
	for i := range 100 {
		e.run(fmt.Sprint("more ", i))
	}
	n := 0
	for range e.Store.Jobs(e.Context(), ledger.Filter{}) {
		n++
	}
	if n != 100 {
		e.Errorf("without a limit %d jobs are listed, want 100", n)
	}
}

func unknowns(e *env) {
	e.states()
	get := func() []ledger.UnknownCount {
		e.Helper()
		got, err := e.Store.Unknowns(e.Context())
		if err != nil {
			e.Fatalf("unknowns: %v", err)
		}
		return got
	}
	if got := get(); len(got) != 1 || got[0].Action != action || got[0].Count != 1 || got[0].Oldest < 0 || got[0].Oldest > time.Hour {
		e.Errorf("unknowns %+v", got)
	}
	old := e.unknown("old")
	e.AgeUnknown(old.key, long)
	e.unknown("second")
	r := e.request("other")
	r.Action = "a.first"
	other := e.start(r)
	other.send("extract")
	other.release(outcome(), ledger.Unknown)
	got := get()
	if len(got) != 2 || got[0].Action != "a.first" || got[0].Count != 1 || got[0].Oldest > time.Hour || got[1].Count != 3 || got[1].Oldest < long || got[1].Oldest > long+time.Hour {
		e.Errorf("unknowns %+v, want one of a.first, then three, in the order of their names", got)
	}
	old.resolve(ledger.GiveUp, 2)
	other.settle(other.first(), answer(cent))
	if got := get(); len(got) != 1 || got[0].Count != 2 || got[0].Oldest > time.Hour {
		e.Errorf("unknowns %+v, want the two that are left", got)
	}
}

func deadContext(e *env) {
	j, idle := e.run("a"), e.run("idle")
	id := j.send("extract")
	ctx, stop := context.WithCancel(e.Context())
	stop()
	fresh := e.request("new")
	for what, verb := range map[string]func() error{
		"claim":    func() error { _, err := e.Store.Claim(ctx, fresh); return err },
		"send":     func() error { return e.Store.Send(ctx, j.lease, call("other")) },
		"settle":   func() error { _, err := e.Store.Settle(ctx, id, answer(cent)); return err },
		"complete": func() error { return e.Store.Complete(ctx, idle.lease, ledger.Result{ID: ledger.NewID()}) },
		"release":  func() error { _, err := e.Store.Release(ctx, idle.lease, outcome()); return err },
		"job":      func() error { _, err := e.Store.Job(ctx, j.key); return err },
		"ping":     func() error { return e.Store.Ping(ctx) },
	} {
		if err := verb(); !errors.Is(err, context.Canceled) {
			e.Errorf("%s under a cancelled context: %v", what, err)
		}
	}
	e.absent(fresh.Key)
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Open: 1, Reserved: "0.01", Attempts: "sent"})
	idle.row(row{State: ledger.Running, Runs: 1, Fence: 1})
}
