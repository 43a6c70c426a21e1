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
	{"give back", "a job is not run again when it should be", giveBack},
	{"fail", "a failed job runs again, or hides why it failed", fail},
	{"give back with a call open", "a job whose call may have been paid runs again, or fails", giveBackOpen},
	{"give back a flagged job", "a cancelled job runs again", giveBackFlagged},
	{"release without the lease", "a run that lost its job ends the run of another", releaseLost},
	{"the same release again", "a worker whose reply was lost cannot know what became of the job", sameRelease},
	{"poison", "an answer that makes the handler panic is tried for ever", poison},
	{"carry", "a delivery is acknowledged and nothing brings its job back", carry},
	{"replay within a run", "a fallback pays twice without leave, or never", replayWithin},
}

func complete(e *env) {
	j := e.run("a")
	one, two := j.send("one"), j.send("two")
	j.settle(one, answer(cent))
	j.settle(two, answer(cent))
	before := time.Now().Add(-time.Minute)
	res := j.complete(one)
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
	large := bytes.Repeat([]byte("\x00\xff0123456789abcd"), 1<<16) // a MiB
	for name, body := range map[string][]byte{"empty": {}, "none": nil, "json": []byte(`{"b":1, "a":2}`), "binary": []byte("\x00\xff"), "large": large} {
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

func giveBack(e *env) {
	j := e.run("a")
	id := j.send("extract")
	j.settle(id, answer(cent))
	if r := j.release(outcome(), ledger.Ready); r.Carrier != ledger.CarriedByBroker || r.RetryIn != 0 {
		e.Errorf("released %+v", r)
	}
	j.row(row{State: ledger.Ready, Runs: 1, Fence: 1, Cost: "0.01", Error: "retry", Attempts: "received$0.01"})
	if got := e.read(j.key).Error; *got != outcome().Error {
		e.Errorf("error %+v, want %+v", got, outcome().Error)
	}
	j.again()
	j.played("extract", id, answer(cent))
	if k := j.look("extract"); k.Late != 0 {
		e.Errorf("an answer in time counts as late: %+v", k)
	}
	e.LapseRun(j.key) // the deadline is not asked: nobody took over
	o := outcome()
	o.GiveBack, o.RetryIn, o.Error.Class = true, time.Hour, "drain"
	j.release(o, ledger.Ready)
	j.row(row{State: ledger.Ready, Runs: 1, Fence: 2, Cost: "0.01", Error: "drain", Attempts: "received$0.01"})
	j.verdict(ledger.NotDue)
}

func fail(e *env) {
	j := e.run("a")
	o := outcome()
	o.Fail, o.GiveBack, o.Error = true, true, ledger.JobError{Class: "permanent", Text: `it's "broken"`}
	if r := j.release(o, ledger.Failed); r.RetryIn != 0 {
		e.Errorf("released %+v", r)
	}
	j.row(row{State: ledger.Failed, Runs: 1, Fence: 1, Error: "permanent"})
	if got := e.read(j.key).Error; *got != o.Error {
		e.Errorf("error %+v, want %+v", got, o.Error)
	}
}

func giveBackOpen(e *env) {
	for name, change := range map[string]func(*ledger.Outcome){
		"as usual": func(*ledger.Outcome) {}, "permanently": func(o *ledger.Outcome) { o.Fail = true },
		"of a panic": func(o *ledger.Outcome) { o.Panicked, o.MaxPanics = true, 1 }, "in a drain": func(o *ledger.Outcome) { o.GiveBack = true },
		"later": func(o *ledger.Outcome) { o.RetryIn = time.Hour },
	} {
		for _, start := range []func(string) *job{e.run, func(s string) *job { return e.bare("bare " + s) }} {
			j := start(name)
			j.settle(j.send("one"), answer(cent))
			id := j.send("two")
			o := outcome()
			change(&o)
			r := j.release(o, ledger.Unknown)
			want := row{State: ledger.Unknown, Fence: 2, Open: 1, Cost: "0.01", Reserved: "0.01", Error: "retry", Attempts: "received$0.01 sent"}
			if e.read(j.key).InputKept {
				want.Carrier = ledger.CarriedByLedger
			}
			if r.Carrier != e.read(j.key).Carrier || r.RetryIn != 0 {
				e.Errorf("released %+v: it is to be looked at now", r)
			}
			j.row(want)
			j.verdict(ledger.HeldUnknown)
			j.settle(id, no(ledger.NotSent))
			want.State, want.Open, want.Reserved, want.Attempts = ledger.Ready, 0, "", "received$0.01 not_sent"
			j.row(want)
			j.req.MaxRuns = 1 // the run was given back
			j.again()
			if k := j.look("one"); name == "of a panic" && k.Answer.Panics != 1 {
				e.Errorf("%d panics are on record, want 1", k.Answer.Panics)
			}
		}
	}
}

func giveBackFlagged(e *env) {
	for _, failing := range []bool{false, true} {
		j := e.run(fmt.Sprint(failing))
		j.resolve(ledger.Cancel, 0)
		o := outcome()
		o.Fail, o.GiveBack, o.Error.Class = failing, true, "cancelled"
		j.release(o, ledger.Cancelled)
		j.row(row{State: ledger.Cancelled, Runs: 1, Fence: 1, Cancel: true, Error: "cancelled"})
	}
	j := e.run("open")
	id := j.send("extract")
	j.resolve(ledger.Cancel, 0)
	j.release(outcome(), ledger.Unknown)
	want := row{State: ledger.Unknown, Fence: 2, Open: 1, Reserved: "0.01", Cancel: true, Error: "retry", Carrier: ledger.CarriedByLedger, Attempts: "sent"}
	j.row(want)
	j.settle(id, answer(cent)) // the answer was paid for: kept
	want.State, want.Open, want.Reserved, want.Cost, want.Attempts = ledger.Ready, 0, "", "0.01", "received$0.01"
	j.row(want)
}

func releaseLost(e *env) {
	for name, lose := range e.losing() {
		j := e.run(name)
		old := j.lease
		lose(j)
		now := e.read(j.key)
		if now.Fence == old.Fence && now.State != ledger.Done {
			continue // its own release: see sameRelease
		}
		leases := []ledger.Lease{old}
		if name == "unknown, adopted" {
			l := old
			l.Fence = now.Fence
			leases = append(leases, l)
		}
		for _, l := range leases {
			for what, change := range map[string]func(*ledger.Outcome){
				"a release": func(*ledger.Outcome) {}, "a failure": func(o *ledger.Outcome) { o.Fail = true },
				"poison": func(o *ledger.Outcome) { o.Panicked, o.MaxPanics = true, 1 },
			} {
				o := outcome()
				change(&o)
				j.unchanged(what+" of a job that is "+name, func() {
					_, err := e.Store.Release(e.Context(), l, o)
					e.is(what+" of a job that is "+name, err, ledger.ErrLost)
				})
			}
		}
	}
}

func sameRelease(e *env) {
	for name, change := range map[string]func(*ledger.Outcome){
		"ready": func(*ledger.Outcome) {}, "later": func(o *ledger.Outcome) { o.RetryIn = time.Hour },
		"failed": func(o *ledger.Outcome) { o.Fail = true }, "flagged": func(*ledger.Outcome) {}, "poison": func(o *ledger.Outcome) { o.Panicked, o.MaxPanics = true, 1 },
	} {
		j := e.run(name)
		if name == "flagged" {
			j.resolve(ledger.Cancel, 0)
		}
		o := outcome()
		o.GiveBack = true
		change(&o)
		first, err := e.Store.Release(e.Context(), j.lease, o)
		e.is("release", err, nil)
		j.unchanged("the same release again", func() {
			again, err := e.Store.Release(e.Context(), j.lease, o)
			e.is("the same release again", err, nil)
			if again.State != first.State || again.Carrier != first.Carrier || (again.RetryIn > 0) != (first.RetryIn > 0) {
				e.Errorf("%s: released %+v, then %+v", name, first, again)
			}
		})
	}
}

func poison(e *env) {
	j := e.run("a")
	id := j.send("extract")
	j.settle(id, answer(cent))
	o := outcome()
	o.Panicked, o.MaxPanics, o.Error = true, 3, ledger.JobError{Class: "panic", Text: "index out of range"}
	for n := 1; n < 3; n++ {
		j.release(o, ledger.Ready)
		j.row(row{State: ledger.Ready, Runs: n, Fence: int64(n), Cost: "0.01", Error: "panic", Attempts: "received$0.01"})
		j.again()
		if k := j.look("extract"); k.Answer == nil || k.Answer.Panics != n {
			e.Errorf("after %d panics the answer says %+v", n, k.Answer)
		}
	}
	j.release(o, ledger.Failed)
	j.row(row{State: ledger.Failed, Runs: 3, Fence: 3, Cost: "0.01", Error: "poison", Attempts: "received$0.01"})
	if got := e.read(j.key).Error; got.Text != "index out of range" {
		e.Errorf("error %+v", got)
	}
	j = e.run("no limit")
	o.MaxPanics = 0
	for range 4 {
		j.release(o, ledger.Ready)
		j.again()
	}
	o.MaxPanics, o.Panicked = 1, false // a run that did not panic is not poison
	j.release(o, ledger.Ready)
	j.again()
	o.Panicked, o.Fail = true, true // a handler's own verdict keeps its class
	j.release(o, ledger.Failed)
	j.row(row{State: ledger.Failed, Runs: 6, Fence: 6, Error: "panic"})
}

func carry(e *env) {
	j := e.run("a")
	id := j.send("extract")
	e.is("carry", e.Store.Carry(e.Context(), j.lease), nil)
	want := row{State: ledger.Running, Runs: 1, Fence: 1, Open: 1, Reserved: "0.01", Carrier: ledger.CarriedByLedger, Attempts: "sent"}
	j.row(want)
	j.unchanged("carry again", func() { e.is("carry again", e.Store.Carry(e.Context(), j.lease), nil) })
	j.settle(id, answer(cent))
	j.release(outcome(), ledger.Ready)
	want.State, want.Open, want.Reserved, want.Cost, want.Error, want.Attempts = ledger.Ready, 0, "", "0.01", "retry", "received$0.01"
	j.row(want)

	bare := e.bare("bare")
	bare.unchanged("carry without the input", func() {
		e.is("carry without the input", e.Store.Carry(e.Context(), bare.lease), ledger.ErrNoInput)
	})
	for name, lose := range e.losing() {
		j := e.run(name)
		old := j.lease
		lose(j)
		j.unchanged("carry after it was "+name, func() {
			e.is("carry after it was "+name, e.Store.Carry(e.Context(), old), ledger.ErrLost)
		})
	}
}
