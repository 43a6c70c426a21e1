package sqlite_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/sqlite"
)

func is(err, want error) bool { return errors.Is(err, want) }

// fixture is a ledger with a worker.
type fixture struct {
	*testing.T
	*sqlite.Ledger
	path   string
	worker ledger.WorkerID
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t, path: file(t)}
	f.Ledger = open(t, f.path)
	var err error
	if f.worker, err = f.Join(t.Context(), ledger.Worker{ID: "w1", TTL: time.Hour}); err != nil {
		t.Fatalf("join: %v", err)
	}
	return f
}

// run claims a job that must be had.
func (f *fixture) run(name string) ledger.Lease {
	f.Helper()
	c, err := f.Claim(f.Context(), request(f.worker, name))
	if err != nil || c.Verdict != ledger.Run {
		f.Fatalf("claim %s: %s %v", name, c.Verdict, err)
	}
	return c.Lease
}

func (f *fixture) complete(ctx context.Context, lease ledger.Lease, schema string, fns ...func(context.Context, sqlite.Tx) error) error {
	r := ledger.Result{ID: ledger.NewID(), Body: []byte("{}"), Schema: schema}
	for _, fn := range fns {
		r.Hooks = append(r.Hooks, hook(fn))
	}
	return f.Complete(ctx, lease, r)
}

// together runs verbs in one group: the writer is busy with a job of its own until all of
// them wait. It returns their errors.
func (f *fixture) together(verbs ...func() error) []error {
	f.Helper()
	lease := f.run("first")
	busy, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var wg sync.WaitGroup
	wg.Go(func() {
		err := f.complete(f.Context(), lease, "", func(context.Context, sqlite.Tx) error {
			once.Do(func() { close(busy) }) // it may run again
			<-release
			return nil
		})
		if err != nil {
			f.Errorf("the first of the group: %v", err)
		}
	})
	<-busy
	errs := make([]error, len(verbs))
	for i, verb := range verbs {
		wg.Go(func() { errs[i] = verb() })
		time.Sleep(5 * time.Millisecond) // in this order
	}
	time.Sleep(50 * time.Millisecond) // until they wait
	close(release)
	wg.Wait()
	return errs
}

// state is what became of a job.
func (f *fixture) state(name string) ledger.State {
	f.Helper()
	j, err := f.Job(f.Context(), request(f.worker, name).Key)
	if err != nil {
		f.Fatalf("read %s: %v", name, err)
	}
	return j.State
}

func mark(m string) func(context.Context, sqlite.Tx) error {
	return func(ctx context.Context, tx sqlite.Tx) error {
		_, err := tx.ExecContext(ctx, "insert into mark values (?)", m)
		return err
	}
}

// TestBadWorkFailsAlone: whatever the user's work does to the transaction, the others
// in it are committed and it is not.
func TestBadWorkFailsAlone(t *testing.T) {
	sql := func(statements ...string) func(context.Context, sqlite.Tx) error {
		return func(ctx context.Context, tx sqlite.Tx) error {
			for _, s := range statements {
				if _, err := tx.ExecContext(ctx, s); err != nil {
					return err
				}
			}
			return nil
		}
	}
	leave := make(chan struct{})
	defer close(leave)
	for name, bad := range map[string]func(context.Context, sqlite.Tx) error{
		"fails":               sql("insert into mark values ('bad')", "no sql"),
		"commits":             sql("insert into mark values ('bad')", "commit"),
		"commits in a script": sql("insert into mark values ('bad'); commit; begin"),
		"rolls back":          sql("insert into mark values ('bad')", "rollback"),
		"releases":            sql("insert into mark values ('bad')", "release hook"),
		"makes a savepoint":   sql("insert into mark values ('bad')", "savepoint mine"),
		"attaches":            sql("insert into mark values ('bad')", "attach ':memory:' as other"),
		"goes on after it broke": func(ctx context.Context, tx sqlite.Tx) error {
			for _, s := range []string{"insert into mark values ('bad')", "insert or rollback into one values (1)", "insert into mark values ('worse')"} {
				_, _ = tx.ExecContext(ctx, s)
			}
			return nil
		},
		"breaks it from below": sql("insert into mark values ('bad')", "insert or rollback into one values (1)"),
		"is interrupted": func(ctx context.Context, tx sqlite.Tx) error {
			ctx, stop := context.WithTimeout(ctx, 50*time.Millisecond)
			defer stop()
			_, err := tx.ExecContext(ctx, "insert into mark with recursive n(i) as (select 1 union all select i + 1 from n) select 'bad' from n")
			return err
		},
		"leaves its goroutine": func(context.Context, sqlite.Tx) error { <-leave; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			db := raw(t, f.path)
			run(t, db, "create table one (i integer unique)")
			run(t, db, "insert into one values (1)")
			good, wrong, last := f.run("good"), f.run("wrong"), f.run("last")
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
			if name == "leaves its goroutine" {
				ctx, stop = context.WithTimeout(t.Context(), 300*time.Millisecond)
			}
			defer stop()
			errs := f.together(
				func() error { return f.complete(t.Context(), good, "", mark("good")) },
				func() error { return f.complete(ctx, wrong, "", bad) },
				func() error { return f.Send(t.Context(), last, attempt()) },
			)
			if errs[0] != nil || errs[2] != nil {
				t.Errorf("the others: %v, %v", errs[0], errs[2])
			}
			if !is(errs[1], ledger.ErrHook) && !is(errs[1], context.DeadlineExceeded) {
				t.Errorf("the bad one: %v, want ErrHook", errs[1])
			}
			for job, want := range map[string]ledger.State{"good": ledger.Done, "wrong": ledger.Running, "last": ledger.Running} {
				if got := f.state(job); got != want {
					t.Errorf("job %s is %s, want %s", job, got, want)
				}
			}
			if m := strings.Join(marks(t, db), " "); m != "good" {
				t.Errorf("committed of the user's rows: %q", m)
			}
			if err := f.complete(t.Context(), wrong, "", mark("again")); err != nil {
				t.Errorf("the bad one, corrected: %v", err)
			}
		})
	}
}

