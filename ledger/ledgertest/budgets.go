package ledgertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// budgetCases: what a tenant, or one of its actions, may spend in a day.
var budgetCases = []testCase{
	{"budget of a day", "a tenant spends more in a day than it may, or is refused what it may spend", budgetOfDay},
	{"budget of an action", "a call that one budget refuses is held on another one for ever", budgetOfAction},
	{"budget of another day", "what becomes known later is booked on the wrong day, or never freed", budgetLater},
	{"budget and the same gate again", "a lost reply holds the cost of one call twice", budgetRepeated},
	{"budget and other guards", "whoever lost a job is told of a budget, and waits for the next day", budgetGuards},
	{"a day's budget under concurrency", "calls made at once overrun the day's budget together", budgetDayRace},
	{"budget under any interleaving", "booked and held cost exceed the day's budget", budgetAnyhow},
	{"purge budgets", "budgets of years ago are kept for ever, or today's are forgotten", purgeBudgets},
}

// under is an attempt of a cent under limits of the day.
func under(tenant, action ledger.Nano) ledger.Attempt {
	a := call("extract")
	a.Call.InputKey = a.ID.String()
	a.Day = ledger.DayLimits{Tenant: tenant, Action: action}
	return a
}

// budgets checks the budgets of today: tenant, action: cost + reserved of limit, in cents.
func (e *env) budgets(want ...string) {
	e.Helper()
	e.budgetsOf(time.Now(), want...)
}

