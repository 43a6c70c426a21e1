package ledgertest

import (
	"strings"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// claimCases: of everybody who wants to run a job, one is let.
var claimCases = []testCase{
	{"first claim", "a new job does not start as its row says", firstClaim},
	{"the same claim again", "a worker whose reply was lost waits for its own lease, or two workers run one job", sameClaimAgain},
	{"busy", "two workers run one job at once", busy},
	{"not due", "a job that should wait runs at once, or never", notDue},
	{"saved", "a redelivery of a finished job is not answered, or writes", saved},
	{"failed, cancelled and unknown are answers", "a job that ended, or is held, runs again", otherAnswers},
	{"mismatch", "another input under the same key runs, or gets the stored answer, or disturbs the job", mismatch},
	{"runs are limited", "a job that fails for ever runs for ever", runsLimited},
	{"deaths are limited", "a job that kills its worker walks through the whole fleet", deathsLimited},
	{"runs of a drain do not count", "a job is given up because workers were restarted", drainsUnlimited},
	{"take over", "a dead worker's job is never run again, or a live one's is", takeOver},
	{"no take over with a call open", "a call that may have been paid is made again by another worker", noTakeOverOpen},
	{"no take over of a cancelled job", "a cancelled job runs again after its worker died", noTakeOverCancelled},
	{"claims of a closed epoch", "a zombie burns the runs of jobs it can never finish", claimClosed},
	{"the input is kept", "the ledger runs a job from half an input, or without one", inputKept},
	{"the carrier never goes back", "a job that nobody's message brings back is waited for", carrierStays},
	{"the greatest count of receives", "people see a job as received less often than it was", receives},
	{"the budget of the latest claim", "a job stays held after its budget was raised", latestBudget},
	{"invalid claims", "a row exists that no run can own", invalidClaims},
}

func firstClaim(e *env) {
	r := e.request("a")
	e.absent(r.Key)
	before := time.Now()
	c := e.claim(r)
	l := c.Lease
	if c.Verdict != ledger.Run || c.Run != 1 || c.Generation != 1 || c.Carrier != ledger.CarriedByBroker || l.Key != r.Key || l.Job == 0 || l.Fence != 1 {
		e.Errorf("claimed %+v", c)
	}
	if l.Deadline.Before(before.Add(maxRun-time.Minute)) || l.Deadline.After(time.Now().Add(maxRun)) {
		e.Errorf("the run ends at %v, want %s from now at the latest", l.Deadline, maxRun)
	}
	j := &job{env: e, key: r.Key, req: r, lease: l}
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1})
	got := e.read(r.Key)
	if got.Owner != e.worker || got.Action != r.Action || got.InputHash != r.InputHash || !got.InputKept || got.Budget != r.Budget || got.ID != l.Job || got.Key != r.Key {
		e.Errorf("row %+v does not hold what was claimed: %+v", got, r)
	}
	if got.History[0].Actor != e.worker.ID {
		e.Errorf("the history says %q claimed it, want %q", got.History[0].Actor, e.worker.ID)
	}
}

// Case 36: whoever did not hear that its claim was granted is told so when it asks again.
func sameClaimAgain(e *env) {
	j := e.run("a")
	first := j.lease
	j.unchanged("the same claim again", func() {
		if c := j.claim(j.req); c.Verdict != ledger.Run || c.Run != 1 || c.Lease.Fence != first.Fence || c.Lease.Job != first.Job {
			e.Errorf("told %+v, want the same lease as %+v", c, first)
		}
	})
	other := j.req
	other.Token = ledger.NewID()
	other.Worker = e.join("w2")
	if c := j.claim(other); c.Verdict != ledger.Busy {
		e.Errorf("another claim of the running job: %s", c.Verdict)
	}
	lost := j.req
	j.release(outcome(), ledger.Ready)
	j.again()
	j.unchanged("a claim from before the run's end", func() {
		if c := j.claim(lost); c.Verdict != ledger.Busy {
			e.Errorf("a claim whose run is over: %s, want busy", c.Verdict)
		}
	})
	j.complete()
	if c := j.claim(j.req); c.Verdict != ledger.Saved {
		e.Errorf("the same claim after the job is done: %s", c.Verdict)
	}
	j.row(row{State: ledger.Done, Runs: 2, Fence: 2, Result: `{"n":1}`})
}

