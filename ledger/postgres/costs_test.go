package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// report reads the costs of all.
func (f *fixture) report(c ledger.CostFilter) ledger.Costs {
	f.Helper()
	r, err := f.Costs(f.Context(), c)
	if err != nil {
		f.Fatalf("costs: %v", err)
	}
	return r
}

// TestReportOfAHalfForgottenJob: a job whose row somebody held as its key was to be purged is still
// there, and its attempts are not.
func TestReportOfAHalfForgottenJob(t *testing.T) {
	for name, partitions := range map[string]bool{"in a partition": true, "in the net": false} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, postgres.Options{})
			if err := f.life(t.Context(), "held", false); err != nil {
				t.Fatal(err)
			}
			key := f.request("held").Key
			ager(t, f.db, partitions)(key, 800*day)
			run(t, f.db, "update paidonce.attempt set sent_at = sent_at - interval '800 days'")
			if c := f.report(ledger.CostFilter{}); c.Total.Calls != 1 || c.Total.Partial {
				t.Fatalf("before the purge: %+v", c)
			}
			tx, err := f.db.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(t.Context())
			if _, err := tx.Exec(t.Context(), "select from paidonce.job for update"); err != nil {
				t.Fatal(err)
			}
			f.purge(retention)
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			j, err := f.Job(t.Context(), key)
			if err != nil || len(j.Attempts) != 0 {
				t.Fatalf("the job has %d attempts (%v); want it to be there without", len(j.Attempts), err)
			}
			c := f.report(ledger.CostFilter{})
			if c.Total.Jobs != 1 || c.Total.Calls != 0 || !c.Total.Partial || c.Forgotten.After(j.UpdatedAt) || c.Forgotten.Before(j.CreatedAt) {
				t.Errorf("forgotten up to %v, of a job from %v to %v: %+v", c.Forgotten, j.CreatedAt, j.UpdatedAt, c.Total)
			}
		})
	}
}

// TestReportReadsItsDays: not the years before.
func TestReportReadsItsDays(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	run(t, f.db, `insert into paidonce.job (tenant, key, action, input_hash, input_kept, part_on, state, fence, carrier, next_at,
		runs, events, result_id, done_at, created_at, updated_at)
		select 'acme', 'k' || i, 'a', sha256('x'), false, current_date, 'done', 1, 'broker', now(), 1, 0, gen_random_uuid(), now(), at, at
		from generate_series(1, 100000) i, lateral (select now() - interval '400 days' + i * interval '5 minutes' as at) t`)
	run(t, f.db, `insert into paidonce.attempt (tenant, job, id, part_on, generation, n, fence, state, call_name, input_key, route, provider, model,
		config, client_request_id, timeout, reserve, late_seen, sent_at, ended_at, cost, captured)
		select tenant, id, gen_random_uuid(), part_on, 1, 1, 1, 'received', 'c', '', 'r', 'openai', 'm', '', '', '1 min', 0, 0, created_at, created_at, 1000, 1
		from paidonce.job order by created_at`)
	run(t, f.db, "vacuum analyze paidonce.job")
	run(t, f.db, "vacuum analyze paidonce.attempt")
	c := f.report(ledger.CostFilter{})
	if c.Total.Jobs != 100_000 || c.Total.Spent != 100_000_000 {
		t.Errorf("%+v", c.Total)
	}
	for name, index := range map[string]string{"costs_calls": "_sent_at_idx", "costs_jobs": "job_created_at"} {
		tx, err := f.db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(t.Context())
		plan, err := explain(t.Context(), tx, name, "('', '', '', now() - interval '60 days', now())")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(plan, index) {
			t.Errorf("%s does without the index:\n%s", name, plan)
		}
	}
}

// TestCountsNeedNoMoreRights: the workers' role counts, reports, and forgets what it may.
func TestCountsNeedNoMoreRights(t *testing.T) {
	f, _ := workersFixture(t)
	all := []ledger.Avoided{{Day: time.Now().Add(-500 * day), Tenant: "acme", Action: "a", Cause: ledger.Redelivered, Count: 1, Saved: 1}}
	for range 2 {
		if err := f.Count(t.Context(), f.worker, ledger.NewID(), all); err != nil {
			t.Fatal(err)
		}
	}
	if c := f.report(ledger.CostFilter{}); c.Total.AvoidedCalls() != 2 {
		t.Errorf("%+v", c.Total)
	}
	f.purge(retention)
	if c := f.report(ledger.CostFilter{}); c.Total.AvoidedCalls() != 0 || !c.Total.Partial {
		t.Errorf("after the purge: %+v", c.Total)
	}
}

// TestDuplicatesWriteNothing: a claim of a finished job writes no byte of the log, and counts are one row
// however many there are.
func TestDuplicatesWriteNothing(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	if err := f.life(t.Context(), "done", false); err != nil {
		t.Fatal(err)
	}
	r := f.request("done")
	storm := func() (bytes int64) {
		for try := 1; ; try++ { // whatever else writes now and then (a checkpoint, autovacuum) does not every time
			run(t, f.db, "checkpoint")
			before := scan[int64](t, f.db, "select (pg_current_wal_insert_lsn() - '0/0')::bigint")
			for range 200 {
				r.Token = ledger.NewID()
				if c, err := f.Claim(t.Context(), r); err != nil || c.Verdict != ledger.Saved {
					t.Fatalf("claim: %s %v", c.Verdict, err)
				}
			}
			bytes = scan[int64](t, f.db, "select (pg_current_wal_insert_lsn() - '0/0')::bigint") - before
			if bytes == 0 || try == 20 {
				return bytes
			}
		}
	}
	if n := storm(); n != 0 {
		t.Errorf("200 duplicates wrote %d bytes of the log", n)
	}
	for range 3 {
		all := []ledger.Avoided{{Day: time.Now(), Tenant: "acme", Action: r.Action, Cause: ledger.Redelivered, Count: 200, Saved: 1}}
		if err := f.Count(t.Context(), f.worker, ledger.NewID(), all); err != nil {
			t.Fatal(err)
		}
	}
	if n := scan[int](t, f.db, "select count(*) from paidonce.dup_count"); n != 1 {
		t.Errorf("%d rows of counts", n)
	}
}
