package ledgertest

import (
	"strings"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// settleCases: what came back is kept, whatever became of the run.
var settleCases = []testCase{
	{"captured", "an answer is not on record as it came", captured},
	{"captured without the lease", "an answer that was paid for is thrown away because the run was lost", capturedLost},
	{"captured by a job that ended", "an answer that was paid for is thrown away because the job had ended", capturedEnded},
	{"captured after a definite no", "an answer is thrown away because somebody had said there is none", capturedAfterNo},
	{"captured twice", "an answer is booked twice, or replaced by another", capturedTwice},
	{"two answers of one call", "a job waits for a call that it has the answer of, or loses the second one", twoAnswers},
	{"captured under an older fence", "a run pays for a call although the answer of its earlier run has come", capturedOld},
}

func captured(e *env) {
	j := e.run("a")
	id := j.send("extract")
	ev := answer(cent / 4)
	ev.Class, ev.ProviderRequestID, ev.ObjectID, ev.FirstByte = "ok", "req_1", "resp_1", 1500*time.Millisecond
	ev.Usage = ledger.Usage{In: new(int64(12)), Cached: new(int64(0))}
	if s := j.settle(id, ev); s != (ledger.Settled{Job: ledger.Running}) {
		e.Errorf("settled %+v", s)
	}
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Cost: "0.0025", Attempts: "received$0.0025"})
	a := e.read(j.key).Attempts[0]
	got := a.Evidence
	if a.EndedAt.Before(a.SentAt) || got.State != ledger.Received || got.Response != nil {
		e.Errorf("sent %v, ended %v, evidence %+v", a.SentAt, a.EndedAt, got)
	}
	if text := attemptText(a); !strings.HasSuffix(text, "class ok status 200 request req_1 object resp_1 first 1.5s in 12 cached 0 out ? cost 0.0025 computed") {
		e.Errorf("on record is %s", text)
	}
	j.played("extract", id, ev)
	if k := j.look("extract"); k.Late != 0 {
		e.Errorf("the run's own answer counts as late: %+v", k)
	}
	j.send("next") // needs no look: nothing came late
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Open: 1, Cost: "0.0025", Reserved: "0.01", Attempts: "received$0.0025 sent"})
}

func capturedLost(e *env) {
	dead := e.run("dead") // the worker is gone, and nobody came yet
	id := dead.send("extract")
	e.LapseRun(dead.key)
	dead.settle(id, answer(cent))
	dead.row(row{State: ledger.Running, Runs: 1, Fence: 1, Cost: "0.01", Attempts: "received$0.01"})
	dead.again()
	dead.played("extract", id, answer(cent))
	dead.row(row{State: ledger.Running, Runs: 2, Fence: 2, Cost: "0.01", Attempts: "received$0.01"})

	for name, lose := range map[string]func(*job){
		"lapsed by a claim": func(j *job) { e.LapseRun(j.key); j.verdict(ledger.HeldUnknown) },
		"lapsed by a sweep": func(j *job) { e.LapseRun(j.key); e.sweep() },
		"released":          func(j *job) { j.release(outcome(), ledger.Unknown) },
		"put back":          func(j *job) { j.release(outcome(), ledger.Unknown); j.later() },
	} {
		j := e.run(name)
		id := j.send("extract")
		lose(j)
		before := e.read(j.key)
		if s := j.settle(id, answer(cent)); s != (ledger.Settled{Job: ledger.Ready}) {
			e.Errorf("%s: settled %+v, want a job that is ready and an answer it can use", name, s)
		}
		want := row{State: ledger.Ready, Runs: before.Runs, Fence: 2, Cost: "0.01", Carrier: ledger.CarriedByLedger, Attempts: "received$0.01"}
		if before.Error != nil {
			want.Error = before.Error.Class
		}
		j.row(want)
		j.again() // at once: it is due
		j.played("extract", id, answer(cent))
		if k := j.look("extract"); k.Late != 1 {
			e.Errorf("%s: %d late answers, want 1", name, k.Late)
		}
		j.complete(id)
		want.State, want.Runs, want.Fence, want.Error, want.Result = ledger.Done, want.Runs+1, 3, "", `{"n":1}`
		j.row(want)
	}
}

// later puts an unknown job back, to be looked at in an hour.
func (j *job) later() {
	j.Helper()
	v := j.resolution(ledger.Keep, j.read(j.key).Fence)
	v.NextIn = time.Hour
	if r, err := j.Store.Resolve(j.Context(), v); err != nil || r.State != ledger.Unknown || r.RetryIn < 59*time.Minute {
		j.Fatalf("keep: %+v %v", r, err)
	}
}

func capturedEnded(e *env) {
	r, id := e.replayed("done")
	r.settle(r.send("extract"), answer(cent))
	res := r.complete(r.attempt(e.read(r.key).Attempts[1].ID))
	if s := e.settle(id, answer(2*cent)); s != (ledger.Settled{Job: ledger.Done, Surplus: true}) {
		e.Errorf("an answer to a job that is done: %+v, want surplus", s)
	}
	r.row(row{State: ledger.Done, Runs: 1, Replays: 1, Fence: 3, Cost: "0.03", Carrier: ledger.CarriedByLedger, Result: string(res.Body),
		Attempts: "received$0.02* received$0.01"})
	if c := r.verdict(ledger.Saved); dollars(c.Cost) != "0.03" {
		e.Errorf("saved cost %s, want what was wasted too", dollars(c.Cost))
	}

	for name, end := range map[string]func(*job){
		"failed":    func(j *job) { j.resolve(ledger.GiveUp, 2) },
		"cancelled": func(j *job) { j.resolve(ledger.Cancel, 0) },
	} {
		j := e.unknown(name)
		id := j.attempt(e.read(j.key).Attempts[0].ID)
		end(j)
		want := e.read(j.key)
		j.row(row{State: want.State, Fence: 2, Reserved: "0.01", Carrier: ledger.CarriedByLedger, Error: want.Error.Class, Attempts: "unknown"})
		if s := e.settle(id, answer(cent)); s != (ledger.Settled{Job: want.State}) {
			e.Errorf("an answer to a job that is %s: %+v", want.State, s)
		}
		j.row(row{State: want.State, Fence: 2, Cost: "0.01", Carrier: ledger.CarriedByLedger, Error: want.Error.Class, Attempts: "received$0.01"})
	}
}

