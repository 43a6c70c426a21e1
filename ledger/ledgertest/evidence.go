package ledgertest

import (
	"math"
	"strings"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// evidenceCases: a job waits for its calls as long as they may be answered, and no longer.
var evidenceCases = []testCase{
	{"no answer", "a job waits for a call that certainly has no answer", noAnswer},
	{"no answer without the lease", "a call that was refused holds the job for ever", noAnswerLost},
	{"the last of several", "a job runs again while one of its calls may still be answered", lastOfSeveral},
	{"asked too early", "a call is made again because the provider had not heard of it yet", askedTooEarly},
	{"no answer to an attempt closed as unknown", "a late no reopens a job, or its reserve is held for ever", noToUnknown},
	{"no after an outcome", "an answer is lost to a later no", noAfterOutcome},
	{"more evidence", "what is known of an open call is lost, or closes it", moreEvidence},
	{"costs", "an unknown cost counts as nothing, or a known one twice", costs},
	{"evidence is never refused for its text", "an answer is lost to a stray byte", strayBytes},
	{"invalid evidence", "a job is told to have an answer that nobody can give it", invalidEvidence},
}

func noAnswer(e *env) {
	for _, s := range []ledger.AttemptState{ledger.NotSent, ledger.Rejected, ledger.FailedAttempt} {
		j := e.run(string(s))
		id, other := j.send("extract"), j.send("extract")
		ev := no(s)
		ev.Status = 429
		if got := j.settle(id, ev); got != (ledger.Settled{Job: ledger.Running}) {
			e.Errorf("settled %+v", got)
		}
		j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Open: 1, Reserved: "0.01", Attempts: string(s) + " sent"})
		if got := e.read(j.key).Attempts[0].Evidence; got.Class != "refused" || got.Status != 429 || got.State != s {
			e.Errorf("evidence %+v", got)
		}
		j.unchanged("the same no again", func() { j.settle(id, ev) })
		ev.Cost = new(cent) // a failure that was billed
		j.settle(other, ev)
		j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Cost: "0.01", Attempts: string(s) + " " + string(s) + "$0.01"})
		if k := j.look("extract"); k.Answer != nil || k.Late != 0 || k.Attempts != 2 || k.Open != 0 {
			e.Errorf("look says %+v", k)
		}
		j.send("extract")
	}
}

func noAnswerLost(e *env) {
	by := map[ledger.Actor]func(*ledger.Evidence){
		ledger.BySender: func(*ledger.Evidence) {},
		ledger.ByPerson: func(ev *ledger.Evidence) { ev.Reason = "not in the provider's console" },
		ledger.ByReconciler: func(ev *ledger.Evidence) {
			ev.AskedAt, ev.SettleWindow = time.Now(), window
		},
	}
	for who, more := range by {
		j := e.unknown(string(who))
		id := j.attempt(e.read(j.key).Attempts[0].ID)
		if who == ledger.ByReconciler {
			e.AgeAttempts(j.key, long)
		}
		ev := no(ledger.NotSent)
		ev.By, ev.Who = who, "kim"
		more(&ev)
		if s := j.settle(id, ev); s != (ledger.Settled{Job: ledger.Ready}) {
			e.Errorf("settled by the %s: %+v", who, s)
		}
		j.row(row{State: ledger.Ready, Fence: 2, Error: "retry", Carrier: ledger.CarriedByLedger, Attempts: "not_sent"})
		last := e.read(j.key).History
		if ev := last[len(last)-1]; ev.From != ledger.Unknown || ev.To != ledger.Ready || ev.Actor != "kim" {
			e.Errorf("the history does not say who let the job go: %+v", ev)
		}
		j.again()
		if k := j.look("extract"); k.Late != 0 {
			e.Errorf("a no counts as a late answer: %+v", k)
		}
		j.send("extract")
	}
}

