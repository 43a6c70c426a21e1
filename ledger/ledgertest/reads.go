package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// readCases: what people and probes are told.
var readCases = []testCase{
	{"jobs", "people see jobs that they did not ask for, or miss some", jobs},
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
	e.AgeRow(two.key, long) // so it is the oldest
	for _, c := range []struct {
		f    ledger.Filter
		want string
	}{
		{ledger.Filter{}, "[four three one two]"},
		{ledger.Filter{Limit: 2}, "[four three]"},
		{ledger.Filter{Tenant: tenant}, "[three one two]"},
		{ledger.Filter{Tenant: "nobody"}, "[]"},
		{ledger.Filter{Action: "it's another"}, "[three]"},
		{ledger.Filter{State: ledger.Running}, "[four three]"},
		{ledger.Filter{State: ledger.Done, Tenant: tenant, Action: action}, "[one]"},
		{ledger.Filter{State: ledger.Done, Tenant: "globex"}, "[]"},
		{ledger.Filter{State: ledger.Ready, Limit: 1}, "[two]"},
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
