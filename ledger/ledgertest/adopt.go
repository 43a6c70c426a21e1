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
