package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Cause says how a delivery came about that was answered with a saved result.
type Cause string

// The causes.
const (
	Redelivered      Cause = "redelivered"       // the broker handed the same message out again
	DuplicateMessage Cause = "duplicate_message" // another message with the same key
	AckLost          Cause = "ack_lost"          // its ack did not reach the broker
	SubmittedAgain   Cause = "submitted_again"   // somebody put the key into the ledger a second time
)

// Causes lists every cause, in the order of reports.
func Causes() []Cause { return []Cause{Redelivered, DuplicateMessage, AckLost, SubmittedAgain} }

// Avoided is deliveries of one day, tenant, action and cause that were answered with a saved
// result. They are counted apart from jobs: a duplicate changes no job.
type Avoided struct {
	Day      time.Time // any moment of it, in UTC
	Tenant   string
	Action   string
	Cause    Cause
	Count    int64 // positive
	Saved    Nano  // what the saved results had cost, as far as that is known
	Unpriced int64 // of Count: those of results whose cost nobody knows
}

// Merged is the counts with those of one day, tenant, action and cause added up, days at
// their midnight, in the order in which stores write them.
func Merged(all []Avoided) []Avoided {
	all = slices.Clone(all)
	for i := range all {
		all[i].Day = DayOf(all[i].Day)
	}
	order := func(a, b Avoided) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), a.Day.Compare(b.Day), cmp.Compare(a.Action, b.Action), cmp.Compare(a.Cause, b.Cause))
	}
	slices.SortFunc(all, order)
	merged := all[:0]
	for _, a := range all {
		if n := len(merged); n > 0 && order(merged[n-1], a) == 0 {
			m := &merged[n-1]
			m.Count, m.Saved, m.Unpriced = m.Count+a.Count, m.Saved+a.Saved, m.Unpriced+a.Unpriced
			continue
		}
		merged = append(merged, a)
	}
	return merged
}

// CheckCount returns an error that wraps ErrRequest when the counts of a batch cannot be stored or
// make no sense. Every ledger calls it first.
func CheckCount(id WorkerID, batch ID, all []Avoided) error {
	whys := []string{name("worker", id.ID), when(batch.IsZero(), "has no batch id"), when(len(all) == 0, "counts nothing")}
	for _, a := range all {
		whys = append(whys, name("tenant", a.Tenant), name("action", a.Action),
			when(!slices.Contains(Causes(), a.Cause), "has the cause %q, which there is not", a.Cause),
			when(a.Day.IsZero(), "has no day"),
			when(a.Count < 1 || a.Saved < 0 || a.Unpriced < 0 || a.Unpriced > a.Count, "counts %d, saves %d, and %d are unpriced", a.Count, a.Saved, a.Unpriced))
	}
	return refused("count", whys...)
}

// DayOf is the midnight, in UTC, at which the day of t began.
func DayOf(t time.Time) time.Time {
	y, m, d := t.UTC().Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}

// Grouping says what a report of costs has a group for.
type Grouping string

// The groupings. The zero value makes no groups: the total alone.
const (
	PerAction Grouping = "action"
	PerTenant Grouping = "tenant"
	PerModel  Grouping = "model" // and provider; what made no call is in a group without either
	PerDay    Grouping = "day"   // in UTC, "2006-01-02"
)

// Groupings lists them.
func Groupings() []Grouping { return []Grouping{PerAction, PerTenant, PerModel, PerDay} }

// CostFilter says what a report of costs is about. Zero fields do not filter.
type CostFilter struct {
	By     Grouping
	Tenant string
	Action string
	// Since is the first day that counts, Until the first that does not, each at its midnight
	// in UTC: avoided deliveries are kept by days.
	Since, Until time.Time
}

// Check returns an error that wraps ErrRequest when the filter makes no sense.
func (f CostFilter) Check() error {
	return refused("costs",
		when(f.By != "" && !slices.Contains(Groupings(), f.By), "groups by %q; there are %v", f.By, Groupings()),
		when(!f.Since.IsZero() && !f.Since.Equal(DayOf(f.Since)), "begins at %s, which is no midnight in UTC", f.Since),
		when(!f.Until.IsZero() && !f.Until.Equal(DayOf(f.Until)), "ends at %s, which is no midnight in UTC", f.Until),
		when(!f.Since.IsZero() && !f.Until.IsZero() && !f.Until.After(f.Since), "ends at %s, not after its beginning at %s", f.Until, f.Since))
}

// In reports whether the filter counts what is dated t.
func (f CostFilter) In(t time.Time) bool {
	return (f.Since.IsZero() || !t.Before(f.Since)) && (f.Until.IsZero() || t.Before(f.Until))
}