func busy(e *env) {
	r := e.request("a")
	r.MaxRuns = 1
	j := e.start(r)
	j.req.Worker = e.join("w2")
	j.unchanged("a busy claim", func() {
		if c := j.verdict(ledger.Busy); c.RetryIn <= 0 || c.RetryIn > ttl || c.Generation != 1 {
			e.Errorf("retry in %s, want the rest of the owner's lease", c.RetryIn)
		}
	})
	id := j.send("extract")
	j.unchanged("a busy claim with a call open", func() { j.verdict(ledger.Busy) })
	e.LapseWorker(e.worker)
	j.unchanged("a claim after the lease, before a sweep", func() {
		if c := j.verdict(ledger.Busy); c.RetryIn != 0 {
			e.Errorf("retry in %s, want at once: the lease is over", c.RetryIn)
		}
	})
	j.settle(id, answer(cent))
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Cost: "0.01", Attempts: "received$0.01"})
}

func notDue(e *env) {
	j := e.run("a")
	o := outcome()
	o.RetryIn = time.Hour
	if r := j.release(o, ledger.Ready); r.RetryIn < 59*time.Minute || r.RetryIn > time.Hour {
		e.Errorf("released: due in %s, want an hour", r.RetryIn)
	}
	j.unchanged("a claim before the job is due", func() {
		if c := j.verdict(ledger.NotDue); c.RetryIn < 59*time.Minute || c.RetryIn > time.Hour {
			e.Errorf("retry in %s, want an hour", c.RetryIn)
		}
	})
	early := j.req // with its runs spent it still waits
	early.MaxRuns, early.Token = 1, ledger.NewID()
	j.unchanged("a claim of an exhausted job before it is due", func() {
		if c := j.claim(early); c.Verdict != ledger.NotDue {
			e.Errorf("verdict %s", c.Verdict)
		}
	})
	e.MakeDue(j.key)
	j.again()
	if j.lease.Fence != 2 {
		e.Errorf("fence %d, want 2", j.lease.Fence)
	}
	j.row(row{State: ledger.Running, Runs: 2, Fence: 2, Error: "retry"})
}

func saved(e *env) {
	j := e.run("free")
	want := j.complete()
	j.unchanged("a redelivery", func() {
		c := j.verdict(ledger.Saved)
		if c.Result == nil || c.Result.ID != want.ID || string(c.Result.Body) != string(want.Body) || c.Result.Schema != want.Schema {
			e.Errorf("saved result %+v, want %+v", c.Result, want)
		}
		if c.Cost != nil {
			e.Errorf("a job without a known cost saved %s", c.Cost)
		}
	})
	j = e.run("paid")
	id := j.send("extract")
	j.settle(id, answer(cent))
	j.complete(id)
	if c := j.verdict(ledger.Saved); dollars(c.Cost) != "0.01" {
		e.Errorf("saved cost %q, want 0.01", dollars(c.Cost))
	}
	j.req.MaxRuns = 1 // limits of later claims do not matter to a finished job
	j.verdict(ledger.Saved)
	e.die(e.worker)
	j.verdict(ledger.Saved)
	j.row(row{State: ledger.Done, Runs: 1, Fence: 1, Cost: "0.01", Result: `{"n":1}`, Attempts: "received$0.01"})
	flagged := e.startAs(e.join("w2"), "flagged")
	flagged.resolve(ledger.Cancel, 0)
	flagged.complete()
	flagged.verdict(ledger.Saved)
	flagged.row(row{State: ledger.Done, Runs: 1, Fence: 1, Cancel: true, Result: `{"n":1}`})
}

// startAs claims a new job as another worker.
func (e *env) startAs(w ledger.WorkerID, name string) *job {
	e.Helper()
	r := e.request(name)
	r.Worker = w
	return e.start(r)
}

func otherAnswers(e *env) {
	failed := e.run("failed")
	o := outcome()
	o.Fail, o.Error = true, ledger.JobError{Class: "permanent", Text: "no such document"}
	failed.release(o, ledger.Failed)
	failed.unchanged("a claim of a failed job", func() {
		if c := failed.verdict(ledger.HasFailed); c.Error == nil || *c.Error != o.Error {
			e.Errorf("stored failure %+v, want %+v", c.Error, o.Error)
		}
	})
	cancelled := e.run("cancelled")
	cancelled.resolve(ledger.Cancel, 0)
	cancelled.release(outcome(), ledger.Cancelled)
	cancelled.unchanged("a claim of a cancelled job", func() { cancelled.verdict(ledger.IsCancelled) })
	unknown := e.unknown("unknown")
	unknown.req.MaxRuns = 1
	unknown.unchanged("a claim of an unknown job", func() {
		if c := unknown.verdict(ledger.HeldUnknown); c.RetryIn != 0 || c.Carrier != ledger.CarriedByLedger {
			e.Errorf("an unknown job: due in %s, carrier %s", c.RetryIn, c.Carrier)
		}
	})
	unknown.row(row{State: ledger.Unknown, Fence: 2, Open: 1, Reserved: "0.01", Carrier: ledger.CarriedByLedger, Error: "retry", Attempts: "sent"})
}