func (e *env) budgetsOf(day time.Time, want ...string) {
	e.Helper()
	all, err := e.Store.Budgets(e.Context(), ledger.BudgetFilter{Day: day})
	if err != nil {
		e.Fatalf("budgets: %v", err)
	}
	var got []string
	for _, b := range all {
		if !b.Day.Equal(ledger.DayOf(day)) {
			e.Errorf("a budget of %v is listed on %v", b.Day, day)
		}
		got = append(got, budgetText(b))
	}
	if !slices.Equal(got, want) {
		e.Errorf("budgets are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func budgetText(b ledger.Budget) string {
	cents := func(n ledger.Nano) string { return fmt.Sprint(float64(n) / float64(cent)) }
	return fmt.Sprintf("%s %s: %s + %s of %s", b.Tenant, b.Action, cents(b.Cost), cents(b.Reserved), cents(b.Limit))
}

func budgetOfDay(e *env) {
	e.budgets()
	var sent []ledger.AttemptID
	j := e.run("a")
	for range 2 {
		a := under(3*cent, 0)
		e.is("send", e.Store.Send(e.Context(), j.lease, a), nil)
		sent = append(sent, j.attempt(a.ID))
	}
	b := e.run("b")
	a := under(3*cent, 0)
	e.is("send", e.Store.Send(e.Context(), b.lease, a), nil)
	e.budgets("acme : 0 + 3 of 3")
	b.unchanged("a gate over the day's budget", func() {
		e.is("over the day's budget", e.Store.Send(e.Context(), b.lease, under(3*cent, 0)), ledger.ErrDayBudget)
	})
	e.budgets("acme : 0 + 3 of 3")
	e.is("without limits", e.Store.Send(e.Context(), b.lease, call("other")), nil)
	free := under(3*cent, 0)
	free.Reserve = 0
	e.is("nothing at the limit", e.Store.Send(e.Context(), b.lease, free), nil)
	e.is("under a raised limit", e.Store.Send(e.Context(), b.lease, under(4*cent, 0)), nil)
	e.budgets("acme : 0 + 4 of 4")
	r := e.request("c")
	r.Key.Tenant = "globex"
	e.is("another tenant", e.Store.Send(e.Context(), e.start(r).lease, under(3*cent, 0)), nil)
	e.budgets("acme : 0 + 4 of 4", "globex : 0 + 1 of 3")
	if all, err := e.Store.Budgets(e.Context(), ledger.BudgetFilter{Day: time.Now(), Tenant: "globex"}); err != nil || len(all) != 1 || all[0].Tenant != "globex" {
		e.Errorf("budgets of one tenant: %+v, %v", all, err)
	}
	for range 2 { // the second says what is known
		e.settle(sent[0], no(ledger.NotSent))
		e.settle(sent[1], answer(cent/2))
	}
	e.budgets("acme : 0.5 + 2 of 4", "globex : 0 + 1 of 3")
	b.unchanged("a gate over the day's budget", func() {
		e.is("over what is booked", e.Store.Send(e.Context(), b.lease, under(3*cent, 0)), ledger.ErrDayBudget)
	})
	note := answer(cent / 4)
	note.State, note.Response = ledger.Sent, nil
	e.settle(b.attempt(a.ID), note)
	e.budgets("acme : 0.75 + 2 of 4", "globex : 0 + 1 of 3")
	e.settle(b.attempt(a.ID), answer(cent))
	e.budgets("acme : 1.5 + 1 of 4", "globex : 0 + 1 of 3")
	_, err := e.Store.Budgets(e.Context(), ledger.BudgetFilter{})
	e.is("budgets of no day", err, ledger.ErrRequest)
}

func budgetOfAction(e *env) {
	j := e.run("a")
	e.is("send", e.Store.Send(e.Context(), j.lease, under(9*cent, cent)), nil)
	e.is("over the action's", e.Store.Send(e.Context(), j.lease, under(9*cent, cent)), ledger.ErrDayBudget)
	e.budgets("acme : 0 + 1 of 9", "acme invoice.extract: 0 + 1 of 1")
	r := e.request("b")
	r.Action = "another"
	other := e.start(r)
	a := under(9*cent, 2*cent)
	e.is("another action", e.Store.Send(e.Context(), other.lease, a), nil)
	e.is("over the tenant's", e.Store.Send(e.Context(), other.lease, under(2*cent, 3*cent)), ledger.ErrDayBudget)
	e.budgets("acme : 0 + 2 of 9", "acme another: 0 + 1 of 2", "acme invoice.extract: 0 + 1 of 1")
	e.is("the action's alone", e.Store.Send(e.Context(), other.lease, under(0, 2*cent)), nil)
	e.settle(other.attempt(a.ID), answer(cent))
	e.budgets("acme : 1 + 1 of 9", "acme another: 1 + 1 of 2", "acme invoice.extract: 0 + 1 of 1")
	e.is("more than it may ever", e.Store.Send(e.Context(), other.lease, under(cent/2, 0)), ledger.ErrDayBudget)
}

func budgetLater(e *env) {
	j := e.run("a")
	var ids []ledger.AttemptID
	for range 3 {
		a := under(3*cent, 3*cent)
		e.is("send", e.Store.Send(e.Context(), j.lease, a), nil)
		ids = append(ids, j.attempt(a.ID))
	}
	e.AgeAttempts(j.key, long)
	e.is("replay", e.Store.Replay(e.Context(), j.lease, ledger.ReplayPolicy{Max: 1, Who: "w1", Reason: "test"}), nil)
	e.budgets("acme : 0 + 3 of 3", "acme invoice.extract: 0 + 3 of 3") // closed as unknown, and they may have been paid
	e.is("beside them", e.Store.Send(e.Context(), j.lease, under(3*cent, 3*cent)), ledger.ErrDayBudget)
	e.AgeBudgets(2)
	then := time.Now().AddDate(0, 0, -2)
	e.is("on the next day", e.Store.Send(e.Context(), j.lease, under(3*cent, 0)), nil)
	e.settle(ids[0], answer(2*cent))
	e.settle(ids[1], no(ledger.Rejected))
	e.budgetsOf(then, "acme : 2 + 1 of 3", "acme invoice.extract: 2 + 1 of 3")
	e.budgets("acme : 0 + 1 of 3")
}

func budgetRepeated(e *env) {
	j := e.run("a")
	a := under(cent, cent)
	e.is("send", e.Store.Send(e.Context(), j.lease, a), nil)
	for range 2 {
		j.unchanged("the same gate", func() {
			e.is("the same gate", e.Store.Send(e.Context(), j.lease, a), ledger.ErrRepeated) // though nothing is left of the budget
		})
	}
	a.Day = ledger.DayLimits{Tenant: ledger.USD}
	e.is("the same gate under a raised limit", e.Store.Send(e.Context(), j.lease, a), ledger.ErrRepeated)
	e.budgets("acme : 0 + 1 of 1", "acme invoice.extract: 0 + 1 of 1")
}

// budgetGuards: the day's budget is asked for last.
func budgetGuards(e *env) {
	j := e.run("a")
	stale := j.lease
	stale.Fence++
	e.is("without the lease", e.Store.Send(e.Context(), stale, under(1, 0)), ledger.ErrLost)
	late := under(1, 0)
	late.LateSeen = 7
	e.is("with a late answer unseen", e.Store.Send(e.Context(), j.lease, late), ledger.ErrLate)
	big := under(1, 0)
	big.Reserve = 2 * ledger.USD
	e.is("over the job's budget", e.Store.Send(e.Context(), j.lease, big), ledger.ErrBudget)
	j.resolve(ledger.Cancel, 0)
	e.is("of a cancelled job", e.Store.Send(e.Context(), j.lease, under(1, 0)), ledger.ErrCancelled)
	e.budgets()
}

func budgetDayRace(e *env) {
	var jobs []*job
	for i := range 16 {
		jobs = append(jobs, e.run(fmt.Sprint(i)))
	}
	var passed counter
	at(16, func(i int) {
		err := e.Store.Send(e.Context(), jobs[i].lease, under(5*cent, 9*cent))
		if err == nil {
			passed.add(1)
		} else {
			e.is("gate", err, ledger.ErrDayBudget)
		}
	})
	if passed.n != 5 {
		e.Errorf("%d calls of a cent passed a day's budget of five", passed.n)
	}
	e.budgets("acme : 0 + 5 of 5", "acme invoice.extract: 0 + 5 of 9")
}

type counter struct {
	mu sync.Mutex
	n  ledger.Nano
}

func (c *counter) add(n ledger.Nano) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
}

// budgetAnyhow sends and settles from many sides at once, in any order, and looks at the budgets all the while.
func budgetAnyhow(e *env) {
	const sides, rounds = 6, 30
	limits := ledger.DayLimits{Tenant: 12 * cent, Action: 10 * cent}
	check := func() bool {
		all, err := e.Store.Budgets(e.Context(), ledger.BudgetFilter{Day: time.Now()})
		e.is("budgets", err, nil)
		for _, b := range all {
			if b.Cost+b.Reserved > b.Limit || b.Reserved < 0 {
				e.Errorf("over the limit: %s", budgetText(b))
			}
		}
		return !e.Failed()
	}
	var jobs []*job
	for i := range sides {
		r := e.request(fmt.Sprint(i))
		r.Budget = 0
		if i%2 == 1 {
			r.Action = "another"
		}
		jobs = append(jobs, e.start(r))
	}
	var cost, held counter
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
	at(sides, func(i int) {
		s := spending{job: jobs[i], Rand: rand.New(rand.NewPCG(uint64(i), 1)), limits: limits}
		for range rounds {
			s.step()
		}
		cost.add(s.cost)
		held.add(s.held())
	})
	close(over)
	looks.Wait()
	check()
	all, err := e.Store.Budgets(e.Context(), ledger.BudgetFilter{Day: time.Now()})
	if err != nil || len(all) != 3 || all[0].Cost != cost.n || all[0].Reserved != held.n ||
		all[1].Cost+all[2].Cost != cost.n || all[1].Reserved+all[2].Reserved != held.n {
		e.Errorf("booked %s and held %s in all, and the budgets are %+v (%v)", cost.n, held.n, all, err)
	}
}

// spending is one side: a job whose attempts come and go.
type spending struct {
	*job
	*rand.Rand
	limits ledger.DayLimits
	open   []ledger.Attempt
	cost   ledger.Nano
}

func (s *spending) held() (sum ledger.Nano) {
	for _, a := range s.open {
		sum += a.Reserve
	}
	return sum
}

// step sends an attempt, or tells what became of one; now and then it closes all as unknown, and is told later.
func (s *spending) step() {
	switch n := len(s.open); {
	case s.IntN(8) == 0:
		s.AgeAttempts(s.key, long)
		err := s.Store.Replay(s.Context(), s.lease, ledger.ReplayPolicy{Max: 1000, Who: "w1", Reason: "test"})
		if err != nil && !errors.Is(err, ledger.ErrState) {
			s.Errorf("replay: %v", err)
		}
	case n == 0 || s.IntN(2) == 0:
		a := under(s.limits.Tenant, s.limits.Action)
		a.Reserve, a.LateSeen = cent*ledger.Nano(1+s.IntN(4)), s.look("none").Late
		switch err := s.Store.Send(s.Context(), s.lease, a); {
		case err == nil:
			s.open = append(s.open, a)
			s.is("the same gate", s.Store.Send(s.Context(), s.lease, a), ledger.ErrRepeated)
		default:
			s.is("gate", err, ledger.ErrDayBudget)
		}
	default:
		a := s.open[s.IntN(n)]
		s.open = slices.DeleteFunc(s.open, func(b ledger.Attempt) bool { return b.ID == a.ID })
		ev := no(ledger.NotSent)
		if s.IntN(3) == 0 {
			ev = answer(a.Reserve / 4)
			s.cost += a.Reserve / 4
		}
		_, err := s.Store.Settle(s.Context(), s.attempt(a.ID), ev)
		s.is("settle", err, nil)
	}
}

func purgeBudgets(e *env) {
	j := e.run("a")
	old, fresh := under(cent, cent), under(cent, 0)
	e.is("send", e.Store.Send(e.Context(), j.lease, old), nil)
	e.AgeBudgets(40)
	e.is("send", e.Store.Send(e.Context(), j.lease, fresh), nil)
	then := time.Now().AddDate(0, 0, -40)
	e.budgetsOf(then, "acme : 0 + 1 of 1", "acme invoice.extract: 0 + 1 of 1")
	for _, keep := range []int{41, 39} {
		if keep == 39 {
			e.budgetsOf(then, "acme : 0 + 1 of 1", "acme invoice.extract: 0 + 1 of 1")
		}
		for _, err := range e.Store.Purge(e.Context(), ledger.Retention{Result: 24 * time.Hour, Key: time.Duration(keep) * 24 * time.Hour}) {
			e.is("purge", err, nil)
		}
	}
	e.budgetsOf(then)
	e.budgets("acme : 0 + 1 of 1")
	e.settle(j.attempt(old.ID), answer(cent)) // its budget is gone, and nothing else is missed
	e.settle(j.attempt(fresh.ID), answer(cent))
	e.budgets("acme : 1 + 0 of 1")
}
