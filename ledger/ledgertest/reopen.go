package ledgertest

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/paidonce/paidonce/ledger"
)

// reopenCases: a person's order runs an ended job again, once, and pays for nothing twice that was
// not meant to be.
var reopenCases = []testCase{
	{"run again", "a job that was ordered anew gives the old result, or loses it", runAgain},
	{"run again without a result", "answers of an older generation are used, or their cost is not wasted", runAgainFailed},
	{"run again after a cancel", "a job that was ordered anew is cancelled still", runAgainCancelled},
	{"run again once", "one order runs a job twice", runAgainOnce},
	{"late answer of an older generation", "an older generation's answer is given to a newer one", lateGeneration},
	{"retry", "a retry pays again for what has an answer, or has no run left", retry},
	{"retry of unknown calls", "a retry pays twice without leave, or says nothing of the leave", retryUnknown},
	{"a job that waits", "nobody can have a job run before its time, or it loses what it has", retryWaiting},
	{"what cannot be reopened", "a job that runs or is held is run beside itself", notReopened},
	{"reopened without input", "a job that nobody can run is ready for ever", noInputLeft},
	{"orders that make no sense", "a job runs again for nobody, for no reason", badOrders},
	{"purge of what was reopened", "a job that was ordered anew loses its input or its answers to a purge that was due", purgeReopened},
}

// order has the job run again as a new generation.
func (j *job) order(token string) ledger.Reopening {
	return ledger.Reopening{Key: j.key, Token: token, Reason: "the prompt was wrong", Who: "kim"}
}

// reopen must not err.
func (j *job) reopen(o ledger.Reopening) ledger.Reopened {
	j.Helper()
	r, err := j.Store.Reopen(j.Context(), o)
	if err != nil {
		j.Fatalf("reopen %s: %v", j.key, err)
	}
	return r
}

// refused is an order that changes nothing.
func (j *job) refused(what string, o ledger.Reopening, want error) {
	j.Helper()
	j.unchanged(what, func() {
		_, err := j.Store.Reopen(j.Context(), o)
		j.is(what, err, want)
	})
}

// last is the last line of the job's history.
func (j *job) last() ledger.Event {
	j.Helper()
	h := j.read(j.key).History
	return h[len(h)-1]
}

// retryWaiting: whoever waits for the next day's budget is due when a person says so.
func retryWaiting(e *env) {
	j := e.run("a")
	o := outcome()
	o.RetryIn, o.Error = long, ledger.JobError{Class: "day_budget", Text: "used up"}
	j.release(o, ledger.Ready)
	due := func(want string) {
		e.Helper()
		ds, err := e.Store.Due(e.Context(), 10, long)
		if err != nil || keysText(storedKeys(ds)) != want {
			e.Errorf("due are %s (%v), want %s", keysText(storedKeys(ds)), err, want)
		}
	}
	due("")
	order := j.order("")
	order.Waiting = true
	for range 2 {
		if r := j.reopen(order); r != (ledger.Reopened{State: ledger.Ready, Generation: 1}) {
			e.Errorf("told %+v", r)
		}
		j.row(row{State: ledger.Ready, Runs: 1, Fence: 1, Carrier: ledger.CarriedByLedger, Error: "day_budget"})
		if l := j.last(); l.From != ledger.Ready || l.To != ledger.Ready || l.Actor != "kim" || l.Reason != "J18w do not wait: the prompt was wrong" {
			e.Errorf("on record is %+v", l)
		}
		due(tenant + "/" + j.key.Text)
	}
	j.again()
	j.refused("one that runs", order, ledger.ErrState)
	bare := e.bare("b")
	bare.release(o, ledger.Ready)
	order.Key = bare.key
	bare.refused("one whose input is not kept", order, ledger.ErrNoInput)
	both := order
	both.Token = "t"
	bare.refused("a new generation of one that waits", both, ledger.ErrRequest)
	order.Key.Text = "acme:invoice.extract:nobody"
	_, err := e.Store.Reopen(e.Context(), order)
	e.is("one that is not there", err, ledger.ErrNotFound)
}

func storedKeys(all []ledger.Stored) (ks []ledger.Key) {
	for _, s := range all {
		ks = append(ks, s.Key)
	}
	return ks
}

