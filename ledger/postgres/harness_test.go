package postgres_test

import (
	"context"
	"errors"
	"flag"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/ledgertest"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// hookOf gives the hook that OnCommit makes.
type hookOf struct{ h ledger.Hook }

func (o *hookOf) OnCommit(h ledger.Hook) { o.h = h }

func hook(fn func(context.Context, pgx.Tx) error) ledger.Hook {
	var o hookOf
	postgres.OnCommit(&o, fn)
	return o.h
}

// database makes a database with the ledger's schema and a table of the user's.
func database(t testing.TB) string {
	t.Helper()
	return pgtest.Copy(t, "ledger", func(url string) error { return prepare(t.Context(), url) })
}

func prepare(ctx context.Context, url string) error {
	if err := postgres.Migrate(ctx, url); err != nil {
		return err
	}
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, "create table mark (m text)")
	return errors.Join(err, c.Close(ctx))
}

// open opens the ledger that url names, for the time of the test.
func open(t testing.TB, url string, o postgres.Options) *postgres.Ledger {
	t.Helper()
	l, err := postgres.Open(t.Context(), url, o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(l.Close)
	return l
}

// raw opens connections beside the ledger.
func raw(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func run(t testing.TB, db *pgxpool.Pool, sql string, args ...any) int64 {
	t.Helper()
	tag, err := db.Exec(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return tag.RowsAffected()
}

// scan reads one value.
func scan[T any](t testing.TB, db *pgxpool.Pool, sql string, args ...any) (v T) {
	t.Helper()
	if err := db.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// whole has every race run all its rounds; make races sets it.
var whole = flag.Bool("whole", false, "every race of the ledgers' suite runs all its rounds")

// part is how much of a race's rounds is run, as ledgertest.Harness has it.
func part(n int) int {
	if *whole {
		return 0
	}
	return n
}

// harness describes the ledger in the database at url to the suite; it makes time
// pass on connections of its own, straight to the server.
func harness(t *testing.T, url, direct string) *ledgertest.Harness {
	db := raw(t, direct)
	one := func(sql string, args ...any) {
		t.Helper()
		if n := run(t, db, sql, args...); n != 1 {
			t.Fatalf("%s: %d rows", sql, n)
		}
	}
	job := func(set string) func(ledger.Key) {
		return func(k ledger.Key) {
			t.Helper()
			one("update paidonce.job set "+set+" where tenant = $1 and key = $2", k.Tenant, k.Text)
		}
	}
	age := func(set string) func(ledger.Key, time.Duration) {
		return func(k ledger.Key, d time.Duration) {
			t.Helper()
			one("update paidonce.job set "+set+" where tenant = $1 and key = $2", k.Tenant, k.Text, d)
		}
	}
	horizon := age("open_until = open_until - $3::interval")
	return &ledgertest.Harness{
		Store: open(t, url, postgres.Options{}),
		Seeds: 20,
		Part:  part(4),
		LapseWorker: func(id ledger.WorkerID) {
			t.Helper()
			one("update paidonce.worker set lease_until = clock_timestamp() where id = $1 and epoch = $2 and closed_at is null", id.ID, id.Epoch)
		},
		LapseRun:   job("run_deadline = clock_timestamp()"),
		MakeDue:    job("next_at = clock_timestamp()"),
		AgeUnknown: age("unknown_at = unknown_at - $3::interval"),
		AgeAttempts: func(k ledger.Key, d time.Duration) {
			t.Helper()
			horizon(k, d)
			run(t, db, `update paidonce.attempt a set sent_at = sent_at - $3::interval from paidonce.job j
				where j.tenant = $1 and j.key = $2 and a.tenant = j.tenant and a.job = j.id`, k.Tenant, k.Text, d)
		},
		AgeRow: ager(t, db, host(t, url) == host(t, direct)),
		AgeBudgets: func(days int) {
			t.Helper()
			run(t, db, "update paidonce.budget set day = day - $1::int", days)
			run(t, db, "update paidonce.attempt set budget_day = budget_day - $1::int", days)
		},
		AgeMessages: func(d time.Duration) {
			t.Helper()
			run(t, db, "update paidonce.outbox set next_at = next_at - $1::interval", d)
		},
		Hook: func(mark string) ledger.Hook {
			return hook(func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "insert into mark values ($1)", mark)
				return err
			})
		},
		FailingHook: func(fail error) ledger.Hook {
			return hook(func(ctx context.Context, tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "insert into mark values ('failing')"); err != nil {
					return err
				}
				return fail
			})
		},
		Marks: func() []string {
			t.Helper()
			rows, err := db.Query(t.Context(), "select m from mark")
			if err != nil {
				t.Fatal(err)
			}
			marks, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			return marks
		},
		Chunks: &ledgertest.Chunks{
			Count: func() int { t.Helper(); return scan[int](t, db, "select count(*) from paidonce.chunk") },
			Lose: func(k ledger.Key) {
				t.Helper()
				one("delete from paidonce.chunk c using paidonce.job j where j.tenant = $1 and j.key = $2 and c.tenant = j.tenant and c.job = j.id and c.n = 1", k.Tenant, k.Text)
			},
			Spoil: func(k ledger.Key) {
				t.Helper()
				one(`update paidonce.chunk c set body = set_byte(c.body, 0, 255 - get_byte(c.body, 0)) from paidonce.job j
					where j.tenant = $1 and j.key = $2 and c.tenant = j.tenant and c.job = j.id and c.n = 1`, k.Tenant, k.Text)
			},
		},
	}
}

// host is the address of the server that a URL names.
func host(t testing.TB, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// cases are those of the suite. They use one database after the other: a copy of its own
// takes longer than most of them do.
type cases struct {
	*testing.T
	free    []string
	workers map[string]string // by database: its URL for the workers' role
}

// database is one in which nothing is left of an earlier case.
func (c *cases) database(t *testing.T) string {
	t.Helper()
	if len(c.free) == 0 {
		c.free = []string{database(c.T)}
	}
	url := c.free[0]
	c.free = c.free[1:]
	t.Cleanup(func() { // when the case has closed its ledger
		if !t.Failed() { // else it may have left a transaction open
			c.free = append(c.free, url)
		}
	})
	pgtest.Exec(t, url, `delete from mark; delete from paidonce.worker; delete from paidonce.job; delete from paidonce.attempt;
		delete from paidonce.response; delete from paidonce.result; delete from paidonce.input; delete from paidonce.chunk; delete from paidonce.event;
		delete from paidonce.dup_count; delete from paidonce.floor; delete from paidonce.step; delete from paidonce.outbox; delete from paidonce.budget`)
	pgtest.Exec(t, url, "vacuum paidonce.job")
	pgtest.Exec(t, url, "vacuum paidonce.worker")
	return url
}

// TestLedger runs the suite with the rights of the workers' role.
func TestLedger(t *testing.T) {
	t.Parallel()
	c := &cases{T: t, workers: map[string]string{}}
	ledgertest.Run(t, func(t *testing.T) *ledgertest.Harness {
		direct := c.database(t)
		if c.workers[direct] == "" {
			c.workers[direct] = makeRoles(c.T, direct).worker
			pgtest.Exec(t, direct, "grant insert on mark to public")
		}
		return harness(t, c.workers[direct], direct)
	})
}

// TestLedgerThroughPgBouncer runs the suite in transaction mode, with no setting made
// for it: the same URL but for the port.
func TestLedgerThroughPgBouncer(t *testing.T) {
	t.Parallel()
	c := &cases{T: t}
	through := map[string]string{}
	ledgertest.Run(t, func(t *testing.T) *ledgertest.Harness {
		direct := c.database(t)
		if through[direct] == "" {
			through[direct] = pgtest.PgBouncer(c.T, direct)
		}
		h := harness(t, through[direct], direct)
		h.Seeds, h.Part = 5, part(20) // the pooler is what is new here, not the races
		return h
	})
}
