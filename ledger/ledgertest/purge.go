package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// purgeCases: what retention forgets, and what it must leave.
var purgeCases = []testCase{
	{"purge of results", "results are kept for ever, or a redelivery of a job whose result is gone is paid again", purgeResults},
	{"purge leaves open jobs", "a job that waits for evidence loses its input or its answers, and is stuck or paid again", purgeOpen},
	{"purge leaves what ended lately", "a job that took long loses its result before anybody read it", purgeLately},
	{"purge of keys", "keys are kept for ever, or what is left of one mixes with the next job of its name", purgeKeys},
	{"purge leaves young keys", "a duplicate is paid again although its key is not past its retention", purgeYoungKeys},
	{"purge and late answers", "an answer that comes after the purge is refused, or lost", purgeLateAnswers},
	{"purge and a run that goes on", "a worker that looks for an answer that was purged meanwhile crashes, or sends its call again", purgeLooks},
	{"purge in steps", "a purge cannot be stopped, or takes more at once than it should", purgeSteps},
	{"purge that makes no sense", "a mistake in the configuration forgets everything", purgeInvalid},
	{"purge against claims", "a key that is forgotten while its message comes runs twice, or never again", purgeRace},
}

const day = 24 * time.Hour

// kept is the retention of the cases.
var kept = ledger.Retention{Result: 30 * day, Key: 400 * day}

// The ages of the cases. Stores that drop whole partitions may be a month late.
const (
	pastResult = 60 * day
	pastKey    = 500 * day
)

// purge purges to the end and adds the steps up.
func (e *env) purge(r ledger.Retention) ledger.PurgeStep {
	e.Helper()
	var all ledger.PurgeStep
	for s, err := range e.Store.Purge(e.Context(), r) {
		if err != nil {
			e.Fatalf("purge: %v", err)
		}
		if s.InUse {
			e.Errorf("purge: nobody else is there, and a step was in use: %+v", s)
		}
		all.Rows, all.Keys, all.Moved = all.Rows+s.Rows, all.Keys+s.Keys, all.Moved+s.Moved
	}
	return all
}

// finished makes a job with a paid answer that is done.
func (e *env) finished(name string) *job {
	e.Helper()
	j := e.run(name)
	id := j.send("extract")
	j.settle(id, answer(cent))
	j.complete(id)
	return j
}

// failed makes a job with a paid answer that failed.
func (e *env) failed(name string) *job {
	e.Helper()
	j := e.run(name)
	j.settle(j.send("extract"), answer(cent))
	o := outcome()
	o.Fail = true
	j.release(o, ledger.Failed)
	return j
}

// cancelled makes a job that a person cancelled.
func (e *env) cancelled(name string) *job {
	e.Helper()
	j := e.run(name)
	j.release(outcome(), ledger.Ready)
	j.resolve(ledger.Cancel, j.lease.Fence)
	return j
}

func purgeResults(e *env) {
	old, young, failed, cancelled := e.finished("old"), e.finished("young"), e.failed("failed"), e.cancelled("cancelled")
	result := e.read(old.key).Result
	var before []string
	for _, j := range []*job{old, failed, cancelled} {
		e.AgeRow(j.key, pastResult)
		full := e.sound(j.key)
		full.Result = nil
		for i := range full.Attempts {
			if !full.Attempts[i].AnswerKept {
				e.Errorf("%s: an answer is gone before the purge", j.key)
			}
			full.Attempts[i].AnswerKept = false
		}
		before = append(before, summary(full))
	}
	if c := old.verdict(ledger.Saved); c.Result == nil || string(c.Result.Body) != string(result.Body) {
		e.Errorf("before the purge the result is %+v, want %+v", c.Result, result)
	}
	if s := e.purge(kept); s.Keys != 0 {
		e.Errorf("purged %+v, and no key is past its retention", s)
	}
	for i, j := range []*job{old, failed, cancelled} {
		if after := summary(e.sound(j.key)); after != before[i] {
			e.Errorf("the purge changed the row\nbefore:\n%s\nafter:\n%s", before[i], after)
		}
	}
	if j := e.read(old.key); !j.Purged || j.Result != nil || j.DoneAt.IsZero() {
		e.Errorf("purged %v with the result %+v, done at %v", j.Purged, j.Result, j.DoneAt)
	}
	if c := old.verdict(ledger.Purged); c.Result != nil || c.Generation != 1 || dollars(c.Cost) != "0.01" {
		e.Errorf("a claim of the purged job: %+v", c)
	}
	other := old.req
	other.InputHash[0]++
	if c := e.claim(other); c.Verdict != ledger.Mismatch {
		e.Errorf("the purged key with another input: %s, want mismatch", c.Verdict)
	}
	if c := failed.verdict(ledger.HasFailed); c.Error == nil || c.Error.Class != "retry" {
		e.Errorf("the failure is %+v", c.Error)
	}
	cancelled.verdict(ledger.IsCancelled)
	young.verdict(ledger.Saved)
	if s := e.purge(kept); s != (ledger.PurgeStep{}) {
		e.Errorf("a second purge found %+v", s)
	}
}

