package ledgertest

import (
	"bytes"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// sendCases: the gate is the last thing before money, and lets through only what
// may be paid.
var sendCases = []testCase{
	{"gate", "an attempt is not on record as it was sent", gate},
	{"the same gate again", "one id is sent twice, or its sender believes that nothing is on record", sameGateAgain},
	{"gate without the lease", "a run that lost its job pays for a call", gateLost},
	{"gate after the run deadline", "a call is made beside the run that may take over", gateLate},
	{"gate of a cancelled job", "a cancelled job goes on spending", gateCancelled},
	{"gate over the budget", "a job spends more than it may", gateBudget},
	{"gate after an answer to what was given up", "a call is paid again while its answer is there", gateGivenUp},
	{"gate with a late answer unseen", "a call is paid again while its answer is there", gateUnseen},
	{"gate of a closed epoch", "a long call's run is stopped although nobody took its job", gateClosedEpoch},
	{"many gates of one job", "a call that was sent is not counted as open", manyGates},
	{"one gate by many", "one attempt is sent by several callers", oneGate},
	{"budget under concurrency", "calls made at once overrun the budget together", budgetRace},
	{"look", "a run is not told of its answer, or told another call's", look},
	{"invalid attempts", "a sent attempt is on record under names nobody can read back", invalidAttempts},
}

func gate(e *env) {
	j := e.run("a")
	a := call("extract")
	a.Call.InputKey = `k"1`
	before := time.Now()
	e.is("send", e.Store.Send(e.Context(), j.lease, a), nil)
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Open: 1, Reserved: "0.01", Attempts: "sent"})
	got := e.read(j.key).Attempts[0]
	want := a
	if got.Attempt.LateSeen = want.LateSeen; got.Attempt != want {
		e.Errorf("on record is %+v, want %+v", got.Attempt, want)
	}
	if got.Fence != 1 || got.Generation != 1 || got.SentAt.Before(before.Add(-time.Minute)) || got.SentAt.After(time.Now().Add(time.Minute)) {
		e.Errorf("on record is fence %d, generation %d, sent at %v", got.Fence, got.Generation, got.SentAt)
	}
	j.send("extract") // the same call once more, beside it: the ledger counts both
	b := call("free")
	b.Reserve, b.Timeout = 0, 0
	e.is("send without a reserve", e.Store.Send(e.Context(), j.lease, b), nil)
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Open: 3, Reserved: "0.02", Attempts: "sent sent sent"})
}

func sameGateAgain(e *env) {
	for name, meanwhile := range map[string]func(*job, ledger.AttemptID){
		"nothing happened":           func(*job, ledger.AttemptID) {},
		"its reserve spent the rest": func(j *job, _ ledger.AttemptID) { j.send("second") },
		"it was answered":            func(j *job, id ledger.AttemptID) { j.settle(id, answer(cent)) },
		"it was settled":             func(j *job, id ledger.AttemptID) { j.settle(id, no(ledger.NotSent)) },
		"the run deadline is over":   func(j *job, _ ledger.AttemptID) { e.LapseRun(j.key) },
		"the job is flagged":         func(j *job, _ ledger.AttemptID) { j.resolve(ledger.Cancel, 0) },
		"the job is unknown":         func(j *job, _ ledger.AttemptID) { e.LapseRun(j.key); e.sweep() },
		"the job is done":            func(j *job, id ledger.AttemptID) { j.settle(id, answer(cent)); j.complete(id) },
	} {
		r := e.request(name)
		r.Budget = 2 * cent
		j := e.start(r)
		a := call("extract")
		e.is("send", e.Store.Send(e.Context(), j.lease, a), nil)
		meanwhile(j, j.attempt(a.ID))
		j.unchanged("the same gate, after "+name, func() {
			e.is("the same gate, after "+name, e.Store.Send(e.Context(), j.lease, a), ledger.ErrRepeated)
			b := call("another")
			b.ID = a.ID
			e.is("another attempt under that id, after "+name, e.Store.Send(e.Context(), j.lease, b), ledger.ErrRepeated)
		})
	}
	// An id belongs to its job: two jobs may use one.
	a, one, two := call("extract"), e.run("one"), e.run("two")
	e.is("send", e.Store.Send(e.Context(), one.lease, a), nil)
	e.is("the same id in another job", e.Store.Send(e.Context(), two.lease, a), nil)
	one.settle(two.attempt(a.ID), no(ledger.NotSent))
	one.row(row{State: ledger.Running, Runs: 1, Fence: 1, Open: 1, Reserved: "0.01", Attempts: "sent"})
	two.row(row{State: ledger.Running, Runs: 1, Fence: 1, Attempts: "not_sent"})
}

