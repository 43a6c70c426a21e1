package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/handlers/invoice"
	"github.com/paidonce/paidonce/ledger"
)

// Depth counts the messages of the queue and what belongs to it.
func (w *World) Depth() Depth { w.t.Helper(); return w.Queue.Depth() }

// UntilQuiet waits until no message is left but dead letters.
func (w *World) UntilQuiet() {
	w.t.Helper()
	w.Eventually(func() (bool, string) {
		d := w.Depth()
		return d.Ready+d.Unacked+d.Delayed == 0, fmt.Sprintf("the queues hold %+v", d)
	})
}

// Expect is the end of a test, where it is not the ordinary one: every submitted
// job done and paid once, nothing left in the queues.
type Expect struct {
	States map[string]ledger.State // by key; others are done
	Bill   map[string]int          // lines by key; others have one
	Dead   int                     // dead letters
}

// Check is the oracle. It waits for the queues to be empty and then compares what was
// paid, what is on record and what is left.
func (w *World) Check(e Expect) {
	w.t.Helper()
	w.UntilQuiet()
	if d := w.Depth(); d.Dead != e.Dead {
		w.t.Errorf("%d dead letters, want %d", d.Dead, e.Dead)
	}
	jobs, bill := w.Jobs(), w.Models.BillByKey()
	if len(jobs) != len(w.docs) {
		w.t.Errorf("the ledger has %d jobs, %d were submitted", len(jobs), len(w.docs))
	}
	for key := range bill {
		if _, ok := w.docs[key]; !ok {
			w.t.Errorf("the bill has %q, which nobody submitted", key)
		}
	}
	done := 0
	for key, doc := range w.docs {
		if _, ok := jobs[key]; !ok {
			w.t.Errorf("%s is lost", key)
			continue
		}
		w.checkJob(w.Job(key), e)
		if doc.Job == invoice.Name && jobs[key].State == ledger.Done {
			done++
		}
	}
	w.checkReports()
	if n := Query[int](w.t, w.URL, "select count(*) from invoices"); n != done {
		w.t.Errorf("table invoices has %d rows for %d finished jobs", n, done)
	}
	w.checkLogs()
}

// checkLogs looks for what no worker may log.
func (w *World) checkLogs() {
	w.t.Helper()
	for _, p := range w.procs {
		if log := p.log.String(); strings.Contains(log, "panic") || strings.Contains(log, "DATA RACE") {
			w.t.Errorf("worker %s logs a panic or a race", p.name)
		}
	}
}

func (w *World) checkJob(j ledger.Job, e Expect) {
	w.t.Helper()
	key := j.Key.Text
	want, lines := ledger.Done, 1
	if s, ok := e.States[key]; ok {
		want = s
	}
	if n, ok := e.Bill[key]; ok {
		lines = n
	}
	bill := w.Models.BillByKey()[key]
	if j.State != want || len(bill) != lines {
		w.t.Errorf("%s is %s and paid %d times, want %s and %d\n%s", key, j.State, len(bill), want, lines, story(j))
	}
	count := map[ledger.AttemptState]int{}
	var ids []string
	for _, a := range j.Attempts {
		count[a.State]++
		ids = append(ids, a.ClientRequestID)
	}
	for _, l := range bill {
		i := slices.Index(ids, l.ClientID)
		if i < 0 {
			w.t.Errorf("%s was paid as %s, which is not on record\n%s", key, l.ClientID, story(j))
		} else if a := j.Attempts[i]; priced(a) && (a.Evidence.Cost == nil || int64(*a.Evidence.Cost) != l.Price) {
			w.t.Errorf("%s has booked %v for the call %s, of which the bill says %+v\n%s", key, a.Evidence.Cost, l.ClientID, l, story(j))
		}
	}
	w.checkCost(j)
	if count[ledger.Sent] != j.OpenCalls || (j.State == ledger.Unknown) != (j.OpenCalls > 0) {
		w.t.Errorf("%s is %s with %d open calls and %d attempts in state sent\n%s", key, j.State, j.OpenCalls, count[ledger.Sent], story(j))
	}
	if j.State == ledger.Done && (j.Result == nil || len(j.Result.Body) == 0 || count[ledger.Received] == 0) {
		w.t.Errorf("%s is done without a result or an answer\n%s", key, story(j))
	}
}

// priced reports whether an attempt has an answer that tells its usage. One that a person brought
// tells none.
func priced(a ledger.AttemptRow) bool {
	return a.State == ledger.Received && a.Evidence.Class != "by_person"
}

// checkCost compares what was booked for the job with its attempts: an answer that tells its usage has
// a cost, what has none is not known to have been billed, and the job has cost what they have together.
func (w *World) checkCost(j ledger.Job) {
	w.t.Helper()
	sum, known := ledger.Nano(0), false
	for _, a := range j.Attempts {
		if cost := a.Evidence.Cost; cost != nil {
			sum, known = sum+*cost, true
		}
		if (a.Evidence.Cost != nil) != priced(a) {
			w.t.Errorf("attempt %d of %s is %s and cost %v\n%s", a.N, j.Key.Text, a.State, a.Evidence.Cost, story(j))
		}
	}
	if known != (j.Cost != nil) || known && *j.Cost != sum {
		w.t.Errorf("%s cost %v, its attempts %s (known: %t)\n%s", j.Key.Text, j.Cost, sum, known, story(j))
	}
}

// story is a job in a few lines.
func story(j ledger.Job) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s: %s, runs %d, fence %d, carrier %s, error %v\n", j.Key.Text, j.State, j.Runs, j.Fence, j.Carrier, j.Error)
	for _, a := range j.Attempts {
		fmt.Fprintf(&b, "  attempt %d %s %s: %s, %s, HTTP %d, by %s\n", a.N, a.Route, a.ClientRequestID, a.State, a.Evidence.Class, a.Evidence.Status, a.Evidence.By)
	}
	for _, h := range j.History {
		fmt.Fprintf(&b, "  %s %s -> %s %s: %s\n", h.At.Format("15:04:05.000"), h.From, h.To, h.Actor, h.Reason)
	}
	return b.String()
}

// Query reads one value from a database.
func Query[T any](t *testing.T, url, sql string, args ...any) (v T) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	if err := c.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}
