package pgtest_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/internal/pgtest"
)

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	c, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

func run(t *testing.T, c *pgx.Conn, sql string) {
	t.Helper()
	if _, err := c.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func one(t *testing.T, c *pgx.Conn, sql string) (s string) {
	t.Helper()
	if err := c.QueryRow(t.Context(), sql).Scan(&s); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return s
}

func TestDatabasesAreApart(t *testing.T) {
	a, b := connect(t, pgtest.URL(t)), connect(t, pgtest.URL(t))
	run(t, a, "create table here (x int)")
	if got := one(t, b, "select (to_regclass('here') is null)::text"); got != "true" {
		t.Error("one test's table shows in another's database")
	}
}

func TestCrashAndRestart(t *testing.T) {
	s := pgtest.Start(t)
	url := s.URL(t)
	c := connect(t, url)
	run(t, c, "create table kept (x text); insert into kept values ('committed')")
	run(t, c, "begin")
	run(t, c, "insert into kept values ('open')")
	s.StopImmediate(t)
	if err := c.Ping(t.Context()); err == nil {
		t.Error("the stopped server answers")
	}
	s.Restart(t)
	if got := one(t, connect(t, url), "select string_agg(x, ',') from kept"); got != "committed" {
		t.Errorf("after the crash: %q", got)
	}
}

func TestPgBouncerPoolsTransactions(t *testing.T) {
	through := pgtest.PgBouncer(t, pgtest.URL(t))
	a, b := connect(t, through), connect(t, through)
	run(t, a, "create table here (x int)")
	run(t, a, "begin") // takes the one server connection made so far, so that b gets another
	pid := one(t, a, "select pg_backend_pid()::text")
	if other := one(t, b, "select pg_backend_pid()::text"); other == pid {
		t.Error("two clients share a server connection within a transaction")
	}
	run(t, a, "commit")
}

// What a server that waits for a standby has committed is there when that is promoted. While the standby takes
// nothing, nothing commits. The promoted one takes a standby of its own.
func TestStandby(t *testing.T) {
	a := pgtest.Start(t)
	u := a.URL(t)
	b := a.Standby(t)
	c := connect(t, u)
	run(t, c, "create table kept (x text)")
	thaw := b.FreezeReceiver(t)
	done := make(chan error, 1)
	go func() {
		_, err := c.Exec(context.Background(), "insert into kept values ('waited')")
		done <- err
	}()
	select {
	case err := <-done:
		t.Errorf("it commits without its standby: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if err := thaw(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	a.StopImmediate(t)
	b.Promote(t)
	b.Standby(t)
	c = connect(t, strings.Replace(u, a.Addr(), b.Addr(), 1))
	run(t, c, "insert into kept values ('after')")
	if got := one(t, c, "select string_agg(x, ',' order by x) from kept"); got != "after,waited" {
		t.Errorf("after the failover: %q", got)
	}
}

func TestPgBouncerRestarts(t *testing.T) {
	b := pgtest.StartPgBouncer(t, pgtest.URL(t))
	c := connect(t, b.URL)
	run(t, c, "create table kept (x text)")
	b.Stop(t)
	if err := c.Ping(t.Context()); err == nil {
		t.Error("the stopped PgBouncer answers")
	}
	b.Restart(t)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		c, err := pgx.Connect(t.Context(), b.URL)
		if err == nil {
			c.Close(t.Context())
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the restarted PgBouncer does not answer: %v", err)
		}
	}
}

// TestServerEndsWithItsProcess kills a test process that has a server.
func TestServerEndsWithItsProcess(t *testing.T) {
	if os.Getenv("PGTEST_CHILD") != "" {
		s := pgtest.Start(t)
		os.Stdout.WriteString("URL " + s.URL(t) + "\n")
		select {}
	}
	cmd := child(t)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buf, url := make([]byte, 4096), ""
	for !strings.Contains(url, "\n") {
		n, err := out.Read(buf)
		if err != nil {
			t.Fatalf("the child ended early: %v", err)
		}
		url += string(buf[:n])
	}
	url = strings.TrimPrefix(strings.TrimSpace(url), "URL ")
	connect(t, url)
	cmd.Process.Kill()
	cmd.Wait()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		c, err := pgx.Connect(t.Context(), url)
		if err != nil {
			return
		}
		c.Close(t.Context())
		if time.Now().After(deadline) {
			t.Fatal("the server outlives the killed process")
		}
	}
}

func child(t *testing.T) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^TestServerEndsWithItsProcess$")
	cmd.Env = append(os.Environ(), "PGTEST_CHILD=1")
	cmd.Stderr = t.Output()
	return cmd
}

func TestDurable(t *testing.T) {
	c := connect(t, pgtest.StartDurable(t).URL(t))
	for _, name := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
		if got := one(t, c, "show "+name); got != "on" {
			t.Errorf("%s is %s in a server that is measured", name, got)
		}
	}
}
