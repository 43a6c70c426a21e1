package postgres_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// bench takes jobs through the verbs, with an input, an answer and a result of 1 KB each, on a
// server that waits for its disk.
type bench struct {
	*testing.B
	ledger *postgres.Ledger
	db     *pgxpool.Pool
	worker ledger.WorkerID
	n      atomic.Int64
}

func newBench(b *testing.B) *bench {
	b.Helper()
	url := pgtest.StartDurable(b).URL(b)
	if err := prepare(b.Context(), url); err != nil {
		b.Fatal(err)
	}
	x := &bench{B: b, ledger: open(b, url, postgres.Options{}), db: raw(b, url)}
	var err error
	if x.worker, err = x.ledger.Join(b.Context(), ledger.Worker{ID: "bench", TTL: time.Hour}); err != nil {
		b.Fatal(err)
	}
	for range 100 { // statements are prepared
		x.job()
	}
	run(b, x.db, "analyze") // as autovacuum does within a minute
	return x
}

func (x *bench) request() ledger.Request {
	return ledger.Request{Key: ledger.Key{Tenant: "acme", Text: fmt.Sprint("acme:bench:", x.n.Add(1))}, Action: "bench",
		Input: make([]byte, 1000), Worker: x.worker, Token: ledger.NewID(), MaxRun: time.Hour}
}

func (x *bench) claim() ledger.Lease {
	c, err := x.ledger.Claim(x.Context(), x.request())
	if err != nil || c.Verdict != ledger.Run {
		x.Error(c.Verdict, err)
	}
	return c.Lease
}

func (x *bench) send(lease ledger.Lease) ledger.AttemptID {
	a := attempt()
	if err := x.ledger.Send(x.Context(), lease, a); err != nil {
		x.Error(err)
	}
	return ledger.AttemptID{Tenant: "acme", Job: lease.Job, ID: a.ID}
}

func (x *bench) settle(id ledger.AttemptID) {
	e := answer()
	e.Response.Body = make([]byte, 1000)
	if _, err := x.ledger.Settle(x.Context(), id, e); err != nil {
		x.Error(err)
	}
}

func (x *bench) complete(lease ledger.Lease, id ledger.AttemptID) {
	if err := x.ledger.Complete(x.Context(), lease, ledger.Result{ID: ledger.NewID(), Body: make([]byte, 1000), Used: []ledger.ID{id.ID}}); err != nil {
		x.Error(err)
	}
}

// job is a whole job: six verbs' worth of statements, four of which commit.
func (x *bench) job() {
	lease := x.claim()
	id := x.send(lease)
	x.settle(id)
	x.complete(lease, id)
}

// measured runs fn and reports what an operation costs this process (CPU) and the server
// (writes of its log that it waited for, and the log's bytes).
func (x *bench) measured(b *testing.B, fn func()) {
	b.Helper()
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	log := func() (syncs, bytes int64) {
		time.Sleep(1100 * time.Millisecond) // server processes report once a second
		syncs = scan[int64](b, x.db, "select wal_sync from pg_stat_wal")
		return syncs, scan[int64](b, x.db, "select (pg_current_wal_insert_lsn() - '0/0')::bigint")
	}
	syncs, bytes := log()
	cpu := used()
	b.ResetTimer()
	fn()
	b.StopTimer()
	cpu = used() - cpu
	s, w := log()
	n := float64(b.N)
	b.ReportMetric(n/b.Elapsed().Seconds(), "op/s")
	b.ReportMetric(float64(cpu.Microseconds())/n, "client-us/op")
	b.ReportMetric(float64(s-syncs)/n, "fsync/op")
	b.ReportMetric(float64(w-bytes)/n, "wal-B/op")
}

// BenchmarkVerbs takes jobs through claim, gate, settlement and commit, one at a time.
func BenchmarkVerbs(b *testing.B) {
	x := newBench(b)
	// Each verb in turn, the others outside the clock.
	for _, verb := range []string{"claim", "send", "settle", "complete"} {
		b.Run(verb, func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				var lease ledger.Lease
				var id ledger.AttemptID
				for _, step := range []struct {
					name string
					do   func()
				}{
					{"claim", func() { lease = x.claim() }}, {"send", func() { id = x.send(lease) }},
					{"settle", func() { x.settle(id) }}, {"complete", func() { x.complete(lease, id) }},
				} {
					if step.name == verb {
						b.StartTimer()
					}
					step.do()
					if step.name == verb {
						b.StopTimer()
					}
				}
				b.StartTimer()
			}
		})
	}
	b.Run("job", func(b *testing.B) {
		x.measured(b, func() {
			for range b.N {
				x.job()
			}
		})
	})
}

// BenchmarkAtOnce has jobs, and duplicates of finished ones, by many at once.
func BenchmarkAtOnce(b *testing.B) {
	x := newBench(b)
	done := x.request()
	done.Key.Text = "acme:bench:1"
	duplicate := func() {
		if c, err := x.ledger.Claim(x.Context(), done); err != nil || c.Verdict != ledger.Saved {
			x.Error(c.Verdict, err)
		}
	}
	for _, goroutines := range []int{2, 16, 64, 256, 1024} {
		for name, do := range map[string]func(){"job": x.job, "duplicate": duplicate} {
			b.Run(fmt.Sprint(name, "/", goroutines), func(b *testing.B) {
				b.SetParallelism(max(1, goroutines/runtime.GOMAXPROCS(0))) // a multiple of the processors
				x.measured(b, func() {
					b.RunParallel(func(pb *testing.PB) {
						for pb.Next() {
							do()
						}
					})
				})
			})
		}
	}
}
