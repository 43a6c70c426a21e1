package ledgertest

import (
	"errors"
	"fmt"

	"github.com/paidonce/paidonce/ledger"
)

// applyCases: the user's rows for an answer are committed once, while the job goes on.
var applyCases = []testCase{
	{"apply", "the user's rows for an answer are committed twice, or the mark without them", apply},
	{"apply without the lease", "a run that lost the job commits rows beside those of the run that has it", applyLost},
	{"apply by an owner whom nobody replaced", "work is thrown away although nobody else did it", applyLapsed},
	{"apply what is no answer", "rows are committed for a call that was not answered", applyNothing},
	{"apply the first of two answers", "two answers of one call are applied", applyFirst},
	{"apply fails", "half of the user's rows are committed, or the answer is lost with them", applyFails},
	{"apply in a later run", "a redelivery commits the user's rows again", applyLater},
	{"apply and orders to run again", "a retry commits the user's rows again, or a re-run on purpose does not", applyReopened},
	{"apply at once", "goroutines or workers commit the user's rows of one answer twice", applyAtOnce},
	{"apply against take over", "rows are committed by a run that lost the job, or by two", applyRace},
}

// answered is a running job with one captured answer.
func (e *env) answered(name string) (*job, ledger.ID) {
	e.Helper()
	j := e.run(name)
	id := j.send("extract")
	j.settle(id, answer(cent))
	return j, id.ID
}

// applies applies an answer with work that leaves mark, and checks what comes of it.
func (j *job) applies(attempt ledger.ID, mark string, want error) {
	j.Helper()
	j.is("apply", j.Store.Apply(j.Context(), j.lease, attempt, j.Hook(mark)), want)
}

// marked checks the user's rows.
func (e *env) marked(want ...string) {
	e.Helper()
	if m := sorted(e.Marks()); fmt.Sprint(m) != fmt.Sprint(sorted(want)) {
		e.Errorf("committed of the user's work: %v, want %v", m, want)
	}
}

func apply(e *env) {
	j, id := e.answered("a")
	other := j.send("other") // its outcome is not waited for
	before := e.read(j.key)
	j.applies(id, "once", nil)
	e.marked("once")
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Open: 1, Cost: "0.01", Reserved: "0.01", Attempts: "received$0.01+ sent"})
	last := e.read(j.key).History[len(before.History):]
	if len(last) != 1 || last[0].From != ledger.Running || last[0].To != ledger.Running || last[0].Actor != e.worker.ID || last[0].Reason != "J10a apply an answer, attempt 1" {
		e.Errorf("the history goes on with %+v", last)
	}
	j.unchanged("the same again", func() { j.applies(id, "twice", nil) })
	e.marked("once")
	j.settle(other, no(ledger.Rejected))
	j.complete(j.attempt(id))
	j.unchanged("after the result", func() { j.applies(id, "late", ledger.ErrLost) })
	e.marked("once")
	j.row(row{State: ledger.Done, Runs: 1, Fence: 1, Cost: "0.01", Result: `{"n":1}`, Attempts: "received$0.01+ rejected"})
}

func applyLost(e *env) {
	for name, lose := range e.losing() {
		j, id := e.answered(name)
		old := j.lease
		lose(j)
		leases := []ledger.Lease{old}
		if name == "unknown, adopted" { // not with the reconciler's lease either
			l := old
			l.Fence = e.read(j.key).Fence
			leases = append(leases, l)
		}
		for _, j.lease = range leases {
			j.unchanged("after it was "+name, func() { j.applies(id, name, ledger.ErrLost) })
		}
	}
	j, id := e.answered("of nobody")
	j.lease.Job += 1 << 40
	j.applies(id, "of nobody", ledger.ErrLost)
	e.marked()
}

func applyLapsed(e *env) {
	for name, lapse := range map[string]func(*job){
		"run deadline": func(j *job) { e.LapseRun(j.key); e.sweep() },
		"worker left":  func(j *job) { e.die(j.req.Worker); e.sweep() },
		"flagged":      func(j *job) { j.resolve(ledger.Cancel, 0) },
	} {
		j := e.startAs(e.join(name), name)
		id := j.send("extract")
		j.settle(id, answer(cent))
		lapse(j)
		j.applies(id.ID, name, nil)
		j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Cancel: name == "flagged", Cost: "0.01", Attempts: "received$0.01+"})
	}
	e.marked("run deadline", "worker left", "flagged")
}

func applyNothing(e *env) {
	j := e.run("a")
	open, refused := j.send("open"), j.send("refused")
	j.settle(refused, no(ledger.Rejected))
	closed := e.unknown("b")
	e.AgeUnknown(closed.key, long)
	e.AgeAttempts(closed.key, long)
	lapsed := closed.lease
	lapsed.Fence = 2
	e.is("replay", e.Store.Replay(e.Context(), lapsed, policy()), nil)
	closed.again()
	for _, c := range []struct {
		j    *job
		id   ledger.ID
		want error
	}{
		{j, open.ID, ledger.ErrState}, {j, refused.ID, ledger.ErrState}, {closed, closed.first().ID, ledger.ErrState},
		{j, ledger.NewID(), ledger.ErrNotFound}, {j, closed.first().ID, ledger.ErrNotFound},
	} {
		c.j.unchanged("a call without an answer", func() { c.j.applies(c.id, "nothing", c.want) })
	}
	e.marked()
}

