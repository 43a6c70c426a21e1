package ledgertest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// countCases: what is known of deliveries that were answered with a saved result.
var countCases = []testCase{
	{"counts", "avoided calls are counted twice after a lost reply, or are lost between workers", counts},
	{"counts that make no sense", "a count that is none is booked as money saved", countsInvalid},
	{"counts at once", "workers that count at the same time lose counts, or wait for each other for ever", countsAtOnce},
}

// count counts, which must not err.
func (e *env) count(w ledger.WorkerID, batch ledger.ID, all ...ledger.Avoided) {
	e.Helper()
	if err := e.Store.Count(e.Context(), w, batch, all); err != nil {
		e.Fatalf("count: %v", err)
	}
}

// avoided is counts as the cases usually have them.
func avoided(cause ledger.Cause, n int64, saved ledger.Nano, unpriced int64) ledger.Avoided {
	return ledger.Avoided{Day: time.Now(), Tenant: tenant, Action: action, Cause: cause, Count: n, Saved: saved, Unpriced: unpriced}
}

// counts: each batch once, whatever became of its reply and of the epoch.
func counts(e *env) {
	one, two := ledger.NewID(), ledger.NewID()
	e.count(e.worker, one, avoided(ledger.Redelivered, 2, cent, 1), avoided(ledger.AckLost, 1, cent, 0), avoided(ledger.Redelivered, 1, cent, 0))
	want := "invoice.extract: redelivered 3 ack_lost 1 saved $0.03 saved unpriced 1"
	check := func(what string) {
		e.Helper()
		c := e.costs(ledger.CostFilter{By: ledger.PerAction})
		if len(c.Groups) != 1 || costText(c.Groups[0]) != want {
			e.Errorf("%s: %+v, want %s", what, c.Groups, want)
		}
	}
	check("a batch")
	e.count(e.worker, one, avoided(ledger.Redelivered, 2, cent, 1))
	check("the batch again")
	other := e.join("w2")
	e.count(other, one, avoided(ledger.Redelivered, 2, cent, 1)) // ids are a worker's own
	want = "invoice.extract: redelivered 5 ack_lost 1 saved $0.04 saved unpriced 2"
	check("another worker")
	e.die(e.worker)
	e.count(e.worker, two, avoided(ledger.SubmittedAgain, 1, cent, 0))
	want = "invoice.extract: redelivered 5 ack_lost 1 submitted_again 1 saved $0.05 saved unpriced 2"
	check("a closed epoch")
	e.count(e.join("w1"), two, avoided(ledger.SubmittedAgain, 1, cent, 0))
	check("the batch again in the next epoch")
	err := e.Store.Count(e.Context(), ledger.WorkerID{ID: "nobody", Epoch: 1}, ledger.NewID(), []ledger.Avoided{avoided(ledger.AckLost, 1, 0, 1)})
	e.is("a worker that there is not", err, ledger.ErrNotFound)
	check("a worker that there is not")
}

func countsInvalid(e *env) {
	good := avoided(ledger.AckLost, 1, cent, 0)
	with := func(change func(*ledger.Avoided)) []ledger.Avoided {
		bad := good
		change(&bad)
		return []ledger.Avoided{good, bad}
	}
	for name, all := range map[string][]ledger.Avoided{
		"nothing":                      nil,
		"a cause that there is not":    with(func(a *ledger.Avoided) { a.Cause = "luck" }),
		"no tenant":                    with(func(a *ledger.Avoided) { a.Tenant = "" }),
		"a tenant that is no text":     with(func(a *ledger.Avoided) { a.Tenant = "\xff" }),
		"no action":                    with(func(a *ledger.Avoided) { a.Action = "" }),
		"no day":                       with(func(a *ledger.Avoided) { a.Day = time.Time{} }),
		"none":                         with(func(a *ledger.Avoided) { a.Count = 0 }),
		"a loss":                       with(func(a *ledger.Avoided) { a.Saved = -1 }),
		"more unpriced than there are": with(func(a *ledger.Avoided) { a.Unpriced = 2 }),
		"fewer unpriced than none":     with(func(a *ledger.Avoided) { a.Unpriced = -1 }),
	} {
		e.is(name, e.Store.Count(e.Context(), e.worker, ledger.NewID(), all), ledger.ErrRequest)
	}
	e.is("no batch", e.Store.Count(e.Context(), e.worker, ledger.ID{}, []ledger.Avoided{good}), ledger.ErrRequest)
	e.is("no worker", e.Store.Count(e.Context(), ledger.WorkerID{}, ledger.NewID(), []ledger.Avoided{good}), ledger.ErrRequest)
	e.report(ledger.CostFilter{}, ":")
}

// countsAtOnce: many workers, the same rows in another order each, and every batch twice.
func countsAtOnce(e *env) {
	const workers, batches = 4, 5
	var wg sync.WaitGroup
	for n := range workers {
		w := e.join(fmt.Sprint("counter ", n))
		wg.Go(func() {
			for range batches {
				all := []ledger.Avoided{avoided(ledger.Redelivered, 1, cent, 0), avoided(ledger.AckLost, 1, cent, 0), avoided(ledger.DuplicateMessage, 2, 0, 2)}
				if n%2 == 1 {
					slices.Reverse(all)
				}
				id := ledger.NewID()
				for range 2 {
					if err := e.Store.Count(e.Context(), w, id, all); err != nil {
						e.Errorf("count: %v", err)
					}
				}
			}
		})
	}
	wg.Wait()
	e.report(ledger.CostFilter{}, ": redelivered 20 duplicate_message 40 ack_lost 20 saved $0.4 saved unpriced 40")
}