// TestPoisonedRowFailsAlone: so does a verb of ours that the file refuses, and what it wrote
// before that is gone.
func TestPoisonedRowFailsAlone(t *testing.T) {
	f := newFixture(t)
	db := raw(t, f.path)
	run(t, db, `create trigger poison before update on paidonce_job when new.state = 'done' and new.key like '%:b'
		begin select raise(abort, 'poisoned'); end`)
	a, b, c := f.run("a"), f.run("b"), f.run("c")
	errs := f.together(
		func() error { return f.complete(t.Context(), a, "") },
		func() error { return f.complete(t.Context(), b, "") },
		func() error { return f.complete(t.Context(), c, "") },
	)
	if errs[0] != nil || errs[2] != nil || errs[1] == nil || !strings.Contains(errs[1].Error(), "poisoned") {
		t.Errorf("errors %v", errs)
	}
	if f.state("a") != ledger.Done || f.state("b") != ledger.Running || f.state("c") != ledger.Done {
		t.Errorf("the jobs are %s, %s, %s", f.state("a"), f.state("b"), f.state("c"))
	}
	if n := scan[int](t, db, "select count(*) from paidonce_result"); n != 3 { // with that of the group's first
		t.Errorf("%d results, want 3", n)
	}
	run(t, db, "drop trigger poison")
	if err := f.complete(t.Context(), b, ""); err != nil {
		t.Errorf("without the poison: %v", err)
	}
}

// TestDeferredConstraint: a constraint on the user's rows that is checked at the commit
// fails its own job alone.
func TestDeferredConstraint(t *testing.T) {
	f := newFixture(t)
	db := raw(t, f.path)
	run(t, db, "create table parent (id integer primary key)")
	run(t, db, "create table part (p integer references parent(id) deferrable initially deferred)")
	a, b := f.run("a"), f.run("b")
	errs := f.together(
		func() error { return f.complete(t.Context(), a, "", mark("a")) },
		func() error {
			return f.complete(t.Context(), b, "", func(ctx context.Context, tx sqlite.Tx) error {
				_, err := tx.ExecContext(ctx, "insert into part values (7)")
				return err
			})
		})
	if errs[0] != nil || !is(errs[1], ledger.ErrHook) || f.state("a") != ledger.Done || f.state("b") != ledger.Running {
		t.Errorf("errors %v, the jobs are %s, %s", errs, f.state("a"), f.state("b"))
	}
}

