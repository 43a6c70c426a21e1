package postgres_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/ledgertest"
	"github.com/paidonce/paidonce/ledger/postgres"
)

const day = 24 * time.Hour

var retention = ledger.Retention{Result: 30 * day, Key: 400 * day}

// purge purges to the end and returns the steps.
func (f *fixture) purge(r ledger.Retention) (steps []ledger.PurgeStep) {
	f.Helper()
	for s, err := range f.Purge(f.Context(), r) {
		if err != nil {
			f.Fatalf("purge: %v", err)
		}
		steps = append(steps, s)
	}
	return steps
}

// old makes a done job of the time d ago, in partitions of its own.
func (f *fixture) old(name string, d time.Duration) ledger.Request {
	f.Helper()
	if err := f.life(f.Context(), name, false); err != nil {
		f.Fatal(err)
	}
	r := f.request(name)
	ager(f.T, f.db, true)(r.Key, d)
	return r
}

// partitions lists those of a table that are past: their days end before today.
func (f *fixture) partitions(table string) []string {
	f.Helper()
	rows, err := f.db.Query(f.Context(), `select inhrelid::regclass::text from pg_inherits
		where inhparent = ('paidonce.' || $1)::regclass and inhrelid::regclass::text < 'paidonce.' || $1 || to_char(now() - interval '32 days', '_YYYYMMDD') order by 1`, table)
	if err != nil {
		f.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		f.Fatal(err)
	}
	return names
}