func lastOfSeveral(e *env) {
	j := e.run("a")
	ids := []ledger.AttemptID{j.send("one"), j.send("two"), j.send("three")}
	j.release(outcome(), ledger.Unknown)
	adopted := e.adopt(e.join("reconciler"))
	if len(adopted) != 1 || len(adopted[0].Open) != 3 {
		e.Fatalf("adopted %+v, want one job with three open calls", adopted)
	}
	want := row{State: ledger.Unknown, Fence: 3, Open: 2, Reserved: "0.02", Error: "retry", Carrier: ledger.CarriedByLedger, Adopted: true, Attempts: "rejected sent sent"}
	j.settle(ids[0], no(ledger.Rejected))
	j.row(want)
	j.settle(ids[1], answer(cent))
	want.Open, want.Reserved, want.Cost, want.Attempts = 1, "0.01", "0.01", "rejected received$0.01 sent"
	j.row(want)
	j.settle(ids[2], no(ledger.NotSent))
	want.State, want.Open, want.Reserved, want.Adopted, want.Attempts = ledger.Ready, 0, "", false, "rejected received$0.01 not_sent"
	j.row(want)
	j.again()
	if j.lease.Fence != 4 {
		e.Errorf("fence %d, want 4", j.lease.Fence)
	}
}

func askedTooEarly(e *env) {
	j := e.unknown("a")
	id := j.attempt(e.read(j.key).Attempts[0].ID)
	sent := func() time.Time { return e.read(j.key).Attempts[0].SentAt }
	ask := func(at time.Time, w time.Duration) ledger.Evidence {
		ev := no(ledger.NotSent)
		ev.By, ev.AskedAt, ev.SettleWindow = ledger.ByReconciler, at, w
		return ev
	}
	refuse := func(what string, ev ledger.Evidence) {
		e.Helper()
		for _, s := range []ledger.AttemptState{ledger.NotSent, ledger.Rejected, ledger.FailedAttempt} {
			ev.State = s
			j.unchanged(what, func() {
				_, err := e.Store.Settle(e.Context(), id, ev)
				e.is(what, err, ledger.ErrTooEarly)
			})
		}
	}
	refuse("asked now, inside the window", ask(time.Now(), window))
	refuse("asked in the ledger's future", ask(time.Now().Add(long), window))
	e.AgeAttempts(j.key, long) // time passes, but the question was asked before
	refuse("asked just inside the window", ask(sent().Add(window-time.Second), window))
	refuse("asked before it was sent", ask(sent().Add(-long), window))
	refuse("never asked", ask(time.Time{}, window))
	refuse("asked without a window", ask(time.Now(), 0))
	refuse("asked now, inside a longer window", ask(time.Now(), 2*long))
	j.settle(id, ask(sent().Add(window+time.Second), window))
	j.row(row{State: ledger.Ready, Fence: 2, Error: "retry", Carrier: ledger.CarriedByLedger, Attempts: "not_sent"})

	// The window is each attempt's own.
	j = e.run("two")
	old := j.send("old")
	e.AgeAttempts(j.key, long)
	id = j.send("young")
	j.settle(old, ask(time.Now(), window))
	refuse("the younger of two", ask(time.Now(), window))
	// An answer proves itself at any time.
	found := answer(cent)
	found.By = ledger.ByReconciler
	j.settle(id, found)
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Cost: "0.01", Attempts: "not_sent received$0.01"})
}

func noToUnknown(e *env) {
	j, id := e.replayed("running")
	j.send("extract")
	want := row{State: ledger.Running, Runs: 1, Replays: 1, Fence: 3, Open: 1, Reserved: "0.02", Error: "retry", Carrier: ledger.CarriedByLedger, Attempts: "unknown sent"}
	j.row(want)
	e.settle(id, no(ledger.NotSent))
	want.Reserved, want.Attempts = "0.01", "not_sent sent"
	j.row(want)
	j.send("other") // a no is nothing the run must look for

	j, id = e.replayed("unknown again")
	j.send("extract")
	j.release(outcome(), ledger.Unknown)
	ev := no(ledger.FailedAttempt)
	ev.Cost = new(cent)
	if s := e.settle(id, ev); s.Job != ledger.Unknown {
		e.Errorf("settled %+v: the other call is still open", s)
	}
	j.row(row{State: ledger.Unknown, Replays: 1, Fence: 4, Open: 1, Cost: "0.01", Reserved: "0.01", Error: "retry", Carrier: ledger.CarriedByLedger, Attempts: "failed$0.01 sent"})

	j, id = e.replayed("done")
	j.complete()
	e.settle(id, no(ledger.Rejected))
	j.row(row{State: ledger.Done, Runs: 1, Replays: 1, Fence: 3, Result: `{"n":1}`, Carrier: ledger.CarriedByLedger, Attempts: "rejected"})

	// A reconciler's no is no better here.
	j, id = e.replayed("too early")
	ev = no(ledger.NotSent)
	ev.By, ev.AskedAt, ev.SettleWindow = ledger.ByReconciler, time.Now(), 2*long
	_, err := e.Store.Settle(e.Context(), id, ev)
	e.is("settle inside the window", err, ledger.ErrTooEarly)
	j.row(row{State: ledger.Running, Runs: 1, Replays: 1, Fence: 3, Reserved: "0.01", Error: "retry", Carrier: ledger.CarriedByLedger, Attempts: "unknown"})
}

