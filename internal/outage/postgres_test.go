package outage_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// Postgres crashes in the middle of a load and comes back. Answers that arrive meanwhile
// wait in memory, so nothing is lost and nothing is unknown in the end.
func TestPostgresCrash(t *testing.T) {
	t.Parallel()
	for name, lease := range map[string]time.Duration{"within the lease": 30 * time.Second, "past the lease": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Start(t)
			r := rigAt(t, server.URL(t), modelserver.Options{Latency: 300 * time.Millisecond})
			r.cfg.Lease = lease
			docs := names(120)
			n := r.start("w1", r.ledger(r.direct, postgres.Options{}))
			r.publish(docs...)
			r.awaitBilled(40)
			server.StopImmediate(t)
			time.Sleep(4 * time.Second) // the outage: longer than the short lease, shorter than the long one
			if len(r.models.Bill()) >= len(docs) {
				t.Fatal("the load was over before the crash")
			}
			server.Restart(t)
			r.awaitDone(len(docs))
			n.drain()
			r.wantDone(docs, 4)
		})
	}
}

// Case 38: Postgres stops in the sweep that brings back what a dead worker left, as its first jobs are done, and starts again: all jobs end, each paid once.
func TestPostgresStopsInASweep(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	r := rigAt(t, server.URL(t), modelserver.Options{Latency: 300 * time.Millisecond})
	r.cfg.Lease, r.cfg.Workers = 2*time.Second, 16
	docs := names(120)
	r.abandon(docs)
	store := &looked{Store: r.ledger(r.direct, postgres.Options{})}
	n := r.start("w2", store)
	r.eventually("a sweep has begun", store.over.Load)
	r.eventually("a job of it is done", func() bool { return r.count("select count(*) from paidonce.job where state = 'done'") > 0 })
	left := r.count("select count(*) from paidonce.job where state <> 'done'")
	server.StopImmediate(t)
	if left == 0 {
		t.Error("all jobs were done before Postgres stopped")
	}
	time.Sleep(4 * time.Second) // longer than the lease
	server.Restart(t)
	r.awaitDone(len(docs))
	n.drain()
	r.wantDone(docs, 4)
	if n := r.count("select count(*) from paidonce.worker where closed_at is null"); n != 0 {
		t.Errorf("%d epochs are open after all workers have left", n)
	}
}

// abandon leaves jobs as a worker does that dies: half of them are running, under a lease that is over, with nothing sent; the others
// are ready. The ledger carries them.
func (r *rig) abandon(docs []string) {
	r.Helper()
	dead, err := r.look.Join(r.Context(), ledger.Worker{ID: "w1", TTL: time.Second})
	if err != nil {
		r.Fatal(err)
	}
	for i, d := range docs {
		m := doc{Tenant: "acme", Doc: d, Text: "Text of " + d}
		q := ledger.Request{Key: key(d), Action: action, InputHash: ledger.Hash{1}, Input: message(m).Body, Carrier: ledger.CarriedByLedger,
			Worker: dead, Token: ledger.NewID(), MaxRun: time.Hour}
		if i%2 == 0 {
			_, err = r.look.Submit(r.Context(), ledger.Submission{Key: q.Key, Action: q.Action, InputHash: q.InputHash, Input: q.Input})
		} else {
			_, err = r.look.Claim(r.Context(), q)
		}
		if err != nil {
			r.Fatal(err)
		}
	}
	r.eventually("the dead worker's lease is over", func() bool {
		return r.count("select count(*) from paidonce.worker where id = 'w1' and lease_until < clock_timestamp()") == 1
	})
}

