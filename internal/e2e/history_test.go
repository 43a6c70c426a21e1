package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/handlers/invoice"
	"github.com/paidonce/paidonce/handlers/moderate"
	"github.com/paidonce/paidonce/handlers/summarize"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/ledger"
)

// history is all that is left of a storm, from every side: what was asked for, the provider's bill, the ledger, the user's
// own rows, the mails and posts, and the queues.
type history struct {
	docs    map[string]Doc
	bill    map[string][]modelserver.Line // by key
	jobs    map[string]ledger.Job         // whole, steps among them
	results map[string][]int              // generations that have a result row, by key
	rows    map[string]int                // of table invoices, by key
	mails   map[string]int                // by the step's key
	posts   map[string]int
	reports map[string]ledger.Nano // what the program says that was spent, by action
	queues  Depth
}

// history reads it. Nothing may change any more.
func (s *tempest) history() history {
	s.t.Helper()
	h := history{docs: s.docs, bill: s.Models.BillByKey(), jobs: map[string]ledger.Job{}, results: map[string][]int{}, rows: map[string]int{},
		mails: map[string]int{}, posts: map[string]int{}, reports: map[string]ledger.Nano{}, queues: s.Depth()}
	for key := range s.Jobs() {
		h.jobs[key] = s.Job(key)
	}
	s.each("select j.key, r.generation from paidonce.result r join paidonce.job j on j.tenant = r.tenant and j.id = r.job", func(key string, n int) {
		h.results[key] = append(h.results[key], n)
	})
	s.each("select job_key, count(*)::int from invoices group by 1", func(key string, n int) { h.rows[key] = n })
	to := map[string]string{} // address to step key
	for _, d := range s.docs {
		if d.Job == summarize.Name {
			mail, _ := stepKeys(d)
			part := strings.Split(mail, ":")
			to[part[0]+"-"+part[2]+"@acme.example"] = mail
		}
	}
	for _, m := range s.sink.Mails() {
		h.mails[cmp.Or(to[m.To[0]], m.To[0])]++
	}
	for _, m := range s.stub.Messages() {
		h.posts[fmt.Sprint(m.Payload["key"])]++
	}
	for _, g := range s.Report("action").Groups {
		if g.Spent != nil {
			h.reports[g.By] = *g.Spent
		}
	}
	return h
}

// each reads rows of a text and a number.
func (s *tempest) each(sql string, row func(string, int)) {
	s.t.Helper()
	c, err := pgx.Connect(s.t.Context(), s.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close(s.t.Context())
	var text string
	var n int
	rows, err := c.Query(s.t.Context(), sql)
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&text, &n}, func() error { row(text, n); return nil })
	}
	if err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

// violations are the places where the history breaks one of the five guarantees of README and docs/design.md, or the books
// are wrong; none in a sound one.
func (h history) violations() (all []string) {
	for _, key := range slices.Sorted(maps.Keys(h.docs)) {
		j, ok := h.jobs[key]
		if !ok {
			all = append(all, key+" was submitted, and is lost")
			continue
		}
		for _, rule := range []func(ledger.Job) string{h.oneResult, h.noneRepeated, h.noneThrownAway, h.ended, h.heldWithCause, h.booked} {
			if what := rule(j); what != "" {
				all = append(all, fmt.Sprintf("%s %s\n%s  bill %+v", key, what, story(j), h.bill[key]))
			}
		}
	}
	all = append(all, h.steps()...)
	all = append(all, h.strangers()...)
	if h.queues != (Depth{}) {
		all = append(all, fmt.Sprintf("the queues hold %+v, want nothing and no dead letter", h.queues))
	}
	return all
}

// 1. At most one result is committed per key and generation; the user's rows are there with it, or not at all.
func (h history) oneResult(j ledger.Job) string {
	key, want := j.Key.Text, 0
	if j.State == ledger.Done {
		want = 1
	}
	rows := want
	if j.Action != invoice.Name {
		rows = 0
	}
	switch got := h.results[key]; {
	case len(got) != want || want == 1 && got[0] != j.Generation:
		return fmt.Sprintf("is %s in generation %d and has results of generations %v", j.State, j.Generation, got)
	case want == 1 && (j.Result == nil || len(j.Result.Body) == 0):
		return "is done without a result"
	case h.rows[key] != rows:
		return fmt.Sprintf("is %s and has %d rows of the user's, want %d", j.State, h.rows[key], rows)
	}
	return ""
}

