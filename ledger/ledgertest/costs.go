package ledgertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// costCases: what reports of money say.
var costCases = []testCase{
	{"report of costs", "a report adds up another amount than was paid, or books it elsewhere", costsOfAll},
	{"report of costs by days", "what was paid on one day is told of another, or of none", costsByDay},
	{"report of costs of forgotten jobs", "a report over what retention has forgotten looks as if it were whole", costsForgotten},
	{"report of costs that make no sense", "a report about something else than was asked for looks like an answer", costsInvalid},
}

// costText is a group in one line; what is zero is left out.
func costText(c ledger.Cost) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:", strings.TrimPrefix(c.Provider+"/"+c.By, "/"))
	number := func(name string, n int64) {
		if n != 0 {
			fmt.Fprintf(&b, " %s %d", name, n)
		}
	}
	money := func(name string, n ledger.Nano) {
		if n != 0 {
			fmt.Fprintf(&b, " %s $%s", name, n)
		}
	}
	number("jobs", c.Jobs)
	number("calls", c.Calls)
	money("spent", c.Spent)
	number("priced", c.Priced)
	number("unpriced", c.Unpriced)
	number("failed", c.Failed)
	for _, cause := range ledger.Causes() {
		number(string(cause), c.Avoided[cause])
	}
	money("saved", c.Saved)
	number("saved unpriced", c.SavedUnpriced)
	number("surplus", c.Surplus)
	number("replayed", c.Replayed)
	money("wasted", c.Wasted)
	number("wasted unpriced", c.WastedUnpriced)
	number("unknown", c.Unknown)
	money("reserved", c.Reserved)
	if c.Partial {
		b.WriteString(" partial")
	}
	return b.String()
}

// costs reads a report.
func (e *env) costs(f ledger.CostFilter) ledger.Costs {
	e.Helper()
	c, err := e.Store.Costs(e.Context(), f)
	if err != nil {
		e.Fatalf("costs %+v: %v", f, err)
	}
	for _, g := range append([]ledger.Cost{c.Total}, c.Groups...) {
		if len(g.Avoided) != len(ledger.Causes()) {
			e.Errorf("costs %+v: group %q has the causes %v", f, g.By, g.Avoided)
		}
	}
	return c
}