// TestPurgeDropsPartitions: what is needed moves out first, and what is not is never deleted
// row by row.
func TestPurgeDropsPartitions(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	f.old("done", 60*day)
	f.old("forgotten", 800*day)
	open := f.request("open")
	open.Input = bytes.Repeat([]byte("0123456789"), 30_000) // in two chunks
	lease := f.run(open)
	if err := f.Send(t.Context(), lease, attempt()); err != nil {
		t.Fatal(err)
	}
	age := ager(t, f.db, true)
	age(open.Key, 60*day)
	late := f.request("late")
	lateLease := f.run(late)
	age(late.Key, 800*day)
	if err := f.Complete(t.Context(), lateLease, ledger.Result{ID: ledger.NewID(), Body: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	for table, n := range map[string]int{"result": 2, "response": 2, "input": 2, "chunk": 2, "attempt": 2, "event": 2} {
		if got := f.partitions(table); len(got) != n {
			t.Fatalf("%s has the old partitions %v, want %d", table, got, n)
		}
	}
	var dropped []string
	moved, keys := 0, 0
	for _, s := range f.purge(retention) {
		if s.InUse {
			t.Errorf("nobody is there, and a step was in use: %+v", s)
		}
		if s.Partition != "" {
			dropped = append(dropped, s.Partition)
		} else if s.Rows != 0 {
			t.Errorf("%d rows were deleted one by one", s.Rows)
		}
		moved, keys = moved+s.Moved, keys+s.Keys
	}
	if len(dropped) != 10 || moved != 2 || keys != 1 {
		t.Errorf("dropped %v, moved %d, forgot %d keys; want 10 partitions, 2 moved and 1 key", dropped, moved, keys)
	}
	if !strings.HasPrefix(dropped[3], "chunk_") { // a row that refers to chunks must not be left without them
		t.Errorf("dropped %v: chunks come after the rows that name them", dropped)
	}
	for table, n := range map[string]int{"result": 0, "response": 0, "input": 0, "chunk": 0, "attempt": 1, "event": 1} {
		if got := f.partitions(table); len(got) != n {
			t.Errorf("%s still has the partitions %v, want %d", table, got, n)
		}
		if n := scan[int](t, f.db, "select count(*) from paidonce."+table+"_default"); n != 0 {
			t.Errorf("%d rows of %s are in the net", n, table)
		}
	}
	today := scan[string](t, f.db, "select to_char(now() at time zone 'utc', 'YYYY-MM-DD') || ' false'")
	for table, n := range map[string]int{"input": 1, "chunk": 2, "attempt": 1, "event": 2} {
		if got := f.where(open.Key, table); len(got) != n || slices.ContainsFunc(got, func(s string) bool { return s != today }) {
			t.Errorf("%s of the open job are of %v, want %d of %s", table, got, n, today)
		}
	}
	if _, err := f.Release(t.Context(), lease, ledger.Outcome{}); err != nil {
		t.Fatal(err)
	}
	as, err := f.Adopt(t.Context(), ledger.Adoption{Worker: f.worker, Token: ledger.NewID(), Max: 1})
	if err != nil || len(as) != 1 || as[0].Fault != nil || !bytes.Equal(as[0].Input, open.Input) {
		t.Errorf("the open job's input does not read as it was: %v", err)
	}
	if c, err := f.Claim(t.Context(), late); err != nil || c.Verdict != ledger.Saved || string(c.Result.Body) != "{}" {
		t.Errorf("the job that ended lately: %s %v", c.Verdict, err)
	}
}

// TestPurgeGivesWay: a purge that has to wait for somebody gives up soon, so that nobody
// waits behind it, goes on with the rest, and drops later what it left.
func TestPurgeGivesWay(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	f.old("done", 60*day)
	key := f.old("forgotten", 800*day)
	reader, err := f.db.Begin(t.Context()) // as a dump or a report does
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Rollback(context.WithoutCancel(t.Context()))
	if _, err := reader.Exec(t.Context(), "select count(*) from paidonce.result"); err != nil {
		t.Fatal(err)
	}
	done := make(chan []ledger.PurgeStep)
	go func() {
		var steps []ledger.PurgeStep
		for s, err := range f.Purge(t.Context(), retention) {
			if err != nil {
				t.Errorf("purge: %v", err)
			}
			steps = append(steps, s)
		}
		done <- steps
	}()
	var steps []ledger.PurgeStep
	for n := 0; steps == nil; n++ { // claims go on while the reader reads
		select {
		case steps = <-done:
		default:
			if err := f.life(t.Context(), fmt.Sprint("meanwhile ", n), false); err != nil {
				t.Fatalf("while a purge waits for a reader: %v", err)
			}
		}
	}
	var inUse []string
	for _, s := range steps {
		if s.InUse {
			inUse = append(inUse, "paidonce."+s.Partition)
		}
	}
	// What a result refers to stays with it.
	left := append(f.partitions("chunk"), f.partitions("result")...)
	slices.Sort(left)
	slices.Sort(inUse)
	if len(left) != 4 || !slices.Equal(left, inUse) {
		t.Errorf("left %v, told of %v, want the two that are read and their chunks", left, inUse)
	}
	if left := f.partitions("input"); len(left) != 0 {
		t.Errorf("partitions that nobody reads are left: %v", left)
	}
	if _, err := f.Job(t.Context(), key.Key); err != ledger.ErrNotFound && !strings.Contains(err.Error(), ledger.ErrNotFound.Error()) {
		t.Errorf("the old key: %v, want ErrNotFound", err)
	}
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.purge(retention)
	if left := append(f.partitions("chunk"), f.partitions("result")...); len(left) != 0 {
		t.Errorf("%v are left when the reader is gone", left)
	}
}

// TestPurgeWaitsForLockedJobs: a partition with a job that somebody works on is not dropped
// under it.
func TestPurgeWaitsForLockedJobs(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	r := f.request("open")
	f.run(r)
	ager(t, f.db, true)(r.Key, 60*day)
	tx, err := f.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	if _, err := tx.Exec(t.Context(), "select 1 from paidonce.job for update"); err != nil {
		t.Fatal(err)
	}
	steps := f.purge(retention)
	if len(steps) != 1 || !steps[0].InUse || steps[0].Partition == "" || len(f.partitions("input")) != 1 {
		t.Errorf("steps %+v, partitions %v; want one in use", steps, f.partitions("input"))
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.purge(retention)
	if left := f.partitions("input"); len(left) != 0 || len(f.where(r.Key, "input")) != 1 {
		t.Errorf("left %v, the job's input is of %v", left, f.where(r.Key, "input"))
	}
}

// TestPurgeFunctionsAreNarrow: they drop and delete what is past its retention, whatever they
// are given.
func TestPurgeFunctionsAreNarrow(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	if err := f.life(t.Context(), "young", false); err != nil {
		t.Fatal(err)
	}
	f.old("old", 60*day) // so that there is something to drop, of another name
	part := scan[string](t, f.db, "select relname from pg_class where oid = (select tableoid from paidonce.result order by part_on desc limit 1)")
	for _, name := range []string{"job", "result", "result_default", "worker", part, "no such table"} {
		if n := scan[*int64](t, f.db, "select paidonce.purge_drop($1, '30 days', '400 days')", name); n != nil {
			t.Errorf("%s was dropped", name)
		}
	}
	if _, err := f.db.Exec(t.Context(), "select paidonce.purge_net('mark', '30 days', 10)"); err == nil || !strings.Contains(err.Error(), "no table of children: mark") {
		t.Errorf("purge_net of another table: %v", err)
	}
	if n := scan[int](t, f.db, "select paidonce.purge_move((now() at time zone 'utc')::date, array_agg(tenant), array_agg(id)) from paidonce.job"); n != 0 {
		t.Errorf("%d jobs of today moved", n)
	}
	if c, err := f.Claim(t.Context(), f.request("young")); err != nil || c.Verdict != ledger.Saved {
		t.Errorf("after all: %s %v", c.Verdict, err)
	}
}

// TestPurgeReadsDates: of a server that writes dates in another way.
func TestPurgeReadsDates(t *testing.T) {
	direct := database(t)
	run(t, raw(t, direct), "alter database "+scan[string](t, raw(t, direct), "select current_database()")+" set datestyle = 'German'")
	f := fixtureAt(t, direct, postgres.Options{})
	f.old("done", 60*day)
	f.purge(retention)
	if left := f.partitions("result"); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
}

// TestPurgePlans: old keys are found without a look at the young ones.
func TestPurgePlans(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	run(t, f.db, `insert into paidonce.job (tenant, key, action, input_hash, input_kept, part_on, state, fence, carrier, next_at,
		runs, events, result_id, done_at, created_at, updated_at)
		select 'acme', 'k' || i, 'a', sha256('x'), false, current_date - 1000 + i / 100, 'done', 1, 'broker', now(), 1, 0, gen_random_uuid(), now(), now(), now()
		from generate_series(1, 100000) i`)
	run(t, f.db, "vacuum analyze paidonce.job")
	var b []byte
	for _, name := range []string{"00006_chunks", "00008_counts"} { // purge_needed and purge_keys as they are now
		text, err := os.ReadFile("migrations/" + name + ".sql")
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, text...)
	}
	all := regexp.MustCompile(`(?s)from paidonce\.job b\n\s+where (b\.part_on.*?)\n\s+(?:order|limit)`).FindAllSubmatch(b, -1)
	if len(all) != 2 {
		t.Fatalf("%d statements", len(all))
	}
	for _, where := range all {
		c, err := f.db.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Release()
		run1(t, c, "set enable_seqscan = off")
		sql := strings.NewReplacer("keep", "interval '400 days'", "= day", "= date '2024-01-01'").Replace(string(where[1]))
		rows, err := c.Query(t.Context(), "explain select 1 from paidonce.job b where "+sql, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(plan, "\n"); !strings.Contains(text, "job_part_on") {
			t.Errorf("%s does without the index:\n%s", sql, text)
		}
	}
}

func run1(t *testing.T, c *pgxpool.Conn, sql string) {
	t.Helper()
	if _, err := c.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// readsChildren lists the statements that lock a job and find its children by part_on under
// the same snapshot, each with its reason: a purge may have moved them meanwhile, to where the
// snapshot does not see them.
var readsChildren = map[string]string{
	"adopt":      "a job that moved at once is left to the next adoption",
	"claim_take": "a job that was just done and moved at once is told of as purged, which pays nothing",
}

func TestLockingStatementsReadNoChildren(t *testing.T) {
	files, err := filepath.Glob("sql/*.sql")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	locks := regexp.MustCompile(`for (?:no key )?update(?: of (\w+))?`)
	child := regexp.MustCompile(`(?:from|join|update) paidonce\.(?:attempt|event|response|result|input) (\w+)`)
	for _, file := range files {
		text := ledgertest.SQL(t, file)
		job := false
		for _, m := range locks.FindAllStringSubmatch(text, -1) {
			job = job || m[1] == "" || !strings.Contains(text, "paidonce.budget "+m[1])
		}
		if !job {
			continue
		}
		name := strings.TrimSuffix(filepath.Base(file), ".sql")
		found := false
		for _, m := range child.FindAllStringSubmatch(text, -1) {
			found = found || strings.Contains(text, m[1]+".part_on")
		}
		if found != (readsChildren[name] != "") {
			t.Errorf("%s locks jobs and finds their children by part_on: %v; lock in a statement before it, or leave part_on out", name, found)
		}
	}
}