// unknown makes a job unknown by releasing it with a call open. Its run is given back.
func (e *env) unknown(name string) *job {
	e.Helper()
	j := e.run(name)
	j.send("extract")
	j.release(outcome(), ledger.Unknown)
	return j
}

// states makes a job in every state a row can be in, by what is special of it.
func (e *env) states() map[string]*job {
	e.Helper()
	js := map[string]*job{}
	for _, name := range []string{"running", "ready", "waiting", "done", "failed", "lapsed", "lapsed open", "lapsed flagged", "running open", "unknown", "cancelled", "flagged"} {
		js[name] = e.run(name)
	}
	later, fail := outcome(), outcome()
	later.RetryIn, fail.Fail = time.Hour, true
	js["ready"].release(outcome(), ledger.Ready)
	js["waiting"].release(later, ledger.Ready)
	js["done"].complete()
	js["failed"].release(fail, ledger.Failed)
	for _, name := range []string{"lapsed open", "running open", "unknown"} {
		js[name].send("extract")
	}
	js["lapsed flagged"].resolve(ledger.Cancel, 0)
	js["flagged"].resolve(ledger.Cancel, 0)
	for _, name := range []string{"lapsed", "lapsed open", "lapsed flagged"} {
		e.LapseRun(js[name].key)
	}
	js["unknown"].release(outcome(), ledger.Unknown)
	js["cancelled"].resolve(ledger.Cancel, 0)
	js["cancelled"].release(outcome(), ledger.Cancelled)
	return js
}

func mismatch(e *env) {
	for name, j := range e.states() {
		input, act := j.req, j.req
		input.InputHash[31]++
		act.Action = "other"
		for what, r := range map[string]ledger.Request{"input": input, "action": act} {
			for _, maxRuns := range []int{0, 1} {
				r.Token, r.MaxRuns = ledger.NewID(), maxRuns
				j.unchanged("another "+what+" for a job that is "+name, func() {
					c := j.claim(r)
					if c.Verdict != ledger.Mismatch || c.Stored == nil || *c.Stored != (ledger.Identity{Action: action, InputHash: j.req.InputHash}) || c.Result != nil {
						e.Errorf("another %s for a job that is %s: %+v, stored %+v", what, name, c, c.Stored)
					}
				})
			}
		}
	}
}

func runsLimited(e *env) {
	r := e.request("a")
	r.MaxRuns = 2
	j := e.start(r)
	j.release(outcome(), ledger.Ready)
	j.again()
	j.release(outcome(), ledger.Ready)
	c := j.verdict(ledger.HasFailed)
	if c.Error == nil || c.Error.Class != "exhausted" {
		e.Errorf("error %+v, want exhausted", c.Error)
	}
	j.verdict(ledger.HasFailed)
	j.row(row{State: ledger.Failed, Runs: 2, Fence: 2, Error: "exhausted"})
}

func deathsLimited(e *env) {
	r := e.request("a")
	r.MaxRuns = 2
	j := e.start(r)
	for i := range 2 {
		e.die(j.req.Worker)
		j.req.Worker = e.join("next")
		if i == 0 {
			j.again()
		}
	}
	if c := j.verdict(ledger.HasFailed); c.Error == nil || c.Error.Class != "exhausted" {
		e.Errorf("error %+v, want exhausted", c.Error)
	}
	j.row(row{State: ledger.Failed, Runs: 2, Fence: 3, Error: "exhausted"})
	_, err := e.Store.Release(e.Context(), j.lease, outcome())
	e.is("release by the run that died", err, ledger.ErrLost)

	open := e.startAs(j.req.Worker, "open")
	open.send("extract")
	open.req.MaxRuns = 1
	e.LapseRun(open.key)
	open.verdict(ledger.HeldUnknown) // not failed: the call may be answered yet
	open.row(row{State: ledger.Unknown, Runs: 1, Fence: 2, Open: 1, Reserved: "0.01", Carrier: ledger.CarriedByLedger, Attempts: "sent"})
}

func drainsUnlimited(e *env) {
	r := e.request("a")
	r.MaxRuns = 1
	j := e.start(r)
	o := outcome()
	o.GiveBack, o.Error.Class = true, "drain"
	for range 3 {
		j.release(o, ledger.Ready)
		j.again()
	}
	j.row(row{State: ledger.Running, Runs: 1, Fence: 4, Error: "drain"})
}