func gateLost(e *env) {
	for name, lose := range map[string]func(*job){
		"taken over":   func(j *job) { l := j.lease; e.LapseRun(j.key); j.again(); j.lease = l },
		"given back":   func(j *job) { j.release(outcome(), ledger.Ready) },
		"claimed anew": func(j *job) { l := j.lease; j.release(outcome(), ledger.Ready); j.again(); j.lease = l },
		"done":         func(j *job) { j.complete() },
		"failed":       func(j *job) { o := outcome(); o.Fail = true; j.release(o, ledger.Failed) },
		"unknown":      func(j *job) { j.send("other"); j.release(outcome(), ledger.Unknown) },
		"unknown by its new fence": func(j *job) {
			j.send("other")
			j.release(outcome(), ledger.Unknown)
			j.lease.Fence = e.read(j.key).Fence
		},
		"of a future fence": func(j *job) { j.lease.Fence++ },
	} {
		j := e.run(name)
		lose(j)
		j.unchanged("a gate without the lease: "+name, func() {
			e.is(name, e.Store.Send(e.Context(), j.lease, call("extract")), ledger.ErrLost)
		})
	}
}

func gateLate(e *env) {
	j := e.run("a")
	e.LapseRun(j.key)
	j.unchanged("a gate after the run deadline", func() {
		e.is("send", e.Store.Send(e.Context(), j.lease, call("extract")), ledger.ErrLost)
	})
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1})
}

func gateCancelled(e *env) {
	j := e.run("a")
	j.resolve(ledger.Cancel, 0)
	j.unchanged("a gate of a flagged job", func() {
		e.is("send", e.Store.Send(e.Context(), j.lease, call("extract")), ledger.ErrCancelled)
	})
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Cancel: true})
}

func gateBudget(e *env) {
	r := e.request("a")
	r.Budget = 3 * cent
	j := e.start(r)
	j.settle(j.send("one"), answer(cent/2)) // 0.005 spent
	j.send("two")                           // 0.01 reserved
	a := call("three")
	a.Reserve = cent + cent/2 + 1
	j.unchanged("a gate over the budget", func() {
		e.is("one billionth too much", e.Store.Send(e.Context(), j.lease, a), ledger.ErrBudget)
		huge := call("huge")
		huge.Reserve = math.MaxInt64
		if err := e.Store.Send(e.Context(), j.lease, huge); err == nil {
			e.Errorf("a reserve that overflows passed the gate")
		}
	})
	a.Reserve--
	e.is("exactly the rest", e.Store.Send(e.Context(), j.lease, a), nil)
	free := call("free")
	free.Reserve = 0
	e.is("a call that costs nothing", e.Store.Send(e.Context(), j.lease, free), nil)
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Open: 3, Cost: "0.005", Reserved: "0.025", Attempts: "received$0.005 sent sent sent"})

	r = e.request("no budget")
	r.Budget = 0
	j = e.start(r)
	a = call("dear")
	a.Reserve = 1000 * ledger.USD
	e.is("without a budget", e.Store.Send(e.Context(), j.lease, a), nil)
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Open: 1, Reserved: "1000", Attempts: "sent"})
}

// replayed makes a job that runs for the second time, after its first run's call was closed
// as unknown by a replay. The attempt may still be answered.
func (e *env) replayed(name string) (*job, ledger.AttemptID) {
	e.Helper()
	j := e.run(name)
	id := j.send("extract")
	j.release(outcome(), ledger.Unknown)
	j.lease.Fence = 2
	e.AgeAttempts(j.key, long)
	e.is("replay", e.Store.Replay(e.Context(), j.lease, ledger.ReplayPolicy{Max: 1, Who: "w1", Reason: "policy"}), nil)
	return j.again(), id
}

