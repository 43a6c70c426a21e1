package memory

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// count names a row of the counts of avoided deliveries.
type count struct {
	day            time.Time
	tenant, action string
	cause          ledger.Cause
}

// Count implements ledger.Workers.
func (l *Ledger) Count(ctx context.Context, id ledger.WorkerID, batch ledger.ID, all []ledger.Avoided) error {
	if err := ledger.CheckCount(id, batch, all); err != nil {
		return err
	}
	_, unlock, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	w := l.workers[id.ID]
	if w == nil {
		return ledger.ErrNotFound
	}
	if w.counted == batch {
		return nil // its own effect, before a reply that was lost
	}
	w.counted = batch
	for _, a := range ledger.Merged(all) {
		k := count{a.Day, a.Tenant, a.Action, a.Cause}
		a.Count, a.Saved, a.Unpriced = a.Count+l.counts[k].Count, a.Saved+l.counts[k].Saved, a.Unpriced+l.counts[k].Unpriced
		l.counts[k] = a
	}
	return nil
}

// Costs implements ledger.Reader.
func (l *Ledger) Costs(ctx context.Context, f ledger.CostFilter) (ledger.Costs, error) {
	if err := f.Check(); err != nil {
		return ledger.Costs{}, err
	}
	_, unlock, err := l.begin(ctx)
	if err != nil {
		return ledger.Costs{}, err
	}
	defer unlock()
	s := sheet{f: f}
	for _, r := range l.rows {
		if r != forgotten && s.about(r.Key.Tenant, r.Action) {
			s.job(r)
		}
	}
	for _, a := range l.counts {
		if s.about(a.Tenant, a.Action) && f.In(a.Day) {
			g := s.group(a.Tenant, a.Action, a.Day, nil)
			g.Avoided[a.Cause] += a.Count
			g.Saved, g.SavedUnpriced = g.Saved+a.Saved, g.SavedUnpriced+a.Unpriced
		}
	}
	gone := maps.Clone(l.floor)
	maps.DeleteFunc(gone, func(tenant string, _ time.Time) bool { return f.Tenant != "" && tenant != f.Tenant })
	return s.Report(f, s.jobs, gone), nil
}

// sheet is a report on its way.
type sheet struct {
	ledger.Sheet
	f    ledger.CostFilter
	jobs int64
}

func (s *sheet) about(tenant, action string) bool {
	return (s.f.Tenant == "" || s.f.Tenant == tenant) && (s.f.Action == "" || s.f.Action == action)
}

// group is that of what happened at that time; a is nil for what is no call.
func (s *sheet) group(tenant, action string, at time.Time, a *attempt) *ledger.Cost {
	switch s.f.By {
	case ledger.PerAction:
		return s.Group(action, "")
	case ledger.PerTenant:
		return s.Group(tenant, "")
	case ledger.PerDay:
		return s.Group(at.UTC().Format(time.DateOnly), "")
	case ledger.PerModel:
		if a != nil {
			return s.Group(a.Model, a.Provider)
		}
	}
	return s.Group("", "")
}

func (s *sheet) job(r *row) {
	if s.f.In(r.CreatedAt) {
		s.jobs++
		groups := map[*ledger.Cost]bool{}
		for _, a := range r.attempts {
			if a.State != ledger.NotSent {
				groups[s.group(r.Key.Tenant, r.Action, r.CreatedAt, a)] = true
			}
		}
		if len(groups) == 0 {
			groups[s.group(r.Key.Tenant, r.Action, r.CreatedAt, nil)] = true
		}
		for g := range groups {
			g.Jobs++
		}
	}
	for _, a := range r.attempts {
		if s.f.In(a.SentAt) {
			r.book(s.group(r.Key.Tenant, r.Action, a.SentAt, a), a)
		}
	}
}

// book adds an attempt to a group.
func (r *row) book(g *ledger.Cost, a *attempt) {
	cost, unknown := a.Evidence.Cost, a.State == ledger.UnknownAttempt
	replayed := unknown && slices.ContainsFunc(r.attempts, func(b *attempt) bool {
		return b.Call == a.Call && b.Generation == a.Generation && b.N > a.N && b.State != ledger.NotSent
	})
	one := func(is bool) int64 { return map[bool]int64{true: 1}[is] }
	g.Calls += one(a.State != ledger.NotSent)
	g.Priced += one(cost != nil)
	g.Unpriced += one(cost == nil && a.State == ledger.Received)
	g.Failed += one(cost == nil && a.State == ledger.FailedAttempt)
	g.Surplus += one(a.Surplus)
	g.Replayed += one(replayed)
	g.WastedUnpriced += one(cost == nil && (a.Surplus || replayed))
	if cost != nil {
		g.Spent += *cost
	}
	if cost != nil && (a.Surplus || replayed) {
		g.Wasted += *cost
	}
	if unknown || a.State == ledger.Sent && r.State == ledger.Unknown {
		g.Unknown++
		g.Reserved += a.Reserve
	}
}
