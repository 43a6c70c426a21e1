package ledgertest

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// limitCases: how many calls a job may send, and for how long, over all its runs.
var limitCases = []testCase{
	{"calls of a job", "a job sends more calls than it may, or fewer", callsOfJob},
	{"calls of a generation", "a job that was ordered anew cannot send its calls, or a call of an older generation counts", callsOfGeneration},
	{"calls under concurrency", "calls made at once are more than the job may send", callsRace},
	{"calls under any interleaving", "more calls are sent than the job may send, or the count drifts", callsAnyhow},
	{"lifetime of a job", "a job that nobody wants any more goes on spending", lifetimeOfJob},
	{"lifetime of a generation", "a job that was ordered anew cannot send, or a retry begins the lifetime anew", lifetimeOfGeneration},
	{"limits and replays", "a replay is promised to a job that may send nothing, and what was sent is not waited for", limitsReplay},
	{"limits and other guards", "whoever lost a job is told of its limits, or a call is missing whose answer has come", limitsGuards},
	{"limits that make no sense", "a job is bound by a limit that nobody meant", badLimits},
}

// limited claims a new job under limits.
func (e *env) limited(name string, calls int, lifetime time.Duration) *job {
	e.Helper()
	r := e.request(name)
	r.MaxCalls, r.Lifetime = calls, lifetime
	return e.start(r)
}

// sendAny is a gate for another call, under a budget of the day or not.
func (j *job) sendAny(within bool, late int64) (ledger.AttemptID, error) {
	a := under(0, 0)
	a.LateSeen = late
	if within {
		a.Day = ledger.DayLimits{Tenant: ledger.USD, Action: ledger.USD}
	}
	return j.attempt(a.ID), j.Store.Send(j.Context(), j.lease, a)
}

// gates are both of them.
func gates(do func(within bool, name string)) {
	do(false, "without budgets of the day")
	do(true, "under budgets of the day")
}

// over is a gate that a limit shuts.
func (j *job) over(within bool, want error) {
	j.Helper()
	j.unchanged("a gate over a limit", func() {
		_, err := j.sendAny(within, j.look("none").Late)
		j.is("a gate over a limit", err, want)
	})
}

// more is a gate that is open.
func (j *job) more(within bool) ledger.AttemptID {
	j.Helper()
	id, err := j.sendAny(within, j.look("none").Late)
	j.is("a gate", err, nil)
	return id
}

// calls checks the count on the row; the suite checks it against the attempts besides.
func (j *job) calls(want, most int) {
	j.Helper()
	if got := j.sound(j.key); got.Calls != want || got.MaxCalls != most {
		j.Errorf("the row has sent %d calls of %d, want %d of %d", got.Calls, got.MaxCalls, want, most)
	}
}

func callsOfJob(e *env) {
	gates(func(within bool, name string) {
		j := e.limited(name, 2, 0)
		j.settle(j.more(within), no(ledger.Rejected)) // it was sent
		j.release(outcome(), ledger.Ready)
		j.again()
		one := j.more(within)
		j.over(within, ledger.ErrCalls)
		j.calls(2, 2)
		j.settle(one, no(ledger.NotSent))
		j.calls(1, 2)
		j.settle(j.more(within), no(ledger.FailedAttempt))
		j.over(within, ledger.ErrCalls)
		j.settle(one, answer(cent)) // it was sent after all
		j.settle(one, answer(cent))
		j.calls(3, 2)
		j.over(within, ledger.ErrCalls)
		j.release(outcome(), ledger.Ready)
		j.req.MaxCalls = 4
		j.again().more(within)
		j.over(within, ledger.ErrCalls)
		j.calls(4, 4)
		j.LapseRun(j.key)
		e.sweep()
		j.req.MaxCalls = 1
		j.verdict(ledger.HeldUnknown) // a claim that is not told Run changes no limit
		j.calls(4, 4)
	})
	free := e.run("no limit")
	for range 20 {
		free.more(false)
	}
	free.calls(20, 0)
}