func noAfterOutcome(e *env) {
	outcomes := []ledger.AttemptState{ledger.Received, ledger.NotSent, ledger.Rejected, ledger.FailedAttempt}
	for _, first := range outcomes {
		j := e.run(string(first))
		id, _ := j.send("extract"), j.send("other")
		ev := answer(cent)
		ev.State = first
		j.settle(id, ev)
		for _, then := range append(outcomes[1:], ledger.Sent) {
			if then == first {
				continue
			}
			later := no(then)
			later.Cost, later.Status, later.By = new(5*cent), 500, ledger.ByPerson
			j.unchanged(string(then)+" after "+string(first), func() {
				_, err := e.Store.Settle(e.Context(), id, later)
				e.is(string(then)+" after "+string(first), err, ledger.ErrState)
			})
		}
		j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Open: 1, Cost: "0.01", Reserved: "0.01", Attempts: string(first) + "$0.01 sent"})
	}
}

func moreEvidence(e *env) {
	j := e.run("a")
	id := j.send("extract")
	j.settle(id, ledger.Evidence{State: ledger.Sent, By: ledger.BySender, Who: "w1", ProviderRequestID: "req_1", Status: 200, FirstByte: time.Second})
	j.settle(id, ledger.Evidence{State: ledger.Sent, By: ledger.BySender, Who: "w1", ObjectID: "resp_1", Usage: ledger.Usage{In: new(int64(5))}})
	j.row(row{State: ledger.Running, Runs: 1, Fence: 1, Open: 1, Reserved: "0.01", Attempts: "sent"})
	j.release(outcome(), ledger.Unknown)
	j.settle(id, ledger.Evidence{State: ledger.Sent, By: ledger.ByReconciler, Who: "r", Class: "still_running"})
	j.row(row{State: ledger.Unknown, Fence: 2, Open: 1, Reserved: "0.01", Error: "retry", Carrier: ledger.CarriedByLedger, Attempts: "sent"})
	open := e.adopt(e.join("r"))[0].Open
	const known = "class still_running status 200 request req_1 object resp_1 first 1s in 5 cached ? out ? cost  "
	if len(open) != 1 || !strings.HasSuffix(attemptText(open[0]), known) {
		e.Errorf("a reconciler is told %+v, want %s", open, known)
	}
	e.AgeAttempts(j.key, long)
	j.lease.Fence = 3
	e.is("replay", e.Store.Replay(e.Context(), j.lease, ledger.ReplayPolicy{Max: 1, Who: "r"}), nil)
	j.settle(id, ledger.Evidence{State: ledger.Sent, By: ledger.ByReconciler, Who: "r", Class: "gone"})
	j.row(row{State: ledger.Ready, Replays: 1, Fence: 3, Reserved: "0.01", Error: "retry", Carrier: ledger.CarriedByLedger, Attempts: "unknown"})
	ev := answer(cent)
	ev.Status, ev.Usage.Out = 0, new(int64(7))
	j.settle(id, ev)
	if text := attemptText(e.read(j.key).Attempts[0]); !strings.HasSuffix(text, "class gone status 200 request req_1 object resp_1 first 1s in 5 cached ? out 7 cost 0.01 computed") {
		e.Errorf("on record is %s", text)
	}
	j.row(row{State: ledger.Ready, Replays: 1, Fence: 3, Cost: "0.01", Error: "retry", Carrier: ledger.CarriedByLedger, Attempts: "received$0.01"})
}

