package ledgertest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// unknownCases: what may have been paid is held until evidence, a policy or a
// person says what to do.
var unknownCases = []testCase{
	{"adopt", "an unknown job is looked after by nobody, or by two", adopt},
	{"adopt what is due", "an unknown job is asked about without pause, or a live reconciler's job is taken", adoptDue},
	{"adopt again", "an unknown job whose adoption was not heard of is never looked at", adoptAgain},
	{"keep", "an unknown job that was looked at is never looked at again", keep},
	{"looks share a line", "the history of a job that is held grows without end, or says nothing of the last look", looks},
	{"replay", "a policy pays twice without leave, or never", replay},
	{"replay and room", "a replay is promised whose call the gate refuses, and the job fails instead of waiting for evidence", replayRoom},
	{"replay without leave", "a policy pays twice although its own limits forbid it", replayForbidden},
	{"replay and what is open", "a policy pays twice while the first call may still land, or waits for one that has ended", horizon},
	{"give up", "a job that was given up is held for ever, or its answer is thrown away", giveUp},
	{"cancel", "a job that a person cancelled runs", cancel},
	{"verdicts on jobs that changed", "a person's verdict overwrites what became known meanwhile", staleVerdicts},
}

func keep(e *env) {
	j := e.unknown("a")
	a := e.adopt(e.join("reconciler"))[0]
	v := j.resolution(ledger.Keep, a.Lease.Fence)
	v.NextIn = time.Hour
	r, err := e.Store.Resolve(e.Context(), v)
	if err != nil || r.State != ledger.Unknown || r.Carrier != ledger.CarriedByLedger || r.RetryIn < 59*time.Minute || r.RetryIn > time.Hour {
		e.Errorf("keep: %+v %v", r, err)
	}
	want := row{State: ledger.Unknown, Fence: 3, Open: 1, Reserved: "0.01", Error: "retry", Carrier: ledger.CarriedByLedger, Attempts: "sent"}
	j.row(want)
	if c := j.verdict(ledger.HeldUnknown); c.RetryIn < 59*time.Minute {
		e.Errorf("a claim is told to come back in %s", c.RetryIn)
	}
	v.Fence--
	j.unchanged("keep by an older fence", func() {
		_, err := e.Store.Resolve(e.Context(), v)
		e.is("keep by an older fence", err, ledger.ErrLost)
	})
	for name, j := range e.states() {
		if name == "unknown" {
			continue
		}
		j.unchanged("keep a job that is "+name, func() {
			_, err := e.Store.Resolve(e.Context(), j.resolution(ledger.Keep, e.read(j.key).Fence))
			e.is("keep a job that is "+name, err, ledger.ErrLost)
		})
	}
	j.row(want)
}

// policy is a replay policy that allows one replay.
func policy() ledger.ReplayPolicy {
	return ledger.ReplayPolicy{Max: 1, Hold: time.Hour, Who: "reconciler", Reason: "replay:1"}
}

func replay(e *env) {
	j := e.run("a")
	two := j.send("two")
	e.AgeAttempts(j.key, long)
	one := j.send("one") // answered already: that it is young does not matter
	j.settle(one, answer(cent))
	j.release(outcome(), ledger.Unknown)
	j.lease = e.adopt(e.join("reconciler"))[0].Lease
	e.AgeUnknown(j.key, long)
	j.later() // looked at in vain; the replay makes it due all the same
	e.is("replay", e.Store.Replay(e.Context(), j.lease, policy()), nil)
	want := row{State: ledger.Ready, Replays: 1, Fence: 3, Cost: "0.01", Reserved: "0.01", Error: "retry", Carrier: ledger.CarriedByLedger, Attempts: "unknown received$0.01"}
	j.row(want)
	history := e.read(j.key).History
	if last := history[len(history)-1]; last.From != ledger.Unknown || last.To != ledger.Ready || last.Actor != "reconciler" || !strings.Contains(last.Reason, "replay:1") {
		e.Errorf("the leave to pay twice is not on record: %+v", last)
	}
	j.unchanged("a replay of a job that is ready", func() {
		p := policy()
		p.Max = 5
		e.is("again", e.Store.Replay(e.Context(), j.lease, p), ledger.ErrLost)
	})
	j.again()
	j.played("one", one, answer(cent))
	again := j.send("two")
	j.settle(again, answer(cent))
	j.complete(one, again)
	j.settle(two, answer(cent)) // the first one, after all
	j.row(row{State: ledger.Done, Runs: 1, Replays: 1, Fence: 4, Cost: "0.03", Carrier: ledger.CarriedByLedger, Result: `{"n":1}`,
		Attempts: "received$0.01* received$0.01 received$0.01"})
}

