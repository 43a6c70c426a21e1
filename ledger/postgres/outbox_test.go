package postgres_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// TestMessagesTakenWhole: of workers that look into the outbox at once one is given all messages of a job. Two that share them
// would publish them in any order.
func TestMessagesTakenWhole(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	res := ledger.Result{ID: ledger.NewID(), Body: []byte("1")}
	for i := range ledger.MaxMessages {
		res.Messages = append(res.Messages, ledger.MessageAsk{Action: "next", Body: fmt.Append(nil, i)})
	}
	if err := f.Complete(t.Context(), f.run(f.request("a")), res); err != nil {
		t.Fatal(err)
	}
	for round := range 100 {
		run(t, f.db, "update paidonce.outbox set next_at = now() - interval '1 hour'")
		var takers sync.WaitGroup
		given := make([]int, 4)
		for i := range given {
			takers.Go(func() {
				ms, err := f.TakeMessages(t.Context(), 1000, time.Hour)
				if err != nil {
					t.Error(err)
				}
				given[i] = len(ms)
			})
		}
		takers.Wait()
		sum, most := 0, 0
		for _, n := range given {
			sum, most = sum+n, max(most, n)
		}
		if sum != ledger.MaxMessages || most != sum {
			t.Fatalf("round %d: workers were given %v messages of one job", round, given)
		}
	}
}
