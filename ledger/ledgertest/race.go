package ledgertest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/paidonce/paidonce/ledger"
)

// raceCases: whatever comes first, a job has one state and no money is lost.
var raceCases = []testCase{
	{"claims of one key", "one job runs twice", claimRace},
	{"the same claim at once", "a request that a broken connection doubled starts two runs", tokenRace},
	{"verdicts against a late answer", "a verdict and an answer together lose the answer, or leave two states", verdictRace},
	{"commit against take over", "a job is done and runs, or its result is committed by a run that lost it", takeOverRace},
	{"gate against lapse", "a call is sent that no row counts", lapseRace},
	{"storms", "under load somebody is told what the ledger does not keep", storms},
	{"sweepers and reconcilers at once", "two sweepers act on one job", sweeperRace},
}

// rounds is how often a race is run: n, or the harness's part of it.
func (e *env) rounds(n int) int { return max(1, n/max(1, e.Part)) }

func claimRace(e *env) {
	const racers = 32
	var workers []ledger.WorkerID
	for i := range 4 {
		workers = append(workers, e.join(fmt.Sprint("racer ", i)))
	}
	for n := range e.rounds(300) {
		asked := e.request(fmt.Sprint(n))
		j := &job{env: e, key: asked.Key}
		var verdicts [10]atomic.Int32
		var once sync.Mutex
		at(racers, func(i int) {
			r := asked
			r.Token, r.Worker = ledger.NewID(), workers[i%len(workers)]
			c, err := e.Store.Claim(e.Context(), r)
			if err != nil {
				e.Errorf("claim: %v", err)
				return
			}
			verdicts[c.Verdict].Add(1)
			if c.Verdict == ledger.Run {
				once.Lock()
				j.req, j.lease = r, c.Lease
				once.Unlock()
			}
		})
		if run, busy := verdicts[ledger.Run].Load(), verdicts[ledger.Busy].Load(); run != 1 || busy != racers-1 {
			e.Fatalf("key %d: %d run and %d are told busy, want 1 and %d", n, run, busy, racers-1)
		}
		j.row(row{State: ledger.Running, Runs: 1, Fence: 1})
		if owner := e.read(j.key).Owner; owner != j.req.Worker {
			e.Errorf("owned by %v, and %v was told run", owner, j.req.Worker)
		}
		j.complete()
	}
}

func tokenRace(e *env) {
	for n := range e.rounds(100) {
		j := &job{env: e, req: e.request(fmt.Sprint(n))}
		j.key = j.req.Key
		var fences sync.Map
		at(8, func(int) {
			c, err := e.Store.Claim(e.Context(), j.req)
			if err != nil || c.Verdict != ledger.Run || c.Run != 1 {
				e.Errorf("the same claim at once: %+v %v", c, err)
			}
			fences.Store(c.Lease.Fence, true)
		})
		fences.Range(func(f, _ any) bool {
			if f != int64(1) {
				e.Errorf("told fence %v, want 1", f)
			}
			return true
		})
		j.row(row{State: ledger.Running, Runs: 1, Fence: 1})
	}
}

func verdictRace(e *env) {
	for n := range e.rounds(300) {
		j := e.unknown(fmt.Sprint(n))
		id := j.first()
		e.AgeUnknown(j.key, long)
		e.AgeAttempts(j.key, long)
		lease := j.lease
		lease.Fence = 2
		verbs := []func() error{
			func() error { _, err := e.Store.Settle(e.Context(), id, answer(cent)); return err },
			func() error { _, err := e.Store.Settle(e.Context(), id, answer(cent)); return err },
			func() error {
				ev := no(ledger.NotSent)
				ev.By = ledger.ByPerson
				_, err := e.Store.Settle(e.Context(), id, ev)
				return err
			},
			func() error { _, err := e.Store.Resolve(e.Context(), j.resolution(ledger.GiveUp, 2)); return err },
			func() error { return e.Store.Replay(e.Context(), lease, policy()) },
			func() error { _, err := e.Store.Resolve(e.Context(), j.resolution(ledger.Cancel, 0)); return err },
			func() error { _, err := e.Store.Sweep(e.Context(), 10); return err },
		}
		verbs = verbs[:len(verbs)-n%2] // half the rounds without the sweep, to vary the order
		errs := make([]error, len(verbs))
		at(len(verbs), func(i int) { errs[i] = verbs[(i+n)%len(verbs)]() })
		failed, replayed, cancelled := errs[at3(3, n, len(verbs))] == nil, errs[at3(4, n, len(verbs))] == nil, errs[at3(5, n, len(verbs))] == nil
		for _, err := range errs {
			if err != nil && !errors.Is(err, ledger.ErrLost) && !errors.Is(err, ledger.ErrState) {
				e.Errorf("a verdict that came too late: %v", err)
			}
		}
		want := row{State: ledger.Ready, Fence: 2, Cost: "0.01", Error: "retry", Carrier: ledger.CarriedByLedger, Attempts: "received$0.01"}
		switch {
		case failed:
			want.State, want.Error = ledger.Failed, "held"
		case cancelled:
			want.State = ledger.Cancelled
		}
		if replayed {
			want.Replays = 1
		}
		if failed && (cancelled || replayed) || !failed && !cancelled {
			e.Errorf("gave up: %v, cancelled: %v, replayed: %v", failed, cancelled, replayed)
		}
		j.row(want)
	}
}

