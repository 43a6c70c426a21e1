package sqlite

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// Count implements ledger.Workers.
func (l *Ledger) Count(ctx context.Context, id ledger.WorkerID, batch ledger.ID, all []ledger.Avoided) error {
	if err := ledger.CheckCount(id, batch, all); err != nil {
		return err
	}
	_, err := write(ctx, l, "count avoided deliveries", func(t *tx) (none struct{}, err error) {
		return none, t.count(id, batch, ledger.Merged(all))
	})
	return err
}

func (t *tx) count(id ledger.WorkerID, batch ledger.ID, all []ledger.Avoided) error {
	last, err := one(context.Background(), t, scalar[[]byte], "counted", id.ID)
	if err != nil || bytes.Equal(last, batch[:]) { // its own effect, before a reply that was lost
		return err
	}
	if _, err := t.exec("count_batch", batch[:], id.ID); err != nil {
		return err
	}
	for _, a := range all {
		if _, err := t.exec("count", a.Tenant, micros(a.Day), a.Action, string(a.Cause), a.Count, int64(a.Saved), a.Unpriced); err != nil {
			return err
		}
	}
	return nil
}

// Costs implements ledger.Reader.
func (l *Ledger) Costs(ctx context.Context, f ledger.CostFilter) (ledger.Costs, error) {
	if err := f.Check(); err != nil {
		return ledger.Costs{}, err
	}
	var s sheet
	var gone map[string]time.Time
	err := l.readers.snapshot(ctx, func(q querier) (err error) {
		if err = s.fill(ctx, q, f); err == nil {
			gone, err = forgotten(ctx, q, f.Tenant)
		}
		return err
	})
	if err != nil {
		return ledger.Costs{}, fmt.Errorf("add up the costs: %w", explain(err))
	}
	return s.Report(f, s.jobs, gone), nil
}

// sheet is a report on its way.
type sheet struct {
	ledger.Sheet
	jobs int64
}

func (s *sheet) fill(ctx context.Context, q querier, f ledger.CostFilter) error {
	since, until := int64(math.MinInt64), int64(math.MaxInt64)
	if !f.Since.IsZero() {
		since = micros(f.Since)
	}
	if !f.Until.IsZero() {
		until = micros(f.Until)
	}
	of := []any{f.Tenant, f.Action, since, until}
	by := append([]any{string(f.By)}, of...)
	if _, err := many(ctx, q, s.calls, "costs_calls", by...); err != nil {
		return err
	}
	if _, err := many(ctx, q, s.avoided, "costs_avoided", by...); err != nil {
		return err
	}
	if f.By == ledger.PerModel {
		all, err := many(ctx, q, func(sc scanner) (n int64, err error) {
			var name, provider string
			return n, sc.Scan(&name, &provider, &n)
		}, "costs_jobs", append([]any{""}, of...)...)
		if err != nil {
			return err
		}
		for _, n := range all {
			s.jobs += n
		}
		_, err = many(ctx, q, s.asked, "costs_models", of...)
		return err
	}
	all, err := many(ctx, q, s.asked, "costs_jobs", by...)
	for _, n := range all {
		s.jobs += n
	}
	return err
}

// calls reads a row of costs_calls.
func (s *sheet) calls(sc scanner) (none struct{}, err error) {
	var name, provider string
	var c ledger.Cost
	if err := sc.Scan(&name, &provider, &c.Calls, &c.Spent, &c.Priced, &c.Unpriced, &c.Failed, &c.Surplus, &c.Replayed, &c.Wasted,
		&c.WastedUnpriced, &c.Unknown, &c.Reserved); err != nil {
		return none, err
	}
	g := s.Group(name, provider)
	c.By, c.Provider, c.Jobs, c.Avoided, c.Saved, c.SavedUnpriced = g.By, g.Provider, g.Jobs, g.Avoided, g.Saved, g.SavedUnpriced
	*g = c
	return none, nil
}

// avoided reads a row of costs_avoided. No model was asked.
func (s *sheet) avoided(sc scanner) (none struct{}, err error) {
	var name string
	var cause ledger.Cause
	var n, unpriced int64
	var saved ledger.Nano
	if err := sc.Scan(&name, &cause, &n, &saved, &unpriced); err != nil {
		return none, err
	}
	g := s.Group(name, "")
	g.Avoided[cause] += n
	g.Saved, g.SavedUnpriced = g.Saved+saved, g.SavedUnpriced+unpriced
	return none, nil
}

// asked reads how many jobs a group has.
func (s *sheet) asked(sc scanner) (n int64, err error) {
	var name, provider string
	if err := sc.Scan(&name, &provider, &n); err != nil {
		return 0, err
	}
	s.Group(name, provider).Jobs += n
	return n, nil
}

// forgotten says up to when something of each tenant is gone.
func forgotten(ctx context.Context, q querier, tenant string) (map[string]time.Time, error) {
	gone := map[string]time.Time{}
	_, err := many(ctx, q, func(sc scanner) (none struct{}, err error) {
		var name string
		var until int64
		err = sc.Scan(&name, &until)
		gone[name] = time.UnixMicro(until).UTC()
		return none, err
	}, "forgotten", tenant)
	return gone, err
}
