package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/paidonce/paidonce/internal/faultproxy"
	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// fixture is a ledger behind a fault proxy, with a worker.
type fixture struct {
	*testing.T
	*postgres.Ledger
	db     *pgxpool.Pool // straight to the server
	proxy  *faultproxy.Proxy
	worker ledger.WorkerID
}

func newFixture(t *testing.T, o postgres.Options) *fixture {
	t.Helper()
	return fixtureAt(t, database(t), o)
}

func fixtureAt(t *testing.T, direct string, o postgres.Options) *fixture {
	t.Helper()
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{T: t, db: raw(t, direct), proxy: faultproxy.Start(t, u.Host)}
	u.Host = f.proxy.Addr()
	f.Ledger = open(t, u.String(), o)
	f.worker, err = f.Join(t.Context(), ledger.Worker{ID: "w1", TTL: time.Hour})
	if err != nil {
		t.Fatalf("join: %v", err)
	}
	return f
}

func (f *fixture) request(name string) ledger.Request {
	return ledger.Request{Key: ledger.Key{Tenant: "acme", Text: "acme:invoice.extract:" + name}, Action: "invoice.extract",
		InputHash: ledger.Hash{1}, Input: []byte("{}"), Carrier: ledger.CarriedByBroker, Worker: f.worker, Token: ledger.NewID(), MaxRun: time.Hour}
}

// run claims a job that must be had.
func (f *fixture) run(r ledger.Request) ledger.Lease {
	f.Helper()
	c, err := f.Claim(f.Context(), r)
	if err != nil || c.Verdict != ledger.Run {
		f.Fatalf("claim %s: %s %v", r.Key, c.Verdict, err)
	}
	return c.Lease
}

func attempt() ledger.Attempt {
	return ledger.Attempt{ID: ledger.NewID(), Call: ledger.CallRef{Name: "extract"}, Route: "primary", Timeout: time.Minute, Reserve: 5}
}

func answer() ledger.Evidence {
	return ledger.Evidence{State: ledger.Received, By: ledger.BySender, Cost: new(ledger.Nano(3)), CostSource: "provider",
		Response: &ledger.Response{Codec: "json", Body: []byte("{}")}}
}

// state is everything that a lost reply could spoil.
func (f *fixture) state(k ledger.Key) string {
	f.Helper()
	j, err := f.Job(f.Context(), k)
	if err != nil {
		f.Fatalf("read: %v", err)
	}
	marks := scan[int](f, f.db, "select count(*) from mark")
	return fmt.Sprintf("%s runs %d fence %d open %d attempts %d reserved %d events %d result %t marks %d",
		j.State, j.Runs, j.Fence, j.OpenCalls, len(j.Attempts), int64(j.Reserved), len(j.History), j.Result != nil, marks)
}

func (f *fixture) want(k ledger.Key, want string) {
	f.Helper()
	if got := f.state(k); got != want {
		f.Errorf("got  %s\nwant %s", got, want)
	}
}

// Case 36: the claim commits and its reply is cut: the same claim again has the lease, without waiting for one to end.
func TestLostReplyToClaim(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	r := f.request("a")
	f.run(f.request("warm"))
	lost := f.proxy.DropReplyTo([]byte("invoice.extract\x00\x00\x00\x38")) // action and hash: the insert alone
	if c, err := f.Claim(t.Context(), r); err == nil {
		t.Fatalf("the reply came: %s", c.Verdict)
	}
	<-lost
	f.want(r.Key, "running runs 1 fence 1 open 0 attempts 0 reserved 0 events 1 result false marks 0")
	if lease := f.run(r); lease.Fence != 1 {
		t.Errorf("the same claim again got fence %d", lease.Fence)
	}
	other := r
	other.Token = ledger.NewID()
	if c, err := f.Claim(t.Context(), other); err != nil || c.Verdict != ledger.Busy {
		t.Errorf("another claim: %s %v", c.Verdict, err)
	}
	f.want(r.Key, "running runs 1 fence 1 open 0 attempts 0 reserved 0 events 1 result false marks 0")
}

