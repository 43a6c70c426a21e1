package ledgertest

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// finishCases: a run ends once, with its result and the user's work or without.
var finishCases = []testCase{
	{"complete", "a result is not committed as it was given", complete},
	{"complete with a call open", "a job is done while a call it paid for may still be answered", completeOpen},
	{"complete without the lease", "two runs commit a result", completeLost},
	{"complete by an owner whom nobody replaced", "work is thrown away although nobody else did it", completeLapsed},
	{"the same commit again", "a worker whose commit's reply was lost is told that it failed, or commits twice", sameCommit},
	{"hooks", "the user's rows are committed without the result, or the result without them", hooks},
	{"a failing hook", "half of a result is committed", failingHook},
	{"a foreign hook", "the user's work is left out in silence", foreignHook},
	{"commits at once", "one job has two results", commitsAtOnce},
	{"bodies of results", "a result is not saved as it was given", bodies},
}

func complete(e *env) {
	j := e.run("a")
	one, two := j.send("one"), j.send("two")
	j.settle(one, answer(cent))
	j.settle(two, answer(cent))
	before := time.Now().Add(-time.Minute)
	res := j.complete(one, one) // named twice: the other one is not used all the same
	j.row(row{State: ledger.Done, Runs: 1, Fence: 1, Cost: "0.02", Result: `{"n":1}`, Attempts: "received$0.01 received$0.01*"})
	got := e.read(j.key)
	if got.Result.ID != res.ID || got.Result.Schema != "invoice/1" || got.DoneAt.Before(before) || got.Purged {
		e.Errorf("result %+v, done at %v", got.Result, got.DoneAt)
	}
	last := got.History[len(got.History)-1]
	if last.From != ledger.Running || last.To != ledger.Done || last.Actor != e.worker.ID {
		e.Errorf("the history ends with %+v", last)
	}
	j = e.run("after a failure")
	j.release(outcome(), ledger.Ready)
	j.again().complete()
	j.row(row{State: ledger.Done, Runs: 2, Fence: 2, Result: `{"n":1}`})
}

func completeOpen(e *env) {
	j := e.run("a")
	id := j.send("extract")
	r := ledger.Result{ID: ledger.NewID(), Body: []byte("1"), Hooks: []ledger.Hook{e.Hook("early")}}
	j.unchanged("a commit with a call open", func() {
		e.is("complete", e.Store.Complete(e.Context(), j.lease, r), ledger.ErrOpen)
	})
	if m := e.Marks(); len(m) != 0 {
		e.Errorf("the refused commit left %v", m)
	}
	j.settle(id, no(ledger.Rejected))
	e.is("complete", e.Store.Complete(e.Context(), j.lease, r), nil)
	j.row(row{State: ledger.Done, Runs: 1, Fence: 1, Result: "1", Attempts: "rejected"})
}

// losing are the ways to lose a running job, each with a call of which the outcome is known.
func (e *env) losing() map[string]func(*job) {
	return map[string]func(*job){
		"taken over":       func(j *job) { e.LapseRun(j.key); j.again() },
		"given back":       func(j *job) { j.release(outcome(), ledger.Ready) },
		"given back, anew": func(j *job) { j.release(outcome(), ledger.Ready); j.again() },
		"failed":           func(j *job) { o := outcome(); o.Fail = true; j.release(o, ledger.Failed) },
		"done":             func(j *job) { j.complete() },
		"unknown":          func(j *job) { j.send("other"); e.LapseRun(j.key); e.sweep() },
		"unknown, adopted": func(j *job) { j.send("other"); e.LapseRun(j.key); e.sweep(); e.adopt(e.join(j.key.Text)) },
		"cancelled": func(j *job) {
			j.resolve(ledger.Cancel, 0)
			e.LapseRun(j.key)
			e.sweep()
		},
		"taken over, call open": func(j *job) { e.LapseRun(j.key); j.again().send("other") },
		"taken over, flagged":   func(j *job) { e.LapseRun(j.key); j.again().resolve(ledger.Cancel, 0) },
		"done, flagged":         func(j *job) { j.resolve(ledger.Cancel, 0); j.complete() },
	}
}

func completeLost(e *env) {
	for name, lose := range e.losing() {
		j := e.run(name)
		old := j.lease
		lose(j)
		leases := []ledger.Lease{old}
		if name == "unknown, adopted" { // not with the reconciler's lease either
			l := old
			l.Fence = e.read(j.key).Fence
			leases = append(leases, l)
		}
		for _, l := range leases {
			j.unchanged("a commit after it was "+name, func() {
				r := ledger.Result{ID: ledger.NewID(), Body: []byte("2"), Hooks: []ledger.Hook{e.Hook(name)}}
				e.is("a commit after it was "+name, e.Store.Complete(e.Context(), l, r), ledger.ErrLost)
			})
		}
	}
	if m := e.Marks(); len(m) != 0 {
		e.Errorf("commits that were refused left %v", m)
	}
}

func completeLapsed(e *env) {
	for name, lapse := range map[string]func(*job){
		"run deadline": func(j *job) { e.LapseRun(j.key); e.sweep() },
		"worker left":  func(j *job) { e.die(j.req.Worker); e.sweep() },
		"lease swept":  func(j *job) { e.LapseWorker(j.req.Worker); e.sweep() },
		"flagged":      func(j *job) { j.resolve(ledger.Cancel, 0) },
	} {
		j := e.startAs(e.join(name), name)
		lapse(j)
		j.complete()
		j.row(row{State: ledger.Done, Runs: 1, Fence: 1, Cancel: name == "flagged", Result: `{"n":1}`})
	}
}

