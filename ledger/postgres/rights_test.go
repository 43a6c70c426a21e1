package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// roles are URLs of a database for those who do not own it, by the roles that are shipped.
type roles struct{ worker, reader, producer string }

// makeRoles gives the database roles of its own, with the rights of the shipped ones, and logins. They end with the test.
func makeRoles(t *testing.T, direct string) roles {
	t.Helper()
	admin, own := raw(t, direct), fmt.Sprintf("r%x_", time.Now().UnixNano())
	sql := strings.ReplaceAll(postgres.Roles(), "paidonce_", own)
	run(t, admin, sql)
	run(t, admin, sql) // as after an upgrade
	as := func(name string) string {
		run(t, admin, "alter role "+own+name+" login")
		t.Cleanup(func() {
			if _, err := admin.Exec(context.WithoutCancel(t.Context()), "drop owned by "+own+name+"; drop role "+own+name); err != nil {
				t.Logf("drop the test's role: %v", err)
			}
		})
		u, err := url.Parse(direct)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.User(own + name)
		return u.String()
	}
	return roles{as("worker"), as("reader"), as("producer")}
}

// workersFixture is a fixture whose ledger has the workers' role, and connections of that role; its db may
// do all.
func workersFixture(t *testing.T) (f *fixture, app *pgxpool.Pool) {
	t.Helper()
	direct := database(t)
	admin := raw(t, direct)
	f = fixtureAt(t, makeRoles(t, direct).worker, postgres.Options{})
	app, f.db = f.db, admin
	return f, app
}

// refused wants the database to forbid statements.
func refused(t *testing.T, who string, db *pgxpool.Pool, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		_, err := db.Exec(t.Context(), sql)
		if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "42501" {
			t.Errorf("the %s may %s: %v", who, sql, err)
		}
	}
}

// tables lists the ledger's tables, partitions apart.
func tables(t *testing.T, db *pgxpool.Pool) []string {
	t.Helper()
	all := scan[[]string](t, db, "select array_agg(relname::text order by 1) from pg_class where relnamespace = 'paidonce'::regnamespace and relkind in ('r', 'p') and not relispartition")
	if len(all) < 10 {
		t.Fatalf("tables %v", all)
	}
	return all
}

// functions lists the ledger's functions, as calls that would do harm.
func functions(t *testing.T, db *pgxpool.Pool) []string {
	t.Helper()
	return scan[[]string](t, db, `select array_agg(format('select paidonce.%I(%s)', proname, (select coalesce(string_agg('null::' || format_type(a, null), ', ' order by n), '') from unnest(proargtypes::oid[]) with ordinality as u(a, n))) order by 1)
		from pg_proc where pronamespace = 'paidonce'::regnamespace and prorettype <> 'trigger'::regtype`)
}

// TestWorkersRole: who runs jobs owns nothing. That the whole ledger works for it is what TestLedger shows.
func TestWorkersRole(t *testing.T) {
	f, app := workersFixture(t)
	for url, owner := range map[string]bool{f.db.Config().ConnString(): true, app.Config().ConnString(): false} {
		if d, err := open(t, url, postgres.Options{}).Describe(t.Context()); err != nil || d.Owner != owner {
			t.Errorf("%s: described as %+v, %v", url, d, err)
		}
	}
	for _, table := range tables(t, f.db) {
		refused(t, "workers' role", app, "delete from paidonce."+table, "truncate paidonce."+table, "drop table paidonce."+table, "alter table paidonce."+table+" add column x int")
	}
	refused(t, "workers' role", app, "update paidonce.schema_version set is_applied = false", "insert into paidonce.schema_version (version_id, is_applied) values (99, true)",
		"create table paidonce.mine (a int)", "drop schema paidonce cascade", "drop function paidonce.purge_keys(interval, int)",
		"create or replace function paidonce.purge_keys(keep interval, n int) returns int language sql as 'select 1'")
}

