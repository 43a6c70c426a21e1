package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/paidonce/paidonce/handlers/invoice"
	"github.com/paidonce/paidonce/handlers/summarize"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/ledger"
)

// seen plants one breach after the other into copies of a sound history. The checker has to see each.
func seen(t *testing.T, sound history) {
	t.Helper()
	paid, ok := sound.find(func(j ledger.Job) bool { return j.Action == invoice.Name && j.State == ledger.Done })
	told, ok2 := sound.find(func(j ledger.Job) bool { return j.Action == summarize.Name && j.State == ledger.Done })
	if !ok || !ok2 {
		t.Fatal("nothing to plant a breach into: no job is done")
	}
	answer := slices.IndexFunc(paid.Attempts, func(a ledger.AttemptRow) bool { return a.State == ledger.Received })
	mail, _ := stepKeys(sound.docs[told.Key.Text])
	key := paid.Key.Text
	attempt := func(change func(*ledger.AttemptRow)) func(history) {
		return func(h history) { h.change(key, func(j *ledger.Job) { change(&j.Attempts[answer]) }) }
	}
	for what, c := range map[string]struct {
		plant func(history)
		want  string
	}{
		"a second payment":        {func(h history) { h.bill[key] = append(h.bill[key], another(h.bill[key][0])) }, "was paid 2 times with 0 permissions"},
		"a payment off record":    {func(h history) { h.bill[key] = []modelserver.Line{another(h.bill[key][0])} }, "which is not on record"},
		"a lost result":           {func(h history) { delete(h.results, key) }, "has results of generations []"},
		"a second result":         {func(h history) { h.results[key] = []int{1, 1} }, "has results of generations [1 1]"},
		"lost rows of the user's": {func(h history) { delete(h.rows, key) }, "has 0 rows of the user's"},
		"rows without a result":   {func(h history) { h.rows[told.Key.Text] = 1 }, "has 1 rows of the user's"},
		"a lost job":              {func(h history) { delete(h.jobs, key) }, "was submitted, and is lost"},
		"a stuck job":             {func(h history) { h.change(key, func(j *ledger.Job) { j.State = ledger.Running }) }, "ended as running"},
		"a paid failure":          {attempt(func(a *ledger.AttemptRow) { a.State, a.HasAnswer = ledger.NotSent, false }), "on record as not_sent"},
		"an answer thrown away":   {attempt(func(a *ledger.AttemptRow) { a.Surplus = true }), "with the answers of 0 calls"},
		"an answer forgotten":     {attempt(func(a *ledger.AttemptRow) { a.HasAnswer = false }), "answer on record: false"},
		"a forgotten open call":   {attempt(func(a *ledger.AttemptRow) { a.State = ledger.Sent }), "open attempts"},
		"another price":           {attempt(func(a *ledger.AttemptRow) { a.Evidence.Cost = new(*a.Evidence.Cost + 1) }), "of which the bill says"},
		"an uncounted permission": {func(h history) { h.change(key, func(j *ledger.Job) { j.Replays++ }) }, "1 replays counted"},
		"held without a cause":    {func(h history) { h.change(key, unexplained) }, "does not say since when and why"},
		"a second mail":           {func(h history) { h.mails[mail] = 2 }, "was made 2 times"},
		"a lost mail":             {func(h history) { h.mails[mail]++; delete(h.jobs, mail) }, "there: false"},
		"a dead letter":           {nil, "no dead letter"},
		"a wrong report":          {func(h history) { h.reports[invoice.Name]++ }, "the report says"},
		"a stranger's payment":    {func(h history) { h.bill["acme:x"] = h.bill[key] }, "which nobody asked for"},
	} {
		h := sound.clone()
		if c.plant == nil {
			h.queues.Dead++
		} else {
			c.plant(h)
		}
		if got := strings.Join(h.violations(), "\n"); !strings.Contains(got, c.want) {
			t.Errorf("the checker does not see %s: want %q in\n%s", what, c.want, got)
		}
	}
}

