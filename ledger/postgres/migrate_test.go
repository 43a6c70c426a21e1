package postgres_test

import (
	"io/fs"
	"path"
	"slices"
	"testing"

	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// withoutWork is the last step from before any worker could be at work.
const withoutWork = "00008_counts.sql"

// TestStepsBesideWork: workers go on while a step is made, and what they do locks these tables in every order. A step that
// stops the writers of two tables ends in a deadlock with them, after it has stopped all of them for as long as its
// indexes take.
func TestStepsBesideWork(t *testing.T) {
	db := raw(t, pgtest.URL(t))
	run(t, db, "create schema paidonce")
	names, err := fs.Glob(postgres.Migrations, "migrations/*.sql")
	if err != nil || len(names) == 0 {
		t.Fatalf("%d steps, %v", len(names), err)
	}
	for _, name := range names {
		step, err := fs.ReadFile(postgres.Migrations, name)
		if err != nil {
			t.Fatal(err)
		}
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var before, stopped []string
		if err := tx.QueryRow(t.Context(), `select coalesce(array_agg(oid::regclass::text), '{}') from pg_class
			where relnamespace = 'paidonce'::regnamespace and relkind in ('r', 'p') and not relispartition`).Scan(&before); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), string(step)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := tx.QueryRow(t.Context(), `select coalesce(array_agg(distinct relation::regclass::text), '{}') from pg_locks
			where pid = pg_backend_pid() and mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
			and relation::regclass::text = any ($1)`, before).Scan(&stopped); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		slices.Sort(stopped)
		t.Logf("%s stops writers of %v", path.Base(name), stopped)
		if path.Base(name) > withoutWork && len(stopped) > 1 {
			t.Errorf("%s stops the writers of %v: one step, one table", path.Base(name), stopped)
		}
	}
}