// TestReadersRole: who looks at jobs sees all of them, and can neither write nor call what does.
func TestReadersRole(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	if err := f.life(t.Context(), "a", false); err != nil {
		t.Fatal(err)
	}
	direct := f.db.Config().ConnString()
	rs := makeRoles(t, direct)
	l, db := open(t, rs.reader, postgres.Options{}), raw(t, rs.reader)
	j, err := l.Job(t.Context(), f.request("a").Key)
	if err != nil || j.State != ledger.Done || len(j.Attempts) != 1 || j.Result == nil || len(j.History) == 0 {
		t.Errorf("the job reads as %+v, %v", j, err)
	}
	if err := l.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := l.Answer(t.Context(), ledger.AttemptID{Tenant: "acme", Job: j.ID, ID: j.Attempts[0].ID}); err != nil {
		t.Error(err)
	}
	if c, err := l.Costs(t.Context(), ledger.CostFilter{}); err != nil || c.Total.Jobs != 1 {
		t.Errorf("%+v, %v", c.Total, err)
	}
	if _, err := l.Unknowns(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := l.Budgets(t.Context(), ledger.BudgetFilter{Day: time.Now()}); err != nil {
		t.Error(err)
	}
	for _, err := range l.Jobs(t.Context(), ledger.Filter{Limit: 10}) {
		if err != nil {
			t.Error(err)
		}
	}
	for _, table := range tables(t, f.db) {
		refused(t, "readers' role", db, "insert into paidonce."+table+" default values", "delete from paidonce."+table, "truncate paidonce."+table, "drop table paidonce."+table)
		column := scan[string](t, f.db, "select attname::text from pg_attribute where attrelid = ('paidonce.' || $1)::regclass and attnum = 1", table)
		refused(t, "readers' role", db, fmt.Sprintf("update paidonce.%s set %[2]s = %[2]s", table, column))
	}
	refused(t, "readers' role", db, functions(t, f.db)...)
	refused(t, "readers' role", db, "create table paidonce.mine (a int)", "select 1 from paidonce.job for update")
	if _, err := l.Submit(t.Context(), submission("1")); err == nil {
		t.Error("the readers' role may submit")
	}
}

// TestProducersRole: who submits makes jobs, alone and in a transaction of its own, and reads no body.
func TestProducersRole(t *testing.T) {
	direct := database(t)
	admin, rs := raw(t, direct), makeRoles(t, direct)
	l, db := open(t, rs.producer, postgres.Options{}), raw(t, rs.producer)
	for i, want := range []bool{true, false} {
		found, err := l.Submit(t.Context(), submission("1"), submission("2"))
		if err != nil || len(found) != 2 || found[0].New != want || found[1].State != ledger.Ready {
			t.Errorf("submission %d: %+v, %v", i, found, err)
		}
	}
	err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		found, err := postgres.SubmitTx(t.Context(), tx, submission("1"), submission("3"))
		if err == nil && (found[0].New || !found[1].New) {
			t.Errorf("in a transaction: %+v", found)
		}
		return err
	})
	if n := scan[int](t, admin, "select count(*) from paidonce.job where state = 'ready'"); err != nil || n != 3 {
		t.Errorf("%d jobs are there, want 3: %v", n, err)
	}
	if err := l.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	for _, table := range tables(t, admin) {
		column := scan[string](t, admin, "select attname::text from pg_attribute where attrelid = ('paidonce.' || $1)::regclass and attnum = 1", table)
		refused(t, "producers' role", db, "delete from paidonce."+table, "truncate paidonce."+table, fmt.Sprintf("update paidonce.%s set %[2]s = %[2]s", table, column))
		if table != "job" && table != "schema_version" {
			refused(t, "producers' role", db, "select * from paidonce."+table)
		}
		if table != "job" && table != "input" && table != "event" {
			refused(t, "producers' role", db, "insert into paidonce."+table+" default values")
		}
	}
	refused(t, "producers' role", db, functions(t, admin)...)
	refused(t, "producers' role", db, "select error_text from paidonce.job", "select cost from paidonce.job", "create table paidonce.mine (a int)")
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
	refused(t, "workers' role", app, "drop table paidonce.result_default")
	if c, err := f.Claim(t.Context(), f.request("done")); err != nil || c.Verdict != ledger.Purged {
		t.Errorf("the purged job: %s %v", c.Verdict, err)
	}
}

// TestOutboxNeedsNoRightToDelete: the workers' role asks for steps and messages, and forgets messages that are published.
func TestOutboxNeedsNoRightToDelete(t *testing.T) {
	f, _ := workersFixture(t)
	r := ledger.Result{ID: ledger.NewID(), Steps: []ledger.StepAsk{mailTo("a")}, Messages: []ledger.MessageAsk{{Action: "next", Body: []byte("{}")}}}
	if err := f.Complete(t.Context(), f.run(f.request("a")), r); err != nil {
		t.Fatal(err)
	}
	run(t, f.db, "update paidonce.outbox set next_at = now()")
	ms, err := f.TakeMessages(t.Context(), 10, time.Hour)
	if err != nil || len(ms) != 1 {
		t.Fatalf("took %+v, %v", ms, err)
	}
	if err := f.DropMessages(t.Context(), []ledger.OutgoingID{ms[0].ID}); err != nil {
		t.Error(err)
	}
	if n, err := f.CountMessages(t.Context()); n != 0 || err != nil {
		t.Errorf("%d messages are left (%v)", n, err)
	}
}