func runAgain(e *env) {
	j := e.finished("a")
	if r := j.reopen(j.order("t1")); r != (ledger.Reopened{State: ledger.Ready, Generation: 2}) {
		e.Errorf("reopened %+v", r)
	}
	j.row(row{State: ledger.Ready, Fence: 1, Generation: 2, Cost: "0.01", Carrier: ledger.CarriedByLedger, Earlier: `{"n":1} `, Attempts: "received$0.01"})
	if l := j.last(); l.From != ledger.Done || l.To != ledger.Ready || l.Actor != "kim" || l.Reason != "J18 run again, token t1: the prompt was wrong" {
		e.Errorf("the history says %+v", l)
	}
	if s := j.listed(); s == nil || string(s.Input) != string(j.req.Input) {
		e.Errorf("sweepers are told %+v", s)
	}
	j.again()
	if k := j.look("extract"); k.Answer != nil || k.Attempts != 0 || k.Open != 0 {
		e.Errorf("the new generation is told %+v of the old one's call", k)
	}
	id := j.send("extract")
	j.settle(id, answer(2*cent))
	res := ledger.Result{ID: ledger.NewID(), Body: []byte(`{"n":2}`), Schema: "invoice/1", Used: []ledger.ID{id.ID}}
	e.is("complete", e.Store.Complete(e.Context(), j.lease, res), nil)
	want := row{State: ledger.Done, Runs: 1, Fence: 2, Generation: 2, Cost: "0.03", Carrier: ledger.CarriedByLedger, Result: `{"n":2}`, Earlier: `{"n":1} `,
		Attempts: "received$0.01 received$0.02"}
	j.row(want)
	if c := j.verdict(ledger.Saved); string(c.Result.Body) != `{"n":2}` || c.Generation != 2 {
		e.Errorf("a redelivery is given %+v", c)
	}
	if r := j.reopen(j.order("t1")); r != (ledger.Reopened{State: ledger.Done, Generation: 2, Again: true}) {
		e.Errorf("the same order again: %+v", r)
	}
	j.row(want)
	j.reopen(j.order("t2"))
	want.State, want.Runs, want.Generation, want.Result, want.Earlier = ledger.Ready, 0, 3, "", `{"n":1} {"n":2} `
	j.row(want)
}

// Case 59: a permanent failure holds its key no longer than until a person orders the job anew.
func runAgainFailed(e *env) {
	j := e.failed("a")
	j.reopen(j.order("t"))
	j.row(row{State: ledger.Ready, Fence: 1, Generation: 2, Cost: "0.01", Carrier: ledger.CarriedByLedger, Attempts: "received$0.01*"})
	j.again()
	if k := j.look("extract"); k.Answer != nil {
		e.Errorf("the new generation is given %+v", k.Answer)
	}
	// A call that was closed as unknown is made again: that is what the order says.
	j = e.unknown("given up")
	j.resolve(ledger.GiveUp, e.read(j.key).Fence)
	j.reopen(j.order("t"))
	want := row{State: ledger.Ready, Fence: 2, Generation: 2, Reserved: "0.01", Carrier: ledger.CarriedByLedger, Attempts: "unknown"}
	j.row(want)
	j.again().send("extract")
}

func runAgainCancelled(e *env) {
	flagged := e.run("flagged")
	flagged.resolve(ledger.Cancel, 0)
	flagged.release(outcome(), ledger.Cancelled)
	for _, j := range []*job{e.cancelled("a"), flagged} {
		j.reopen(j.order("t"))
		if got := e.sound(j.key); got.State != ledger.Ready || got.Cancel || got.Error != nil || got.Runs != 0 {
			e.Errorf("reopened: %s", summary(got))
		}
		j.again()
		j.complete(j.send2("extract"))
	}
}

// send2 sends and captures.
func (j *job) send2(name string) ledger.AttemptID {
	j.Helper()
	id := j.send(name)
	j.settle(id, answer(cent))
	return id
}

