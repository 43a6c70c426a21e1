package ledgertest

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

func adopt(e *env) {
	e.states()["unknown"].resolve(ledger.Cancel, 0)
	j, two := e.bare("one"), e.run("two")
	ids := []ledger.AttemptID{j.send("first"), j.send("second")}
	j.settle(ids[0], answer(cent))
	j.release(outcome(), ledger.Unknown)
	two.send("extract")
	two.release(outcome(), ledger.Unknown)
	e.AgeUnknown(j.key, long)
	w := e.join("reconciler")
	got, err := e.Store.Adopt(e.Context(), adoption(w, 1))
	if err != nil || len(got) != 1 {
		e.Fatalf("adopt one: %+v %v", got, err)
	}
	got = append(got, e.adopt(w)...)
	if len(got) != 2 {
		e.Fatalf("adopted %+v, want the two unknown jobs", got)
	}
	if got[0].Lease.Key != j.key {
		got[0], got[1] = got[1], got[0]
	}
	a := got[0]
	if a.Lease.Key != j.key || a.Lease.Job != j.lease.Job || a.Lease.Fence != 3 || !a.Lease.Deadline.IsZero() || a.Action != action ||
		a.InputHash != j.req.InputHash || a.Input != nil || a.Replays != 0 || a.Since < long || a.Since > long+time.Hour {
		e.Errorf("adopted %+v", a)
	}
	if string(got[1].Input) != string(two.req.Input) || got[1].Since > time.Hour {
		e.Errorf("adopted %+v", got[1])
	}
	if len(a.Open) != 1 || a.Open[0].ID != ids[1].ID || a.Open[0].N != 2 || a.Open[0].Call.Name != "second" || a.Open[0].Timeout != timeout || a.Open[0].SentAt.IsZero() {
		e.Errorf("open calls %+v", a.Open)
	}
	if d := time.Since(a.Now); d > time.Hour || d < -time.Hour {
		e.Errorf("the ledger's clock says %v", a.Now)
	}
	want := row{State: ledger.Unknown, Fence: 3, Open: 1, Cost: "0.01", Reserved: "0.01", Error: "retry", Adopted: true, Attempts: "received$0.01 sent"}
	j.row(want)
	if owner := e.read(j.key).Owner; owner != w {
		e.Errorf("owned by %v, want %v", owner, w)
	}
	// With its lease a reconciler looks, settles and resolves; it runs nothing.
	j.lease = a.Lease
	j.played("first", ids[0], answer(cent))
	j.unchanged("a claim beside the reconciler", func() { j.verdict(ledger.HeldUnknown) })
	j.settle(ids[1], answer(cent))
	j.row(row{State: ledger.Ready, Fence: 3, Cost: "0.02", Error: "retry", Attempts: "received$0.01 received$0.01"})
}

func adoptDue(e *env) {
	j := e.unknown("a")
	one, two := e.join("one"), e.join("two")
	count := func(what string, w ledger.WorkerID, want int) {
		e.Helper()
		if got := e.adopt(w); len(got) != want {
			e.Errorf("%s: adopted %d, want %d", what, len(got), want)
		}
	}
	j.later()
	count("before it is due", one, 0)
	e.MakeDue(j.key)
	count("once it is due", one, 1)
	j.unchanged("adopting beside a live reconciler", func() {
		count("another one", two, 0)
		count("itself again", one, 0)
	})
	e.LapseWorker(one) // dead: its lease is over, closed or not
	count("after the reconciler's lease", two, 1)
	e.die(two)
	two = e.join("two")
	count("after the reconciler left", two, 1)
	e.join("two")
	_, err := e.Store.Adopt(e.Context(), adoption(two, 10))
	e.is("adopt under a closed epoch", err, ledger.ErrClosed)
	count("after the reconciler joined anew", e.worker, 1)
	j.row(row{State: ledger.Unknown, Fence: 6, Open: 1, Reserved: "0.01", Error: "retry", Carrier: ledger.CarriedByLedger, Adopted: true, Attempts: "sent"})
	if got, err := e.Store.Adopt(e.Context(), adoption(e.join("three"), 0)); err != nil || len(got) != 0 {
		e.Errorf("adopt none: %+v %v", got, err)
	}
}