// 2. No paid request is repeated unless a policy allowed it, and that is on record.
func (h history) noneRepeated(j ledger.Job) string {
	permitted := 0
	for _, e := range j.History {
		if strings.HasPrefix(e.Reason, "J16") { // or J16o, within a run
			permitted++
		}
	}
	most := map[string]int{moderate.Name: 1}[j.Action]
	lines := h.bill[j.Key.Text]
	if permitted != j.Replays || permitted > most {
		return fmt.Sprintf("has %d permissions on record, %d replays counted, and its policy allows %d", permitted, j.Replays, most)
	}
	if len(lines) > 1+permitted {
		return fmt.Sprintf("was paid %d times with %d permissions", len(lines), permitted)
	}
	seen := map[string]bool{}
	for _, l := range lines {
		i := slices.IndexFunc(j.Attempts, func(a ledger.AttemptRow) bool { return a.ClientRequestID == l.ClientID })
		switch {
		case i < 0:
			return "was paid as " + l.ClientID + ", which is not on record"
		case seen[l.ClientID]:
			return "was paid twice as " + l.ClientID
		case !slices.Contains([]ledger.AttemptState{ledger.Received, ledger.Sent, ledger.UnknownAttempt}, j.Attempts[i].State):
			return fmt.Sprintf("was paid as %s, which is on record as %s", l.ClientID, j.Attempts[i].State)
		}
		seen[l.ClientID] = true
	}
	return ""
}

// 3. Nothing paid for is thrown away: every answer that was captured is the result's or surplus, and what can be asked for is
// asked for.
func (h history) noneThrownAway(j ledger.Job) string {
	used := map[ledger.CallRef]int{}
	for _, a := range j.Attempts {
		if a.HasAnswer != (a.State == ledger.Received) {
			return fmt.Sprintf("has attempt %d in state %s, answer on record: %t", a.N, a.State, a.HasAnswer)
		}
		if a.State == ledger.Received && !a.Surplus {
			used[a.Call]++
		}
	}
	switch n := len(used); {
	case j.State == ledger.Done && n != 1, j.State != ledger.Done && n != 0:
		return fmt.Sprintf("is %s with the answers of %d calls", j.State, n)
	case j.State != ledger.Done && j.Action == invoice.Name && len(h.bill[j.Key.Text]) > 0:
		return fmt.Sprintf("is %s, and the provider has its answer", j.State)
	}
	for call, n := range used {
		if n != 1 {
			return fmt.Sprintf("has %d answers of call %s that are no surplus", n, call.Name)
		}
	}
	return ""
}

// 4. What was acknowledged has an outcome. The queues are empty by now, so everything has.
func (h history) ended(j ledger.Job) string {
	switch j.State {
	case ledger.Done, ledger.Unknown:
		return ""
	case ledger.Failed: // for good, by a definite answer: nothing was paid but what a permission gave up, and it says why
		if j.Error != nil && j.Error.Class != "" && len(h.bill[j.Key.Text]) <= j.Replays {
			return ""
		}
	}
	return fmt.Sprintf("ended as %s (%v), paid %d times", j.State, j.Error, len(h.bill[j.Key.Text]))
}

// 5. Unknown is a state: it is held with the attempt that is open, and with what is known of it.
func (h history) heldWithCause(j ledger.Job) string {
	open := 0
	for _, a := range j.Attempts {
		if a.State == ledger.Sent {
			open++
			if a.ClientRequestID == "" || a.SentAt.IsZero() {
				return fmt.Sprintf("has attempt %d open, and nobody could ask for it", a.N)
			}
		}
	}
	if open != j.OpenCalls || (j.State == ledger.Unknown) != (open > 0) {
		return fmt.Sprintf("is %s with %d open calls and %d open attempts", j.State, j.OpenCalls, open)
	}
	if j.State == ledger.Unknown && !slices.ContainsFunc(j.History, func(e ledger.Event) bool {
		return e.From == ledger.Running && e.To == ledger.Unknown && e.Actor != "" && e.Reason != ""
	}) {
		return "is unknown, and its history does not say since when and why"
	}
	return ""
}