func replayForbidden(e *env) {
	for name, c := range map[string]struct {
		spoil func(*job, *ledger.ReplayPolicy)
		want  error
		guard string
	}{
		"none allowed":            {func(_ *job, p *ledger.ReplayPolicy) { p.Max = 0 }, ledger.ErrState, "replay_left"},
		"not held long enough":    {func(_ *job, p *ledger.ReplayPolicy) { p.Hold = 2 * long }, ledger.ErrState, "held_long_enough"},
		"a call may still land":   {func(j *job, _ *ledger.ReplayPolicy) { e.AgeAttempts(j.key, -long) }, ledger.ErrState, "past_route_timeouts"},
		"the budget is spent":     {func(j *job, _ *ledger.ReplayPolicy) { j.spend(2 * ledger.USD) }, ledger.ErrState, "in_budget"},
		"no room for the call":    {func(j *job, _ *ledger.ReplayPolicy) { j.spend(ledger.USD - 2*cent + 1) }, ledger.ErrState, "in_budget"},
		"somebody else looked":    {func(j *job, _ *ledger.ReplayPolicy) { j.lease.Fence-- }, ledger.ErrLost, ""},
		"an answer has come":      {func(j *job, _ *ledger.ReplayPolicy) { j.settle(j.first(), answer(cent)) }, ledger.ErrLost, ""},
		"a person cancelled it":   {func(j *job, _ *ledger.ReplayPolicy) { j.resolve(ledger.Cancel, 0) }, ledger.ErrLost, ""},
		"a person gave up":        {func(j *job, _ *ledger.ReplayPolicy) { j.resolve(ledger.GiveUp, j.lease.Fence) }, ledger.ErrLost, ""},
		"it was replayed already": {func(j *job, _ *ledger.ReplayPolicy) { j.replayOnce() }, ledger.ErrState, "replay_left"},
	} {
		j := e.unknown(name)
		j.lease.Fence = 2
		e.AgeUnknown(j.key, long)
		e.AgeAttempts(j.key, long)
		p := policy()
		c.spoil(j, &p)
		j.unchanged("a replay although "+name, func() {
			err := e.Store.Replay(e.Context(), j.lease, p)
			e.is("a replay although "+name, err, c.want)
			if c.guard != "" && err != nil && !strings.Contains(err.Error(), c.guard) {
				e.Errorf("a replay although %s: %v does not name %s", name, err, c.guard)
			}
		})
	}
}

// first is the job's first attempt.
func (j *job) first() ledger.AttemptID {
	j.Helper()
	return j.attempt(j.read(j.key).Attempts[0].ID)
}

// spend books a cost on the job's first call, which stays open.
func (j *job) spend(n ledger.Nano) {
	j.Helper()
	j.settle(j.first(), ledger.Evidence{State: ledger.Sent, By: ledger.BySender, Who: "w1", Cost: new(n)})
}

// replayRoom: what a replay would send again has room, or nothing is promised. Each open call would hold back its
// reserve once more, beside the one that stays until there is evidence.
func replayRoom(e *env) {
	for name, c := range map[string]struct {
		spent ledger.Nano
		calls int
		guard string
	}{
		"room for both":             {ledger.USD - 4*cent, 0, ""},
		"room for one and a half":   {ledger.USD - 4*cent + 1, 0, "in_budget"},
		"as many calls as it may":   {0, 4, ""},
		"one call more than it may": {0, 3, "calls_left"},
	} {
		for _, within := range []bool{false, true} {
			r := e.request(fmt.Sprint(name, within))
			r.MaxCalls = c.calls
			j := e.start(r)
			j.send("one")
			j.send("two")
			j.spend(c.spent)
			e.AgeAttempts(j.key, long)
			if !within {
				j.release(outcome(), ledger.Unknown)
				j.lease.Fence = e.read(j.key).Fence
				e.AgeUnknown(j.key, long)
			}
			if c.guard != "" {
				j.unchanged("a replay with "+name, func() {
					err := e.Store.Replay(e.Context(), j.lease, policy())
					if !errors.Is(err, ledger.ErrState) || !strings.Contains(err.Error(), c.guard) {
						e.Errorf("a replay with %s, within a run: %v: %v, want %s", name, within, err, c.guard)
					}
				})
				continue
			}
			e.is("a replay with "+name, e.Store.Replay(e.Context(), j.lease, policy()), nil)
			if !within {
				j.again()
			}
			j.send("one")
			j.send("two")
			j.sound(j.key)
		}
	}
}

