package ledgertest

import (
	"fmt"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// releaseCases: a run without a result leaves its job to be run again, or says why not.
var releaseCases = []testCase{
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