func TestLostReplyToGate(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	r := f.request("a")
	lease, a := f.run(r), attempt()
	lost := f.proxy.DropReplyTo(a.ID[:])
	err := f.Send(t.Context(), lease, a)
	if err == nil || errors.Is(err, ledger.ErrRepeated) {
		t.Fatalf("gate without a reply: %v", err)
	}
	<-lost
	if err := f.Send(t.Context(), lease, a); !errors.Is(err, ledger.ErrRepeated) {
		t.Errorf("the same gate again: %v, want ErrRepeated", err)
	}
	f.want(r.Key, "running runs 1 fence 1 open 1 attempts 1 reserved 5 events 2 result false marks 0")
	id := ledger.AttemptID{Tenant: "acme", Job: lease.Job, ID: a.ID}
	if _, err := f.Settle(t.Context(), id, ledger.Evidence{State: ledger.NotSent, By: ledger.BySender}); err != nil {
		t.Errorf("settle as not sent: %v", err)
	}
	f.want(r.Key, "running runs 1 fence 1 open 0 attempts 1 reserved 0 events 3 result false marks 0")
}

func TestLostReplyToSettle(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	r := f.request("a")
	lease, a := f.run(r), attempt()
	if err := f.Send(t.Context(), lease, a); err != nil {
		t.Fatal(err)
	}
	id := ledger.AttemptID{Tenant: "acme", Job: lease.Job, ID: a.ID}
	lost := f.proxy.DropReplyTo(a.ID[:])
	if _, err := f.Settle(t.Context(), id, answer()); err == nil {
		t.Fatal("the reply came")
	}
	<-lost
	if s, err := f.Settle(t.Context(), id, answer()); err != nil || s.Job != ledger.Running {
		t.Errorf("the same answer again: %+v %v", s, err)
	}
	f.want(r.Key, "running runs 1 fence 1 open 0 attempts 1 reserved 0 events 3 result false marks 0")
}

// TestLostReplyToCommit cuts the connection under the commit of a result with rows of
// the user: the ledger finds it and says so.
func TestLostReplyToCommit(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	r := f.request("a")
	lease := f.run(r)
	var ran int
	mark := hook(func(ctx context.Context, tx pgx.Tx) error {
		ran++
		_, err := tx.Exec(ctx, "insert into mark values ('m')")
		return err
	})
	lost := f.proxy.DropReplyTo([]byte("commit\x00"))
	if err := f.Complete(t.Context(), lease, ledger.Result{ID: ledger.NewID(), Body: []byte("1"), Hooks: []ledger.Hook{mark}}); err != nil {
		t.Errorf("complete: %v", err)
	}
	<-lost
	if ran != 1 {
		t.Errorf("the user's work ran %d times for one commit that went through", ran)
	}
	f.want(r.Key, "done runs 1 fence 1 open 0 attempts 0 reserved 0 events 2 result true marks 1")
}

// TestCutBeforeCommit breaks the connection under the user's statement, or between it and
// the commit: all of it is made again, and the user's work is not blamed.
func TestCutBeforeCommit(t *testing.T) {
	t.Run("under the user's statement", func(t *testing.T) { cutBeforeCommit(t, 0) })
	t.Run("after it", func(t *testing.T) { cutBeforeCommit(t, 1) })
}

func cutBeforeCommit(t *testing.T, at int) {
	f := newFixture(t, postgres.Options{})
	r := f.request("a")
	lease := f.run(r)
	ran := 0
	mark := hook(func(ctx context.Context, tx pgx.Tx) error {
		ran++
		if ran == 1 && at == 0 {
			f.proxy.Reset()
		}
		_, err := tx.Exec(ctx, "insert into mark values ('m')")
		if ran == 1 && at == 1 {
			f.proxy.Reset()
		}
		return err
	})
	if err := f.Complete(t.Context(), lease, ledger.Result{ID: ledger.NewID(), Body: []byte("1"), Hooks: []ledger.Hook{mark}}); err != nil {
		t.Errorf("complete: %v", err)
	}
	if ran != 2 {
		t.Errorf("the user's work ran %d times, want 2", ran)
	}
	f.want(r.Key, "done runs 1 fence 1 open 0 attempts 0 reserved 0 events 2 result true marks 1")
}

// TestHookWithoutATransaction: work that ends the transaction itself, or goes on after an
// error in it, must not pass for committed with the result.
func TestHookWithoutATransaction(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	for name, sql := range map[string]string{"committed": "commit", "rolled back": "rollback", "failed": "select 1/0"} {
		r := f.request(name)
		lease := f.run(r)
		h := hook(func(ctx context.Context, tx pgx.Tx) error {
			tx.Exec(ctx, sql) // its error is swallowed, as users do
			return nil
		})
		err := f.Complete(t.Context(), lease, ledger.Result{ID: ledger.NewID(), Hooks: []ledger.Hook{h}})
		if !errors.Is(err, ledger.ErrHook) {
			t.Errorf("%s: %v, want ErrHook", name, err)
		}
		f.want(r.Key, "running runs 1 fence 1 open 0 attempts 0 reserved 0 events 1 result false marks 0")
	}
}

