package pgtest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/paidonce/paidonce/internal/pgtest"
)

// TestFullDisk: what needs room is refused as on a full file system, what does not goes on, and nothing is
// refused once there is room.
func TestFullDisk(t *testing.T) {
	s := pgtest.StartWithDisk(t)
	c := connect(t, s.URL(t))
	run(t, c, "create table had (x text); insert into had values ('a'); create table wants (x text)")
	s.SetDisk(t, pgtest.Disk{Full: true})
	_, err := c.Exec(t.Context(), "insert into wants values ('b')")
	if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "53100" || e.Severity != "ERROR" {
		t.Errorf("a table that must grow: %v, want SQLSTATE 53100", err)
	}
	if n := s.Refused(t); n != 1 {
		t.Errorf("%d writes refused, want 1", n)
	}
	run(t, c, "insert into had values ('c')") // its page has room
	s.SetDisk(t, pgtest.Disk{})
	run(t, c, "insert into wants values ('d')")
	if got := one(t, c, "select string_agg(x, '') from (select x from had union all select x from wants) x"); got != "acd" {
		t.Errorf("rows %q, want acd", got)
	}
}

// TestFullLog: a server that cannot go on with its log dies, and has everything that it said was committed once there is room.
func TestFullLog(t *testing.T) {
	s := pgtest.StartWithDisk(t)
	url := s.URL(t)
	c := connect(t, url)
	run(t, c, "create table kept (x text); insert into kept values ('a')")
	s.FillLog(t)
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // until the others were told
		if _, err := c.Exec(t.Context(), "select 1"); err != nil {
			break
		} else if time.Now().After(end) {
			t.Fatal("a connection outlived the server")
		}
	}
	s.Recover(t)
	c = connect(t, url)
	run(t, c, "insert into kept values ('b')")
	if got := one(t, c, "select string_agg(x, '') from kept"); got != "ab" {
		t.Errorf("rows %q, want ab", got)
	}
}

// TestSlowDisk: a commit waits for the fsync of its server, and of its standby, and is there once that is done.
func TestSlowDisk(t *testing.T) {
	s := pgtest.StartWithDisk(t)
	url := s.URL(t)
	c, beside := connect(t, url), connect(t, url)
	run(t, c, "create table t (x int)")
	standby := s.Standby(t)
	for _, k := range []struct {
		disk *pgtest.Server
		wait string // what Postgres says that the commit waits for: it syncs the log, or waits for another who does
	}{{s, "'WALSync', 'WALWrite', 'WALInitSync'"}, {standby, "'SyncRep'"}} {
		k.disk.SetDisk(t, pgtest.Disk{Sync: time.Hour})
		committed := make(chan error, 1)
		go func() {
			_, err := c.Exec(t.Context(), "insert into t values (1)")
			committed <- err
		}()
		waits := "select count(*)::text from pg_stat_activity where query like 'insert into t%' and wait_event in (" + k.wait + ")"
		for end := time.Now().Add(20 * time.Second); one(t, beside, waits) != "1"; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("no commit waits for %s: %s", k.wait, one(t, beside, "select string_agg(concat_ws(' ', backend_type, state, wait_event, query), E'\n') from pg_stat_activity"))
			}
		}
		k.disk.SetDisk(t, pgtest.Disk{})
		if err := <-committed; err != nil {
			t.Errorf("after the wait for %s: %v", k.wait, err)
		}
	}
	if got := one(t, c, "select count(*)::text from t"); got != "2" {
		t.Errorf("%s rows, want 2", got)
	}
}

// TestDurableOn: what is measured on a slow disk is synced all the same.
func TestDurableOn(t *testing.T) {
	s := pgtest.StartDurableOn(t, pgtest.Disk{Sync: time.Millisecond})
	c := connect(t, s.URL(t))
	for _, name := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
		if got := one(t, c, "show "+name); got != "on" {
			t.Errorf("%s is %s in a server that is measured", name, got)
		}
	}
	before := s.Synced(t)
	if err := pgx.BeginFunc(t.Context(), c, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "create table t (x int)")
		return err
	}); err != nil || s.Synced(t) == before {
		t.Errorf("a commit: %v, with %d fsyncs", err, s.Synced(t)-before)
	}
}