func runAgainOnce(e *env) {
	same, other := e.finished("same"), e.finished("other")
	var happened, refused atomic.Int32
	at(8, func(i int) {
		r, err := e.Store.Reopen(e.Context(), same.order("t"))
		e.is("the same order", err, nil)
		if err == nil && !r.Again {
			happened.Add(1)
		}
		_, err = e.Store.Reopen(e.Context(), other.order(fmt.Sprint(i)))
		if errors.Is(err, ledger.ErrState) {
			refused.Add(1)
		} else {
			e.is("another order", err, nil)
		}
	})
	if happened.Load() != 1 || refused.Load() != 7 {
		e.Errorf("one order of eight times happened %d times; of eight orders %d were refused, want 7", happened.Load(), refused.Load())
	}
	for _, j := range []*job{same, other} {
		j.row(row{State: ledger.Ready, Fence: 1, Generation: 2, Cost: "0.01", Carrier: ledger.CarriedByLedger, Earlier: `{"n":1} `, Attempts: "received$0.01"})
	}
	// Of another job it is another token.
	third := e.finished("third")
	third.reopen(third.order("t"))
}

func lateGeneration(e *env) {
	j := e.unknown("a")
	id := j.first()
	j.resolve(ledger.GiveUp, e.read(j.key).Fence)
	j.reopen(j.order("t"))
	j.again()
	open := j.send("extract")
	if s := j.settle(id, answer(cent)); s != (ledger.Settled{Job: ledger.Running, Surplus: true}) {
		e.Errorf("settled %+v", s)
	}
	j.row(row{State: ledger.Running, Runs: 1, Fence: 3, Generation: 2, Open: 1, Cost: "0.01", Reserved: "0.01", Carrier: ledger.CarriedByLedger, Attempts: "received$0.01* sent"})
	if k := j.look("extract"); k.Answer != nil || k.Open != 1 {
		e.Errorf("the new generation is told %+v", k)
	}
	j.settle(open, answer(cent))
	j.complete(open)
	j.row(row{State: ledger.Done, Runs: 1, Fence: 3, Generation: 2, Cost: "0.02", Carrier: ledger.CarriedByLedger, Result: `{"n":1}`, Attempts: "received$0.01* received$0.01"})
}

func retry(e *env) {
	j := e.run("a")
	id := j.send2("extract")
	j.release(outcome(), ledger.Ready)
	j.req.MaxRuns = 1
	j.verdict(ledger.HasFailed)
	j.row(row{State: ledger.Failed, Runs: 1, Fence: 1, Cost: "0.01", Error: "exhausted", Attempts: "received$0.01"})
	if r := j.reopen(j.order("")); r != (ledger.Reopened{State: ledger.Ready, Generation: 1}) {
		e.Errorf("reopened %+v", r)
	}
	j.row(row{State: ledger.Ready, Fence: 1, Cost: "0.01", Carrier: ledger.CarriedByLedger, Attempts: "received$0.01"})
	if l := j.last(); l.From != ledger.Failed || l.Actor != "kim" || l.Reason != "J18r retry: the prompt was wrong" {
		e.Errorf("the history says %+v", l)
	}
	j.again()
	j.played("extract", id, answer(cent))
	j.complete(id)
	j.row(row{State: ledger.Done, Runs: 1, Fence: 2, Cost: "0.01", Carrier: ledger.CarriedByLedger, Result: `{"n":1}`, Attempts: "received$0.01"})

	// What is known to have no answer is sent again without leave.
	j = e.run("rejected")
	j.settle(j.send("extract"), no(ledger.Rejected))
	o := outcome()
	o.Fail = true
	j.release(o, ledger.Failed)
	j.reopen(j.order(""))
	j.again().send("extract")

	// A flag of before is no matter of the retry.
	j = e.run("flagged")
	j.send("extract")
	j.resolve(ledger.Cancel, 0)
	j.release(outcome(), ledger.Unknown)
	j.resolve(ledger.GiveUp, e.read(j.key).Fence)
	again := j.order("")
	again.DoublePay = true
	j.reopen(again)
	j.row(row{State: ledger.Ready, Fence: 2, Reserved: "0.01", Carrier: ledger.CarriedByLedger, Attempts: "unknown"})
	j.again().send("extract")

	// A poisonous answer gets as many tries as the first time.
	j = e.run("poison")
	j.send2("extract")
	poison := outcome()
	poison.Panicked, poison.MaxPanics = true, 1
	j.release(poison, ledger.Failed)
	j.reopen(j.order(""))
	j.again()
	poison.MaxPanics = 2
	j.release(poison, ledger.Ready)
}