func callsOfGeneration(e *env) {
	j := e.limited("a", 2, 0)
	lost := j.more(false)
	second := j.more(false)
	j.AgeAttempts(j.key, long)
	j.release(outcome(), ledger.Unknown)
	j.resolve(ledger.GiveUp, e.read(j.key).Fence)
	j.reopen(ledger.Reopening{Key: j.key, DoublePay: true, Reason: "again", Who: "kim"})
	j.again().over(false, ledger.ErrCalls) // the same generation
	o := outcome()
	o.Fail = true
	j.release(o, ledger.Failed)
	j.reopen(j.order("t1"))
	j.calls(0, 2)
	j.again().more(false)
	j.settle(lost, no(ledger.NotSent)) // of the generation before
	j.settle(second, answer(cent))
	j.calls(1, 2)
	two := j.more(true)
	j.over(true, ledger.ErrCalls)
	j.settle(two, no(ledger.NotSent))
	j.calls(1, 2)
	j.settle(lost, answer(cent))
	j.calls(1, 2)
}

func callsRace(e *env) {
	gates(func(within bool, name string) {
		j := e.limited(name, 5, 0)
		var passed counter
		at(16, func(int) {
			_, err := j.sendAny(within, 0)
			if err == nil {
				passed.add(1)
			} else {
				e.is("gate", err, ledger.ErrCalls)
			}
		})
		if passed.n != 5 {
			e.Errorf("%d calls passed a limit of five, %s", passed.n, name)
		}
		j.calls(5, 5)
	})
}

