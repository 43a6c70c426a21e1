package ledgertest

import (
	"fmt"
	"strings"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// stepCases: what follows a result.
var stepCases = []testCase{
	{"steps", "a mail that a result asks for is never sent, or not as it was asked for", steps},
	{"a step that is there already", "a mail is sent twice, or another one than was asked for first, or nobody can see that", keptSteps},
	{"steps of a commit that is refused", "a mail is sent for a result that is not there", refusedSteps},
	{"steps of the same commit again", "a commit whose reply was lost loses its mail, or sends it twice", repeatedSteps},
	{"steps and hooks", "result, the user's rows and steps are not committed together", hookedSteps},
	{"steps of many commits at once", "two jobs that ask for one mail send two, or wait for each other for ever", crossedSteps},
	{"steps that cannot be", "a step that nobody can run, or that hides its own job, is taken for asked", wrongSteps},
	{"steps of another generation", "a job that is run again on purpose sends its mail again, or loses sight of it", rerunSteps},
	{"a step goes its own way", "a held mail blocks a result, or cannot be decided about alone", heldStep},
	{"the remote name of a step", "nobody can find the message that was sent", remoteStep},
	{"purge of steps", "links to steps are kept for ever, or belong to the next job of the name", purgeSteppers},
	{"steps of many tenants", "a tenant sees, or keeps from being sent, the mail of another", tenantSteps},
}

// ask asks for the step of that name.
func ask(name string) ledger.StepAsk {
	return ledger.StepAsk{Key: ledger.Key{Tenant: tenant, Text: tenant + ":email:" + name}, Action: "email", InputHash: ledger.Hash{2},
		Input: []byte(`{"to":"` + name + `"}`), Origin: ledger.Origin{Trace: "00-" + name}}
}

func asking(steps ...ledger.StepAsk) ledger.Result {
	return ledger.Result{ID: ledger.NewID(), Body: []byte("1"), Steps: steps}
}

// completeAsking commits a result that asks for steps, which must not err.
func (j *job) completeAsking(steps ...ledger.StepAsk) ledger.Result {
	j.Helper()
	r := asking(steps...)
	if err := j.Store.Complete(j.Context(), j.lease, r); err != nil {
		j.Fatalf("complete: %v", err)
	}
	return r
}

// step is the job that a step is.
func (e *env) step(a ledger.StepAsk) *job {
	r := e.request("")
	r.Key, r.Action, r.InputHash, r.Input, r.Carrier, r.Receives = a.Key, a.Action, a.InputHash, a.Input, ledger.CarriedByLedger, 0
	return &job{env: e, key: a.Key, req: r}
}

// links prints the steps of a job, and who asked for it.
func (e *env) links(k ledger.Key) string {
	e.Helper()
	return linksText(e.read(k))
}

func linksText(j ledger.Job) string {
	var b strings.Builder
	for _, s := range j.Steps {
		fmt.Fprintf(&b, "%s %s gen %d %q other %v %q; ", s.Key, s.Action, s.Generation, s.State, s.Other, s.RemoteID)
	}
	for _, k := range j.AskedBy {
		fmt.Fprintf(&b, "by %s; ", k)
	}
	return b.String()
}

func (e *env) wantLinks(k ledger.Key, want string) {
	e.Helper()
	if got := e.links(k); got != want {
		e.Errorf("links of %s\n got %s\nwant %s", k, got, want)
	}
}

func steps(e *env) {
	j := e.run("a")
	b, a := ask("b"), ask("a")
	e.absent(a.Key)
	before := time.Now().Add(-time.Minute)
	j.completeAsking(b, a)
	j.row(row{State: ledger.Done, Runs: 1, Fence: 1, Result: "1"})
	e.wantLinks(j.key, `acme:email:b email gen 1 "ready" other false ""; acme:email:a email gen 1 "ready" other false ""; `)
	for _, s := range []ledger.StepAsk{a, b} {
		step := e.step(s)
		got := e.sound(s.Key)
		if got.State != ledger.Ready || got.Runs != 0 || got.Fence != 1 || got.Carrier != ledger.CarriedByLedger || got.Action != s.Action ||
			got.InputHash != s.InputHash || !got.InputKept || got.Origin != s.Origin || got.CreatedAt.Before(before) || got.NextAt.Before(before) || got.Receives != 0 {
			e.Errorf("the step is %+v", got)
		}
		if h := got.History; len(h) != 1 || h[0].To != ledger.Ready || h[0].Actor != e.worker.ID || h[0].Reason != "J10s step of "+j.key.Text {
			e.Errorf("its history is %+v", h)
		}
		e.wantLinks(s.Key, "by "+j.key.Text+"; ")
		step.verdictOther()
	}
	due, err := e.Store.Due(e.Context(), 10, long)
	if err != nil || len(due) != 2 {
		e.Fatalf("the ledger would run %+v (%v)", due, err)
	}
	for _, d := range due {
		want := a
		if d.Key == b.Key {
			want = b
		}
		if d.Key != want.Key || d.Action != want.Action || d.InputHash != want.InputHash || string(d.Input) != string(want.Input) || d.Origin != want.Origin {
			e.Errorf("the ledger would run %+v, want %+v", d, want)
		}
	}
	step := e.step(a)
	step.again().complete()
	step.req.Receives = 1
	step.verdict(ledger.Saved)
	e.wantLinks(j.key, `acme:email:b email gen 1 "ready" other false ""; acme:email:a email gen 1 "done" other false ""; `)
}

// verdictOther: a message that names the step and has another input is refused as for any job.
func (j *job) verdictOther() {
	j.Helper()
	r := j.req
	r.Token, r.InputHash = ledger.NewID(), ledger.Hash{9}
	if c := j.claim(r); c.Verdict != ledger.Mismatch {
		j.Errorf("claim with another input: %s", c.Verdict)
	}
}

func keptSteps(e *env) {
	for name, first := range map[string]func(*job){
		"ready":     func(j *job) { j.again().release(outcome(), ledger.Ready) },
		"running":   func(j *job) { j.again() },
		"unknown":   func(j *job) { j.again().send("do"); j.release(outcome(), ledger.Unknown) },
		"done":      func(j *job) { j.again().complete() },
		"failed":    func(j *job) { o := outcome(); o.Fail = true; j.again().release(o, ledger.Failed) },
		"cancelled": func(j *job) { j.again().release(outcome(), ledger.Ready); j.resolve(ledger.Cancel, j.lease.Fence) },
		"purged": func(j *job) {
			j.again().complete()
			e.AgeRow(j.key, pastResult)
			e.purge(kept)
		},
	} {
		a := ask(name)
		step := e.step(a)
		first(step)
		was := e.read(a.Key)
		state := was.State
		for i, other := range []func(*ledger.StepAsk){
			func(*ledger.StepAsk) {},
			func(a *ledger.StepAsk) { a.InputHash[0]++; a.Input = []byte(`{"to":"somebody else"}`) },
			func(a *ledger.StepAsk) { a.Action = "slack" },
		} {
			asked := a
			other(&asked)
			j := e.run(fmt.Sprint(name, i))
			step.unchanged("asking for a step that is "+name, func() { j.completeAsking(asked) })
			e.wantLinks(j.key, fmt.Sprintf("%s %s gen 1 %q other %v \"\"; ", a.Key, asked.Action, state, i > 0))
		}
		now := e.read(a.Key)
		if len(now.AskedBy) != 3 || now.InputHash != was.InputHash || now.Purged != was.Purged || now.InputKept != was.InputKept {
			e.Errorf("%s: was %+v, is %+v", name, was, now)
		}
	}
}

func refusedSteps(e *env) {
	j := e.run("open")
	id := j.send("extract")
	a := ask("a")
	e.is("complete with a call open", e.Store.Complete(e.Context(), j.lease, asking(a)), ledger.ErrOpen)
	e.absent(a.Key)
	e.wantLinks(j.key, "")
	j.settle(id, no(ledger.Rejected))
	j.completeAsking(a)
	e.wantLinks(j.key, `acme:email:a email gen 1 "ready" other false ""; `)
	for name, lose := range e.losing() {
		j := e.run(name)
		old := j.lease
		lose(j)
		a := ask(name)
		j.unchanged("a commit after it was "+name, func() {
			e.is("a commit after it was "+name, e.Store.Complete(e.Context(), old, asking(a)), ledger.ErrLost)
		})
		e.absent(a.Key)
		e.wantLinks(j.key, "")
	}
}

func repeatedSteps(e *env) {
	j := e.run("a")
	a := ask("a")
	r := j.completeAsking(a)
	again := func(what string) {
		e.Helper()
		j.unchanged(what, func() {
			e.step(a).unchanged(what, func() {
				e.is(what, e.Store.Complete(e.Context(), j.lease, r), nil)
				other := asking(ask("never"))
				e.is("another commit", e.Store.Complete(e.Context(), j.lease, other), ledger.ErrLost)
			})
		})
		e.absent(ask("never").Key)
	}
	again("the same commit")
	e.step(a).again()
	again("the same commit while the step runs")
	e.LapseRun(a.Key)
	e.step(a).again().complete()
	again("the same commit after the step")
	e.wantLinks(j.key, `acme:email:a email gen 1 "done" other false ""; `)
}

func hookedSteps(e *env) {
	j := e.run("a")
	a := ask("a")
	r := asking(a)
	r.Hooks = []ledger.Hook{e.Hook("one"), e.FailingHook(errBoom)}
	j.unchanged("a commit whose hook fails", func() { e.is("complete", e.Store.Complete(e.Context(), j.lease, r), ledger.ErrHook) })
	e.absent(a.Key)
	r.Hooks = r.Hooks[:1]
	e.is("complete", e.Store.Complete(e.Context(), j.lease, r), nil)
	e.is("complete", e.Store.Complete(e.Context(), j.lease, r), nil)
	if m := e.Marks(); fmt.Sprint(m) != "[one]" {
		e.Errorf("the user's work is there as %v", m)
	}
	j.row(row{State: ledger.Done, Runs: 1, Fence: 1, Result: "1"})
	e.wantLinks(j.key, `acme:email:a email gen 1 "ready" other false ""; `)
}

// crossedSteps: jobs that ask for the same steps in different orders, while their messages come too.
func crossedSteps(e *env) {
	const jobs, keys = 8, 6
	for round := range 5 {
		var all []*job
		for i := range jobs {
			all = append(all, e.run(fmt.Sprint(round, " ", i)))
		}
		name := func(n int) ledger.StepAsk { return ask(fmt.Sprint(round, " ", n%keys)) }
		at(jobs+2, func(i int) {
			if i >= jobs {
				for n := range keys {
					r := e.step(name(n + i)).req
					r.Token = ledger.NewID()
					_, err := e.Store.Claim(e.Context(), r)
					e.is("claim of a step", err, nil)
				}
				return
			}
			r := asking()
			for n := range keys / 2 {
				step := name(i + (1+4*(i%2))*n) // forward and backward
				r.Steps = append(r.Steps, step)
			}
			if i%3 == 0 {
				r.Hooks = []ledger.Hook{e.Hook("m")}
			}
			e.is("complete", e.Store.Complete(e.Context(), all[i].lease, r), nil)
		})
		asked := 0
		for n := range keys {
			got := e.sound(name(n).Key)
			asked += len(got.AskedBy)
			if got.Generation != 1 || len(got.History) == 0 || len(got.History) > 2 {
				e.Errorf("%s: %+v", got.Key, got.History)
			}
		}
		if asked != jobs*keys/2 {
			e.Errorf("%d links, want %d", asked, jobs*keys/2)
		}
	}
}

func wrongSteps(e *env) {
	j := e.run("a")
	for name, change := range map[string]func(*ledger.StepAsk){
		"no key":           func(a *ledger.StepAsk) { a.Key.Text = "" },
		"no action":        func(a *ledger.StepAsk) { a.Action = "" },
		"no input":         func(a *ledger.StepAsk) { a.Input = nil },
		"a large input":    func(a *ledger.StepAsk) { a.Input = make([]byte, ledger.InlineInput+1) },
		"a zero byte":      func(a *ledger.StepAsk) { a.Key.Text += "\x00" },
		"another tenant":   func(a *ledger.StepAsk) { a.Key.Tenant = "globex" },
		"its job's key":    func(a *ledger.StepAsk) { a.Key = j.key },
		"an action's zero": func(a *ledger.StepAsk) { a.Action = "e\x00" },
	} {
		a := ask("a")
		change(&a)
		j.unchanged(name, func() {
			e.is(name, e.Store.Complete(e.Context(), j.lease, asking(ask("b"), a)), ledger.ErrRequest)
		})
	}
	e.is("twice", e.Store.Complete(e.Context(), j.lease, asking(ask("b"), ask("b"))), ledger.ErrRequest)
	e.absent(ask("b").Key)
	largest := ask("largest")
	largest.Input = make([]byte, ledger.InlineInput-e.Room)
	j.completeAsking(largest)
	due, err := e.Store.Due(e.Context(), 10, long)
	if err != nil || len(due) != 1 || string(due[0].Input) != string(largest.Input) {
		e.Errorf("of the largest input the ledger would run %d (%v)", len(due), err)
	}
}

func rerunSteps(e *env) {
	j := e.run("a")
	one, two := ask("one"), ask("two")
	j.completeAsking(one, two)
	e.step(one).again().complete()
	if _, err := e.Store.Reopen(e.Context(), ledger.Reopening{Key: j.key, Token: "t", Reason: "why", Who: "kim"}); err != nil {
		e.Fatal(err)
	}
	e.wantLinks(j.key, `acme:email:one email gen 1 "done" other false ""; acme:email:two email gen 1 "ready" other false ""; `)
	j.again()
	one.InputHash[0]++
	e.step(one).unchanged("another generation", func() { j.completeAsking(ask("three"), one) })
	e.wantLinks(j.key, `acme:email:two email gen 1 "ready" other false ""; acme:email:three email gen 2 "ready" other false ""; `+
		`acme:email:one email gen 2 "done" other true ""; `)
}