// purgeOpen: a job that has not ended keeps all it has, and can end as ever.
func purgeOpen(e *env) {
	ready := e.run("ready")
	ready.settle(ready.send("extract"), answer(cent))
	ready.release(outcome(), ledger.Ready)
	running := e.run("running")
	id := running.send("extract")
	running.settle(id, answer(cent))
	unknown := e.run("unknown")
	lost := unknown.send("extract")
	unknown.release(outcome(), ledger.Unknown)
	all := []*job{ready, running, unknown}
	var before []string
	for _, j := range all {
		e.AgeRow(j.key, pastKey)
		before = append(before, e.dump(j.key))
	}
	e.purge(kept)
	e.purge(ledger.Retention{Result: time.Second, Key: time.Second, Batch: 1})
	for i, j := range all {
		if after := e.dump(j.key); after != before[i] {
			e.Errorf("the purge changed the row\nbefore:\n%s\nafter:\n%s", before[i], after)
		}
	}
	running.played("extract", id, answer(cent))
	running.complete(id)
	running.verdict(ledger.Saved)
	due, err := e.Store.Due(e.Context(), 10, long)
	if err != nil || len(due) != 1 || due[0].Key != ready.key || string(due[0].Input) != string(ready.req.Input) {
		e.Errorf("the ledger would run %+v (%v)", due, err)
	}
	e.MakeDue(unknown.key)
	adopted := e.adopt(e.join("w2"))
	if len(adopted) != 1 || string(adopted[0].Input) != string(unknown.req.Input) || len(adopted[0].Open) != 1 {
		e.Fatalf("adopted %+v", adopted)
	}
	unknown.settle(lost, answer(cent))
	unknown.again()
	unknown.played("extract", lost, answer(cent))
	unknown.complete(lost)
	unknown.verdict(ledger.Saved)
}

// purgeLately: retention counts from the end, not from the beginning.
func purgeLately(e *env) {
	done, failed := e.run("done"), e.run("failed")
	for _, j := range []*job{done, failed} {
		j.settle(j.send("extract"), answer(cent))
		e.AgeRow(j.key, pastKey)
	}
	done.complete()
	o := outcome()
	o.Fail = true
	failed.release(o, ledger.Failed)
	before := e.dump(done.key) + e.dump(failed.key)
	e.purge(kept)
	e.purge(kept)
	if after := e.dump(done.key) + e.dump(failed.key); after != before {
		e.Errorf("the purge changed the rows\nbefore:\n%s\nafter:\n%s", before, after)
	}
	if c := done.verdict(ledger.Saved); c.Result == nil || string(c.Result.Body) != `{"n":1}` {
		e.Errorf("the result is %+v", c.Result)
	}
	failed.verdict(ledger.HasFailed)
}

// purgeKeys: whatever there was of a key is gone, and the next message makes a job of its own.
func purgeKeys(e *env) {
	foreign := e.request("done")
	foreign.Key.Tenant, foreign.Key.Text = "globex", "globex:"+action+":done"
	jobs := []*job{e.finished("done"), e.failed("failed"), e.cancelled("cancelled"), e.start(foreign)}
	jobs[3].complete()
	lost := jobs[1].attempt(e.read(jobs[1].key).Attempts[0].ID)
	var old []ledger.Lease
	for _, j := range jobs {
		e.AgeRow(j.key, pastKey)
		old = append(old, j.lease)
	}
	if s := e.purge(kept); s.Keys != len(jobs) {
		e.Errorf("purged %+v, want %d keys", s, len(jobs))
	}
	for _, j := range jobs {
		e.absent(j.key)
	}
	_, err := e.Store.Settle(e.Context(), lost, answer(cent))
	e.is("an answer of a forgotten job", err, ledger.ErrNotFound)
	for i, j := range jobs {
		j.again()
		if j.lease.Job == old[i].Job {
			e.Errorf("%s: the new job has the id of the old one, which old leases name", j.key)
		}
		e.is("a commit of the old run", e.Store.Complete(e.Context(), old[i], ledger.Result{ID: ledger.NewID()}), ledger.ErrLost)
		j.row(row{State: ledger.Running, Runs: 1, Fence: 1})
		id := j.send("extract")
		j.settle(id, answer(cent))
		j.complete(id)
		j.row(row{State: ledger.Done, Runs: 1, Fence: 1, Cost: "0.01", Result: `{"n":1}`, Attempts: "received$0.01"})
	}
}

func purgeYoungKeys(e *env) {
	j := e.finished("a")
	e.AgeRow(j.key, kept.Key-day)
	if s := e.purge(kept); s.Keys != 0 {
		e.Errorf("purged %+v a day too early", s)
	}
	j.verdict(ledger.Purged)
	e.purge(kept)
	j.verdict(ledger.Purged)
}

