package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/ledgertest"
	"github.com/paidonce/paidonce/ledger/postgres"
)

func TestMigrationsAtOnceAndAgain(t *testing.T) {
	url := pgtest.URL(t)
	before, err := postgres.MigrationStatus(t.Context(), url)
	if err != nil || len(before) == 0 || !before[0].Applied.IsZero() {
		t.Fatalf("status of an empty database: %+v %v", before, err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := postgres.Migrate(t.Context(), url); err != nil {
				t.Errorf("migrate: %v", err)
			}
		})
	}
	wg.Wait()
	if err := postgres.Migrate(t.Context(), url); err != nil {
		t.Errorf("migrate again: %v", err)
	}
	after, err := postgres.MigrationStatus(t.Context(), url)
	if err != nil || len(after) != len(before) {
		t.Fatalf("status: %+v %v", after, err)
	}
	for _, m := range after {
		if m.Applied.IsZero() {
			t.Errorf("%s is not applied", m.Name)
		}
	}
	if n := scan[int](t, raw(t, url), "select count(*) from paidonce.schema_version where version_id > 0"); n != len(after) {
		t.Errorf("%d steps on record, want %d", n, len(after))
	}
	if err := open(t, url, postgres.Options{}).Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
}

func TestMigrateThroughPgBouncer(t *testing.T) {
	url := pgtest.URL(t)
	through := pgtest.PgBouncer(t, url)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if err := postgres.Migrate(t.Context(), through); err != nil {
				t.Errorf("migrate: %v", err)
			}
		})
	}
	wg.Wait()
	if n := scan[int](t, raw(t, url), "select count(*) from pg_locks where locktype = 'advisory'"); n != 0 {
		t.Errorf("%d advisory locks are left on server connections", n)
	}
	if err := open(t, through, postgres.Options{}).Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
}

func TestSchemaThatDoesNotFit(t *testing.T) {
	l := open(t, pgtest.URL(t), postgres.Options{})
	if err := l.Ping(t.Context()); !errors.Is(err, ledger.ErrSchema) || !strings.Contains(err.Error(), "worker migrate up") {
		t.Errorf("no schema: %v", err)
	}
	url := database(t)
	run(t, raw(t, url), "insert into paidonce.schema_version (version_id, is_applied) values (99, true)")
	if err := open(t, url, postgres.Options{}).Ping(t.Context()); !errors.Is(err, ledger.ErrSchema) || !strings.Contains(err.Error(), "99") {
		t.Errorf("a newer schema: %v", err)
	}
}

func TestPrintMigrations(t *testing.T) {
	sql, err := postgres.PrintMigrations()
	if err != nil || !strings.Contains(sql, "create table paidonce.job") {
		t.Fatalf("%v\n%.200s", err, sql)
	}
	run(t, raw(t, pgtest.URL(t)), sql) // it is plain SQL
}

// TestPartitionsAhead: rows find a partition of their own for weeks to come, and those
// that landed in the net are moved out of it.
func TestPartitionsAhead(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	chunk := func() {
		run(t, f.db, "insert into paidonce.chunk select tenant, id, sha256('x'), 0, part_on, 'x' from paidonce.job on conflict do nothing")
	}
	if err := f.life(t.Context(), "now", false); err != nil {
		t.Fatal(err)
	}
	chunk()
	tables := []string{"attempt", "response", "result", "input", "event", "chunk"}
	inNet := func() (n int) {
		for _, table := range tables {
			n += scan[int](t, f.db, "select count(*) from paidonce."+table+"_default")
		}
		return n
	}
	if n := inNet(); n != 0 {
		t.Errorf("%d rows of a new job are in default partitions", n)
	}
	for _, table := range tables { // as if nobody had made partitions for this time
		part := scan[string](t, f.db, "select tableoid::regclass::text from paidonce."+table+" limit 1")
		run(t, f.db, "alter table paidonce."+table+" detach partition "+part)
		run(t, f.db, "drop table "+part)
	}
	if err := f.life(t.Context(), "late", false); err != nil {
		t.Fatalf("a job without partitions: %v", err)
	}
	chunk()
	if n := inNet(); n == 0 {
		t.Error("no row is in the net")
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := f.Maintain(t.Context()); err != nil {
				t.Errorf("maintain: %v", err)
			}
		})
	}
	wg.Wait()
	if n := inNet(); n != 0 {
		t.Errorf("%d rows are left in the net", n)
	}
	j, err := f.Job(t.Context(), f.request("late").Key)
	if err != nil || j.Result == nil || len(j.Attempts) != 1 || !j.Attempts[0].HasAnswer || len(j.History) != 4 {
		t.Errorf("after the move: %+v %v", j, err)
	}
	for _, column := range []string{"response", "result", "input", "chunk"} {
		if n := scan[int](t, f.db, `select count(*) from pg_attribute a join pg_inherits i on i.inhrelid = a.attrelid
			where i.inhparent = ('paidonce.' || $1)::regclass and a.attname = 'body' and a.attcompression <> 'l'`, column); n != 0 {
			t.Errorf("%d partitions of %s do not compress with lz4", n, column)
		}
	}
}

