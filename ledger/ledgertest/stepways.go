package ledgertest

import (
	"sync"

	"github.com/paidonce/paidonce/ledger"
)

// What becomes of steps, and of those who asked for them.

func heldStep(e *env) {
	j := e.run("a")
	a := ask("a")
	j.completeAsking(a)
	step := e.step(a)
	step.again()
	id := step.send("do")
	j.unchanged("a step that is held", func() {
		step.release(outcome(), ledger.Unknown)
		step.verdict(ledger.HeldUnknown)
	})
	e.wantLinks(j.key, `acme:email:a email gen 1 "unknown" other false ""; `)
	j.verdict(ledger.Saved)
	step.resolve(ledger.GiveUp, e.read(a.Key).Fence)
	e.wantLinks(j.key, `acme:email:a email gen 1 "failed" other false ""; `)
	_, err := e.Store.Reopen(e.Context(), ledger.Reopening{Key: a.Key, Reason: "why", Who: "kim"})
	e.is("retry", err, ledger.ErrDoublePay)
	e.settle(id, no(ledger.FailedAttempt))
	_, err = e.Store.Reopen(e.Context(), ledger.Reopening{Key: a.Key, Reason: "why", Who: "kim"})
	e.is("retry of what did not happen", err, nil)
	step.again().complete()
	e.wantLinks(j.key, `acme:email:a email gen 1 "done" other false ""; `)
	j.row(row{State: ledger.Done, Runs: 1, Fence: 1, Result: "1"})
}

func remoteStep(e *env) {
	j := e.run("a")
	a := ask("a")
	j.completeAsking(a)
	step := e.step(a)
	step.again()
	refused := no(ledger.Rejected)
	refused.ObjectID = "refused"
	e.settle(step.send("do"), refused)
	e.wantLinks(j.key, `acme:email:a email gen 1 "running" other false ""; `)
	ev := answer(0)
	ev.ObjectID = "17001.5"
	id := step.send("do")
	e.settle(id, ev)
	e.wantLinks(j.key, `acme:email:a email gen 1 "running" other false "17001.5"; `)
	step.complete(id)
	e.wantLinks(j.key, `acme:email:a email gen 1 "done" other false "17001.5"; `)
	e.AgeRow(a.Key, pastResult)
	e.purge(kept)
	e.wantLinks(j.key, `acme:email:a email gen 1 "done" other false "17001.5"; `)
}

func purgeSteppers(e *env) {
	one, two, old := e.run("one"), e.run("two"), ask("old")
	one.completeAsking(old, ask("young"))
	two.completeAsking(old)
	e.step(old).again().complete()
	e.step(ask("young")).again().complete()
	e.AgeRow(old.Key, pastKey)
	e.AgeRow(two.key, pastKey)
	if s := e.purge(kept); s.Keys != 2 {
		e.Errorf("purged %+v, want 2 keys", s)
	}
	e.absent(old.Key)
	e.wantLinks(one.key, `acme:email:old email gen 1 "" other false ""; acme:email:young email gen 1 "done" other false ""; `)
	two.again()
	e.wantLinks(two.key, "")
	two.completeAsking(old) // a forgotten key is that of a new step
	e.wantLinks(two.key, `acme:email:old email gen 1 "ready" other false ""; `)
	e.wantLinks(old.Key, "by "+one.key.Text+"; by "+two.key.Text+"; ")
}

func tenantSteps(e *env) {
	var wg sync.WaitGroup
	for _, t := range []string{"acme", "globex"} {
		r := e.request("a")
		r.Key.Tenant = t
		j := e.start(r)
		a := ask("a")
		a.Key.Tenant = t // and the same text
		wg.Go(func() { e.is("complete", e.Store.Complete(e.Context(), j.lease, asking(a)), nil) })
	}
	wg.Wait()
	for _, t := range []string{"acme", "globex"} {
		k := ask("a").Key
		k.Tenant = t
		got, err := e.Store.Job(e.Context(), k)
		if err != nil || got.State != ledger.Ready || len(got.AskedBy) != 1 || got.AskedBy[0].Tenant != t {
			e.Errorf("%s: %+v, %v", t, got, err)
		}
	}
}