// booked compares the books with the bill.
func (h history) booked(j ledger.Job) string {
	sum := ledger.Nano(0)
	for _, a := range j.Attempts {
		if a.State != ledger.Received {
			continue
		}
		i := slices.IndexFunc(h.bill[j.Key.Text], func(l modelserver.Line) bool { return l.ClientID == a.ClientRequestID })
		if i < 0 {
			return fmt.Sprintf("has an answer to %s, which is not on the bill", a.ClientRequestID)
		}
		if l := h.bill[j.Key.Text][i]; a.Evidence.Cost == nil || int64(*a.Evidence.Cost) != l.Price {
			return fmt.Sprintf("has booked %v for %s, of which the bill says %d", a.Evidence.Cost, l.ClientID, l.Price)
		}
		sum += *a.Evidence.Cost
	}
	if j.Cost == nil && sum != 0 || j.Cost != nil && *j.Cost != sum {
		return fmt.Sprintf("cost %v, its attempts %s", j.Cost, sum)
	}
	return ""
}

// steps: a ticket that is done has one mail and one post, or says that it does not know; nobody is told twice, or of a
// ticket that is not done.
func (h history) steps() (all []string) {
	for _, key := range slices.Sorted(maps.Keys(h.docs)) {
		d := h.docs[key]
		if d.Job != summarize.Name {
			continue
		}
		mail, post := stepKeys(d)
		for step, n := range map[string]int{mail: h.mails[mail], post: h.posts[post]} {
			j, there := h.jobs[step]
			switch {
			case there != (h.jobs[key].State == ledger.Done):
				all = append(all, fmt.Sprintf("%s is %s, its step %s there: %t", key, h.jobs[key].State, step, there))
			case !there && n != 0, there && n > 1, j.State == ledger.Done && n != 1, there && j.State != ledger.Done && (j.State != ledger.Unknown || j.OpenCalls != 1):
				all = append(all, fmt.Sprintf("step %s is %q and was made %d times\n%s", step, j.State, n, story(j)))
			}
		}
	}
	return all
}

// strangers: nothing is there that nobody asked for, and the reports say what was booked.
func (h history) strangers() (all []string) {
	known := map[string]bool{}
	spent := map[string]ledger.Nano{}
	for key, d := range h.docs {
		known[key] = true
		if d.Job == summarize.Name {
			mail, post := stepKeys(d)
			known[mail], known[post] = true, true
		}
		if c := h.jobs[key].Cost; c != nil {
			spent[d.Job] += *c
		}
	}
	for name, keys := range map[string][]string{"the bill": slices.Collect(maps.Keys(h.bill)), "the ledger": slices.Collect(maps.Keys(h.jobs)), "table invoices": slices.Collect(maps.Keys(h.rows)),
		"the mail sink": slices.Collect(maps.Keys(h.mails)), "Slack": slices.Collect(maps.Keys(h.posts))} {
		for _, key := range keys {
			if !known[key] {
				all = append(all, fmt.Sprintf("%s has %q, which nobody asked for", name, key))
			}
		}
	}
	for action, sum := range spent {
		if h.reports[action] != sum {
			all = append(all, fmt.Sprintf("the report says %s USD of %s, its jobs %s", h.reports[action], action, sum))
		}
	}
	return all
}

// resumed is the time from the end of a fault to the next result, for those that one follows.
func (h history) resumed(over time.Time) (time.Duration, bool) {
	best, ok := time.Duration(0), false
	for _, j := range h.jobs {
		if d := j.DoneAt.Sub(over); !j.DoneAt.IsZero() && d >= 0 && (!ok || d < best) {
			best, ok = d, true
		}
	}
	return best, ok
}
