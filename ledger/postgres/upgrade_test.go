package postgres_test

import (
	"os"
	"testing"

	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// TestUpgrade: jobs that were begun under an old schema go on under the newest, each from where it was. This program's statements call functions that
// the old one lacks, so they are there for the time being.
func TestUpgrade(t *testing.T) {
	url := pgtest.URL(t)
	if err := postgres.MigrateTo(t.Context(), url, 14); err != nil {
		t.Fatal(err)
	}
	seldom, err := os.ReadFile("migrations/00018_seldom.sql")
	if err != nil {
		t.Fatal(err)
	}
	run(t, raw(t, url), string(seldom))
	run(t, raw(t, url), "create table mark (m text)")
	f := fixtureAt(t, url, postgres.Options{})
	done, running, unknown := f.request("done"), f.request("running"), f.request("unknown")
	if err := f.life(t.Context(), "done", false); err != nil {
		t.Fatal(err)
	}
	lease, lost := f.run(running), f.run(unknown)
	first, open := attempt(), attempt()
	if err := f.Send(t.Context(), lease, first); err != nil {
		t.Fatal(err)
	}
	if err := f.Send(t.Context(), lost, open); err != nil {
		t.Fatal(err)
	}
	if r, err := f.Release(t.Context(), lost, ledger.Outcome{}); err != nil || r.State != ledger.Unknown {
		t.Fatalf("release: %+v, %v", r, err)
	}
	run(t, raw(t, url), "drop function paidonce.close_others, paidonce.open_until, paidonce.mark_surplus, paidonce.spend; drop type paidonce.spending")
	if err := postgres.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	if err := f.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if c, err := f.Claim(t.Context(), f.request("done")); err != nil || c.Verdict != ledger.Saved {
		t.Errorf("a duplicate: %s, %v", c.Verdict, err)
	}
	settle := func(l ledger.Lease, a ledger.Attempt) {
		t.Helper()
		if _, err := f.Settle(t.Context(), ledger.AttemptID{Tenant: "acme", Job: l.Job, ID: a.ID}, answer()); err != nil {
			t.Errorf("settle: %v", err)
		}
	}
	settle(lease, first)
	settle(lost, open)
	if k, err := f.Look(t.Context(), lease, first.Call); err != nil || k.Answer == nil || k.Attempts != 1 || k.Open != 0 {
		t.Errorf("look: %+v, %v", k, err)
	}
	if err := f.Complete(t.Context(), lease, ledger.Result{ID: ledger.NewID(), Body: []byte("1"), Used: []ledger.ID{first.ID}}); err != nil {
		t.Errorf("complete: %v", err)
	}
	if err := f.Maintain(t.Context()); err != nil {
		t.Error(err)
	}
	if err := f.life(t.Context(), "new", false); err != nil {
		t.Errorf("a new job: %v", err)
	}
	f.want(running.Key, "done runs 1 fence 1 open 0 attempts 1 reserved 0 events 4 result true marks 0")
	f.want(unknown.Key, "ready runs 0 fence 2 open 0 attempts 1 reserved 0 events 4 result false marks 0")
	if j, err := f.Job(t.Context(), done.Key); err != nil || j.State != ledger.Done || len(j.Attempts) != 1 || !j.Attempts[0].HasAnswer {
		t.Errorf("the job that was done: %+v, %v", j, err)
	}
}