func retryUnknown(e *env) {
	j := e.unknown("a")
	j.resolve(ledger.GiveUp, e.read(j.key).Fence)
	j.refused("a retry without leave", j.order(""), ledger.ErrDoublePay)
	o := j.order("")
	o.DoublePay = true
	j.reopen(o)
	j.row(row{State: ledger.Ready, Fence: 2, Reserved: "0.01", Carrier: ledger.CarriedByLedger, Attempts: "unknown"})
	if l := j.last(); !strings.Contains(l.Reason, "1 calls may be paid twice") {
		e.Errorf("the leave is not on record: %+v", l)
	}
	j.again().send("extract")

	// Two attempts of one call, of which one has an answer: nothing is sent again.
	j = e.run("answered")
	j.send("extract")
	j.send2("extract")
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Cost: "0.01", Reserved: "0.01", Attempts: "unknown received$0.01"})
	fail := outcome()
	fail.Fail = true
	j.release(fail, ledger.Failed)
	j.reopen(j.order(""))

	// An older generation's calls are no matter of this one.
	j = e.unknown("older")
	j.resolve(ledger.GiveUp, e.read(j.key).Fence)
	j.reopen(j.order("t"))
	j.again().release(fail, ledger.Failed)
	j.reopen(j.order(""))
}

func notReopened(e *env) {
	for name, j := range e.states() {
		ended, failed := name == "done" || name == "failed" || name == "cancelled", name == "failed"
		if !ended {
			j.refused("a new generation of a job that is "+name, j.order("t"), ledger.ErrState)
		}
		if !failed {
			o := j.order("")
			o.DoublePay = true
			j.refused("a retry of a job that is "+name, o, ledger.ErrState)
		}
	}
	j := e.run("never there")
	j.key.Text += "x"
	_, err := e.Store.Reopen(e.Context(), j.order("t"))
	e.is("an order for no job", err, ledger.ErrNotFound)
	e.absent(j.key)
}

func noInputLeft(e *env) {
	bare := e.bare("bare")
	fail := outcome()
	fail.Fail = true
	bare.release(fail, ledger.Failed)
	purged := e.failed("purged")
	e.AgeRow(purged.key, pastResult)
	e.purge(kept)
	for _, j := range []*job{bare, purged} {
		j.refused("a new generation without input", j.order("t"), ledger.ErrNoInput)
		j.refused("a retry without input", j.order(""), ledger.ErrNoInput)
	}
}

func badOrders(e *env) {
	j := e.failed("a")
	for what, spoil := range map[string]func(*ledger.Reopening){
		"no reason":             func(o *ledger.Reopening) { o.Reason = "" },
		"nobody":                func(o *ledger.Reopening) { o.Who = "" },
		"a token that is long":  func(o *ledger.Reopening) { o.Token = strings.Repeat("t", ledger.MaxToken+1) },
		"a token that is bytes": func(o *ledger.Reopening) { o.Token = "t\x00" },
	} {
		o := j.order("t")
		spoil(&o)
		j.refused("an order with "+what, o, ledger.ErrRequest)
	}
	o := j.order(strings.Repeat("t", ledger.MaxToken))
	o.Reason = "a stray \xff byte"
	j.reopen(o)
}

func purgeReopened(e *env) {
	anew, again := e.finished("anew"), e.failed("again")
	for _, j := range []*job{anew, again} {
		e.AgeRow(j.key, pastResult)
	}
	anew.reopen(anew.order("t"))
	again.reopen(again.order(""))
	before := []string{summary(e.read(anew.key)), summary(e.read(again.key))}
	e.purge(kept)
	for i, j := range []*job{anew, again} {
		if after := summary(e.sound(j.key)); after != before[i] {
			e.Errorf("the purge changed the row\nbefore:\n%s\nafter:\n%s", before[i], after)
		}
		if s := j.listed(); s == nil || string(s.Input) != string(j.req.Input) {
			e.Errorf("after the purge sweepers are told %+v", s)
		}
		j.again()
	}
	again.played("extract", again.first(), answer(cent))
	// Ended again and past all retention, it is forgotten, and so is its token.
	id := anew.send2("extract")
	anew.complete(id)
	e.AgeRow(anew.key, pastKey)
	e.purge(kept)
	e.purge(kept)
	e.absent(anew.key)
	anew.again()
	anew.complete()
	if r := anew.reopen(anew.order("t")); r.Again {
		e.Errorf("the token of a job that was forgotten is remembered: %+v", r)
	}
}
