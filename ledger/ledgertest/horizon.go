package ledgertest

import (
	"strings"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// sendFor sends a call whose route has that timeout.
func (j *job) sendFor(name string, timeout time.Duration) ledger.AttemptID {
	j.Helper()
	a := call(name)
	a.Timeout = timeout
	if err := j.Store.Send(j.Context(), j.lease, a); err != nil {
		j.Fatalf("send call %s: %v", name, err)
	}
	return j.attempt(a.ID)
}

// horizon: what may still land is what is open. When the attempt that could land last has its outcome, a replay waits for the next
// one and for no longer, whatever the outcome, and whether a run asks for it or a reconciler.
func horizon(e *env) {
	const soon, mid, far = 10 * time.Minute, time.Hour, 3 * time.Hour
	person := no(ledger.NotSent)
	person.By, person.Who = ledger.ByPerson, "kim"
	for name, c := range map[string]struct {
		ends     ledger.Evidence
		twin     bool // of another attempt of its call, which is answered first
		attempts string
	}{
		"is answered":       {answer(cent), false, "received$0.01 unknown received$0.01"},
		"is refused":        {no(ledger.Rejected), false, "received$0.01 unknown rejected"},
		"failed":            {no(ledger.FailedAttempt), false, "received$0.01 unknown failed"},
		"was never sent":    {person, false, "received$0.01 unknown not_sent"},
		"is not waited for": {answer(cent), true, "received$0.01 unknown unknown received$0.01"},
	} {
		for _, within := range []bool{true, false} {
			what, want := "the last one "+name, row{State: ledger.Running, Runs: 1, Fence: 1}
			if !within {
				what += ", held"
				want = row{State: ledger.Ready, Fence: 2, Error: "retry", Carrier: ledger.CarriedByLedger}
			}
			j := e.run(what)
			j.settle(j.sendFor("gone", 3*far), answer(cent)) // whose timeout is the longest, and nobody's any more
			j.sendFor("left", mid)
			last := j.sendFor("last", far)
			if c.twin {
				last = j.sendFor("last", soon)
			}
			if !within {
				j.release(outcome(), ledger.Unknown)
				j.lease.Fence = e.read(j.key).Fence
				e.AgeUnknown(j.key, long)
			}
			refused := func(why string) {
				e.Helper()
				j.unchanged(what+", "+why, func() {
					if err := e.Store.Replay(e.Context(), j.lease, policy()); err == nil || !strings.Contains(err.Error(), "past_route_timeouts") {
						e.Errorf("%s, %s: a replay got %v, want that a call may land", what, why, err)
					}
				})
			}
			e.AgeAttempts(j.key, mid/2)
			refused("both may land")
			j.settle(last, c.ends)
			refused("the other may land")
			e.AgeAttempts(j.key, mid)
			e.is(what+", the other is past: a replay", e.Store.Replay(e.Context(), j.lease, policy()), nil)
			want.Replays, want.Attempts = 1, c.attempts
			want.Cost, want.Reserved = "0.01", "0.01"
			if c.ends.State == ledger.Received {
				want.Cost = "0.02"
			}
			if c.twin {
				want.Reserved = "0.02"
			}
			j.row(want)
		}
	}
}