func takeOver(e *env) {
	for name, dies := range map[string]func(*job){
		"its worker left":              func(j *job) { e.die(j.req.Worker) },
		"its worker joined anew":       func(j *job) { e.join(j.req.Worker.ID) },
		"its run deadline is over":     func(j *job) { e.LapseRun(j.key) },
		"its lease was swept":          func(j *job) { e.LapseWorker(j.req.Worker); e.sweep() },
		"both deadlines are long over": func(j *job) { e.LapseRun(j.key); e.LapseWorker(j.req.Worker); e.sweep() },
	} {
		j := e.startAs(e.join("old "+name), name)
		dies(j)
		old := j.lease
		j.req.Worker = e.join("new " + name)
		j.again()
		if j.lease.Fence != 2 || e.read(j.key).Owner != j.req.Worker {
			e.Errorf("%s: taken over with fence %d by %v", name, j.lease.Fence, e.read(j.key).Owner)
		}
		j.row(row{State: ledger.Running, Runs: 2, Fence: 2})
		j.unchanged("what the dead run still tries", func() {
			e.is("send", e.Store.Send(e.Context(), old, call("extract")), ledger.ErrLost)
			e.is("complete", e.Store.Complete(e.Context(), old, ledger.Result{ID: ledger.NewID()}), ledger.ErrLost)
		})
	}
}

func noTakeOverOpen(e *env) {
	for name, start := range map[string]func(string) *job{"kept": e.run, "bare": e.bare} {
		j := start(name)
		id := j.send("extract")
		e.LapseRun(j.key)
		c := j.verdict(ledger.HeldUnknown)
		want := row{State: ledger.Unknown, Runs: 1, Fence: 2, Open: 1, Reserved: "0.01", Attempts: "sent"}
		if name == "kept" {
			want.Carrier = ledger.CarriedByLedger
		}
		if c.Carrier != e.read(j.key).Carrier || c.RetryIn != 0 {
			e.Errorf("the lapse was answered by carrier %s, retry in %s", c.Carrier, c.RetryIn)
		}
		j.row(want)
		j.unchanged("another claim", func() { j.verdict(ledger.HeldUnknown) })
		j.unchanged("a claim with the token of the dead run", func() {
			if c := j.claim(j.req); c.Verdict != ledger.HeldUnknown {
				e.Errorf("verdict %s", c.Verdict)
			}
		})
		j.settle(id, no(ledger.NotSent))
		want.State, want.Open, want.Reserved, want.Attempts = ledger.Ready, 0, "", "not_sent"
		j.row(want)
	}
}

func noTakeOverCancelled(e *env) {
	for _, maxRuns := range []int{0, 1} {
		name := strings.Repeat("x", maxRuns+1)
		r := e.request(name)
		r.MaxRuns = maxRuns
		j := e.start(r)
		j.resolve(ledger.Cancel, 0)
		j.unchanged("a claim of a flagged job that lives", func() { j.verdict(ledger.Busy) })
		e.LapseRun(j.key)
		j.verdict(ledger.IsCancelled)
		j.row(row{State: ledger.Cancelled, Runs: 1, Fence: 2, Cancel: true})
	}
	j := e.run("open")
	j.send("extract")
	j.resolve(ledger.Cancel, 0)
	e.LapseRun(j.key)
	j.verdict(ledger.HeldUnknown)
	j.row(row{State: ledger.Unknown, Runs: 1, Fence: 2, Open: 1, Reserved: "0.01", Cancel: true, Carrier: ledger.CarriedByLedger, Attempts: "sent"})
}

func claimClosed(e *env) {
	ready := e.run("ready")
	ready.release(outcome(), ledger.Ready)
	dead, lapsed := e.run("dead"), e.run("lapsed")
	e.LapseRun(lapsed.key)
	fresh := e.request("new")
	e.die(e.worker)
	refused := func(what string, r ledger.Request) {
		e.Helper()
		r.Token = ledger.NewID()
		_, err := e.Store.Claim(e.Context(), r)
		e.is(what, err, ledger.ErrClosed)
	}
	refused("a new job", fresh)
	e.absent(fresh.Key)
	for _, j := range []*job{ready, dead, lapsed} {
		j.unchanged("a claim of a closed epoch", func() { refused("claim", j.req) })
	}
	e.join(e.worker.ID)
	refused("claim under an older epoch", fresh)
	fresh.Worker = ledger.WorkerID{ID: "nobody", Epoch: 1}
	refused("claim of a worker that never joined", fresh)
	e.absent(fresh.Key)
}