// gateGivenUp: the run gave its first attempt up (J16o) and somebody brought the answer before it asked the gate again. Its fence
// is the job's, so the answer is late only because the attempt was closed. Found by internal/protocol.
func gateGivenUp(e *env) {
	j := e.run("a")
	id := j.send("extract")
	e.AgeAttempts(j.key, long)
	e.is("replay", e.Store.Replay(e.Context(), j.lease, ledger.ReplayPolicy{Max: 1, Who: "w1", Reason: "policy"}), nil)
	brought := answer(cent)
	brought.By, brought.Who = ledger.ByPerson, "kim"
	e.settle(id, brought)
	j.unchanged("a gate that has not seen the answer", func() {
		e.is("send", e.Store.Send(e.Context(), j.lease, call("extract")), ledger.ErrLate)
	})
	if k := j.look("extract"); k.Late != 1 {
		e.Errorf("late answers %d, want 1", k.Late)
	}
	j.played("extract", id, brought)
	j.complete(id)
	j.row(row{State: ledger.Done, Runs: 1, Replays: 1, Fence: 1, Cost: "0.01", Result: `{"n":1}`, Attempts: "received$0.01"})
}

func gateUnseen(e *env) {
	j, id := e.replayed("a")
	if k := j.look("extract"); k.Answer != nil || k.Late != 0 || k.Attempts != 1 || k.Open != 0 {
		e.Errorf("before the answer: %+v", k)
	}
	a := call("extract")
	late := answer(cent)
	e.settle(id, late) // the first run's, in the second run's time
	j.unchanged("a gate that has not seen the late answer", func() {
		e.is("send", e.Store.Send(e.Context(), j.lease, a), ledger.ErrLate)
		other := call("other")
		e.is("send of another call", e.Store.Send(e.Context(), j.lease, other), ledger.ErrLate)
		other.LateSeen = 2
		e.is("send that saw more than there is", e.Store.Send(e.Context(), j.lease, other), ledger.ErrLate)
	})
	if k := j.look("extract"); k.Late != 1 {
		e.Errorf("late answers %d, want 1", k.Late)
	}
	j.played("extract", id, late)
	j.send("other")
	j.row(row{State: ledger.Running, Replays: 1, Runs: 1, Fence: 3, Open: 1, Cost: "0.01", Reserved: "0.01", Error: "retry",
		Carrier: ledger.CarriedByLedger, Attempts: "received$0.01 sent"})
}

func gateClosedEpoch(e *env) {
	j := e.run("a")
	e.die(e.worker)
	id := j.send("extract")
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Open: 1, Reserved: "0.01", Attempts: "sent"})
	if s := e.sweep(); names(s.Lapsed) != "[a]" {
		e.Errorf("swept %+v, want the job lapsed", s)
	}
	e.settle(id, answer(cent))
	j.row(row{State: ledger.Ready, Runs: 1, Fence: 2, Cost: "0.01", Carrier: ledger.CarriedByLedger, Attempts: "received$0.01"})
}

// at runs fn n times at once.
func at(n int, fn func(i int)) {
	var start, wg sync.WaitGroup
	start.Add(1)
	for i := range n {
		wg.Go(func() { start.Wait(); fn(i) })
	}
	start.Done()
	wg.Wait()
}

func manyGates(e *env) {
	j := e.run("a")
	ids := make([]ledger.ID, 8)
	at(8, func(i int) {
		a := call("extract")
		a.Call.InputKey = strings.Repeat("k", i)
		ids[i] = a.ID
		e.is("send", e.Store.Send(e.Context(), j.lease, a), nil)
	})
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Open: 8, Reserved: "0.08", Attempts: strings.Repeat("sent ", 7) + "sent"})
	at(8, func(i int) {
		_, err := e.Store.Settle(e.Context(), j.attempt(ids[i]), answer(cent))
		e.is("settle", err, nil)
	})
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Cost: "0.08", Attempts: strings.Repeat("received$0.01 ", 7) + "received$0.01"})
}

func oneGate(e *env) {
	for range 10 {
		j := e.run(ledger.NewID().String())
		a := call("extract")
		var passed atomic.Int32
		at(8, func(int) {
			err := e.Store.Send(e.Context(), j.lease, a)
			if err == nil {
				passed.Add(1)
			} else {
				e.is("repeated gate", err, ledger.ErrRepeated)
			}
		})
		if passed.Load() != 1 {
			e.Errorf("%d of 8 callers passed one gate", passed.Load())
		}
		j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Open: 1, Reserved: "0.01", Attempts: "sent"})
	}
}

func budgetRace(e *env) {
	r := e.request("a")
	r.Budget = 5 * cent
	j := e.start(r)
	var passed atomic.Int32
	at(16, func(int) {
		err := e.Store.Send(e.Context(), j.lease, call("extract"))
		if err == nil {
			passed.Add(1)
		} else {
			e.is("gate", err, ledger.ErrBudget)
		}
	})
	if passed.Load() != 5 {
		e.Errorf("%d calls of a cent passed a budget of five", passed.Load())
	}
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Open: 5, Reserved: "0.05", Attempts: "sent sent sent sent sent"})
}