// replayOnce brings the job back to unknown after a replay.
func (j *job) replayOnce() {
	j.Helper()
	j.is("first replay", j.Store.Replay(j.Context(), j.lease, policy()), nil)
	j.again().send("extract")
	j.release(outcome(), ledger.Unknown)
	j.lease.Fence++
	j.AgeUnknown(j.key, long)
	j.AgeAttempts(j.key, long)
}

func replayWithin(e *env) {
	for name, c := range map[string]struct {
		spoil func(*job, *ledger.ReplayPolicy)
		want  error
		guard string
	}{
		"it may":                    {func(*job, *ledger.ReplayPolicy) {}, nil, ""},
		"it need not wait":          {func(_ *job, p *ledger.ReplayPolicy) { p.Hold = 2 * long }, nil, ""},
		"none allowed":              {func(_ *job, p *ledger.ReplayPolicy) { p.Max = 0 }, ledger.ErrState, "replay_left"},
		"a call may still land":     {func(j *job, _ *ledger.ReplayPolicy) { e.AgeAttempts(j.key, -long) }, ledger.ErrState, "past_route_timeouts"},
		"one of two may still land": {func(j *job, _ *ledger.ReplayPolicy) { j.send("young") }, ledger.ErrState, "past_route_timeouts"},
		"the budget is spent":       {func(j *job, _ *ledger.ReplayPolicy) { j.spend(2 * ledger.USD) }, ledger.ErrState, "in_budget"},
		"no room for the call":      {func(j *job, _ *ledger.ReplayPolicy) { j.spend(ledger.USD - 2*cent + 1) }, ledger.ErrState, "in_budget"},
		"nothing is open":           {func(j *job, _ *ledger.ReplayPolicy) { j.settle(j.first(), answer(cent)) }, ledger.ErrState, "some_open"},
		"the run is over":           {func(j *job, _ *ledger.ReplayPolicy) { e.LapseRun(j.key) }, ledger.ErrLost, ""},
		"the job is flagged":        {func(j *job, _ *ledger.ReplayPolicy) { j.resolve(ledger.Cancel, 0) }, ledger.ErrCancelled, ""},
		"it was given back":         {func(j *job, _ *ledger.ReplayPolicy) { j.release(outcome(), ledger.Unknown) }, ledger.ErrLost, ""},
		"another run has it": {func(j *job, _ *ledger.ReplayPolicy) {
			j.settle(j.first(), no(ledger.NotSent))
			e.LapseRun(j.key)
			old := j.lease
			j.again().send("extract")
			e.AgeAttempts(j.key, long)
			j.lease = old
		}, ledger.ErrLost, ""},
	} {
		j := e.run(name)
		j.send("extract")
		e.AgeAttempts(j.key, long)
		p := policy()
		c.spoil(j, &p)
		if c.want == nil {
			e.is("a replay because "+name, e.Store.Replay(e.Context(), j.lease, p), nil)
			j.row(row{State: ledger.Running, Runs: 1, Replays: 1, Fence: 1, Reserved: "0.01", Attempts: "unknown"})
			j.settle(j.send("extract"), answer(cent)) // the run goes on
			j.row(row{State: ledger.Running, Runs: 1, Replays: 1, Fence: 1, Cost: "0.01", Reserved: "0.01", Attempts: "unknown received$0.01"})
			e.is("another replay with nothing open", e.Store.Replay(e.Context(), j.lease, ledger.ReplayPolicy{Max: 9, Who: "w1"}), ledger.ErrState)
			continue
		}
		j.unchanged("a replay within a run although "+name, func() {
			err := e.Store.Replay(e.Context(), j.lease, p)
			e.is("a replay within a run although "+name, err, c.want)
			if c.guard != "" && err != nil && !strings.Contains(err.Error(), c.guard) {
				e.Errorf("although %s: %v does not name %s", name, err, c.guard)
			}
		})
	}
}

