package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// TestPurgeMovesEachOnce: after a purge that died between two batches, and beside another whose
// list of jobs it makes stale, nothing is left behind and nothing moves twice.
func TestPurgeMovesEachOnce(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	const jobs = 350
	fill(t, f.db, 60, 7, jobs, 1) // 50 a day
	moved := 0
	steps := func(then func()) {
		t.Helper()
		for s, err := range f.Purge(t.Context(), ledger.Retention{Result: 30 * day, Key: 400 * day, Batch: 20}) {
			if moved += s.Moved; err != nil || s.Moved > 20 || s.InUse || s.Keys > 0 {
				t.Errorf("step %+v %v", s, err)
			}
			if then == nil {
				continue
			}
			if then(); moved == 20 {
				return
			}
			then = nil
		}
	}
	steps(func() {})             // dies after its first step
	steps(func() { steps(nil) }) // waits after its first step until another purge is over
	if moved != jobs {
		t.Errorf("moved %d jobs, want %d", moved, jobs)
	}
	for _, table := range []string{"result", "input"} {
		if n := scan[int](t, f.db, "select count(*) from paidonce."+table+" c join paidonce.job j on j.tenant = c.tenant and j.id = c.job and j.part_on = c.part_on where c.part_on = (now() at time zone 'utc')::date"); n != jobs {
			t.Errorf("%d rows of %s moved with their jobs, want %d", n, table, jobs)
		}
	}
	for table := range children {
		if left := f.partitions(table); (len(left) == 0) != (table != "attempt" && table != "event") {
			t.Errorf("of %s the old partitions %v are left", table, left)
		}
	}
}

// TestReopenedBesideAPurge: a job that a person orders anew after the purge looked for what is needed of its day,
// and before it drops that day, keeps its input and its answers.
func TestReopenedBesideAPurge(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	age := ager(t, f.db, true)
	needed, old := f.run(f.request("needed")), f.request("old")
	if err := f.Complete(t.Context(), f.run(old), ledger.Result{ID: ledger.NewID(), Body: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	age(needed.Key, 60*day)
	age(old.Key, 60*day)
	reopened := false
	for s, err := range f.Purge(t.Context(), retention) {
		if err != nil {
			t.Fatal(err)
		}
		if s.Moved > 0 && !reopened {
			reopened = true
			if _, err := f.Reopen(t.Context(), ledger.Reopening{Key: old.Key, Token: "t", Reason: "r", Who: "w"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if left := f.partitions("input"); !reopened || len(left) != 0 {
		t.Errorf("reopened %v, and the old partitions %v are left", reopened, left)
	}
	due, err := f.Due(t.Context(), 10, time.Hour)
	if err != nil || len(due) != 1 || due[0].Key != old.Key || string(due[0].Input) != string(old.Input) {
		t.Errorf("due are %+v, %v", due, err)
	}
	if j, err := f.Job(t.Context(), old.Key); err != nil || len(j.Earlier) != 1 {
		t.Errorf("the earlier results are %+v, %v", j.Earlier, err)
	}
}

// TestPurgeLooksOnce: a day is read once for all of its batches, and once more when it has more to
// move than is kept in memory.
func TestPurgeLooksOnce(t *testing.T) {
	const jobs = 10_050
	url := database(t)
	db := raw(t, url)
	fill(t, db, 60, 1, jobs, 1)
	l := open(t, url, postgres.Options{})
	moved := 0
	for s, err := range l.Purge(t.Context(), retention) {
		if err != nil || s.InUse {
			t.Fatalf("purge: %+v %v", s, err)
		}
		moved += s.Moved
	}
	if moved != jobs {
		t.Errorf("moved %d jobs, want %d", moved, jobs)
	}
	l.Close()              // what its connections did is counted when they end
	const want = 7 + 1 + 1 // the days of the week, the first again, and the look for old keys
	scans := 0
	for range 100 {
		if scans = scan[int](t, db, "select idx_scan from pg_stat_user_indexes where indexrelname = 'job_part_on'"); scans >= want {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if scans != want {
		t.Errorf("jobs were looked for by day %d times, want %d", scans, want)
	}
}

// fill makes done jobs of the first days of a week, age days ago, with inputs and results of
// 1 KB. One of every so many changed just now.
func fill(t testing.TB, db *pgxpool.Pool, age, days, jobs, every int) {
	t.Helper()
	monday := time.Now().UTC().AddDate(0, 0, -age)
	monday = monday.AddDate(0, 0, -int(monday.Weekday()+6)%7)
	err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		for table := range children {
			if err := makePartition(t.Context(), tx, table, monday); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, db, fmt.Sprintf(`insert into paidonce.job (tenant, key, action, input_hash, input_kept, part_on, state, fence, carrier, next_at,
		runs, events, result_id, done_at, created_at, updated_at)
		select 'acme', 'acme:invoice.extract:' || md5(i::text), 'invoice.extract', sha256(i::text::bytea), true, date '%s' + (i::bigint * %d / %d)::int, 'done', 1,
		'broker', t, 1, 4, gen_random_uuid(), t, t, case when i %% %d = 0 then now() else t end
		from (select i, timestamptz '%[1]s' as t from generate_series(0, %[3]d - 1) i) x`, monday.Format(time.DateOnly), days, jobs, every))
	body := `(select string_agg(sha512((id || ' ' || i)::bytea), '') from generate_series(1, 16) i) from paidonce.job where created_at < now() - interval '1 day'`
	run(t, db, "insert into paidonce.result (tenant, job, generation, part_on, id, schema_name, body) select tenant, id, 1, part_on, result_id, '', "+body)
	run(t, db, "insert into paidonce.input (tenant, job, part_on, body) select tenant, id, part_on, "+body)
}
