package outage_test

import (
	"fmt"
	"time"

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

// wantQueues compares what lies in the queue and its rungs together, and what was set
// aside. Nobody may hold anything.
func (r *rig) wantQueues(ready, dead int) {
	r.Helper()
	n, held := r.depth()
	set, _ := r.rabbit.Depth(r, r.conf.URL, r.conf.Queue+".dead")
	if n != ready || held != 0 || set != dead {
		r.Errorf("messages: %d waiting, %d held, %d dead; want %d, 0, %d", n, held, set, ready, dead)
	}
}

// awaitEmpty waits until redelivered messages were answered.
func (r *rig) awaitEmpty() {
	r.Helper()
	r.eventually("the queue is empty", func() bool { n, held := r.depth(); return n+held == 0 })
}

// depth counts the messages of the queue and its rungs. The rungs are read twice: a
// message that moves from one to the queue or back is not missed.
func (r *rig) depth() (ready, held int) {
	r.Helper()
	waiting := r.waiting()
	ready, held = r.rabbit.Depth(r, r.conf.URL, r.conf.Queue)
	return ready + max(waiting, r.waiting()), held
}

// waiting counts the messages in the rungs.
func (r *rig) waiting() (n int) {
	r.Helper()
	for _, d := range r.conf.Retry {
		ready, held := r.rabbit.Depth(r, r.conf.URL, rung(r.conf.Queue, d))
		n += ready + held
	}
	return n
}

func rung(queue string, d time.Duration) string {
	return fmt.Sprintf("%s.retry.%d", queue, d.Milliseconds())
}