// callsAnyhow sends and settles calls of one job from many sides at once, in any order, and looks at their number
// all the while.
func callsAnyhow(e *env) {
	const sides, rounds, most = 6, 25, 20
	r := e.request("a")
	r.Budget, r.MaxCalls = 0, most
	j := e.start(r)
	check := func() bool {
		got := e.sound(j.key)
		if got.Calls > most || got.Calls < 0 {
			e.Errorf("%d calls of at most %d", got.Calls, most)
		}
		return !e.Failed()
	}
	over := make(chan struct{})
	var looks sync.WaitGroup
	looks.Go(func() {
		for check() {
			select {
			case <-over:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	})
	var sent counter
	at(sides, func(i int) {
		s := calling{job: j, Rand: rand.New(rand.NewPCG(uint64(i), 2))}
		for range rounds {
			s.step()
		}
		sent.add(ledger.Nano(s.sent))
	})
	close(over)
	looks.Wait()
	j.calls(int(sent.n), most)
	for range most - int(sent.n) {
		j.more(false)
	}
	j.over(false, ledger.ErrCalls)
}

// calling is one side.
type calling struct {
	*job
	*rand.Rand
	open []ledger.AttemptID
	sent int
}

// step sends a call, or tells what became of one: mostly that it was not sent, so that there is room again. Now and then it
// closes all as unknown, those of other sides too.
func (s *calling) step() {
	switch n := len(s.open); {
	case s.IntN(10) == 0:
		s.AgeAttempts(s.key, long)
		err := s.Store.Replay(s.Context(), s.lease, ledger.ReplayPolicy{Max: 1000, Who: "w1", Reason: "test"})
		if err != nil && !errors.Is(err, ledger.ErrState) {
			s.Errorf("replay: %v", err)
		}
	case n == 0 || s.IntN(2) == 0:
		switch id, err := s.sendAny(s.IntN(3) == 0, s.look("none").Late); {
		case err == nil:
			s.open, s.sent = append(s.open, id), s.sent+1
		case errors.Is(err, ledger.ErrLate): // another side's answer came since the look
		default:
			s.is("gate", err, ledger.ErrCalls)
		}
	default:
		i := s.IntN(n)
		ev := no(ledger.NotSent)
		if s.IntN(8) == 0 {
			ev = answer(cent)
		} else {
			s.sent--
		}
		_, err := s.Store.Settle(s.Context(), s.open[i], ev)
		s.is("settle", err, nil)
		s.open = append(s.open[:i:i], s.open[i+1:]...)
	}
}

func lifetimeOfJob(e *env) {
	const half = 90 * time.Minute
	gates(func(within bool, name string) {
		j := e.limited(name, 0, 2*time.Hour)
		if got := e.read(j.key); got.Lifetime != 2*time.Hour || !got.BeganAt.Equal(got.CreatedAt) {
			e.Errorf("a lifetime of %s since %v, of a job of %v", got.Lifetime, got.BeganAt, got.CreatedAt)
		}
		e.AgeRow(j.key, half)
		j.settle(j.more(within), no(ledger.Rejected))
		id := j.more(within)
		e.AgeRow(j.key, half)
		j.over(within, ledger.ErrLifetime)
		j.settle(id, answer(cent)) // what was sent in time counts
		j.release(outcome(), ledger.Ready)
		j.MakeDue(j.key)
		j.again().over(within, ledger.ErrLifetime) // over all runs
		j.release(outcome(), ledger.Ready)
		j.MakeDue(j.key)
		j.req.Lifetime = 4 * time.Hour
		j.again().more(within)
		j.calls(3, 0)
	})
}

func lifetimeOfGeneration(e *env) {
	j := e.limited("a", 0, time.Hour)
	e.AgeRow(j.key, long)
	fail := outcome()
	fail.Fail = true
	j.release(fail, ledger.Failed)
	j.reopen(ledger.Reopening{Key: j.key, Reason: "again", Who: "kim"})
	j.again().over(false, ledger.ErrLifetime)
	j.release(fail, ledger.Failed)
	j.reopen(j.order("t1"))
	if got := e.read(j.key); got.BeganAt.Sub(got.CreatedAt) < long {
		e.Errorf("the new generation began %s after the row was made", got.BeganAt.Sub(got.CreatedAt))
	}
	j.again().more(true)
	j.more(false)
	e.AgeRow(j.key, long)
	j.over(false, ledger.ErrLifetime)
	j.over(true, ledger.ErrLifetime)
}

func limitsReplay(e *env) {
	for name, c := range map[string]struct {
		calls    int
		lifetime time.Duration
		guard    string
	}{
		"no call is left":      {1, 0, "calls_left"},
		"the lifetime is over": {0, time.Hour, "in_lifetime"},
		"both would do":        {2, 5 * time.Hour, ""},
	} {
		j := e.limited(name, c.calls, c.lifetime)
		j.more(false)
		e.AgeRow(j.key, long)
		e.AgeAttempts(j.key, long)
		replay := func(when string) {
			e.Helper()
			err := e.Store.Replay(e.Context(), j.lease, policy())
			if c.guard == "" {
				e.is(when, err, nil)
				return
			}
			e.is(when, err, ledger.ErrState)
			if err != nil && !strings.Contains(err.Error(), c.guard) {
				e.Errorf("%s although %s: %v", when, name, err)
			}
		}
		if c.guard != "" { // within the run
			j.unchanged("a replay within a run", func() { replay("a replay within a run") })
		}
		j.release(outcome(), ledger.Unknown)
		j.lease.Fence = e.read(j.key).Fence
		e.AgeUnknown(j.key, long)
		if c.guard != "" {
			j.unchanged("a replay", func() { replay("a replay") })
			continue
		}
		replay("a replay")
		j.again().more(false)
		j.over(false, ledger.ErrCalls)
	}
}

func limitsGuards(e *env) {
	gates(func(within bool, name string) {
		j := e.limited(name, 1, time.Hour)
		a := call("extract")
		e.is("send", e.Store.Send(e.Context(), j.lease, a), nil)
		e.AgeRow(j.key, long)
		j.unchanged("gates", func() {
			e.is("the same gate again", e.Store.Send(e.Context(), j.lease, a), ledger.ErrRepeated)
			_, err := j.sendAny(within, 7)
			e.is("with a late answer unseen", err, ledger.ErrLate) // it may be the one that is missing
			stale := *j
			stale.lease.Fence++
			_, err = stale.sendAny(within, 0)
			e.is("without the lease", err, ledger.ErrLost)
		})
		j.over(within, ledger.ErrCalls)
		j.resolve(ledger.Cancel, 0)
		j.over(within, ledger.ErrCancelled)
	})
	j := e.limited("over all", 1, 0)
	j.more(false)
	b := under(1, 1)
	e.is("over the day's budget too", e.Store.Send(e.Context(), j.lease, b), ledger.ErrCalls) // which another day would not help
	e.budgets()
}

func badLimits(e *env) {
	for name, spoil := range map[string]func(*ledger.Request){
		"calls below zero":      func(r *ledger.Request) { r.MaxCalls = -1 },
		"too many calls":        func(r *ledger.Request) { r.MaxCalls = 1 << 31 },
		"a lifetime below zero": func(r *ledger.Request) { r.Lifetime = -time.Hour },
		"a lifetime of nothing": func(r *ledger.Request) { r.Lifetime = time.Microsecond },
		"a budget below zero":   func(r *ledger.Request) { r.Budget = -1 },
	} {
		r := e.request(name)
		spoil(&r)
		_, err := e.Store.Claim(e.Context(), r)
		e.is(name, err, ledger.ErrRequest)
		e.absent(r.Key)
	}
}