func look(e *env) {
	j := e.run("a")
	if k := j.look("extract"); k != (ledger.Looked{}) {
		e.Errorf("nothing was sent, and look says %+v", k)
	}
	binary := make([]byte, 300<<10)
	for i := range binary {
		binary[i] = byte(i * 7)
	}
	first, second := answer(cent), answer(cent)
	first.Response = &ledger.Response{Codec: "json", Body: binary}
	second.Response.Body = []byte{}
	one, two := j.send("extract"), j.send("extract")
	j.settle(two, first)  // the later attempt is answered first
	j.settle(one, second) // late: it was closed by the first
	j.played("extract", two, first)
	if k := j.look("extract"); k.Attempts != 2 || k.Open != 0 || k.Late != 1 || k.Answer.Route != "primary" || k.Answer.Panics != 0 {
		e.Errorf("look says %+v %+v", k, k.Answer)
	}
	keyed := call("extract")
	keyed.Call.InputKey, keyed.LateSeen = "k1", 1
	e.is("send", e.Store.Send(e.Context(), j.lease, keyed), nil)
	for ref, want := range map[ledger.CallRef]ledger.Looked{
		{Name: "other"}:                   {Late: 1},
		{Name: "Extract"}:                 {Late: 1},
		{Name: "extract", InputKey: "k2"}: {Late: 1},
		keyed.Call:                        {Attempts: 1, Open: 1, Late: 1},
	} {
		if k, err := e.Store.Look(e.Context(), j.lease, ref); err != nil || k != want {
			e.Errorf("look for %+v: %+v %v, want %+v", ref, k, err, want)
		}
	}
	j.settle(j.attempt(keyed.ID), second)
	k, err := e.Store.Look(e.Context(), j.lease, keyed.Call)
	if err != nil || k.Answer == nil || !bytes.Equal(k.Answer.Response.Body, second.Response.Body) {
		e.Errorf("an empty body is played back as %+v %v", k.Answer, err)
	}
	old := j.lease
	e.LapseRun(j.key)
	j.again()
	_, err = e.Store.Look(e.Context(), old, keyed.Call)
	e.is("look after a take over", err, ledger.ErrLost)
	j.played("extract", two, first)
	j.row(row{State: ledger.Running, Runs: 2, Fence: 2, Cost: "0.03", Attempts: "received$0.01 received$0.01 received$0.01"})
}

func invalidAttempts(e *env) {
	j := e.run("a")
	for name, spoil := range map[string]func(*ledger.Attempt){
		"no id":              func(a *ledger.Attempt) { a.ID = ledger.ID{} },
		"no call":            func(a *ledger.Attempt) { a.Call.Name = "" },
		"zero in call":       func(a *ledger.Attempt) { a.Call.Name = "a\x00" },
		"zero in input key":  func(a *ledger.Attempt) { a.Call.InputKey = "\x00" },
		"route not UTF-8":    func(a *ledger.Attempt) { a.Route = "\xff" },
		"negative reserve":   func(a *ledger.Attempt) { a.Reserve = -1 },
		"negative timeout":   func(a *ledger.Attempt) { a.Timeout = -1 },
		"huge client id":     func(a *ledger.Attempt) { a.ClientRequestID = strings.Repeat("x", ledger.MaxText+1) },
		"zero in the config": func(a *ledger.Attempt) { a.Config = "p\x007" },
	} {
		a := call("extract")
		spoil(&a)
		j.unchanged("an attempt with "+name, func() {
			e.is(name, e.Store.Send(e.Context(), j.lease, a), ledger.ErrRequest)
		})
	}
}

// purgeLooks: the fence of a job that failed is that of its last run, which may not know yet that it is over.
func purgeLooks(e *env) {
	j := e.failed("a")
	e.AgeRow(j.key, pastResult)
	e.purge(kept)
	j.unchanged("a look and a gate", func() {
		if k := j.look("extract"); k.Answer != nil || k.Open != 0 || k.Attempts != 1 {
			e.Errorf("a run whose answer was purged finds %+v", k)
		}
		e.is("its gate", e.Store.Send(e.Context(), j.lease, call("extract")), ledger.ErrLost)
	})
}
