package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// grants is what docs/operations.md gives the workers' role.
func grants(t *testing.T, role string) string {
	t.Helper()
	b, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)```sql\n(grant .*?)```").FindSubmatch(b)
	if m == nil {
		t.Fatal("docs/operations.md grants nothing")
	}
	return strings.ReplaceAll(string(m[1]), "paidonce_app", role)
}

// workersFixture is a fixture whose ledger has the workers' role, and connections of that role; its db may
// do all.
func workersFixture(t *testing.T) (f *fixture, app *pgxpool.Pool) {
	t.Helper()
	direct := database(t)
	admin := raw(t, direct)
	role := fmt.Sprintf("app_%x", time.Now().UnixNano())
	run(t, admin, "create role "+role+" login")
	t.Cleanup(func() {
		if _, err := admin.Exec(context.WithoutCancel(t.Context()), "drop owned by "+role+"; drop role "+role); err != nil {
			t.Logf("drop the test's role: %v", err)
		}
	})
	run(t, admin, grants(t, role))
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	f = fixtureAt(t, u.String(), postgres.Options{})
	app, f.db = f.db, admin
	return f, app
}

// TestPurgeNeedsNoRightToDelete: the workers' role runs jobs and purges, and can delete
// nothing by itself.
func TestPurgeNeedsNoRightToDelete(t *testing.T) {
	f, app := workersFixture(t)
	f.old("done", 60*day)
	f.old("forgotten", 800*day)
	keys, partitions := 0, 0
	for _, s := range f.purge(retention) {
		keys += s.Keys
		if s.Partition != "" {
			partitions++
		}
	}
	if keys != 1 || partitions != 10 {
		t.Errorf("forgot %d keys and dropped %d partitions, want 1 and 10", keys, partitions)
	}
	for _, sql := range []string{"delete from paidonce.job", "delete from paidonce.result", "delete from paidonce.dup_count", "truncate paidonce.job", "drop table paidonce.result_default"} {
		if _, err := app.Exec(t.Context(), sql); err == nil {
			t.Errorf("the workers' role may %s", sql)
		}
	}
	if c, err := f.Claim(t.Context(), f.request("done")); err != nil || c.Verdict != ledger.Purged {
		t.Errorf("the purged job: %s %v", c.Verdict, err)
	}
}

// TestOutboxNeedsNoRightToDelete: the workers' role asks for steps and messages, and forgets messages that are published.
func TestOutboxNeedsNoRightToDelete(t *testing.T) {
	f, app := workersFixture(t)
	r := ledger.Result{ID: ledger.NewID(), Steps: []ledger.StepAsk{mailTo("a")}, Messages: []ledger.MessageAsk{{Action: "next", Body: []byte("{}")}}}
	if err := f.Complete(t.Context(), f.run(f.request("a")), r); err != nil {
		t.Fatal(err)
	}
	run(t, f.db, "update paidonce.outbox set next_at = now()")
	ms, err := f.TakeMessages(t.Context(), 10, time.Hour)
	if err != nil || len(ms) != 1 {
		t.Fatalf("took %+v, %v", ms, err)
	}
	if _, err := app.Exec(t.Context(), "delete from paidonce.outbox"); err == nil {
		t.Error("the workers' role may delete from the outbox")
	}
	if err := f.DropMessages(t.Context(), []ledger.OutgoingID{ms[0].ID}); err != nil {
		t.Error(err)
	}
	if n, err := f.CountMessages(t.Context()); n != 0 || err != nil {
		t.Errorf("%d messages are left (%v)", n, err)
	}
}