// Case 43: what nobody can find out is closed as unknown, flagged, and keeps what it may have cost.
func giveUp(e *env) {
	j := e.unknown("a")
	a := e.adopt(e.join("reconciler"))[0]
	v := j.resolution(ledger.GiveUp, a.Lease.Fence)
	v.Reason = "nobody knows"
	v.By, v.Who = ledger.ByReconciler, "reconciler"
	r, err := e.Store.Resolve(e.Context(), v)
	if err != nil || r.State != ledger.Failed {
		e.Errorf("give up: %+v %v", r, err)
	}
	want := row{State: ledger.Failed, Fence: 3, Reserved: "0.01", Error: "held", Carrier: ledger.CarriedByLedger, Attempts: "unknown"}
	j.row(want)
	got := e.read(j.key)
	if last := got.History[len(got.History)-1]; got.Error.Text != "nobody knows" || last.Actor != "reconciler" || !strings.Contains(last.Reason, "nobody knows") {
		e.Errorf("error %+v, history ends with %+v", got.Error, last)
	}
	j.unchanged("the same verdict again", func() {
		if r, err := e.Store.Resolve(e.Context(), v); err != nil || r.State != ledger.Failed {
			e.Errorf("again: %+v %v", r, err)
		}
	})
	v.Fence--
	j.unchanged("a verdict under an older fence", func() {
		_, err := e.Store.Resolve(e.Context(), v)
		e.is("a verdict under an older fence", err, ledger.ErrLost)
	})
	if c := j.verdict(ledger.HasFailed); c.Error == nil || c.Error.Text != "nobody knows" {
		e.Errorf("claims are told %+v", c.Error)
	}
	e.settle(j.first(), answer(cent))
	want.Reserved, want.Cost, want.Attempts = "", "0.01", "received$0.01"
	j.row(want)
}

func cancel(e *env) {
	for name, j := range e.states() {
		before := e.read(j.key)
		r, err := e.Store.Resolve(e.Context(), j.resolution(ledger.Cancel, before.Fence+77)) // needs no fence
		if before.State == ledger.Done || before.State == ledger.Failed {
			e.is("cancel a job that is "+name, err, ledger.ErrState)
			continue
		}
		e.is("cancel a job that is "+name, err, nil)
		want := row{State: ledger.Cancelled, Runs: before.Runs, Fence: before.Fence, Carrier: before.Carrier, Cancel: before.Cancel}
		if before.Error != nil {
			want.Error = before.Error.Class
		}
		switch {
		case before.State == ledger.Running:
			want.State, want.Cancel = ledger.Running, true
			if want.Open = before.OpenCalls; want.Open > 0 {
				want.Reserved, want.Attempts = "0.01", "sent"
			}
		case name == "unknown":
			want.Reserved, want.Attempts = "0.01", "unknown"
		}
		if r.State != want.State || r.Carrier != before.Carrier {
			e.Errorf("cancel a job that is %s: %+v", name, r)
		}
		j.row(want)
		j.unchanged("cancelling it again", func() {
			if again, err := e.Store.Resolve(e.Context(), j.resolution(ledger.Cancel, 0)); err != nil || again.State != want.State {
				e.Errorf("cancel twice a job that is %s: %+v %v", name, again, err)
			}
		})
		history := e.read(j.key).History
		if last := history[len(history)-1]; before.State == ledger.Ready && (last.Actor != "kim" || !strings.Contains(last.Reason, "looked at it")) {
			e.Errorf("the history does not say who cancelled it and why: %+v", last)
		}
	}
	// The flag outlives a run that could not be cancelled at once.
	j := e.run("flagged open")
	id := j.send("extract")
	j.resolve(ledger.Cancel, 0)
	j.settle(id, answer(cent))
	j.release(outcome(), ledger.Cancelled)
	j.row(row{State: ledger.Cancelled, Runs: 1, Fence: 1, Cost: "0.01", Cancel: true, Error: "retry", Attempts: "received$0.01"})
}

func staleVerdicts(e *env) {
	for name, j := range e.states() {
		if name == "unknown" || name == "failed" { // failed under its fence: given up already, as far as anybody can tell
			continue
		}
		j.unchanged("giving up a job that is "+name, func() {
			_, err := e.Store.Resolve(e.Context(), j.resolution(ledger.GiveUp, e.read(j.key).Fence))
			e.is("giving up a job that is "+name, err, ledger.ErrLost)
		})
	}
	j := e.unknown("adopted meanwhile")
	e.adopt(e.join("reconciler"))
	j.unchanged("a verdict on what was read before", func() {
		_, err := e.Store.Resolve(e.Context(), j.resolution(ledger.GiveUp, 2))
		e.is("a verdict on what was read before", err, ledger.ErrLost)
	})
	for _, a := range []ledger.Action{ledger.Keep, ledger.GiveUp, ledger.Cancel} {
		v := j.resolution(a, 1)
		v.Key.Text += " of nobody"
		_, err := e.Store.Resolve(e.Context(), v)
		e.is(string(a)+" a job that is not there", err, ledger.ErrNotFound)
		v.Key = ledger.Key{Tenant: "globex", Text: j.key.Text}
		_, err = e.Store.Resolve(e.Context(), v)
		e.is(string(a)+" a job of another tenant", err, ledger.ErrNotFound)
	}
	j.unchanged("no such action", func() {
		_, err := e.Store.Resolve(e.Context(), j.resolution("forget", 3))
		e.is("no such action", err, ledger.ErrRequest)
	})
}