// purgeLateAnswers: an answer that nobody waits for any more is kept for as long as any.
func purgeLateAnswers(e *env) {
	failed, done := e.run("failed"), e.run("done")
	late, surplus := failed.send("extract"), done.send("extract")
	failed.release(outcome(), ledger.Unknown)
	failed.resolve(ledger.GiveUp, failed.lease.Fence+1)
	e.is("replay", e.Store.Replay(e.Context(), done.lease, ledger.ReplayPolicy{Max: 1, Who: "w1"}), ledger.ErrState)
	e.AgeAttempts(done.key, long)
	e.is("replay", e.Store.Replay(e.Context(), done.lease, ledger.ReplayPolicy{Max: 1, Who: "w1"}), nil)
	done.complete()
	for range 2 {
		for _, j := range []*job{failed, done} {
			e.AgeRow(j.key, pastResult)
		}
		e.purge(kept)
		e.settle(late, answer(cent))
		e.settle(surplus, answer(cent))
		e.purge(kept)
		failed.row(row{State: ledger.Failed, Runs: 0, Fence: 2, Cost: "0.01", Error: "held", Carrier: ledger.CarriedByLedger, Attempts: "received$0.01"})
		done.row(row{State: ledger.Done, Runs: 1, Fence: 1, Replays: 1, Cost: "0.01", Attempts: "received$0.01*"})
		done.verdict(ledger.Purged)
	}
}

func purgeSteps(e *env) {
	const n, batch = 25, 10
	var jobs []*job
	for i := range n {
		jobs = append(jobs, e.finished(fmt.Sprint(i)))
		e.AgeRow(jobs[i].key, pastKey)
	}
	r := kept
	r.Batch = batch
	left := func() (n int) {
		for _, err := range e.Store.Jobs(e.Context(), ledger.Filter{}) {
			e.is("jobs", err, nil)
			n++
		}
		return n
	}
	stopped := 0
	for s, err := range e.Store.Purge(e.Context(), r) { // until the first keys are gone
		e.is("purge", err, nil)
		if stopped += s.Keys; stopped > 0 {
			break
		}
	}
	if stopped != batch || left() != n-batch {
		e.Errorf("stopped after %d keys, %d are left; want %d and %d", stopped, left(), batch, n-batch)
	}
	ctx, cancel := context.WithCancel(e.Context())
	cancelled := 0
	var end error
	for s, err := range e.Store.Purge(ctx, r) {
		if err != nil {
			end = err
			continue
		}
		if cancelled += s.Keys; s.Keys > 0 {
			cancel()
		}
	}
	cancel()
	if cancelled != batch || !errors.Is(end, context.Canceled) || left() != n-2*batch {
		e.Errorf("cancelled after %d keys: %v, %d are left", cancelled, end, left())
	}
	for s, err := range e.Store.Purge(e.Context(), r) {
		e.is("purge", err, nil)
		if s.Keys > batch || s.InUse {
			e.Errorf("a step %+v of a batch of %d", s, batch)
		}
	}
	if left() != 0 {
		e.Errorf("%d jobs are left", left())
	}
}

func purgeInvalid(e *env) {
	j := e.finished("a")
	e.AgeRow(j.key, pastKey)
	for name, r := range map[string]ledger.Retention{
		"nothing":            {},
		"no result":          {Key: day},
		"a negative result":  {Result: -day, Key: day},
		"no key":             {Result: day},
		"a key before":       {Result: 2 * day, Key: day},
		"a negative batch":   {Result: day, Key: day, Batch: -1},
		"both are negative ": {Result: -2 * day, Key: -day},
	} {
		n := 0
		for _, err := range e.Store.Purge(e.Context(), r) {
			n++
			e.is(name, err, ledger.ErrRequest)
		}
		if n != 1 {
			e.Errorf("%s: %d steps, want one with an error", name, n)
		}
	}
	j.verdict(ledger.Saved)
}

// purgeRace: whoever claims while the key is forgotten is told that the job was done, or
// gets to run the new one; only one is.
func purgeRace(e *env) {
	const keys, claimers = 20, 4
	var jobs []*job
	for i := range keys {
		jobs = append(jobs, e.finished(fmt.Sprint(i)))
		e.AgeRow(jobs[i].key, pastKey)
	}
	r := kept
	r.Batch = 3
	var mu sync.Mutex
	runs := map[ledger.Key]int{}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for _, err := range e.Store.Purge(e.Context(), r) {
				e.is("purge", err, nil)
			}
		})
	}
	for range claimers {
		wg.Go(func() {
			for _, j := range jobs {
				q := j.req
				q.Token = ledger.NewID()
				c, err := e.Store.Claim(e.Context(), q)
				mu.Lock()
				switch {
				case err != nil:
					e.Errorf("claim %s: %v", q.Key, err)
				case c.Verdict == ledger.Run:
					runs[q.Key]++
				case c.Verdict != ledger.Saved && c.Verdict != ledger.Purged && c.Verdict != ledger.Busy:
					e.Errorf("claim %s: %s", q.Key, c.Verdict)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	e.purge(r)
	for _, j := range jobs {
		if runs[j.key] > 1 {
			e.Errorf("%s: %d claimers were told to run", j.key, runs[j.key])
		}
		want := ledger.Run
		if runs[j.key] == 1 {
			want = ledger.Busy
		}
		j.verdict(want)
		j.row(row{State: ledger.Running, Runs: 1, Fence: 1})
	}
}