func another(l modelserver.Line) modelserver.Line { l.ClientID += "-again"; return l }

// unexplained makes a job unknown without a word about it.
func unexplained(j *ledger.Job) {
	j.State, j.OpenCalls, j.History = ledger.Unknown, 1, nil
	j.Attempts[len(j.Attempts)-1].State = ledger.Sent
}

func (h history) find(ok func(ledger.Job) bool) (ledger.Job, bool) {
	for _, key := range slices.Sorted(maps.Keys(h.docs)) {
		if ok(h.jobs[key]) {
			return h.jobs[key], true
		}
	}
	return ledger.Job{}, false
}

// clone shares nothing with h that a breach changes.
func (h history) clone() history {
	h.bill, h.jobs, h.results, h.rows = maps.Clone(h.bill), maps.Clone(h.jobs), maps.Clone(h.results), maps.Clone(h.rows)
	h.mails, h.posts, h.reports = maps.Clone(h.mails), maps.Clone(h.posts), maps.Clone(h.reports)
	for key, lines := range h.bill {
		h.bill[key] = slices.Clone(lines)
	}
	return h
}

func (h history) change(key string, how func(*ledger.Job)) {
	j := h.jobs[key]
	j.Attempts = slices.Clone(j.Attempts)
	how(&j)
	h.jobs[key] = j
}

// report is what a storm did, and what it cost.
func (s *tempest) report(h history, again int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d faults; %d worker processes started, %d of them did not come up; %d submissions made again; %d slow fsyncs, %d writes of tables to a full disk\n",
		len(s.ended), s.starts, s.alone, again, s.synced, s.refused)
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	h.reportFaults(w, s.ended)
	fmt.Fprintln(w)
	h.reportJobs(w)
	_ = w.Flush() // into memory
	return b.String()
}

func (h history) reportFaults(w *tabwriter.Writer, ended []struck) {
	times, count := map[string][]time.Duration{}, map[string]int{}
	const all = "all"
	for _, e := range ended {
		place, _, _ := strings.Cut(e.on, " ")
		for _, name := range []string{place + ": " + e.kind, all} {
			count[name]++
			if d, ok := h.resumed(e.over); ok {
				times[name] = append(times[name], d)
			}
		}
	}
	fmt.Fprintln(w, "FAULT\tTIMES\tNEXT RESULT AFTER ITS END: MEDIAN\tWORST")
	for _, name := range slices.Sorted(maps.Keys(count)) {
		d := times[name]
		slices.Sort(d)
		if len(d) == 0 {
			fmt.Fprintf(w, "%s\t%d\t-\t-\n", name, count[name])
			continue
		}
		fmt.Fprintf(w, "%s\t%d\t%.2fs\t%.2fs\n", name, count[name], d[len(d)/2].Seconds(), d[len(d)-1].Seconds())
	}
}

func (h history) reportJobs(w *tabwriter.Writer) {
	type sums struct{ jobs, done, held, failed, calls, twice, runs, permitted int }
	by := map[string]*sums{}
	for key, d := range h.docs {
		if by[d.Job] == nil {
			by[d.Job] = &sums{}
		}
		n, j := by[d.Job], h.jobs[key]
		n.jobs++
		n.calls += len(h.bill[key])
		n.runs += j.Runs
		n.permitted += j.Replays
		if len(h.bill[key]) > 1 {
			n.twice++
		}
		switch j.State {
		case ledger.Done:
			n.done++
		case ledger.Unknown:
			n.held++
		case ledger.Failed:
			n.failed++
		}
	}
	fmt.Fprintln(w, "JOBS\tDONE\tHELD\tFAILED\tCALLS A JOB\tPAID TWICE\tPERMISSIONS\tRUNS\tOF")
	for _, name := range slices.Sorted(maps.Keys(by)) {
		n := by[name]
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%.3f\t%d\t%d\t%d\t%s\n", n.jobs, n.done, n.held, n.failed, float64(n.calls)/float64(n.jobs), n.twice, n.permitted, n.runs, name)
	}
}