// Cost is what one group of a report adds up to. Amounts are sums of what is known; beside each
// stands how many it leaves out because nobody knows theirs.
type Cost struct {
	By       string // the group's name; "" for the total, and for what made no call, by model
	Provider string // of the model, by model

	Jobs int64 // by the day on which they were created; by model, each at every model that it asked

	// Calls are attempts that were sent, or may have been, by the day on which they were.
	Calls    int64
	Spent    Nano  // of all attempts whose cost is known, whatever became of them
	Priced   int64 // how many those are
	Unpriced int64 // answered, at a cost that is not known
	Failed   int64 // certainly without a result, at a cost that is not known: they may have been billed

	// Avoided is deliveries that got a saved result instead of a run, by the day on which they came.
	Avoided       map[Cause]int64 // every cause is there
	Saved         Nano            // what the saved results had cost
	SavedUnpriced int64           // of the avoided ones: those of results whose cost is not known

	// Wasted calls were paid and not needed (Surplus), or sent again before anybody knew what became
	// of them (Replayed): these may have been paid.
	Surplus        int64
	Replayed       int64
	Wasted         Nano
	WastedUnpriced int64

	// Unknown calls were sent, nobody knows their outcome, and no run waits for it. Replayed
	// ones are among them. Reserved is what they cost at most, as far as they had a bound.
	Unknown  int64
	Reserved Nano

	// Partial: what is past its retention is missing here, so the numbers are too small.
	Partial bool
}

// AvoidedCalls is the sum over all causes.
func (c Cost) AvoidedCalls() (n int64) {
	for _, k := range c.Avoided {
		n += k
	}
	return n
}

// empty reports whether there is nothing in it. Of attempts that were not sent nothing is counted.
func (c Cost) empty() bool {
	return c.Jobs == 0 && c.Calls == 0 && c.Priced == 0 && c.AvoidedCalls() == 0
}

// Costs is a report.
type Costs struct {
	Groups []Cost // in the order of their names; none where CostFilter.By is empty
	Total  Cost
	// Forgotten is the date up to which something of what the filter is about is past its retention
	// and gone. All that is dated later is there. Zero: nothing was forgotten.
	Forgotten time.Time
}

// Sheet adds a report up. Ledgers fill it; the zero value is empty. It is used by one goroutine.
type Sheet struct {
	groups map[[2]string]*Cost
}

// Group is the group of that name, made if it is new. The provider is that of a model, else "".
func (s *Sheet) Group(by, provider string) *Cost {
	k := [2]string{by, provider}
	if s.groups == nil {
		s.groups = map[[2]string]*Cost{}
	}
	if s.groups[k] == nil {
		c := emptyCost()
		c.By, c.Provider = by, provider
		s.groups[k] = &c
	}
	return s.groups[k]
}

func emptyCost() Cost {
	c := Cost{Avoided: map[Cause]int64{}}
	for _, k := range Causes() {
		c.Avoided[k] = 0
	}
	return c
}

// Report is the whole: the groups in their order, and their sum. jobs is the number of all jobs,
// which models have in common; forgotten says of each tenant up to when something of it is gone.
func (s *Sheet) Report(f CostFilter, jobs int64, forgotten map[string]time.Time) Costs {
	r := Costs{Total: emptyCost()}
	for _, t := range forgotten {
		if t.After(r.Forgotten) {
			r.Forgotten = t
		}
	}
	for _, c := range s.groups {
		r.Total.add(c)
		if f.By != "" && !c.empty() {
			c.Partial = f.partial(*c, r.Forgotten, forgotten)
			r.Groups = append(r.Groups, *c)
		}
	}
	r.Total.Jobs, r.Total.Partial = jobs, f.reaches(r.Forgotten)
	if !r.Total.Partial {
		r.Forgotten = time.Time{}
	}
	slices.SortFunc(r.Groups, func(a, b Cost) int { return cmp.Or(cmp.Compare(a.By, b.By), cmp.Compare(a.Provider, b.Provider)) })
	return r
}

// reaches reports whether something that the filter counts was forgotten.
func (f CostFilter) reaches(forgotten time.Time) bool {
	return !forgotten.IsZero() && !forgotten.Before(f.Since)
}

// partial reports whether something of a group may be missing.
func (f CostFilter) partial(c Cost, latest time.Time, forgotten map[string]time.Time) bool {
	switch f.By {
	case PerTenant:
		latest = forgotten[c.By]
	case PerDay:
		day, err := time.Parse(time.DateOnly, c.By)
		if err != nil {
			panic(fmt.Sprintf("ledger: the day %q of a report", c.By)) // an adapter's mistake
		}
		f.Since = day
	}
	return f.reaches(latest)
}

func (c *Cost) add(o *Cost) {
	for k, n := range o.Avoided {
		c.Avoided[k] += n
	}
	c.Calls, c.Spent, c.Priced, c.Unpriced, c.Failed = c.Calls+o.Calls, c.Spent+o.Spent, c.Priced+o.Priced, c.Unpriced+o.Unpriced, c.Failed+o.Failed
	c.Saved, c.SavedUnpriced = c.Saved+o.Saved, c.SavedUnpriced+o.SavedUnpriced
	c.Surplus, c.Replayed, c.Wasted, c.WastedUnpriced = c.Surplus+o.Surplus, c.Replayed+o.Replayed, c.Wasted+o.Wasted, c.WastedUnpriced+o.WastedUnpriced
	c.Unknown, c.Reserved = c.Unknown+o.Unknown, c.Reserved+o.Reserved
}
