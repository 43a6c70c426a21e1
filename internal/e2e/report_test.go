package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// Report is what `worker report --json` prints.
type Report struct {
	Groups []Group `json:"groups"`
	Total  Group   `json:"total"`
}

// Group is one of a report.
type Group struct {
	By        string                 `json:"by"`
	Provider  string                 `json:"provider"`
	Jobs      int                    `json:"jobs"`
	Calls     int                    `json:"calls"`
	Spent     *ledger.Nano           `json:"spent_usd"`
	Avoided   int                    `json:"avoided"`
	AvoidedBy map[ledger.Cause]int64 `json:"avoided_by"`
	Saved     *ledger.Nano           `json:"saved_usd"`
	Wasted    int                    `json:"wasted_calls"`
	Unknown   int                    `json:"unknown"`
	Partial   bool                   `json:"partial"`
}

// Report runs the command.
func (w *World) Report(by string) (r Report) {
	w.t.Helper()
	out := w.Must("", "report", "--by", by, "--json")
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		w.t.Fatalf("report --by %s: %v\n%s", by, err, out)
	}
	return r
}

// booked is what a group should say: what the model server billed, and the calls on record.
type booked struct {
	jobs, calls, wasted, unknown int
	spent                        ledger.Nano
}

func (b booked) String() string {
	return fmt.Sprintf("%d jobs, %d calls for %s USD, %d wasted, %d unknown", b.jobs, b.calls, b.spent, b.wasted, b.unknown)
}

// checkReports compares the reports with the bill. Of a line whose answer never came nothing is spent, as
// nobody knows of it: it is the line of an unknown call, or a person told of its answer.
func (w *World) checkReports() {
	w.t.Helper()
	bill := map[string]ledger.Nano{} // by the id that the client sent
	for _, l := range w.Models.Bill() {
		bill[l.ClientID] += ledger.Nano(l.Price)
	}
	groups := map[string]map[string]*booked{}
	for _, by := range []string{"action", "tenant", "model", "day"} {
		groups[by] = map[string]*booked{}
	}
	total := &booked{}
	in := func(by, name string) *booked {
		if groups[by][name] == nil {
			groups[by][name] = &booked{}
		}
		return groups[by][name]
	}
	for key := range w.docs {
		j := w.Job(key)
		models := map[string]bool{}
		for _, a := range j.Attempts {
			model := a.Provider + "/" + a.Model
			if a.State != ledger.NotSent {
				models[model] = true
			}
			day := a.SentAt.UTC().Format(time.DateOnly)
			for _, g := range []*booked{total, in("action", j.Action), in("tenant", j.Key.Tenant), in("model", model), in("day", day)} {
				g.add(j, a, bill[a.ClientRequestID])
			}
		}
		if len(models) == 0 {
			models["/"] = true
		}
		of := []*booked{total, in("action", j.Action), in("tenant", j.Key.Tenant), in("day", j.CreatedAt.UTC().Format(time.DateOnly))}
		for m := range models {
			of = append(of, in("model", m))
		}
		for _, g := range of {
			g.jobs++
		}
	}
	for by, want := range groups {
		maps.DeleteFunc(want, func(_ string, b *booked) bool { return *b == booked{} })
		w.checkReport(by, want, total)
	}
}

// add adds an attempt, of which the bill says the price.
func (b *booked) add(j ledger.Job, a ledger.AttemptRow, price ledger.Nano) {
	if a.State != ledger.NotSent {
		b.calls++
	}
	if priced(a) {
		b.spent += price
	}
	if a.Surplus || a.State == ledger.UnknownAttempt && sentAgain(j, a) {
		b.wasted++
	}
	if a.State == ledger.UnknownAttempt || a.State == ledger.Sent && j.State == ledger.Unknown {
		b.unknown++
	}
}

// sentAgain reports whether the call of an attempt was sent once more after it.
func sentAgain(j ledger.Job, a ledger.AttemptRow) bool {
	return slices.ContainsFunc(j.Attempts, func(b ledger.AttemptRow) bool {
		return b.Call == a.Call && b.Generation == a.Generation && b.N > a.N && b.State != ledger.NotSent
	})
}

func (w *World) checkReport(by string, want map[string]*booked, total *booked) {
	w.t.Helper()
	r := w.Report(by)
	got := map[string]booked{}
	avoided, saved := 0, ledger.Nano(0)
	for _, g := range append(slices.Clone(r.Groups), r.Total) {
		if g.Spent == nil || g.Saved == nil || g.Partial {
			w.t.Errorf("report --by %s: group %q spent %v, saved %v, partial %v", by, g.By, g.Spent, g.Saved, g.Partial)
			return
		}
	}
	for _, g := range r.Groups {
		name := g.By
		if by == "model" {
			name = g.Provider + "/" + g.By
		}
		b := booked{g.Jobs, g.Calls, g.Wasted, g.Unknown, *g.Spent}
		if (b != booked{}) {
			got[name] = b
		}
		avoided, saved = avoided+g.Avoided, saved+*g.Saved
	}
	if avoided != r.Total.Avoided || saved != *r.Total.Saved {
		w.t.Errorf("report --by %s: %d avoided and %s USD saved in groups, %d and %s in all", by, avoided, saved, r.Total.Avoided, *r.Total.Saved)
	}
	if t := (booked{r.Total.Jobs, r.Total.Calls, r.Total.Wasted, r.Total.Unknown, *r.Total.Spent}); t != *total {
		w.t.Errorf("report --by %s: in all %s, want %s", by, t, total)
	}
	var have, lines []string
	for name, b := range got {
		have = append(have, name+": "+b.String())
	}
	for name, b := range want {
		lines = append(lines, name+": "+b.String())
	}
	slices.Sort(have)
	slices.Sort(lines)
	if !slices.Equal(have, lines) {
		w.t.Errorf("report --by %s:\n%s\nwant\n%s", by, strings.Join(have, "\n"), strings.Join(lines, "\n"))
	}
}