// at3 is the position that verb i of n has in round r.
func at3(i, r, n int) int { return ((i-r)%n + n) % n }

func takeOverRace(e *env) {
	for n := range e.rounds(200) {
		j := e.run(fmt.Sprint(n))
		id := j.send("extract")
		j.settle(id, answer(cent))
		e.LapseRun(j.key)
		r := j.req
		r.Token = ledger.NewID()
		var committed error
		var c ledger.Claimed
		var claimErr error
		at(2, func(i int) {
			if i == n%2 {
				committed = e.Store.Complete(e.Context(), j.lease, ledger.Result{ID: ledger.NewID(), Body: []byte("1"), Used: []ledger.ID{id.ID}, Hooks: []ledger.Hook{e.Hook("m")}})
				return
			}
			c, claimErr = e.Store.Claim(e.Context(), r)
		})
		e.is("claim", claimErr, nil)
		switch {
		case committed == nil && c.Verdict == ledger.Run, committed != nil && c.Verdict != ledger.Run:
			e.Errorf("the commit got %v, and the claim %s", committed, c.Verdict)
		case committed == nil:
			j.row(row{State: ledger.Done, Runs: 1, Fence: 1, Cost: "0.01", Result: "1", Attempts: "received$0.01"})
		default:
			e.is("commit", committed, ledger.ErrLost)
			j.row(row{State: ledger.Running, Runs: 2, Fence: 2, Cost: "0.01", Attempts: "received$0.01"})
			j.lease = c.Lease
			e.is("commit of the next run", e.Store.Complete(e.Context(), j.lease, ledger.Result{ID: ledger.NewID(), Hooks: []ledger.Hook{e.Hook("m")}}), nil)
		}
		if m := e.Marks(); len(m) != n+1 {
			e.Fatalf("after %d jobs the user's work is there %d times", n+1, len(m))
		}
	}
}

func lapseRace(e *env) {
	for n := range e.rounds(200) {
		w := e.join(fmt.Sprint("life ", n))
		j := e.startAs(w, fmt.Sprint(n))
		e.die(w)
		next := j.req
		next.Worker, next.Token = e.worker, ledger.NewID()
		a := call("extract")
		var sent error
		at(3, func(i int) {
			switch (i + n) % 3 {
			case 0:
				sent = e.Store.Send(e.Context(), j.lease, a)
			case 1:
				if _, err := e.Store.Sweep(e.Context(), 10); err != nil {
					e.Errorf("sweep: %v", err)
				}
			default:
				if _, err := e.Store.Claim(e.Context(), next); err != nil {
					e.Errorf("claim: %v", err)
				}
			}
		})
		e.sweep()
		got := e.sound(j.key)
		switch {
		case sent == nil && (got.State != ledger.Unknown || got.OpenCalls != 1 || got.Fence != 2):
			e.Errorf("a call was let out, and its job is %s with %d open, fence %d", got.State, got.OpenCalls, got.Fence)
		case sent != nil && (got.State != ledger.Running || len(got.Attempts) != 0 || got.Fence != 2 || got.Owner != e.worker):
			e.Errorf("the gate said %v, and the job is %s with %d attempts, fence %d", sent, got.State, len(got.Attempts), got.Fence)
		case sent != nil:
			e.is("gate", sent, ledger.ErrLost)
		}
	}
}

// Case 37: however many sweep, each row is acted on by the one whose write hit.
func sweeperRace(e *env) {
	const jobs = 20
	var workers []ledger.WorkerID
	for i := range 6 {
		workers = append(workers, e.join(fmt.Sprint("sweeper ", i)))
	}
	var js []*job
	for i := range jobs {
		j := e.run(fmt.Sprint(i))
		if i%2 == 0 {
			j.send("extract")
		} else {
			j.resolve(ledger.Cancel, 0)
		}
		js = append(js, j)
	}
	e.LapseWorker(e.worker)
	var mu sync.Mutex
	swept, adopted, epochs := map[ledger.Key]int{}, map[ledger.Key]int{}, 0
	at(6, func(i int) {
		for range jobs { // a few at a time, until nothing is left
			s, err := e.Store.Sweep(e.Context(), 3)
			if err != nil {
				e.Errorf("sweep: %v", err)
			}
			as, err := e.Store.Adopt(e.Context(), adoption(workers[i], 3))
			if err != nil {
				e.Errorf("adopt: %v", err)
			}
			mu.Lock()
			epochs += s.Epochs
			for _, k := range append(s.Lapsed, s.Cancelled...) {
				swept[k]++
			}
			for _, a := range as {
				adopted[a.Lease.Key]++
			}
			mu.Unlock()
		}
	})
	if epochs != 1 {
		e.Errorf("%d sweepers closed the one epoch", epochs)
	}
	for i, j := range js {
		want := row{State: ledger.Cancelled, Runs: 1, Fence: 2, Cancel: true}
		if i%2 == 0 {
			want = row{State: ledger.Unknown, Runs: 1, Fence: 3, Open: 1, Reserved: "0.01", Carrier: ledger.CarriedByLedger, Adopted: true, Attempts: "sent"}
		}
		j.row(want)
		if swept[j.key] != 1 || adopted[j.key] != (i+1)%2 {
			e.Errorf("%s was swept %d times and adopted %d times", j.key, swept[j.key], adopted[j.key])
		}
	}
}