func costs(e *env) {
	j := e.run("a")
	book := func(name string, c *ledger.Nano, want string) {
		e.Helper()
		ev := answer(0)
		ev.Cost = c
		j.settle(j.send(name), ev)
		if got := e.sound(j.key).Cost; dollars(got) != want {
			e.Errorf("after %s the job cost %q, want %q", name, dollars(got), want)
		}
	}
	book("an unknown cost", nil, "")
	book("a cost of nothing", new(ledger.Nano(0)), "0")
	book("one billionth", new(ledger.Nano(1)), "0.000000001")
	book("another unknown cost", nil, "0.000000001")
	book("more than 32 bits", new(5*ledger.USD), "5.000000001")
	j.req.Budget = 0
	j.release(outcome(), ledger.Ready)
	j.again()
	// A reserve held with a cost known already, as a stream shows it before its end.
	id := j.send("stream")
	part := ledger.Evidence{State: ledger.Sent, By: ledger.BySender, Who: "w1", Cost: new(cent)}
	j.settle(id, part)
	j.settle(id, part)
	j.row(row{State: ledger.Running, Runs: 2, Fence: 2, Open: 1, Cost: "5.010000001", Reserved: "0.01", Error: "retry",
		Attempts: "received received$0 received$0.000000001 received received$5 sent$0.01"})
	j.settle(id, answer(3*cent))
	j.settle(j.send("last"), answer(math.MaxInt64/2))
	j.row(row{State: ledger.Running, Runs: 2, Fence: 2, Cost: "4611686023.457387904", Error: "retry",
		Attempts: "received received$0 received$0.000000001 received received$5 received$0.03 received$4611686018.427387903"})
}

func strayBytes(e *env) {
	j := e.run("a")
	id := j.send("extract")
	ev := answer(cent)
	ev.Class, ev.Who, ev.Reason, ev.ProviderRequestID, ev.ObjectID, ev.CostSource = "c\x00", "w\xff1", "\x00", "r\x00\xff", "\xc3\x28", "s\x00"
	ev.Response = &ledger.Response{Codec: "http", Body: []byte("\x00\xff\xfe{\x00}")}
	j.settle(id, ev)
	j.played("extract", id, ev)
	got := e.read(j.key).Attempts[0].Evidence
	if got.Class != "c\ufffd" || got.ProviderRequestID != "r\ufffd\ufffd" || got.ObjectID != "\ufffd(" || got.CostSource != "s\ufffd" {
		e.Errorf("evidence reads %+v", got)
	}
	o := outcome()
	o.Error = ledger.JobError{Class: "panic", Text: "index out of range: \x00\xff"}
	j.release(o, ledger.Ready)
	if got := e.read(j.key).Error; got == nil || got.Text != "index out of range: \ufffd\ufffd" {
		e.Errorf("error reads %+v", got)
	}
	v := j.resolution(ledger.Cancel, 0)
	v.Reason, v.Who = "why\x00\xff", "k\x00"
	_, err := e.Store.Resolve(e.Context(), v)
	e.is("cancel with a stray byte in the reason", err, nil)
	j.row(row{State: ledger.Cancelled, Runs: 1, Fence: 1, Cost: "0.01", Error: "panic", Attempts: "received$0.01"})
}

func invalidEvidence(e *env) {
	j := e.run("a")
	id := j.send("extract")
	for name, spoil := range map[string]func(*ledger.Evidence){
		"received without an answer": func(ev *ledger.Evidence) { ev.Response = nil },
		"no state":                   func(ev *ledger.Evidence) { ev.State = "" },
		"closed as unknown":          func(ev *ledger.Evidence) { ev.State = ledger.UnknownAttempt },
		"from nobody":                func(ev *ledger.Evidence) { ev.By = "" },
		"from a sweeper":             func(ev *ledger.Evidence) { ev.By = ledger.BySweeper },
	} {
		ev := answer(cent)
		spoil(&ev)
		j.unchanged(name, func() {
			_, err := e.Store.Settle(e.Context(), id, ev)
			e.is(name, err, ledger.ErrRequest)
		})
	}
}