func sameCommit(e *env) {
	j := e.run("a")
	r := ledger.Result{ID: ledger.NewID(), Body: []byte("1"), Hooks: []ledger.Hook{e.Hook("once")}}
	e.is("complete", e.Store.Complete(e.Context(), j.lease, r), nil)
	j.unchanged("the same commit again", func() {
		again := r
		again.Body = []byte("2")
		e.is("the same commit again", e.Store.Complete(e.Context(), j.lease, again), nil)
		other := r
		other.ID = ledger.NewID()
		e.is("another commit", e.Store.Complete(e.Context(), j.lease, other), ledger.ErrLost)
		stale := j.lease
		stale.Fence--
		e.is("the same commit under another fence", e.Store.Complete(e.Context(), stale, r), ledger.ErrLost)
	})
	if m := e.Marks(); fmt.Sprint(m) != "[once]" {
		e.Errorf("committed %v, want [once]", m)
	}
	j.row(row{State: ledger.Done, Runs: 1, Fence: 1, Result: "1"})
}

func hooks(e *env) {
	j := e.run("a")
	r := ledger.Result{ID: ledger.NewID(), Body: []byte("1"), Hooks: []ledger.Hook{e.Hook("one"), e.Hook("it's \"two\""), e.Hook("three")}}
	if m := e.Marks(); len(m) != 0 {
		e.Errorf("making a hook did its work: %v", m)
	}
	e.is("complete", e.Store.Complete(e.Context(), j.lease, r), nil)
	if m := sorted(e.Marks()); fmt.Sprint(m) != `[it's "two" one three]` {
		e.Errorf("committed %v", m)
	}
	j.row(row{State: ledger.Done, Runs: 1, Fence: 1, Result: "1"})
}

func failingHook(e *env) {
	j := e.run("a")
	id := j.send("extract")
	j.settle(id, answer(cent))
	j.send("unused")
	j.settle(j.attempt(e.read(j.key).Attempts[1].ID), answer(cent))
	j.unchanged("a commit whose hook fails", func() {
		err := e.Store.Complete(e.Context(), j.lease, ledger.Result{ID: ledger.NewID(), Body: []byte("1"), Used: []ledger.ID{id.ID},
			Hooks: []ledger.Hook{e.Hook("before"), e.FailingHook(errBoom), e.Hook("after")}})
		e.is("complete", err, ledger.ErrHook)
		if !errors.Is(err, errBoom) {
			e.Errorf("the user's own error is lost in %v", err)
		}
	})
	if m := e.Marks(); len(m) != 0 {
		e.Errorf("the failed commit left %v", m)
	}
	j.complete(id) // the run still owns the job
	j.row(row{State: ledger.Done, Runs: 1, Fence: 1, Cost: "0.02", Result: `{"n":1}`, Attempts: "received$0.01 received$0.01*"})
}

func foreignHook(e *env) {
	j := e.run("a")
	for _, h := range []ledger.Hook{func() {}, "a string", nil, struct{}{}} {
		j.unchanged("a commit with a foreign hook", func() {
			err := e.Store.Complete(e.Context(), j.lease, ledger.Result{ID: ledger.NewID(), Hooks: []ledger.Hook{e.Hook("before"), h}})
			e.is("complete", err, ledger.ErrHook)
		})
	}
	if m := e.Marks(); len(m) != 0 {
		e.Errorf("the refused commit left %v", m)
	}
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1})
}

func commitsAtOnce(e *env) {
	for range 10 {
		before := len(e.Marks())
		j := e.run(ledger.NewID().String())
		var won atomic.Int32
		at(6, func(i int) {
			err := e.Store.Complete(e.Context(), j.lease, ledger.Result{ID: ledger.NewID(), Body: []byte("1"), Hooks: []ledger.Hook{e.Hook("m")}})
			if err == nil {
				won.Add(1)
			} else {
				e.is("a commit that lost", err, ledger.ErrLost)
			}
		})
		if n := len(e.Marks()) - before; won.Load() != 1 || n != 1 {
			e.Errorf("%d of 6 commits succeeded, the user's work is there %d times", won.Load(), n)
		}
		j.row(row{State: ledger.Done, Runs: 1, Fence: 1, Result: "1"})
	}
}

func bodies(e *env) {
	for name, body := range map[string][]byte{"empty": {}, "none": nil, "json": []byte(`{"b":1, "a":2}`), "binary": []byte("\x00\xff")} {
		j := e.run(name)
		e.is("complete", e.Store.Complete(e.Context(), j.lease, ledger.Result{ID: ledger.NewID(), Body: body, Schema: "x"}), nil)
		if c := j.verdict(ledger.Saved); c.Result == nil || !bytes.Equal(c.Result.Body, body) {
			e.Errorf("%s: a body of %d bytes was not saved as it is", name, len(body))
		}
		if got := e.sound(j.key); !bytes.Equal(got.Result.Body, body) {
			e.Errorf("%s: a body of %d bytes does not read as it is", name, len(body))
		}
	}
}
