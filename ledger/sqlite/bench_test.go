package sqlite_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// BenchmarkJobs takes jobs through claim, look, gate, settlement and commit, with bodies of
// a kilobyte: one after the other, and many at once, which share commits. Every answer
// is on the disk (synchronous = FULL).
func BenchmarkJobs(b *testing.B) {
	for _, at := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("%d at once", at), func(b *testing.B) {
			l := open(b, file(b))
			w, err := l.Join(b.Context(), ledger.Worker{ID: "bench", TTL: time.Hour})
			if err != nil {
				b.Fatal(err)
			}
			var n atomic.Int64
			whole := func() error {
				r := request(w, fmt.Sprint(n.Add(1)))
				r.Input = make([]byte, 1000)
				c, err := l.Claim(b.Context(), r)
				if err != nil {
					return err
				}
				a := attempt()
				if _, err := l.Look(b.Context(), c.Lease, a.Call); err != nil {
					return err
				}
				if err := l.Send(b.Context(), c.Lease, a); err != nil {
					return err
				}
				e := answer()
				e.Response.Body = make([]byte, 1000)
				if _, err := l.Settle(b.Context(), ledger.AttemptID{Tenant: "acme", Job: c.Lease.Job, ID: a.ID}, e); err != nil {
					return err
				}
				return l.Complete(b.Context(), c.Lease, ledger.Result{ID: ledger.NewID(), Body: make([]byte, 1000), Used: []ledger.ID{a.ID}})
			}
			b.ResetTimer()
			var left atomic.Int64
			left.Store(int64(b.N))
			errs := make(chan error, at)
			for range at {
				go func() {
					for left.Add(-1) >= 0 {
						if err := whole(); err != nil {
							errs <- err
							return
						}
					}
					errs <- nil
				}()
			}
			for range at {
				if err := <-errs; err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}
