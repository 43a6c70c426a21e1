package ledgertest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// workerCases: leases belong to processes, and what a dead one left is found.
var workerCases = []testCase{
	{"join", "a worker's second life keeps the leases of its first", join},
	{"renew", "a worker that lives loses its jobs, or one that is closed keeps them", renew},
	{"renew names cancelled jobs", "a cancelled job runs to its end", renewCancelled},
	{"leave", "a clean exit leaves its jobs waiting for a lease to end", leave},
	{"sweep", "a dead worker's open calls are never looked after, or a live one's are closed", sweep},
	{"sweep a few at a time", "one sweep locks every job of a fleet", sweepFew},
	{"due", "a job that the ledger carries is never run, or one that waits for its message is", due},
	{"due after a grace time", "a job whose message was dropped is never run", dueGrace},
	{"due of some actions", "jobs that this worker has no handler for hide the ones it has", dueActions},
	{"invalid workers", "a worker joins with a lease that ends at once", invalidWorkers},
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

func join(e *env) {
	one := e.join("w2")
	j := e.startAs(one, "a")
	two := e.join("w2")
	if one.ID != "w2" || one.Epoch < 1 || two != (ledger.WorkerID{ID: "w2", Epoch: one.Epoch + 1}) {
		e.Errorf("joined as %v, then as %v", one, two)
	}
	_, err := e.Store.Renew(e.Context(), one, ttl)
	e.is("renew the first life", err, ledger.ErrClosed)
	j.req.Worker = two
	j.again()
	j.row(row{State: ledger.Running, Runs: 2, Fence: 2})
	e.die(one) // a straggler of the first life ends nothing of the second
	j.unchanged("a claim beside the second life", func() { j.verdict(ledger.Busy) })
	e.die(two)
	three := e.join("w2")
	if three.Epoch != two.Epoch+1 {
		e.Errorf("joined as %v after %v left", three, two)
	}
}

func renew(e *env) {
	w := e.join("w2")
	j := e.startAs(w, "a")
	e.LapseWorker(w)
	before := time.Now()
	r, err := e.Store.Renew(e.Context(), w, 2*ttl) // late, but nobody closed the epoch
	e.is("renew", err, nil)
	if r.Deadline.Before(before.Add(2*ttl-time.Minute)) || r.Deadline.After(time.Now().Add(2*ttl)) || len(r.Cancelled) != 0 {
		e.Errorf("renewed %+v", r)
	}
	if s := e.sweep(); s.Epochs != 0 {
		e.Errorf("a renewed worker was swept: %+v", s)
	}
	j.unchanged("a claim after the renewal", func() {
		if c := j.verdict(ledger.Busy); c.RetryIn <= ttl {
			e.Errorf("retry in %s, want the rest of the longer lease", c.RetryIn)
		}
	})
	e.LapseWorker(w)
	if s := e.sweep(); s.Epochs != 1 || len(s.Lapsed)+len(s.Cancelled) != 0 {
		e.Errorf("swept %+v, want one epoch", s)
	}
	_, err = e.Store.Renew(e.Context(), w, ttl)
	e.is("renew after the sweep", err, ledger.ErrClosed)
	j.req.Worker = e.worker
	j.again()
	j.row(row{State: ledger.Running, Runs: 2, Fence: 2})
	_, err = e.Store.Renew(e.Context(), ledger.WorkerID{ID: "nobody", Epoch: 1}, ttl)
	e.is("renew a worker that never joined", err, ledger.ErrClosed)
}

func renewCancelled(e *env) {
	w := e.join("w2")
	one, two, ended := e.startAs(w, "one"), e.startAs(w, "two"), e.startAs(w, "ended")
	e.startAs(w, "not flagged")
	other := e.run("other worker's")
	for _, j := range []*job{one, two, ended, other} {
		j.resolve(ledger.Cancel, 0)
	}
	ended.release(outcome(), ledger.Cancelled)
	unknown := e.startAs(w, "unknown") // flagged too, and the worker's to look after, but it does not run
	unknown.send("extract")
	unknown.resolve(ledger.Cancel, 0)
	unknown.release(outcome(), ledger.Unknown)
	e.adopt(w)
	for range 2 {
		r, err := e.Store.Renew(e.Context(), w, ttl)
		e.is("renew", err, nil)
		slices.SortFunc(r.Cancelled, func(a, b ledger.Key) int { return strings.Compare(a.Text, b.Text) })
		if names(r.Cancelled) != "[one two]" || r.Cancelled[0].Tenant != tenant {
			e.Errorf("cancelled %v, want one and two", r.Cancelled)
		}
		flagged, err := e.Store.Flagged(e.Context(), w)
		e.is("ask for the flagged jobs", err, nil)
		slices.SortFunc(flagged, func(a, b ledger.Key) int { return strings.Compare(a.Text, b.Text) })
		if !slices.Equal(flagged, r.Cancelled) {
			e.Errorf("flagged %v, want those that the renewal names", flagged)
		}
	}
	for _, w := range []ledger.WorkerID{{ID: w.ID, Epoch: w.Epoch + 1}, {ID: "nobody", Epoch: 1}} {
		if flagged, err := e.Store.Flagged(e.Context(), w); err != nil || len(flagged) != 0 {
			e.Errorf("flagged jobs of %v: %v, %v", w, flagged, err)
		}
	}
}

func leave(e *env) {
	w := e.join("w2")
	idle, open := e.startAs(w, "idle"), e.startAs(w, "open")
	open.send("extract")
	e.die(w)
	e.die(w) // again, after a lost reply
	e.die(ledger.WorkerID{ID: "nobody", Epoch: 1})
	_, err := e.Store.Renew(e.Context(), w, ttl)
	e.is("renew after leaving", err, ledger.ErrClosed)
	if s := e.sweep(); s.Epochs != 0 || names(s.Lapsed) != "[open]" {
		e.Errorf("swept %+v, want the open job lapsed", s)
	}
	idle.req.Worker = e.worker
	idle.again()
	idle.row(row{State: ledger.Running, Runs: 2, Fence: 2})
	open.row(row{State: ledger.Unknown, Runs: 1, Fence: 2, Open: 1, Reserved: "0.01", Carrier: ledger.CarriedByLedger, Attempts: "sent"})
}

func sweep(e *env) {
	js := e.states()
	dying, dead := e.join("dying"), e.join("dead")
	for _, w := range []ledger.WorkerID{dying, dead} {
		idle, open, flagged, both := e.startAs(w, w.ID+" idle"), e.startAs(w, w.ID+" open"), e.startAs(w, w.ID+" flagged"), e.startAs(w, w.ID+" both")
		open.send("extract")
		both.send("extract")
		flagged.resolve(ledger.Cancel, 0)
		both.resolve(ledger.Cancel, 0)
		for _, j := range []*job{idle, open, flagged, both} {
			js[j.key.Text] = j
		}
	}
	e.LapseWorker(dying)
	e.die(dead)
	before := map[string]string{}
	for name, j := range js {
		before[name] = e.dump(j.key)
	}
	s := e.sweep()
	if s.Epochs != 1 {
		e.Errorf("%d epochs closed, want the one whose lease was over", s.Epochs)
	}
	changed := map[string]row{"lapsed open": {Open: 1}, "lapsed flagged": {Cancel: true}}
	for _, w := range []string{"dying", "dead"} {
		prefix := tenant + ":" + action + ":" + w
		changed[prefix+" open"], changed[prefix+" flagged"] = row{Open: 1}, row{Cancel: true}
		changed[prefix+" both"] = row{Open: 1, Cancel: true}
	}
	for name, j := range js {
		want, ok := changed[name]
		if !ok {
			if after := e.dump(j.key); after != before[name] {
				e.Errorf("the sweep changed the job that is %s\nbefore:\n%s\nafter:\n%s", name, before[name], after)
			}
			continue
		}
		want.State, want.Runs, want.Fence = ledger.Cancelled, 1, 2
		if want.Open > 0 {
			want.State, want.Reserved, want.Carrier, want.Attempts = ledger.Unknown, "0.01", ledger.CarriedByLedger, "sent"
		}
		j.row(want)
		listed := s.Cancelled
		if want.Open > 0 {
			listed = s.Lapsed
		}
		if !slices.Contains(listed, j.key) {
			e.Errorf("the sweep does not name the job that is %s: %+v", name, s)
		}
	}
	if len(s.Lapsed) != 5 || len(s.Cancelled) != 3 {
		e.Errorf("swept %+v, want 5 lapsed and 3 cancelled", s)
	}
	if s := e.sweep(); s.Epochs != 0 || len(s.Lapsed)+len(s.Cancelled) != 0 {
		e.Errorf("a second sweep found %+v", s)
	}
	_, err := e.Store.Renew(e.Context(), dying, ttl)
	e.is("renew", err, ledger.ErrClosed)
	js["running"].verdict(ledger.Busy)
}

func sweepFew(e *env) {
	seen := map[ledger.Key]bool{}
	for i := range 5 {
		j := e.run(fmt.Sprint(i))
		if i%2 == 0 {
			j.send("extract")
		} else {
			j.resolve(ledger.Cancel, 0)
		}
		e.LapseRun(j.key)
	}
	for _, want := range []int{2, 2, 1, 0} {
		s, err := e.Store.Sweep(e.Context(), 2)
		e.is("sweep", err, nil)
		if n := len(s.Lapsed) + len(s.Cancelled); n != want {
			e.Errorf("a sweep of two changed %d, want %d", n, want)
		}
		for _, k := range append(s.Lapsed, s.Cancelled...) {
			if seen[k] {
				e.Errorf("%s was swept twice", k)
			}
			seen[k] = true
		}
	}
}

// listed are the names of the jobs that are due, and checks that listing them changed nothing.
func (e *env) listed(grace time.Duration) string {
	e.Helper()
	due, err := e.Store.Due(e.Context(), 1000, grace)
	if err != nil {
		e.Fatalf("due: %v", err)
	}
	var s []string
	for _, d := range due {
		name := d.Key.Text[strings.LastIndex(d.Key.Text, ":")+1:]
		if want := `{"doc":"` + name + `"}`; d.Key.Tenant != tenant || d.Action != action || d.InputHash != (ledger.Hash{1}) || string(d.Input) != want {
			e.Errorf("the ledger would run %+v with input %q, want %q", d, d.Input, want)
		}
		s = append(s, name)
	}
	return strings.Join(sorted(s), ", ")
}

func due(e *env) {
	e.states() // all carried by the broker, but the unknown one
	if got := e.listed(time.Minute); got != "" {
		e.Errorf("due: %s, want nothing that waits for its message", got)
	}
	carried := func(name string, w ledger.WorkerID) *job {
		r := e.request("carried " + name)
		r.Carrier, r.Worker = ledger.CarriedByLedger, w
		return e.start(r)
	}
	w := e.join("w2")
	later := outcome()
	later.RetryIn = time.Hour
	carried("running", e.worker)
	carried("dead", w)
	carried("dead, open", w).send("extract")
	ready, waiting, done := carried("ready", e.worker), carried("waiting", e.worker), carried("done", e.worker)
	ready.release(outcome(), ledger.Ready)
	waiting.release(later, ledger.Ready)
	done.complete()
	e.LapseRun(carried("past its deadline", e.worker).key)
	e.bare("bare").release(outcome(), ledger.Ready)
	answered := e.unknown("answered")
	answered.settle(answered.attempt(e.read(answered.key).Attempts[0].ID), answer(cent))
	if got := e.listed(time.Minute); got != "answered, carried past its deadline, carried ready" {
		e.Errorf("due: %s", got)
	}
	e.die(w)
	e.MakeDue(waiting.key)
	const all = "answered, carried dead, carried past its deadline, carried ready, carried waiting"
	if got := e.listed(time.Minute); got != all {
		e.Errorf("due: %s", got)
	}
	few, err := e.Store.Due(e.Context(), 2, time.Minute)
	if err != nil || len(few) != 2 {
		e.Errorf("two of the jobs that are due: %+v %v", few, err)
	}
	if got := e.listed(time.Minute); got != all {
		e.Errorf("after listing them once, due: %s", got)
	}
	for _, d := range few {
		r := e.request("")
		r.Key, r.Action, r.InputHash, r.Carrier = d.Key, d.Action, d.InputHash, ledger.CarriedByLedger
		if c := e.claim(r); c.Verdict != ledger.Run {
			e.Errorf("a job that is due was not let run: %s", c.Verdict)
		}
	}
	if got := e.listed(time.Minute); strings.Count(got, ",") != 2 {
		e.Errorf("due after two were claimed: %s", got)
	}
}

func dueGrace(e *env) {
	js := e.states()
	bare := e.bare("bare")
	bare.release(outcome(), ledger.Ready)
	e.AgeRow(bare.key, long)
	young := e.run("young")
	young.release(outcome(), ledger.Ready)
	for _, j := range js {
		e.AgeRow(j.key, 90*time.Minute) // so "waiting" is due, for half an hour
	}
	// A flagged job that lapsed is listed too: claiming it cancels it.
	if got := e.listed(80 * time.Minute); got != "lapsed, lapsed flagged, ready" {
		e.Errorf("due after 80 minutes: %s", got)
	}
	if got := e.listed(20 * time.Minute); got != "lapsed, lapsed flagged, ready, waiting" {
		e.Errorf("due after 20 minutes: %s", got)
	}
	e.MakeDue(js["waiting"].key) // changed long ago, but due only now
	if got := e.listed(20 * time.Minute); got != "lapsed, lapsed flagged, ready" {
		e.Errorf("due after 20 minutes: %s", got)
	}
	if got := e.listed(long); got != "" {
		e.Errorf("due after %s: %s", long, got)
	}
}

// manyForeign is more jobs than any list of those that are due should hold.
const manyForeign = 2500

func dueActions(e *env) {
	w := e.join("w2")
	carried := func(name, action string) {
		r := e.request(name)
		r.Action, r.Carrier, r.Worker = action, ledger.CarriedByLedger, w
		if c, err := e.Store.Claim(e.Context(), r); err != nil || c.Verdict != ledger.Run {
			e.Errorf("claim %s: %s %v", name, c.Verdict, err)
		}
	}
	const other, racers = `it's "another"`, 10
	at(racers, func(racer int) {
		for i := range manyForeign / racers {
			carried(fmt.Sprintf("foreign %d %d", racer, i), "gone")
		}
	})
	carried("ours", action)
	carried("other", other)
	e.die(w)
	for _, c := range []struct {
		actions []string
		n, want int
	}{
		{nil, 2 * manyForeign, manyForeign + 2}, {nil, 100, 100}, {[]string{action}, 100, 1}, {[]string{"nobody's", ""}, 100, 0},
		{[]string{other, "nobody's", action}, 100, 2}, {[]string{"gone"}, 100, 100}, {[]string{"gone", action}, 2 * manyForeign, manyForeign + 1},
	} {
		due, err := e.Store.Due(e.Context(), c.n, time.Minute, c.actions...)
		e.is("due", err, nil)
		if len(due) != c.want {
			e.Errorf("%d jobs of %q are due, want %d", len(due), c.actions, c.want)
		}
		for _, d := range due {
			if c.actions != nil && !slices.Contains(c.actions, d.Action) {
				e.Fatalf("of %q, a job %s is due", c.actions, d.Action)
			}
		}
	}
}

func invalidWorkers(e *env) {
	for name, w := range map[string]ledger.Worker{
		"no id": {TTL: ttl}, "no lease": {ID: "w9"}, "a lease in the past": {ID: "w9", TTL: -1}, "zero in the id": {ID: "w\x009", TTL: ttl},
	} {
		_, err := e.Store.Join(e.Context(), w)
		e.is(name, err, ledger.ErrRequest)
	}
	for _, d := range []time.Duration{0, -ttl} {
		_, err := e.Store.Renew(e.Context(), e.worker, d)
		e.is("renew for no time", err, ledger.ErrRequest)
	}
	if s := e.sweep(); s.Epochs != 0 {
		e.Errorf("the renewal for no time ended the lease: %+v", s)
	}
}
