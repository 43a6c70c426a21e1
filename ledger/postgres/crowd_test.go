package postgres_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// lane is a fixture with one connection, so that one statement is made at a time and a test
// can say which verbs are in a batch.
type lane struct{ *fixture }

func newLane(t *testing.T) lane { return lane{newFixture(t, postgres.Options{MaxConns: 1})} }

// ways runs a test straight at the server and through a pooler.
func ways(t *testing.T, conns int, test func(*fixture)) {
	o := postgres.Options{MaxConns: conns}
	t.Run("direct", func(t *testing.T) { test(newFixture(t, o)) })
	t.Run("PgBouncer", func(t *testing.T) {
		direct := database(t)
		f := &fixture{T: t, Ledger: open(t, pgtest.PgBouncer(t, direct), o), db: raw(t, direct)}
		var err error
		if f.worker, err = f.Join(t.Context(), ledger.Worker{ID: "w1", TTL: time.Hour}); err != nil {
			t.Fatalf("join: %v", err)
		}
		test(f)
	})
}

// crowd runs the verbs at once, in one batch: they come while the lane is busy. meanwhile is
// called when they all wait.
func (l lane) crowd(meanwhile func(), verbs ...func() error) []error {
	l.Helper()
	ctx, stop := context.WithTimeout(l.Context(), 30*time.Second)
	defer stop()
	held := l.request("held " + ledger.NewID().String())
	lease := l.run(held)
	tx := l.lock(held.Key)
	errs := make([]error, len(verbs))
	var wg sync.WaitGroup
	wg.Go(func() { // it waits for the lock, on the one lane
		if err := l.Send(ctx, lease, attempt()); err != nil {
			l.Errorf("the gate of a locked job: %v", err)
		}
	})
	waitForAsks(l.T, 1)
	waitForLocks(l.T, l.db, 1) // an ask alone does not say that it has the lane
	for i, verb := range verbs {
		wg.Go(func() { errs[i] = verb() })
		waitForAsks(l.T, i+2)
	}
	if meanwhile != nil {
		meanwhile()
	}
	if err := tx.Rollback(ctx); err != nil {
		l.Fatalf("unlock: %v", err)
	}
	wg.Wait()
	return errs
}

// waitForLocks returns when n sessions of the database wait for a lock.
func waitForLocks(t *testing.T, db *pgxpool.Pool, n int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		got := scan[int](t, db, "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()")
		if got == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d sessions wait for a lock, want %d", got, n)
		}
	}
}

// waitForAsks returns when n goroutines are asking a group.
func waitForAsks(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		var b bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&b, 2); err != nil {
			t.Fatal(err)
		}
		if strings.Count(b.String(), "postgres.(*group[...]).do(") == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d goroutines do not wait:\n%s", n, b.String())
		}
	}
}

// lock locks a job's row, as a transaction that is slow to commit does.
func (f *fixture) lock(k ledger.Key) pgx.Tx {
	f.Helper()
	tx, err := f.db.Begin(f.Context())
	if err == nil {
		_, err = tx.Exec(f.Context(), "select from paidonce.job where tenant = $1 and key = $2 for update", k.Tenant, k.Text)
	}
	if err != nil {
		f.Fatalf("lock %s: %v", k, err)
	}
	f.Cleanup(func() { tx.Rollback(context.Background()) })
	return tx
}

// transactions is how many have written, in the whole server.
func (f *fixture) transactions() int64 {
	return scan[int64](f, f.db, "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
}

// stage is one verb of a job's life.
type stage struct {
	name string
	do   func(*life) error
}

// life is a job on its way, with its own refusals.
type life struct {
	*fixture
	ctx     context.Context
	req     ledger.Request
	lease   ledger.Lease
	attempt ledger.Attempt
	result  ledger.ID
}

func (f *fixture) newLife(name string) *life {
	return &life{fixture: f, ctx: f.Context(), req: f.request(name), attempt: attempt(), result: ledger.NewID()}
}

func (x *life) id() ledger.AttemptID {
	return ledger.AttemptID{Tenant: "acme", Job: x.lease.Job, ID: x.attempt.ID}
}

// stages are the verbs that are made in batches, in the order of a job's life.
var stages = []stage{
	{"claim", func(x *life) error {
		c, err := x.Claim(x.ctx, x.req)
		if err == nil && c.Verdict != ledger.Run {
			err = fmt.Errorf("told %s", c.Verdict)
		}
		x.lease = c.Lease
		return err
	}},
	{"look", func(x *life) error {
		k, err := x.Look(x.ctx, x.lease, x.attempt.Call)
		if err == nil && (k.Attempts != 0 || k.Answer != nil) {
			err = fmt.Errorf("told %+v", k)
		}
		return err
	}},
	{"send", func(x *life) error { return x.Send(x.ctx, x.lease, x.attempt) }},
	{"settle", func(x *life) error {
		s, err := x.Settle(x.ctx, x.id(), answer())
		if err == nil && s.Job != ledger.Running {
			err = fmt.Errorf("told %+v", s)
		}
		return err
	}},
	{"complete", func(x *life) error {
		return x.Complete(x.ctx, x.lease, ledger.Result{ID: x.result, Body: []byte(x.req.Key.Text), Used: []ledger.ID{x.attempt.ID}})
	}},
	{"duplicate", func(x *life) error {
		r := x.req
		r.Token = ledger.NewID()
		c, err := x.Claim(x.ctx, r)
		if err == nil && (c.Verdict != ledger.Saved || string(c.Result.Body) != x.req.Key.Text) {
			err = fmt.Errorf("told %s, %+v", c.Verdict, c.Result)
		}
		return err
	}},
}

// release is the other end of a run.
var release = stage{"release", func(x *life) error {
	r, err := x.Release(x.ctx, x.lease, ledger.Outcome{Error: ledger.JobError{Class: "retry", Text: x.req.Key.Text}})
	if err == nil && r.State != ledger.Ready {
		err = fmt.Errorf("told %+v", r)
	}
	return err
}}

// verbs are a stage of some lives.
func verbs(s stage, lives []*life) (fs []func() error) {
	for _, x := range lives {
		fs = append(fs, func() error { return s.do(x) })
	}
	return fs
}