// Each reply that matters is lost once, between the driver and Postgres.
func TestLostReplies(t *testing.T) {
	r := newRig(t, modelserver.Options{})
	proxy, url := r.through()
	n := r.start("w1", r.ledger(url, postgres.Options{}))
	r.publish("warm")
	r.awaitDone(1)
	cases := []struct {
		doc, match  string
		sends, runs int
	}{
		{"claim", action + "\x00\x00\x00\x38", 1, 1},                     // action and hash: the insert alone
		{"gate", model, 2, 2},                                            // not sent, and sent again under a new id
		{"settle", "answer to " + key("settle").Text, 1, 1},              // the answer on its way to the ledger
		{"commit", "Q\x00\x00\x00\x0bcommit\x00", 1, 1},                  // of the user's transaction
		{"mark", "-- " + key("mark").Text, 1, 1},                         // inside it: rolled back, and the transaction made again
		{"complete", "\"answer to " + key("complete").Text + "\"", 1, 1}, // the last statement of it
	}
	docs := []string{"warm"}
	for _, c := range cases {
		lost := proxy.DropReplyTo([]byte(c.match))
		r.publish(c.doc)
		docs = append(docs, c.doc)
		r.eventually("the reply to "+c.doc+" is lost", func() bool {
			select {
			case <-lost:
				return true
			default:
				return false
			}
		})
		r.awaitDone(len(docs))
	}
	n.drain()
	r.wantDone(docs, 2)
	for _, c := range cases {
		j, err := r.look.Job(t.Context(), key(c.doc))
		if err != nil || len(j.Attempts) != c.sends || j.Runs != c.runs {
			t.Errorf("%s: %d attempts and %d runs (%v), want %d and %d", c.doc, len(j.Attempts), j.Runs, err, c.sends, c.runs)
		}
	}
	if r.noted(r.settled, "acked") != len(docs) {
		t.Errorf("deliveries %v, want %d acked", r.settled, len(docs))
	}
}

// looked is a ledger that says whether its due jobs were listed.
type looked struct {
	ledger.Store
	over atomic.Bool
}

func (l *looked) Due(ctx context.Context, n int, grace time.Duration, actions ...string) ([]ledger.Stored, error) {
	defer l.over.Store(true)
	return l.Store.Due(ctx, n, grace, actions...)
}

// Case 54: a pool of two connections serves fifty calls at once, and while they run nobody holds a
// connection, a transaction or a lock.
func TestPoolOfTwo(t *testing.T) {
	r := newRig(t, modelserver.Options{})
	r.cfg.Workers, r.rabbit.conf.Prefetch, r.cfg.Lease, r.cfg.Tick = 50, 50, 10*time.Minute, time.Hour
	r.models.ScriptAny(modelserver.Fault{Hold: true, Times: -1})
	docs := names(50)
	store := &looked{Store: r.ledger(r.direct+"&application_name=worker_of_two", postgres.Options{MaxConns: 2})}
	n := r.start("w1", store)
	r.publish(docs...)
	r.awaitBilled(50) // all at once: each answer is held
	r.eventually("the sweeper's one look is over", store.over.Load)
	const worker = " from pg_stat_activity a where application_name = 'worker_of_two'"
	r.eventually("the worker is idle", func() bool { return r.count("select count(*)"+worker+" and state <> 'idle'") == 0 })
	for range 20 { // whoever held something for a call would hold it now
		if n := r.count("select count(*)" + worker + " and xact_start is not null"); n != 0 {
			t.Errorf("%d transactions are open while calls run", n)
		}
		if n := r.count("select count(*) from pg_locks l where l.pid in (select pid" + worker + ")"); n != 0 {
			t.Errorf("%d locks are held while calls run", n)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if n := r.count("select count(*)" + worker); n < 1 || n > 2 {
		t.Errorf("the worker has %d connections, want 1 or 2", n)
	}
	for _, d := range docs {
		if r.models.Release(key(d).Text) != 1 {
			t.Errorf("the call of %s is not held", d)
		}
	}
	r.awaitDone(len(docs))
	n.drain()
	r.wantDone(docs, 1)
}

// A load through PgBouncer in transaction mode.
func TestPgBouncer(t *testing.T) {
	r := newRig(t, modelserver.Options{})
	docs := names(60)
	n := r.start("w1", r.ledger(pgtest.PgBouncer(t, r.direct), postgres.Options{}))
	r.publish(docs...)
	r.publish(docs[:20]...)
	r.awaitDone(len(docs))
	r.eventually("duplicates are answered", func() bool { return r.noted(r.settled, "acked") == 80 })
	n.drain()
	r.wantDone(docs, 1)
}
