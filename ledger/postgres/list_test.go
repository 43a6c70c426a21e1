package postgres_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// TestListings has each filter find what lies below 30,000 newer jobs that it does not mean, as the ledger's own
// connections plan it, with statistics and without: by an index, in a small part of the pages that the table has.
func TestListings(t *testing.T) {
	for _, analysed := range []bool{false, true} {
		t.Run(fmt.Sprint("analysed ", analysed), func(t *testing.T) {
			f := newFixture(t, postgres.Options{})
			run(t, f.db, "alter table paidonce.job set (autovacuum_enabled = off)")
			old := func(tenant, action, state string) {
				run(t, f.db, `insert into paidonce.job (tenant, key, action, input_hash, input_kept, part_on, state, fence, carrier, next_at, runs, events,
					owner, owner_epoch, claim_token, run_deadline, open_calls, open_until, unknown_at, error_class, result_id, done_at, created_at, updated_at)
					select $2, $2 || $1 || i, $3, sha256('x'), false, current_date, $1, 1, 'broker', now(), 1, 0,
						case when $1 = 'running' then 'w' end, case when $1 = 'running' then 1 end, case when $1 = 'running' then gen_random_uuid() end,
						case when $1 = 'running' then now() end, ($1 = 'unknown')::int, case when $1 = 'unknown' then now() end,
						case when $1 = 'unknown' then now() end, case when $1 in ('failed', 'cancelled') then 'x' end,
						case when $1 = 'done' then gen_random_uuid() end, case when $1 = 'done' then now() end, now(), now()
					from generate_series(1, 30) i`, state, tenant, action)
			}
			for _, s := range ledger.States() {
				old("small", "rare", string(s))
			}
			old("big", "common", "failed")
			old("big", "common", "cancelled")
			run(t, f.db, `insert into paidonce.job (tenant, key, action, input_hash, input_kept, part_on, state, fence, carrier, next_at,
				runs, events, result_id, done_at, created_at, updated_at)
				select 'big', 'big:common:' || md5(i::text), 'common', sha256('x'), false, current_date, 'done', 1, 'broker', now(), 1, 0, gen_random_uuid(), now(), now(), now()
				from generate_series(1, 30000) i`)
			if analysed {
				run(t, f.db, "vacuum analyze paidonce.job")
			}
			ask := hook(func(ctx context.Context, tx pgx.Tx) error { return f.listings(ctx, tx) })
			if err := f.Complete(t.Context(), f.run(f.request("x")), ledger.Result{ID: ledger.NewID(), Hooks: []ledger.Hook{ask}}); err != nil {
				t.Error(err)
			}
		})
	}
}

// listings explains every filter that the old jobs fit.
func (f *fixture) listings(ctx context.Context, tx pgx.Tx) error {
	buffers := regexp.MustCompile(`shared (?:hit=(\d+))? ?(?:read=(\d+))?`)
	pages := 0
	if err := tx.QueryRow(ctx, "select pg_relation_size('paidonce.job') / 8192").Scan(&pages); err != nil {
		return err
	}
	for _, tenant := range []string{"", "small", "big"} {
		for _, action := range []string{"", "rare", "common"} {
			for _, state := range append(ledger.States(), "") {
				few := state == ledger.Failed || state == ledger.Cancelled
				if many := tenant == "big" || action == "common"; many && (!few || tenant == "small" || action == "rare") {
					continue // the newest jobs are these, or there are none
				}
				filter := ledger.Filter{Tenant: tenant, Action: action, State: state}
				if _, err := tx.Exec(ctx, "prepare listing as "+postgres.Listing(filter), pgx.QueryExecModeSimpleProtocol); err != nil {
					return fmt.Errorf("prepare %+v: %w", filter, err)
				}
				rows, err := tx.Query(ctx, fmt.Sprintf("explain (analyze, buffers, costs off, timing off) execute listing('%s', '%s', 20)", tenant, action), pgx.QueryExecModeSimpleProtocol)
				if err != nil {
					return err
				}
				lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
				if err != nil {
					return err
				}
				plan := strings.Join(lines, "\n")
				m := buffers.FindStringSubmatch(plan) // the first one is that of the whole
				if m == nil || !strings.Contains(lines[0], "rows=20 ") {
					f.Errorf("%+v does not list 20 jobs:\n%s", filter, plan)
					continue
				}
				hit, _ := strconv.Atoi(m[1])
				read, _ := strconv.Atoi(m[2])
				if hit+read > pages/4 || strings.Contains(plan, "Seq Scan") {
					f.Errorf("%+v reads %d pages of %d:\n%s", filter, hit+read, pages, plan)
				}
				if _, err := tx.Exec(ctx, "deallocate listing"); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
