package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger"
)

var (
	countSQL        = statement("count")
	costsCallsSQL   = statement("costs_calls")
	costsJobsSQL    = statement("costs_jobs")
	costsModelsSQL  = statement("costs_models")
	costsAvoidedSQL = statement("costs_avoided")
	forgottenSQL    = statement("forgotten")
)

// Count implements ledger.Workers.
func (l *Ledger) Count(ctx context.Context, id ledger.WorkerID, batch ledger.ID, all []ledger.Avoided) error {
	if err := ledger.CheckCount(id, batch, all); err != nil {
		return err
	}
	all = ledger.Merged(all)
	row, err := again(ctx, "count avoided deliveries", func() (struct{ Known bool }, error) {
		return one[struct{ Known bool }](ctx, l.pool, countSQL, id.ID, [16]byte(batch),
			column(all, func(a ledger.Avoided) string { return a.Tenant }), column(all, func(a ledger.Avoided) time.Time { return a.Day }),
			column(all, func(a ledger.Avoided) string { return a.Action }), column(all, func(a ledger.Avoided) string { return string(a.Cause) }),
			column(all, func(a ledger.Avoided) int64 { return a.Count }), column(all, func(a ledger.Avoided) int64 { return int64(a.Saved) }),
			column(all, func(a ledger.Avoided) int64 { return a.Unpriced }))
	})
	if err == nil && !row.Known {
		return ledger.ErrNotFound
	}
	return err
}

// reportSettings make one transaction that reads much: whole tables, joined as the planner thinks best.
// The rest of the ledger's statements are kept from it.
var reportSettings = []string{
	"set local enable_seqscan = on", "set local enable_hashjoin = on", "set local enable_mergejoin = on",
	"set local plan_cache_mode = force_custom_plan", "set local statement_timeout = '10min'",
}

// Costs implements ledger.Reader.
func (l *Ledger) Costs(ctx context.Context, f ledger.CostFilter) (ledger.Costs, error) {
	if err := f.Check(); err != nil {
		return ledger.Costs{}, err
	}
	var s sheet
	var gone map[string]time.Time
	err := pgx.BeginTxFunc(ctx, l.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) (err error) {
		for _, set := range reportSettings {
			if _, err := tx.Exec(ctx, set); err != nil {
				return err
			}
		}
		if storable(f.Tenant, f.Action) { // else no row can match
			err = s.fill(ctx, tx, f)
		}
		if err == nil && storable(f.Tenant) {
			gone, err = forgotten(ctx, tx, f.Tenant)
		}
		return err
	})
	if err != nil {
		return ledger.Costs{}, fmt.Errorf("add up the costs: %w", err)
	}
	return s.Report(f, s.jobs, gone), nil
}

// sheet is a report on its way.
type sheet struct {
	ledger.Sheet
	jobs int64
}

func (s *sheet) fill(ctx context.Context, q querier, f ledger.CostFilter) error {
	until := f.Until
	if until.IsZero() {
		until = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	of := []any{f.Tenant, f.Action, f.Since, until}
	by := append([]any{string(f.By)}, of...)
	if err := s.calls(ctx, q, by); err != nil {
		return err
	}
	if err := s.avoided(ctx, q, by); err != nil {
		return err
	}
	if f.By == ledger.PerModel {
		n, err := s.asked(ctx, q, &s.Sheet, costsModelsSQL, of)
		if err != nil || n == 0 {
			return err
		}
		s.jobs, err = s.asked(ctx, q, &ledger.Sheet{}, costsJobsSQL, append([]any{""}, of...))
		return err
	}
	n, err := s.asked(ctx, q, &s.Sheet, costsJobsSQL, by)
	s.jobs = n
	return err
}

func (s *sheet) calls(ctx context.Context, q querier, args []any) error {
	rows, err := many[struct {
		By, Provider                               string
		Calls, Priced, Unpriced, Failed            int64
		Surplus, Replayed, WastedUnpriced, Unknown int64
		Spent, Wasted, Reserved                    ledger.Nano
	}](ctx, q, costsCallsSQL, args...)
	for _, r := range rows {
		g := s.Group(r.By, r.Provider)
		g.Calls, g.Spent, g.Priced, g.Unpriced, g.Failed = r.Calls, r.Spent, r.Priced, r.Unpriced, r.Failed
		g.Surplus, g.Replayed, g.Wasted, g.WastedUnpriced = r.Surplus, r.Replayed, r.Wasted, r.WastedUnpriced
		g.Unknown, g.Reserved = r.Unknown, r.Reserved
	}
	return err
}

// avoided adds the deliveries that made no call, by model too.
func (s *sheet) avoided(ctx context.Context, q querier, args []any) error {
	rows, err := many[struct {
		By          string
		Cause       ledger.Cause
		N, Unpriced int64
		Saved       ledger.Nano
	}](ctx, q, costsAvoidedSQL, args...)
	for _, r := range rows {
		g := s.Group(r.By, "")
		g.Avoided[r.Cause] += r.N
		g.Saved, g.SavedUnpriced = g.Saved+r.Saved, g.SavedUnpriced+r.Unpriced
	}
	return err
}

// asked adds to the groups of a sheet how many jobs they have, and returns the sum.
func (s *sheet) asked(ctx context.Context, q querier, to *ledger.Sheet, sql string, args []any) (sum int64, err error) {
	rows, err := many[struct {
		By, Provider string
		Jobs         int64
	}](ctx, q, sql, args...)
	for _, r := range rows {
		to.Group(r.By, r.Provider).Jobs += r.Jobs
		sum += r.Jobs
	}
	return sum, err
}

// forgotten says up to when something of each tenant is gone.
func forgotten(ctx context.Context, q querier, tenant string) (map[string]time.Time, error) {
	rows, err := many[struct {
		Tenant string
		Until  time.Time
	}](ctx, q, forgottenSQL, tenant)
	gone := map[string]time.Time{}
	for _, r := range rows {
		gone[r.Tenant] = r.Until.UTC()
	}
	return gone, err
}