// report checks a report: its total first, then its groups.
func (e *env) report(f ledger.CostFilter, want ...string) {
	e.Helper()
	c := e.costs(f)
	got := []string{costText(c.Total)}
	for _, g := range c.Groups {
		got = append(got, costText(g))
	}
	if !slices.Equal(got, want) {
		e.Errorf("costs %+v\n got %s\nwant %s", f, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// of claims a new job of another tenant and action.
func (e *env) of(tenant, action, name string) *job {
	e.Helper()
	r := e.request(name)
	r.Key, r.Action = ledger.Key{Tenant: tenant, Text: tenant + ":" + action + ":" + name}, action
	return e.start(r)
}

// ask sends an attempt of a call to a model.
func (j *job) ask(name, provider, model string) ledger.AttemptID {
	j.Helper()
	a := call(name)
	a.Provider, a.Model, a.LateSeen = provider, model, j.look(name).Late
	if err := j.Store.Send(j.Context(), j.lease, a); err != nil {
		j.Fatalf("send call %s: %v", name, err)
	}
	return j.attempt(a.ID)
}

// replay closes the job's open attempts.
func (j *job) replay() {
	j.Helper()
	j.AgeAttempts(j.key, long)
	if err := j.Store.Replay(j.Context(), j.lease, ledger.ReplayPolicy{Max: 9, Who: "w1"}); err != nil {
		j.Fatalf("replay: %v", err)
	}
}

// unpriced is an answer whose cost nobody knows.
func unpriced() ledger.Evidence {
	ev := answer(0)
	ev.Cost, ev.CostSource = nil, ""
	return ev
}

// spend makes jobs with every fate that an attempt can have.
func (e *env) spend() {
	e.Helper()
	e.finished("plain") // $0.01

	j := e.run("surplus")
	used, extra, free := j.send("extract"), j.ask("check", "anthropic", "m1"), j.ask("check again", "anthropic", "m1")
	j.settle(used, answer(cent))
	j.settle(extra, answer(2*cent))
	j.settle(free, unpriced())
	j.complete(used)

	j = e.run("refused")
	j.settle(j.send("extract"), no(ledger.Rejected))
	j.settle(j.send("extract"), no(ledger.NotSent))
	j.settle(j.send("extract"), no(ledger.FailedAttempt))
	billed := no(ledger.FailedAttempt)
	billed.Cost = new(cent / 2)
	j.settle(j.send("extract"), billed)
	o := outcome()
	o.Fail = true
	j.release(o, ledger.Failed)

	j = e.of("acme", "sum", "unpriced")
	only := j.ask("sum", "openai", "m2")
	j.settle(only, unpriced())
	j.complete(only)

	j = e.of("globex", "sum", "replayed") // nobody ever knows of the first
	j.ask("sum", "openai", "m2")
	j.replay()
	second := j.ask("sum", "openai", "m1")
	j.settle(second, answer(3*cent))
	j.complete(second)

	j = e.of("globex", "sum", "late") // the first was paid too
	first := j.ask("sum", "openai", "m2")
	j.replay()
	second = j.ask("sum", "openai", "m2")
	j.settle(second, answer(3*cent))
	j.settle(first, answer(4*cent+1))
	j.complete(second)

	j = e.run("not again") // closed, and what was sent after it for the same call was not
	j.send("extract")
	j.replay()
	j.settle(j.send("extract"), no(ledger.NotSent))
	j.send("other")
	j.release(outcome(), ledger.Unknown)
	j.resolve(ledger.GiveUp, j.lease.Fence+1)

	j = e.run("waits")
	j.send("extract")
	j.release(outcome(), ledger.Unknown)

	e.run("under way").send("extract")
	e.run("idle")
	j = e.run("nothing sent")
	j.settle(j.ask("extract", "openai", "m3"), no(ledger.NotSent))
}

func costsOfAll(e *env) {
	e.report(ledger.CostFilter{}, ":")
	e.report(ledger.CostFilter{By: ledger.PerAction}, ":")
	e.spend()
	e.count(e.worker, ledger.NewID(),
		ledger.Avoided{Day: time.Now(), Tenant: "acme", Action: action, Cause: ledger.Redelivered, Count: 3, Saved: 2 * cent, Unpriced: 1},
		ledger.Avoided{Day: time.Now(), Tenant: "acme", Action: "sum", Cause: ledger.AckLost, Count: 1, Unpriced: 1},
		ledger.Avoided{Day: time.Now(), Tenant: "globex", Action: "sum", Cause: ledger.DuplicateMessage, Count: 2, Saved: 6 * cent},
		ledger.Avoided{Day: time.Now(), Tenant: "nobody", Action: "gone", Cause: ledger.SubmittedAgain, Count: 1, Saved: 7})
	const total = ": jobs 11 calls 16 spent $0.145000001 priced 7 unpriced 2 failed 1 redelivered 3 duplicate_message 2 ack_lost 1 submitted_again 1" +
		" saved $0.080000007 saved unpriced 2 surplus 3 replayed 1 wasted $0.060000001 wasted unpriced 2 unknown 4 reserved $0.04"
	const globex = " jobs 2 calls 4 spent $0.100000001 priced 3 duplicate_message 2 saved $0.06" +
		" surplus 1 replayed 1 wasted $0.040000001 wasted unpriced 1 unknown 1 reserved $0.01"
	e.report(ledger.CostFilter{}, total)
	e.report(ledger.CostFilter{By: ledger.PerAction}, total,
		"gone: submitted_again 1 saved $0.000000007",
		"invoice.extract: jobs 8 calls 11 spent $0.045 priced 4 unpriced 1 failed 1 redelivered 3 saved $0.02 saved unpriced 1"+
			" surplus 2 wasted $0.02 wasted unpriced 1 unknown 3 reserved $0.03",
		"sum: jobs 3 calls 5 spent $0.100000001 priced 3 unpriced 1 duplicate_message 2 ack_lost 1 saved $0.06 saved unpriced 1"+
			" surplus 1 replayed 1 wasted $0.040000001 wasted unpriced 1 unknown 1 reserved $0.01")
	e.report(ledger.CostFilter{By: ledger.PerTenant}, total,
		"acme: jobs 9 calls 12 spent $0.045 priced 4 unpriced 2 failed 1 redelivered 3 ack_lost 1 saved $0.02 saved unpriced 2"+
			" surplus 2 wasted $0.02 wasted unpriced 1 unknown 3 reserved $0.03",
		"globex:"+globex,
		"nobody: submitted_again 1 saved $0.000000007")
	e.report(ledger.CostFilter{By: ledger.PerModel}, total,
		": jobs 2 redelivered 3 duplicate_message 2 ack_lost 1 submitted_again 1 saved $0.080000007 saved unpriced 2",
		"anthropic/m1: jobs 1 calls 2 spent $0.02 priced 1 unpriced 1 surplus 2 wasted $0.02 wasted unpriced 1",
		"openai/m1: jobs 7 calls 10 spent $0.055 priced 4 failed 1 unknown 3 reserved $0.03",
		"openai/m2: jobs 3 calls 4 spent $0.070000001 priced 2 unpriced 1 surplus 1 replayed 1 wasted $0.040000001 wasted unpriced 1 unknown 1 reserved $0.01")
	e.report(ledger.CostFilter{Tenant: "globex"}, ":"+globex)
	e.report(ledger.CostFilter{Tenant: "acme", Action: "sum", By: ledger.PerModel},
		": jobs 1 calls 1 unpriced 1 ack_lost 1 saved unpriced 1", ": ack_lost 1 saved unpriced 1", "openai/m2: jobs 1 calls 1 unpriced 1")
	e.report(ledger.CostFilter{Tenant: "it's\x00", By: ledger.PerTenant}, ":")
	e.report(ledger.CostFilter{Action: "\xff", By: ledger.PerModel}, ":")
}

// costsByDay: a job counts on the day of its creation, a call on that of its sending, a count on its own.
func costsByDay(e *env) {
	j := e.finished("old")
	e.AgeRow(j.key, 3*day)
	e.AgeAttempts(j.key, 2*day)
	young := e.finished("young")
	full := e.read(j.key)
	created, sent, today := ledger.DayOf(full.CreatedAt), ledger.DayOf(full.Attempts[0].SentAt), ledger.DayOf(e.read(young.key).CreatedAt)
	e.count(e.worker, ledger.NewID(),
		ledger.Avoided{Day: sent.Add(day - 1), Tenant: "acme", Action: action, Cause: ledger.Redelivered, Count: 1, Saved: cent},
		ledger.Avoided{Day: sent.In(time.FixedZone("", -3600)), Tenant: "acme", Action: action, Cause: ledger.Redelivered, Count: 1, Saved: cent},
		ledger.Avoided{Day: sent.Add(-1), Tenant: "acme", Action: action, Cause: ledger.Redelivered, Count: 5, Saved: cent})
	if !sent.Equal(created.Add(day)) {
		e.Fatalf("the job was made on %s and its call sent on %s", created, sent)
	}
	name := func(t time.Time) string { return t.Format(time.DateOnly) }
	const first = ": jobs 1 redelivered 5 saved $0.01"
	e.report(ledger.CostFilter{By: ledger.PerDay}, ": jobs 2 calls 2 spent $0.02 priced 2 redelivered 7 saved $0.03", name(created)+first,
		name(sent)+": calls 1 spent $0.01 priced 1 redelivered 2 saved $0.02", name(today)+": jobs 1 calls 1 spent $0.01 priced 1")
	for _, c := range []struct {
		since, until time.Time
		want         string
	}{
		{sent, time.Time{}, ": jobs 1 calls 2 spent $0.02 priced 2 redelivered 2 saved $0.02"},
		{sent.Add(day), time.Time{}, ": jobs 1 calls 1 spent $0.01 priced 1"},
		{time.Time{}, sent, ": jobs 1 redelivered 5 saved $0.01"},
		{time.Time{}, sent.Add(day), ": jobs 1 calls 1 spent $0.01 priced 1 redelivered 7 saved $0.03"},
		{sent, sent.Add(day), ": calls 1 spent $0.01 priced 1 redelivered 2 saved $0.02"},
		{created, created.Add(day), first},
		{today.Add(day), time.Time{}, ":"},
	} {
		e.report(ledger.CostFilter{Since: c.since, Until: c.until}, c.want)
		e.report(ledger.CostFilter{Since: c.since.In(time.FixedZone("", 7200)), Until: c.until}, c.want)
	}
}

// costsForgotten: what is missing is said, for whom and up to when.
func costsForgotten(e *env) {
	old, open := e.finished("old"), e.run("open")
	other := e.of("globex", "sum", "young")
	for _, j := range []*job{open, other} {
		j.settle(j.send("extract"), answer(cent))
	}
	for _, j := range []*job{old, open} {
		e.AgeRow(j.key, pastKey)
		e.AgeAttempts(j.key, pastKey)
	}
	gone, row := e.read(old.key).UpdatedAt, e.read(open.key)
	aged, today := ledger.DayOf(row.CreatedAt), ledger.DayOf(e.read(other.key).CreatedAt)
	e.count(e.worker, ledger.NewID(),
		ledger.Avoided{Day: aged.Add(-20 * day), Tenant: "acme", Action: action, Cause: ledger.Redelivered, Count: 1, Saved: cent},
		ledger.Avoided{Day: today.Add(-kept.Key), Tenant: "globex", Action: "sum", Cause: ledger.AckLost, Count: 1, Saved: cent})
	if c := e.costs(ledger.CostFilter{}); !c.Forgotten.IsZero() || c.Total.Calls != 3 {
		e.Errorf("before the purge: forgotten up to %v, %s", c.Forgotten, costText(c.Total))
	}
	e.purge(kept)
	const total = ": jobs 2 calls 2 spent $0.02 priced 2 ack_lost 1 saved $0.01 partial"
	e.report(ledger.CostFilter{By: ledger.PerTenant}, total, "acme: jobs 1 calls 1 spent $0.01 priced 1 partial",
		"globex: jobs 1 calls 1 spent $0.01 priced 1 ack_lost 1 saved $0.01")
	e.report(ledger.CostFilter{By: ledger.PerDay}, total, aged.Format(time.DateOnly)+": jobs 1 calls 1 spent $0.01 priced 1 partial",
		today.Add(-kept.Key).Format(time.DateOnly)+": ack_lost 1 saved $0.01", today.Format(time.DateOnly)+": jobs 1 calls 1 spent $0.01 priced 1")
	e.report(ledger.CostFilter{By: ledger.PerAction}, total, "invoice.extract: jobs 1 calls 1 spent $0.01 priced 1 partial",
		"sum: jobs 1 calls 1 spent $0.01 priced 1 ack_lost 1 saved $0.01 partial")
	e.report(ledger.CostFilter{Tenant: "globex"}, ": jobs 1 calls 1 spent $0.01 priced 1 ack_lost 1 saved $0.01")
	e.report(ledger.CostFilter{Since: aged.Add(day), By: ledger.PerAction}, ": jobs 1 calls 1 spent $0.01 priced 1 ack_lost 1 saved $0.01",
		"sum: jobs 1 calls 1 spent $0.01 priced 1 ack_lost 1 saved $0.01")
	if c := e.costs(ledger.CostFilter{Since: aged}); !c.Forgotten.Equal(gone) || !c.Total.Partial {
		e.Errorf("forgotten up to %v, want %v; partial %v", c.Forgotten, gone, c.Total.Partial)
	}
	if c := e.costs(ledger.CostFilter{Since: aged.Add(day)}); !c.Forgotten.IsZero() {
		e.Errorf("forgotten up to %v, which was not asked for", c.Forgotten)
	}
	e.purge(ledger.Retention{Result: day, Key: day}) // the counts of days that are over
	if c := e.costs(ledger.CostFilter{Tenant: "globex"}); !c.Forgotten.Equal(today.Add(-kept.Key+day-time.Microsecond)) || c.Total.AvoidedCalls() != 0 {
		e.Errorf("forgotten up to %v, %s", c.Forgotten, costText(c.Total))
	}
	e.purge(ledger.Retention{Result: day, Key: day})
	for _, ago := range []time.Duration{pastKey - 10*day, pastKey + 100*day} { // the border moves, and never back
		j := e.finished(ago.String())
		e.AgeRow(j.key, ago)
		e.AgeAttempts(j.key, ago)
		if at := e.read(j.key).UpdatedAt; at.After(gone) {
			gone = at
		}
		e.purge(kept)
		if c := e.costs(ledger.CostFilter{Tenant: "acme"}); !c.Forgotten.Equal(gone) {
			e.Errorf("forgotten up to %v, want %v", c.Forgotten, gone)
		}
	}
}

func costsInvalid(e *env) {
	e.finished("a")
	today := ledger.DayOf(time.Now())
	for name, f := range map[string]ledger.CostFilter{
		"a grouping that there is not": {By: "colour"},
		"since an hour":                {Since: today.Add(time.Hour)},
		"until an hour":                {Until: today.Add(time.Hour)},
		"a midnight of elsewhere":      {Since: time.Date(2026, 11, 1, 0, 0, 0, 0, time.FixedZone("", 3600))},
		"no time at all":               {Since: today, Until: today},
		"an end before its beginning":  {Since: today, Until: today.Add(-day)},
	} {
		c, err := e.Store.Costs(e.Context(), f)
		e.is(name, err, ledger.ErrRequest)
		if c.Total.Calls != 0 {
			e.Errorf("%s: %s", name, costText(c.Total))
		}
	}
	ctx, cancel := context.WithCancel(e.Context())
	cancel()
	_, err := e.Store.Costs(ctx, ledger.CostFilter{})
	e.is("costs for nobody", err, context.Canceled)
}
