package outage_test

import (
	"fmt"

	"github.com/paidonce/paidonce/ledger"
)

// wantDone: each document was paid once and is done, and nothing else is anywhere.
// sends says how many attempts each has: at least one, at most that many.
func (r *rig) wantDone(docs []string, sends int) {
	r.Helper()
	r.wantPaidOnce(docs)
	for _, d := range docs {
		r.wantRow(d, sends)
	}
	if n := r.count("select count(*) from paidonce.job"); n != len(docs) {
		r.Errorf("%d rows for %d documents", n, len(docs))
	}
	r.wantQueues(0, 0)
}

// wantPaidOnce compares the bill, whichever way the calls went.
func (r *rig) wantPaidOnce(docs []string) {
	r.Helper()
	bill := r.models.BillByKey()
	for _, d := range docs {
		if n := len(bill[key(d).Text]); n != 1 {
			r.Errorf("%s was paid %d times", d, n)
		}
	}
	if len(bill) != len(docs) {
		r.Errorf("%d keys on the bill, want %d", len(bill), len(docs))
	}
}

// wantRow compares a done job, its attempts, its result and the user's own row.
func (r *rig) wantRow(d string, sends int) {
	r.Helper()
	j, err := r.look.Job(r.Context(), key(d))
	if err != nil {
		r.Errorf("%s: %v", d, err)
		return
	}
	states := map[ledger.AttemptState]int{}
	for _, a := range j.Attempts {
		states[a.State]++
	}
	rest := len(j.Attempts) - states[ledger.NotSent]
	if states[ledger.Received] != 1 || rest != 1 || len(j.Attempts) > sends {
		r.Errorf("%s has the attempts %v, want one received and at most %d, the others not sent", d, states, sends)
	}
	result := "none"
	if j.Result != nil {
		result = string(j.Result.Body)
	}
	got := fmt.Sprintf("%s, open %d, reserved %d, owner %q, result %s, marks %d", j.State, j.OpenCalls, int64(j.Reserved),
		j.Owner.ID, result, r.count("select count(*) from mark where key = $1", j.Key.Text))
	if want := fmt.Sprintf("done, open 0, reserved 0, owner \"\", result \"answer to %s\", marks 1", j.Key.Text); got != want {
		r.Errorf("%s\ngot  %s\nwant %s", d, got, want)
	}
}

// wantQueues compares what lies in the queue, later deliveries included, and what was set
// aside. Nobody may hold anything.
func (r *rig) wantQueues(ready, dead int) {
	r.Helper()
	n, held, set := r.queue.depth(r.T)
	if n != ready || held != 0 || set != dead {
		r.Errorf("messages: %d waiting, %d held, %d dead; want %d, 0, %d", n, held, set, ready, dead)
	}
}

// awaitEmpty waits until redelivered messages were answered.
func (r *rig) awaitEmpty() {
	r.Helper()
	r.eventually("the queue is empty", func() bool { n, held, _ := r.queue.depth(r.T); return n+held == 0 })
}