// applyFirst: an answer of an earlier run comes after the gate of the next one and before its answer.
func applyFirst(e *env) {
	j := e.unknown("a")
	e.AgeUnknown(j.key, long)
	e.AgeAttempts(j.key, long)
	lapsed := j.lease
	lapsed.Fence = 2
	e.is("replay", e.Store.Replay(e.Context(), lapsed, policy()), nil)
	first, second := j.first(), j.again().send("extract")
	j.settle(first, answer(cent))
	j.settle(second, answer(cent))
	j.unchanged("the second answer", func() { j.applies(second.ID, "second", ledger.ErrLate) })
	j.applies(first.ID, "first", nil)
	j.unchanged("the second answer", func() { j.applies(second.ID, "second", ledger.ErrLate) })
	e.marked("first")
	j.row(row{State: ledger.Running, Runs: 1, Replays: 1, Fence: 3, Cost: "0.02", Error: "retry", Carrier: ledger.CarriedByLedger, Attempts: "received$0.01+ received$0.01"})
}

func applyFails(e *env) {
	j, id := e.answered("a")
	j.unchanged("work that fails", func() {
		err := e.Store.Apply(e.Context(), j.lease, id, e.FailingHook(errBoom))
		e.is("apply", err, ledger.ErrHook)
		if !errors.Is(err, errBoom) {
			e.Errorf("the user's own error is lost in %v", err)
		}
		for _, h := range []ledger.Hook{func() {}, "a string", nil, struct{}{}} {
			e.is(fmt.Sprintf("apply a foreign %T", h), e.Store.Apply(e.Context(), j.lease, id, h), ledger.ErrHook)
		}
	})
	e.marked()
	j.played("extract", j.attempt(id), answer(cent))
	j.applies(id, "then", nil)
	e.marked("then")
}

func applyLater(e *env) {
	j, id := e.answered("a")
	j.applies(id, "once", nil)
	e.LapseRun(j.key)
	j.again()
	j.played("extract", j.attempt(id), answer(cent))
	j.unchanged("in the next run", func() { j.applies(id, "twice", nil) })
	j, id = e.answered("b") // its run ends between the answer and the rows
	e.LapseRun(j.key)
	j.again().applies(id, "in the next run", nil)
	e.marked("once", "in the next run")
	j.row(row{State: ledger.Running, Runs: 2, Fence: 2, Cost: "0.01", Attempts: "received$0.01+"})
}

func applyReopened(e *env) {
	j, id := e.answered("a")
	j.applies(id, "once", nil)
	fail := outcome()
	fail.Fail = true
	j.release(fail, ledger.Failed)
	_, err := e.Store.Reopen(e.Context(), ledger.Reopening{Key: j.key, Reason: "mended", Who: "kim"})
	e.is("retry", err, nil)
	j.again().applies(id, "by a retry", nil)
	e.marked("once")
	j.release(fail, ledger.Failed)
	_, err = e.Store.Reopen(e.Context(), j.order("t"))
	e.is("rerun", err, nil)
	j.again()
	j.unchanged("the answer of before", func() { j.applies(id, "of before", ledger.ErrLate) })
	anew := j.send("extract")
	j.settle(anew, answer(cent))
	j.applies(anew.ID, "anew", nil)
	e.marked("once", "anew")
}

func applyAtOnce(e *env) {
	for n := range e.rounds(50) {
		j, id := e.answered(fmt.Sprint(n))
		mark := fmt.Sprintf("%02d", n)
		at(6, func(i int) { e.is("apply", e.Store.Apply(e.Context(), j.lease, id, e.Hook(mark)), nil) })
		if m := e.Marks(); len(m) != n+1 {
			e.Fatalf("after %d answers the user's work is there %d times", n+1, len(m))
		}
		j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Cost: "0.01", Attempts: "received$0.01+"})
	}
}

func applyRace(e *env) {
	for n := range e.rounds(200) {
		j, id := e.answered(fmt.Sprint(n))
		e.LapseRun(j.key)
		r := j.req
		r.Token = ledger.NewID()
		var applied, claimed error
		var c ledger.Claimed
		at(2, func(i int) {
			if i == n%2 {
				applied = e.Store.Apply(e.Context(), j.lease, id, e.Hook("m"))
				return
			}
			c, claimed = e.Store.Claim(e.Context(), r)
		})
		e.is("claim", claimed, nil)
		if applied != nil {
			e.is("apply", applied, ledger.ErrLost)
		}
		switch c.Verdict {
		case ledger.Run:
			j.lease = c.Lease
		case ledger.Busy: // with the rows
			e.is("apply", applied, nil)
			j.again()
		default:
			e.Fatalf("round %d: the claim got %s", n, c.Verdict)
		}
		j.applies(id, "m", nil)
		if m := e.Marks(); len(m) != n+1 {
			e.Fatalf("after %d jobs the user's work is there %d times", n+1, len(m))
		}
		j.row(row{State: ledger.Running, Runs: 2, Fence: 2, Cost: "0.01", Attempts: "received$0.01+"})
	}
}