// TestSmallPool has fifty users of two connections, some in transactions.
func TestSmallPool(t *testing.T) {
	f := newFixture(t, postgres.Options{MaxConns: 2})
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			if err := f.life(ctx, fmt.Sprint(i), true); err != nil {
				t.Errorf("job %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if n := scan[int](t, f.db, "select count(*) from paidonce.job where state = 'done' and open_calls = 0 and reserved = 0 and cost = 3"); n != 50 {
		t.Errorf("%d of 50 jobs are done and paid", n)
	}
	if n := scan[int](t, f.db, "select count(*) from mark"); n != 50 {
		t.Errorf("%d of 50 marks", n)
	}
}

// life takes a job from its claim to its result.
func (f *fixture) life(ctx context.Context, name string, hooked bool) error {
	c, err := f.Claim(ctx, f.request(name))
	if err != nil || c.Verdict != ledger.Run {
		return fmt.Errorf("claim: %s %w", c.Verdict, err)
	}
	a := attempt()
	if err := f.Send(ctx, c.Lease, a); err != nil {
		return err
	}
	if _, err := f.Settle(ctx, ledger.AttemptID{Tenant: "acme", Job: c.Lease.Job, ID: a.ID}, answer()); err != nil {
		return err
	}
	r := ledger.Result{ID: ledger.NewID(), Body: []byte("{}"), Used: []ledger.ID{a.ID}}
	if hooked {
		r.Hooks = []ledger.Hook{hook(func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "insert into mark values ($1)", name)
			return err
		})}
	}
	return f.Complete(ctx, c.Lease, r)
}

// TestCrashOfTheServer stops Postgres under load as a crash would. Verbs err meanwhile;
// afterwards no row is in two minds, and what was told to be done is.
func TestCrashOfTheServer(t *testing.T) {
	s := pgtest.Start(t)
	direct := s.URL(t)
	if err := prepare(t.Context(), direct); err != nil {
		t.Fatal(err)
	}
	f := fixtureAt(t, direct, postgres.Options{})
	var mu sync.Mutex
	var done []string
	failed, crashed := 0, make(chan struct{})
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("%d-%d", g, i)
				err := f.life(t.Context(), name, i%2 == 0)
				mu.Lock()
				if err == nil {
					done = append(done, f.request(name).Key.Text)
				} else {
					failed++
				}
				mu.Unlock()
				select {
				case <-crashed:
					return
				default:
				}
			}
		})
	}
	for enough := false; !enough; time.Sleep(5 * time.Millisecond) {
		mu.Lock()
		enough = len(done) > 30
		mu.Unlock()
	}
	s.StopImmediate(t)
	close(crashed)
	wg.Wait()
	s.Restart(t)

	if failed == 0 {
		t.Error("no verb noticed that the server was gone")
	}
	var n int
	for err := errors.New("not yet"); err != nil; { // old connections of the pool first
		err = f.db.QueryRow(t.Context(), "select count(*) from paidonce.job where state = 'done' and key = any($1)", done).Scan(&n)
	}
	if n != len(done) {
		t.Errorf("%d of %d jobs that were told to be done are", n, len(done))
	}
	for what, sql := range map[string]string{
		"jobs whose open calls are not their sent attempts": `select count(*) from paidonce.job j where open_calls <>
			(select count(*) from paidonce.attempt a where a.tenant = j.tenant and a.job = j.id and a.state = 'sent')`,
		"done jobs without their result": `select count(*) from paidonce.job j where state = 'done' and not exists
			(select from paidonce.result r where r.tenant = j.tenant and r.job = j.id and r.id = j.result_id)`,
		"jobs with a hole in their history": `select count(*) from paidonce.job j where events <>
			(select count(*) from paidonce.event e where e.tenant = j.tenant and e.job = j.id)`,
		"marks without a done job": `select count(*) from mark where not exists (select from paidonce.job where state = 'done' and key like '%:' || m)`,
	} {
		if n := scan[int](t, f.db, sql); n != 0 {
			t.Errorf("%d %s", n, what)
		}
	}
	for err := errors.New("not yet"); err != nil; {
		err = f.Ping(t.Context())
	}
	if err := f.life(t.Context(), "after", true); err != nil {
		t.Errorf("a job after the crash: %v", err)
	}
}