// acrossTenants lists the statements that may do without a tenant, each with its reason.
var acrossTenants = map[string]string{
	"sweep_jobs":    "a sweeper looks after all tenants",
	"due":           "a sweeper looks after all tenants",
	"adopt":         "a reconciler looks after all tenants",
	"flagged":       "the running jobs of one worker are of any tenant",
	"jobs":          "a listing for people, of one tenant or of all",
	"jobs_all":      "a listing for people, of all tenants",
	"unknowns":      "a report over all tenants",
	"waiting":       "a report over all tenants",
	"budgets":       "a report for people, of one tenant or of all",
	"costs_calls":   "a report for people, of one tenant or of all",
	"costs_jobs":    "a report for people, of one tenant or of all",
	"costs_models":  "a report for people, of one tenant or of all",
	"costs_avoided": "a report for people, of one tenant or of all",
	"forgotten":     "a report for people, of one tenant or of all",
	"version":       "the schema's own table",
	"purgeable":     "partitions belong to all tenants",
	"purge_needed":  "partitions belong to all tenants",
	"outbox_take":   "whoever publishes does so for all tenants",
	"outbox_count":  "a gauge over all tenants",
}

func TestTenantIsNamed(t *testing.T) { ledgertest.TenantIsNamed(t, "paidonce.", acrossTenants) }

