package sqlite_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/ledgertest"
	"github.com/paidonce/paidonce/ledger/sqlite"
)

// hookOf gives the hook that OnCommit makes.
type hookOf struct{ h ledger.Hook }

func (o *hookOf) OnCommit(h ledger.Hook) { o.h = h }

func hook(fn func(context.Context, sqlite.Tx) error) ledger.Hook {
	var o hookOf
	sqlite.OnCommit(&o, fn)
	return o.h
}

// file makes a file with the ledger's schema and a table of the user's.
func file(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ledger.db")
	if err := sqlite.Migrate(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	run(t, raw(t, path), "create table mark (m text)")
	run(t, raw(t, path), "create table early (m text)") // of answers
	return path
}

// open opens the ledger at path for the time of the test.
func open(t testing.TB, path string) *sqlite.Ledger {
	t.Helper()
	l, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(l.Close)
	return l
}

// raw opens connections beside the ledger.
func raw(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func run(t testing.TB, db *sql.DB, query string, args ...any) int64 {
	t.Helper()
	res, err := db.ExecContext(t.Context(), query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// scan reads one value.
func scan[T any](t testing.TB, db *sql.DB, query string, args ...any) (v T) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// marks are the user's rows.
func marks(t testing.TB, db *sql.DB) (all []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "select m from mark")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var m string
		if err := rows.Scan(&m); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func harness(t *testing.T) *ledgertest.Harness {
	path := file(t)
	db := raw(t, path)
	one := func(query string, args ...any) {
		t.Helper()
		if n := run(t, db, query, args...); n != 1 {
			t.Fatalf("%s: %d rows", query, n)
		}
	}
	job := func(set string) func(ledger.Key) {
		return func(k ledger.Key) {
			t.Helper()
			one("update paidonce_job set "+set+" = ? where tenant = ? and key = ?", time.Now().UnixMicro(), k.Tenant, k.Text)
		}
	}
	age := func(set string) func(ledger.Key, time.Duration) {
		return func(k ledger.Key, d time.Duration) {
			t.Helper()
			one("update paidonce_job set "+set+" where tenant = ?2 and key = ?3", d.Microseconds(), k.Tenant, k.Text)
		}
	}
	return &ledgertest.Harness{
		Store: open(t, path),
		Seeds: 30,
		LapseWorker: func(id ledger.WorkerID) {
			t.Helper()
			one("update paidonce_worker set lease_until = ? where id = ? and epoch = ? and closed_at is null", time.Now().UnixMicro(), id.ID, id.Epoch)
		},
		LapseRun:   job("run_deadline"),
		MakeDue:    job("next_at"),
		AgeUnknown: age("unknown_at = unknown_at - ?1"),
		AgeAttempts: func(k ledger.Key, d time.Duration) {
			t.Helper()
			run(t, db, `update paidonce_attempt set sent_at = sent_at - ?1 where tenant = ?2
				and job = (select id from paidonce_job where tenant = ?2 and key = ?3)`, d.Microseconds(), k.Tenant, k.Text)
		},
		AgeRow: age("created_at = created_at - ?1, began_at = began_at - ?1, updated_at = updated_at - ?1, next_at = next_at - ?1, done_at = done_at - ?1"),
		AgeBudgets: func(days int) {
			t.Helper()
			run(t, db, "update paidonce_budget set day = day - ? * 86400000000", days)
			run(t, db, "update paidonce_attempt set budget_day = budget_day - ? * 86400000000", days)
		},
		AgeMessages: func(d time.Duration) {
			t.Helper()
			run(t, db, "update paidonce_outbox set next_at = next_at - ?1", d.Microseconds())
		},
		Hook: func(mark string) ledger.Hook {
			return hook(func(ctx context.Context, tx sqlite.Tx) error {
				_, err := tx.ExecContext(ctx, "insert into mark values (?)", mark)
				return err
			})
		},
		FailingHook: func(fail error) ledger.Hook {
			return hook(func(ctx context.Context, tx sqlite.Tx) error {
				if _, err := tx.ExecContext(ctx, "insert into mark values ('failing')"); err != nil {
					return err
				}
				return fail
			})
		},
		Marks: func() []string { t.Helper(); return marks(t, db) },
		Chunks: &ledgertest.Chunks{
			Count: func() int { t.Helper(); return scan[int](t, db, "select count(*) from paidonce_chunk") },
			Lose: func(k ledger.Key) {
				t.Helper()
				one("delete from paidonce_chunk where n = 1 and tenant = ?1 and job = (select id from paidonce_job where tenant = ?1 and key = ?2)", k.Tenant, k.Text)
			},
			Spoil: func(k ledger.Key) {
				t.Helper()
				one(`update paidonce_chunk set body = cast(x'00' || substr(body, 2) as blob)
					where n = 1 and tenant = ?1 and job = (select id from paidonce_job where tenant = ?1 and key = ?2)`, k.Tenant, k.Text)
			},
		},
	}
}

func TestLedger(t *testing.T) {
	ledgertest.Run(t, harness)
}