func TestWorkPanics(t *testing.T) {
	f := newFixture(t)
	lease := f.run("a")
	func() {
		defer func() {
			if v := recover(); v != "boom" {
				t.Errorf("recovered %v", v)
			}
		}()
		err := f.complete(t.Context(), lease, "", mark("a"), func(context.Context, sqlite.Tx) error { panic("boom") })
		t.Errorf("it returned %v", err)
	}()
	if f.state("a") != ledger.Running || len(marks(t, raw(t, f.path))) != 0 {
		t.Errorf("the job is %s", f.state("a"))
	}
	if err := f.complete(t.Context(), lease, "", mark("a")); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestWorkLeftBehind: work that outlives its context has no transaction any more.
func TestWorkLeftBehind(t *testing.T) {
	f := newFixture(t)
	lease := f.run("a")
	ctx, stop := context.WithCancel(t.Context())
	begun, goOn, late := make(chan struct{}), make(chan struct{}), make(chan error, 3)
	go func() { <-begun; stop() }()
	err := f.complete(ctx, lease, "", func(ctx context.Context, tx sqlite.Tx) error {
		if _, err := tx.ExecContext(ctx, "insert into mark values ('a')"); err != nil {
			return err
		}
		close(begun)
		<-goOn
		_, err := tx.ExecContext(context.WithoutCancel(ctx), "insert into mark values ('late')")
		late <- err
		_, err = tx.QueryContext(context.WithoutCancel(ctx), "select m from mark")
		late <- err
		var m string
		late <- tx.QueryRowContext(context.WithoutCancel(ctx), "select m from mark").Scan(&m)
		return nil
	})
	if !is(err, context.Canceled) {
		t.Errorf("complete: %v", err)
	}
	other := f.run("b") // nobody is stalled
	close(goOn)
	for range 3 {
		if err := <-late; err == nil {
			t.Error("a statement of work that was left behind ran")
		}
	}
	if err := f.complete(t.Context(), other, "", mark("b")); err != nil {
		t.Errorf("complete another: %v", err)
	}
	if m := strings.Join(marks(t, raw(t, f.path)), " "); m != "b" || f.state("a") != ledger.Running {
		t.Errorf("committed of the user's rows: %q; the job is %s", m, f.state("a"))
	}
}

// TestUserReads: the work sees its own rows and what is committed, through all of Tx.
func TestUserReads(t *testing.T) {
	f := newFixture(t)
	run(t, raw(t, f.path), "insert into mark values ('before')")
	var n int
	var all []string
	err := f.complete(t.Context(), f.run("a"), "", mark("own"), func(ctx context.Context, tx sqlite.Tx) error {
		rows, err := tx.QueryContext(ctx, "select m from mark order by m")
		if err != nil {
			return err
		}
		for rows.Next() { // and does not close them
			var m string
			if err := rows.Scan(&m); err != nil {
				return err
			}
			all = append(all, m)
		}
		if _, err := tx.QueryContext(ctx, "select m from mark"); err != nil { // nor reads these
			return err
		}
		if err := tx.QueryRowContext(ctx, "select count(*) from mark").Scan(&n); err != nil {
			return err
		}
		_, err = tx.QueryContext(ctx, "insert into mark values ('returned'), ('twice') returning m") // nor these, which keep a write open
		return err
	})
	if err != nil || n != 2 || fmt.Sprint(all) != "[before own]" {
		t.Errorf("%v, %d rows, %v", err, n, all)
	}
	if m := len(marks(t, raw(t, f.path))); m != 4 {
		t.Errorf("%d rows are committed, want 4", m)
	}
}

// commits counts the transactions in a WAL: frames that say how large the database is after
// a commit.
func commits(t *testing.T, path string) (n int) {
	t.Helper()
	wal, err := os.ReadFile(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	for frame := 32; frame+24 <= len(wal); frame += 24 + 4096 {
		if binary.BigEndian.Uint32(wal[frame+4:]) != 0 && string(wal[frame+8:frame+16]) == string(wal[16:24]) {
			n++
		}
	}
	return n
}

// TestOneCommitForMany: verbs that wait together are one transaction, and each has its
// own answer.
func TestOneCommitForMany(t *testing.T) {
	f := newFixture(t)
	verbs := make([]func() error, 20)
	for i := range verbs {
		verbs[i] = func() error {
			c, err := f.Claim(t.Context(), request(f.worker, fmt.Sprint("job ", i/2))) // each key twice
			if err == nil && c.Verdict != ledger.Run && c.Verdict != ledger.Busy {
				err = fmt.Errorf("verdict %s", c.Verdict)
			}
			return err
		}
	}
	before := commits(t, f.path)
	for i, err := range f.together(verbs...) {
		if err != nil {
			t.Errorf("claim %d: %v", i, err)
		}
	}
	if n := commits(t, f.path) - before; n > 6 { // the claim of the first, its result, and the group, which a slow machine may split
		t.Errorf("%d transactions for twenty claims that waited together", n)
	}
	for i := range 10 {
		j, err := f.Job(t.Context(), request(f.worker, fmt.Sprint("job ", i)).Key)
		if err != nil || j.State != ledger.Running || j.Runs != 1 || j.Fence != 1 {
			t.Errorf("job %d: %+v %v", i, j, err)
		}
	}
}

// TestCallerGivesUp: a caller does not wait longer than its context, and others do not
// notice.
func TestCallerGivesUp(t *testing.T) {
	f := newFixture(t)
	cause := errors.New("enough")
	lease := f.run("a")
	errs := f.together(
		func() error {
			ctx, stop := context.WithCancelCause(t.Context())
			time.AfterFunc(2*time.Millisecond, func() { stop(cause) })
			return f.Send(ctx, lease, attempt())
		},
		func() error { _, err := f.Claim(t.Context(), request(f.worker, "b")); return err },
	)
	if !is(errs[0], cause) || errs[1] != nil {
		t.Errorf("errors %v", errs)
	}
	if j, err := f.Job(t.Context(), lease.Key); err != nil || j.OpenCalls != 0 {
		t.Errorf("a call whose caller had gone before it began: %+v %v", j, err)
	}
}

// TestClosed: verbs of a closed ledger say so.
func TestClosed(t *testing.T) {
	f := newFixture(t)
	f.Close()
	if _, err := f.Join(t.Context(), ledger.Worker{ID: "w", TTL: time.Hour}); err == nil {
		t.Error("a verb of a closed ledger succeeded")
	}
	f.Ledger = open(t, f.path) // Close is called again at the end of the test
}
