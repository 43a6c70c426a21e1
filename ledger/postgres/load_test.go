package postgres_test

import (
	"crypto/md5"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

const (
	claimRate = 200 // a second
	claimsMax = 64  // at once at most
	turnOf    = 5 * time.Second
)

// load claims new jobs at claimRate, whatever the ledger's pace, with an input of 1 KB each.
type load struct {
	testing.TB
	ledger *postgres.Ledger
	worker ledger.WorkerID

	mu   sync.Mutex
	turn string                     // "": nothing is noted
	took map[string][]time.Duration // by the turn in which a claim was due: from then on
}

func newLoad(t testing.TB, l *postgres.Ledger) *load {
	t.Helper()
	w, err := l.Join(t.Context(), ledger.Worker{ID: "bench", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return &load{TB: t, ledger: l, worker: w, took: map[string][]time.Duration{}}
}

// claim is due at a time.
type claim struct {
	turn string
	at   time.Time
}

// run claims until stop, which waits for the claims that are due.
func (l *load) run() (stop func()) {
	var wg sync.WaitGroup
	done := make(chan struct{})
	due := make(chan claim, 1<<20)
	for range claimsMax {
		wg.Go(func() {
			for c := range due {
				l.claim(c)
			}
		})
	}
	wg.Go(func() {
		defer close(due)
		begun := time.Now()
		for n := 0; ; n++ {
			at := begun.Add(time.Duration(n) * time.Second / claimRate)
			select {
			case <-done:
				return
			case <-time.After(time.Until(at)):
			}
			l.mu.Lock()
			c := claim{l.turn, at}
			l.mu.Unlock()
			due <- c
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}

func (l *load) claim(c claim) {
	id := ledger.NewID()
	r := ledger.Request{Key: ledger.Key{Tenant: "acme", Text: fmt.Sprintf("acme:invoice.extract:%x", md5.Sum(id[:]))}, Action: "invoice.extract",
		Input: make([]byte, 1000), Worker: l.worker, Token: id, MaxRun: time.Hour}
	if got, err := l.ledger.Claim(l.Context(), r); err != nil || got.Verdict != ledger.Run {
		l.Errorf("claim: %s %v", got.Verdict, err)
	}
	if c.turn == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took[c.turn] = append(l.took[c.turn], time.Since(c.at))
}

// name begins a turn.
func (l *load) name(turn string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn = turn
}

// report reports the claims of the turns of a name.
func (l *load) report(b *testing.B, turn string) {
	took := l.took[turn]
	for _, p := range []int{50, 99, 100} {
		b.ReportMetric(percentile(took, p), fmt.Sprintf("%s-p%d-ms", turn, p))
	}
	b.ReportMetric(float64(len(took)), turn+"-claims")
}

// percentile is in milliseconds.
func percentile(all []time.Duration, p int) float64 {
	all = slices.Sorted(slices.Values(all))
	return float64(all[max(0, (len(all)*p+99)/100-1)].Microseconds()) / 1000
}
