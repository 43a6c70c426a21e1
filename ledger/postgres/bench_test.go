package postgres_test

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// BenchmarkVerbs takes jobs through claim, gate, settlement and commit, one at a
// time and by many, and duplicates of a finished one. It reports the microseconds of
// this process's CPU per job too.
func BenchmarkVerbs(b *testing.B) {
	l := open(b, database(b), postgres.Options{})
	w, err := l.Join(b.Context(), ledger.Worker{ID: "bench", TTL: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	var n atomic.Int64
	request := func() ledger.Request {
		return ledger.Request{Key: ledger.Key{Tenant: "acme", Text: fmt.Sprint("acme:bench:", n.Add(1))}, Action: "bench",
			Input: make([]byte, 1000), Worker: w, Token: ledger.NewID(), MaxRun: time.Hour}
	}
	claim := func() ledger.Lease {
		c, err := l.Claim(b.Context(), request())
		if err != nil || c.Verdict != ledger.Run {
			b.Fatal(c.Verdict, err)
		}
		return c.Lease
	}
	send := func(lease ledger.Lease) ledger.AttemptID {
		a := attempt()
		if err := l.Send(b.Context(), lease, a); err != nil {
			b.Fatal(err)
		}
		return ledger.AttemptID{Tenant: "acme", Job: lease.Job, ID: a.ID}
	}
	settle := func(id ledger.AttemptID) {
		e := answer()
		e.Response.Body = make([]byte, 1000)
		if _, err := l.Settle(b.Context(), id, e); err != nil {
			b.Fatal(err)
		}
	}
	complete := func(lease ledger.Lease, id ledger.AttemptID) {
		if err := l.Complete(b.Context(), lease, ledger.Result{ID: ledger.NewID(), Body: make([]byte, 1000), Used: []ledger.ID{id.ID}}); err != nil {
			b.Fatal(err)
		}
	}
	whole := func() {
		lease := claim()
		id := send(lease)
		settle(id)
		complete(lease, id)
	}
	whole() // statements are prepared
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
					{"claim", func() { lease = claim() }}, {"send", func() { id = send(lease) }},
					{"settle", func() { settle(id) }}, {"complete", func() { complete(lease, id) }},
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
		defer cpu(b)()
		for range b.N {
			whole()
		}
	})
	b.Run("jobs at once", func(b *testing.B) {
		defer cpu(b)()
		b.SetParallelism(16)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				whole()
			}
		})
	})
	b.Run("duplicate", func(b *testing.B) {
		r := request()
		r.Key.Text = "acme:bench:1"
		defer cpu(b)()
		for range b.N {
			if c, err := l.Claim(b.Context(), r); err != nil || c.Verdict != ledger.Saved {
				b.Fatal(c.Verdict, err)
			}
		}
	})
}

// cpu reports the CPU of this process per operation, in microseconds.
func cpu(b *testing.B) func() {
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	return func() {
		b.ReportMetric(float64((used()-before).Microseconds())/float64(b.N), "client-us/op")
	}
}