func adoptAgain(e *env) {
	js := []*job{e.unknown("a"), e.unknown("b"), e.unknown("c"), e.unknown("d")}
	one, two := adoption(e.join("one"), 2), adoption(e.join("two"), 1)
	told := func(what string, a ledger.Adoption, want map[ledger.Key]int64) {
		e.Helper()
		as, err := e.Store.Adopt(e.Context(), a)
		e.is(what, err, nil)
		got := map[ledger.Key]int64{}
		for _, a := range as {
			got[a.Lease.Key] = a.Lease.Fence
			if len(a.Open) != 1 || a.Action != action || len(a.Input) == 0 || a.Now.IsZero() {
				e.Errorf("%s: told of %+v", what, a)
			}
		}
		if len(as) != len(want) || !maps.Equal(got, want) {
			e.Errorf("%s: told of %v, want %v", what, got, want)
		}
	}
	as, err := e.Store.Adopt(e.Context(), one)
	if err != nil || len(as) != 2 {
		e.Fatalf("adopt two: %+v %v", as, err)
	}
	kept, left := as[0].Lease, as[1].Lease
	both := map[ledger.Key]int64{kept.Key: kept.Fence, left.Key: left.Fence}
	whole := func() string {
		var s strings.Builder
		for _, j := range js {
			s.WriteString(j.dump(j.key))
		}
		return s.String()
	}
	before := whole()
	told("the same again", one, both)
	one.Max = 1
	told("the same again, for fewer", one, both)
	told("another worker with the token", ledger.Adoption{Worker: two.Worker, Token: one.Token}, nil)
	told("the worker with another token", ledger.Adoption{Worker: one.Worker, Token: ledger.NewID()}, nil)
	if after := whole(); after != before {
		e.Errorf("repeated adoptions changed rows\nbefore:\n%s\nafter:\n%s", before, after)
	}

	// What was put back, or has ended, is told no more, and makes room for others.
	v := js[0].resolution(ledger.Keep, kept.Fence)
	v.Key, v.NextIn = kept.Key, time.Hour
	_, err = e.Store.Resolve(e.Context(), v)
	e.is("keep", err, nil)
	told("with one put back", one, map[ledger.Key]int64{left.Key: left.Fence})
	other, err := e.Store.Adopt(e.Context(), two)
	if err != nil || len(other) != 1 {
		e.Fatalf("adopt one: %+v %v", other, err)
	}
	third := map[ledger.Key]int64{left.Key: left.Fence}
	for _, j := range js {
		if j.key != kept.Key && j.key != left.Key && j.key != other[0].Lease.Key {
			third[j.key] = 3
		}
	}
	one.Max = 2
	told("filled up", one, third)
	told("and again", one, third)
	told("the other one", two, map[ledger.Key]int64{other[0].Lease.Key: other[0].Lease.Fence})

	// Nobody is told of what a closed epoch had.
	again := ledger.Adoption{Worker: e.join("one"), Token: one.Token}
	_, err = e.Store.Adopt(e.Context(), one)
	e.is("under a closed epoch", err, ledger.ErrClosed)
	told("the same token in a new epoch", again, nil)
	for _, bad := range []ledger.Adoption{{Worker: again.Worker, Max: 1}, {Token: again.Token, Max: 1}} {
		_, err = e.Store.Adopt(e.Context(), bad)
		e.is(fmt.Sprintf("adopt as %+v", bad), err, ledger.ErrRequest)
	}
}

// looks takes a job for many looks, by two reconcilers in turn: its history says how many
// there were, and of the last one when, by whom and with what answer.
func looks(e *env) {
	j := e.run("a")
	first, second := j.send("one"), j.send("two")
	j.release(outcome(), ledger.Unknown)
	lines := len(e.read(j.key).History)
	reconcilers := []ledger.WorkerID{e.join("even"), e.join("odd")}
	take := func(n int) {
		e.Helper()
		as := e.adopt(reconcilers[n%2])
		if len(as) != 1 {
			e.Fatalf("look %d: adopted %+v", n, as)
		}
		j.lease = as[0].Lease
	}
	keep := func(n int) {
		e.Helper()
		v := j.resolution(ledger.Keep, j.lease.Fence)
		v.Who, v.Reason = reconcilers[n%2].ID, fmt.Sprint("answer ", n)
		if _, err := e.Store.Resolve(e.Context(), v); err != nil {
			e.Fatalf("look %d: keep: %v", n, err)
		}
	}
	last := func(more, looks int, actor, reason string) {
		e.Helper()
		got := e.read(j.key)
		e.sound(j.key)
		if len(got.History) != lines+more {
			e.Fatalf("the history has %d lines, want %d more than %d: %+v", len(got.History), more, lines, got.History)
		}
		ev := got.History[len(got.History)-1]
		if ev.Looks != looks || ev.Actor != actor || ev.Reason != reason {
			e.Errorf("the history ends with %+v, want look %d by %s: %s", ev, looks, actor, reason)
		}
		if got.Owner.ID == "" && !ev.At.Equal(got.UpdatedAt) {
			e.Errorf("the last look ended at %v, the line says %v", got.UpdatedAt, ev.At)
		}
	}
	many := e.rounds(200)
	for n := range many {
		take(n)
		switch n {
		case 0:
			last(1, 1, "even", "J14 adopt")
		case 1:
			last(1, 2, "even", "kept: answer 0") // of this look nothing is known yet
		}
		keep(n)
	}
	last(1, many, "odd", fmt.Sprint("kept: answer ", many-1))
	j.row(row{State: ledger.Unknown, Fence: int64(2 + many), Open: 2, Reserved: "0.02", Error: "retry", Carrier: ledger.CarriedByLedger, Attempts: "sent sent"})

	// News has a line of its own, and so have the end of its look and the looks after it.
	take(many)
	last(1, many+1, "odd", fmt.Sprint("kept: answer ", many-1))
	e.settle(first, no(ledger.NotSent))
	last(2, 0, "w1", "J9 definitely no answer, attempt 1 not_sent")
	keep(many)
	last(3, 0, "even", fmt.Sprint("kept: answer ", many))
	take(1)
	last(4, 1, "odd", "J14 adopt")
	e.LapseWorker(reconcilers[1])
	take(0) // the one before came to no end
	last(4, 2, "odd", "J14 adopt")
	keep(0)
	last(4, 2, "even", "kept: answer 0")
	e.settle(second, no(ledger.NotSent))
	last(5, 0, "w1", "J9 definitely no answer, attempt 2 not_sent")
}