// TestPlans explains the hot statements as the ledger's connections plan them, before there are
// any jobs and when there are many: all rows are found by their keys, and those of a batch are
// locked in order.
func TestPlans(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	r := f.request("a")
	f.run(r)
	explain := hook(func(ctx context.Context, tx pgx.Tx) error { return f.plans(ctx, tx) })
	complete := func(name string) {
		if err := f.Complete(t.Context(), f.run(f.request(name)), ledger.Result{ID: ledger.NewID(), Hooks: []ledger.Hook{explain}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	complete("empty")
	for _, jobs := range []int{100, 200, 300, 1000, 20000} {
		run(t, f.db, `insert into paidonce.job (tenant, key, action, input_hash, input_kept, part_on, state, fence, carrier, next_at,
			runs, events, result_id, done_at, created_at, updated_at)
			select 'acme', 'acme:invoice.extract:' || md5(i::text), 'a', sha256('x'), false, current_date, 'done', 1, 'broker', now(), 1, 0, gen_random_uuid(), now(), now(), now()
			from generate_series((select count(*) from paidonce.job), $1) i`, jobs)
		complete(fmt.Sprint("with ", jobs, " jobs"))
	}
}

// TestPlansAreMadeAnew: plans that were made for empty tables are not kept as these grow, though
// nobody analyses them.
func TestPlansAreMadeAnew(t *testing.T) {
	f := newFixture(t, postgres.Options{MaxConns: 1})
	run(t, f.db, "alter table paidonce.job set (autovacuum_enabled = off)")
	run(t, f.db, "vacuum analyze") // the worst to learn from
	if err := f.life(t.Context(), "early", false); err != nil {
		t.Fatal(err)
	}
	run(t, f.db, `insert into paidonce.job (tenant, key, action, input_hash, input_kept, part_on, state, fence, carrier, next_at,
		runs, events, result_id, done_at, created_at, updated_at)
		select 'acme', 'acme:invoice.extract:' || md5(i::text), 'a', sha256('x'), false, current_date, 'done', 1, 'broker', now(), 1, 0, gen_random_uuid(), now(), now(), now()
		from generate_series(1, 20000) i`)
	time.Sleep(200 * time.Millisecond) // the plans' age, and more
	if err := f.life(t.Context(), "late", false); err != nil {
		t.Fatal(err)
	}
	f.Close() // what its connection did is counted when it ends
	read := int64(-1)
	for range 100 {
		if n := scan[int64](t, f.db, "select sum(idx_tup_read)::bigint from pg_stat_user_indexes where relname = 'job'"); n == read && n > 0 {
			break
		} else {
			read = n
		}
		time.Sleep(100 * time.Millisecond)
	}
	if read > 2000 {
		t.Errorf("two jobs took %d reads of the jobs' indexes", read)
	}
}

func (f *fixture) plans(ctx context.Context, tx pgx.Tx) error {
	// Which read one table of a few rows, or by the index of open jobs.
	sweeps := map[string]string{"sweep_workers": "", "sweep_jobs": "(10)", "due": "(10, '1h', null)", "adopt": "('w1', 1, 10, gen_random_uuid())"}
	whole := regexp.MustCompile(`Seq Scan|Hash Join|Merge Join|JIT:`)
	if _, err := tx.Exec(ctx, "set local jit_above_cost = 0"); err != nil { // where it is on, all are compiled
		return err
	}
	// A scan of an index without a condition, or by the tenant alone.
	part := regexp.MustCompile(`Index (Only )?Scan .*\n *([^I ]|Index Cond: \(tenant = [^)]*\)\n)`)
	ordered := regexp.MustCompile(`(?s)(LockRows|Insert on job).{1,400}Sort Key: \w+\.tenant, \w+\.(id|job|key)\n`)
	for name, arguments := range map[string]int{"claim_read": 3, "claim_verdict": 3, "claim_insert": 15, "claim_take": 14, "look": 4, "lock": 2, "send": 14, "send_within": 16, "budgets": 2,
		"settle": 21, "complete": 7, "applicable": 3, "apply": 4, "facts": 2, "release": 13, "find": 2, "gated": 3, "job": 2, "chunk": 5, "chunks": 3, "answer": 3, "keep_input": 5, "follow": 9, "steps": 4, "put": 7, "submit": 7, "submitted": 2} {
		plan, err := explain(ctx, tx, name, "("+strings.Repeat("null, ", arguments-1)+"null)")
		if err != nil {
			return err
		}
		if whole.MatchString(plan) || part.MatchString(plan) {
			f.Errorf("%s reads more than what it is for, or compiles:\n%s", name, plan)
		}
		if slices.Contains([]string{"claim_insert", "lock", "send", "complete", "facts", "follow", "submit"}, name) && !ordered.MatchString(plan) {
			f.Errorf("%s does not go by the keys' order:\n%s", name, plan)
		}
	}
	if plan, err := explain(ctx, tx, "flagged", "('w1', 1)"); err != nil || !strings.Contains(plan, " job_flagged") {
		f.Errorf("flagged is not read by its own index: %v\n%s", err, plan)
	}
	for name, args := range sweeps {
		plan, err := explain(ctx, tx, name, args)
		if err != nil {
			return err
		}
		if whole.MatchString(plan) {
			f.Errorf("%s reads a whole table:\n%s", name, plan)
		}
	}
	return nil
}

// explain plans a statement without knowing its arguments.
func explain(ctx context.Context, tx pgx.Tx, name, args string) (string, error) {
	b, err := os.ReadFile("sql/" + name + ".sql")
	if err != nil {
		return "", err
	}
	if _, err := tx.Exec(ctx, "prepare "+name+" as "+string(b), pgx.QueryExecModeSimpleProtocol); err != nil {
		return "", fmt.Errorf("prepare %s: %w", name, err)
	}
	rows, err := tx.Query(ctx, "explain execute "+name+args, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return "", fmt.Errorf("explain %s: %w", name, err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return "", fmt.Errorf("explain %s: %w", name, err)
	}
	_, err = tx.Exec(ctx, "deallocate "+name)
	return strings.Join(lines, "\n"), err
}

// TestOpen: what Open refuses, and that no error shows a password.
func TestOpen(t *testing.T) {
	for _, url := range []string{"postgres://u:secret@127.0.0.1:1/x", "postgres://u:secret@h:port/x", "postgres://u:secret@127.0.0.1:1/x?pool_max_conns=many"} {
		_, err := postgres.Open(t.Context(), url, postgres.Options{})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("open %s: %v", url, err)
		}
	}
	if got := postgres.Redact("postgres://u:secret@h/x?password=secret"); strings.Contains(got, "secret") {
		t.Errorf("redacted: %s", got)
	}
}

// TestAsynchronousCommit: a server that is set to forget is overruled, and refused
// where that cannot be done.
func TestAsynchronousCommit(t *testing.T) {
	url := database(t)
	name := scan[string](t, raw(t, url), "select current_database()")
	run(t, raw(t, url), "alter database "+name+" set synchronous_commit = off")
	l := open(t, url, postgres.Options{})
	var commit string
	h := hook(func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, "select current_setting('synchronous_commit')").Scan(&commit)
	})
	f := &fixture{T: t, Ledger: l, db: raw(t, url)}
	w, err := l.Join(t.Context(), ledger.Worker{ID: "w", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	f.worker = w
	if err := l.Complete(t.Context(), f.run(f.request("a")), ledger.Result{ID: ledger.NewID(), Hooks: []ledger.Hook{h}}); err != nil || commit != "on" {
		t.Errorf("complete: %v, with synchronous_commit %q", err, commit)
	}
	if _, err = postgres.Open(t.Context(), pgtest.PgBouncer(t, url), postgres.Options{}); !errors.Is(err, postgres.ErrConfig) {
		t.Errorf("through a pooler: %v, want ErrConfig", err)
	}
}