func capturedAfterNo(e *env) {
	for _, s := range []ledger.AttemptState{ledger.NotSent, ledger.Rejected, ledger.FailedAttempt} {
		j := e.run(string(s))
		id, other := j.send("extract"), j.send("other")
		ev := no(s)
		ev.Cost = new(cent / 2) // billed, and less than the answer turns out to cost
		j.settle(id, ev)
		j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Open: 1, Cost: "0.005", Reserved: "0.01", Attempts: string(s) + "$0.005 sent"})
		j.settle(id, answer(cent))
		j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Open: 1, Cost: "0.01", Reserved: "0.01", Attempts: "received$0.01 sent"})
		j.played("extract", id, answer(cent))
		j.settle(other, no(ledger.Rejected))
		j.complete(id)
	}
}

func capturedTwice(e *env) {
	j := e.run("a")
	id := j.send("extract")
	first, second := answer(cent), answer(5*cent)
	second.Response.Body = []byte("something else")
	j.settle(id, first)
	j.unchanged("a second answer to one attempt", func() {
		if s := j.settle(id, second); s != (ledger.Settled{Job: ledger.Running}) {
			e.Errorf("settled %+v", s)
		}
	})
	// Another kind of actor is told that it comes second: whoever counts money counts it once.
	for _, by := range []ledger.Actor{ledger.ByReconciler, ledger.ByPerson} {
		second.By, second.Reason = by, "seen in the console"
		j.unchanged("the same answer from a "+string(by), func() {
			if s := j.settle(id, second); s != (ledger.Settled{Job: ledger.Running, Known: true}) {
				e.Errorf("settled %+v", s)
			}
		})
	}
	j.played("extract", id, first)

	id = j.send("racing")
	at(8, func(int) {
		_, err := e.Store.Settle(e.Context(), id, first)
		e.is("settle at once", err, nil)
	})
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Cost: "0.02", Attempts: "received$0.01 received$0.01"})
}

func twoAnswers(e *env) {
	j := e.run("a")
	one, two, other := j.send("extract"), j.send("extract"), j.send("other")
	keyed := call("extract")
	keyed.Call.InputKey = "k"
	e.is("send", e.Store.Send(e.Context(), j.lease, keyed), nil)
	first, second := answer(cent), answer(2*cent)
	second.Response.Body = []byte("the second one")
	j.settle(two, first)
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Open: 2, Cost: "0.01", Reserved: "0.03", Attempts: "unknown received$0.01 sent sent"})
	j.settle(one, second)
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Open: 2, Cost: "0.03", Reserved: "0.02", Attempts: "received$0.02 received$0.01 sent sent"})
	j.played("extract", two, first)
	j.settle(other, no(ledger.NotSent))
	j.settle(j.attempt(keyed.ID), no(ledger.NotSent))
	j.complete(two)
	j.row(row{State: ledger.Done, Runs: 1, Fence: 1, Cost: "0.03", Result: `{"n":1}`, Attempts: "received$0.02* received$0.01 not_sent not_sent"})

	// An unknown job is ready as soon as its one call has one answer.
	j = e.run("unknown")
	one, two = j.send("extract"), j.send("extract")
	j.release(outcome(), ledger.Unknown)
	j.row(row{State: ledger.Unknown, Fence: 2, Open: 2, Reserved: "0.02", Error: "retry", Carrier: ledger.CarriedByLedger, Attempts: "sent sent"})
	j.settle(one, first)
	j.row(row{State: ledger.Ready, Fence: 2, Cost: "0.01", Reserved: "0.01", Error: "retry", Carrier: ledger.CarriedByLedger, Attempts: "received$0.01 unknown"})
	j.settle(two, second)
	j.row(row{State: ledger.Ready, Fence: 2, Cost: "0.03", Error: "retry", Carrier: ledger.CarriedByLedger, Attempts: "received$0.01 received$0.02"})
}

func capturedOld(e *env) {
	j, id := e.replayed("a")
	mine := j.send("extract")
	e.settle(id, answer(cent)) // the first run's answer closes the second run's attempt
	j.row(row{State: ledger.Running, Runs: 1, Replays: 1, Fence: 3, Cost: "0.01", Reserved: "0.01", Error: "retry",
		Carrier: ledger.CarriedByLedger, Attempts: "received$0.01 unknown"})
	e.is("send without a look", e.Store.Send(e.Context(), j.lease, call("next")), ledger.ErrLate)
	if k := j.look("extract"); k.Late != 1 || k.Attempts != 2 || k.Open != 0 {
		e.Errorf("look says %+v", k)
	}
	j.settle(mine, answer(cent)) // under the job's fence, but of an attempt that is closed
	if k := j.look("extract"); k.Late != 2 {
		e.Errorf("the answer of a closed attempt is not late: %+v", k)
	}
	j.played("extract", id, answer(cent))
	j.complete(id)
	j.row(row{State: ledger.Done, Runs: 1, Replays: 1, Fence: 3, Cost: "0.02", Carrier: ledger.CarriedByLedger, Result: `{"n":1}`,
		Attempts: "received$0.01 received$0.01*"})
}
