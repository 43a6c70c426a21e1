package app

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// reportDocument is a report for --json. Amounts are null where nothing of them is known.
type reportDocument struct {
	Since          *string         `json:"since"` // the first day that counts, in UTC; null: of all time
	Until          *string         `json:"until"` // the last one; null: today
	By             ledger.Grouping `json:"grouped_by"`
	Tenant         string          `json:"tenant,omitempty"` // no other counts
	Job            string          `json:"job,omitempty"`    // likewise
	Groups         []costDocument  `json:"groups"`
	Total          costDocument    `json:"total"`
	ForgottenUntil *time.Time      `json:"forgotten_until"` // something dated up to then is past its retention, and missing; null: nothing is
}

type costDocument struct {
	By             string                 `json:"by"`
	Provider       string                 `json:"provider,omitempty"` // of a model
	Jobs           int64                  `json:"jobs"`
	Calls          int64                  `json:"calls"`
	SpentUSD       *string                `json:"spent_usd"`
	UnpricedCalls  int64                  `json:"unpriced_calls"` // answered; not in spent_usd
	FailedCalls    int64                  `json:"failed_calls"`   // without a result, and perhaps billed; not in spent_usd
	Avoided        int64                  `json:"avoided"`
	AvoidedBy      map[ledger.Cause]int64 `json:"avoided_by"`
	SavedUSD       *string                `json:"saved_usd"`
	SavedUnpriced  int64                  `json:"saved_unpriced"` // of avoided; not in saved_usd
	WastedCalls    int64                  `json:"wasted_calls"`
	WastedBy       wasteDocument          `json:"wasted_by"`
	WastedUSD      *string                `json:"wasted_usd"`
	WastedUnpriced int64                  `json:"wasted_unpriced"` // of wasted_calls; not in wasted_usd
	Unknown        int64                  `json:"unknown"`
	UnknownMaxUSD  string                 `json:"unknown_max_usd"` // of those of them that had a bound
	Partial        bool                   `json:"partial"`         // something is past its retention: the numbers are too small
}

type wasteDocument struct {
	Surplus  int64 `json:"surplus"`
	Replayed int64 `json:"replayed"`
}

func newReport(f ledger.CostFilter, c ledger.Costs) reportDocument {
	d := reportDocument{By: f.By, Tenant: f.Tenant, Job: f.Action, Groups: []costDocument{}, Total: newCost(c.Total), ForgottenUntil: instant(c.Forgotten)}
	if !f.Since.IsZero() {
		d.Since = new(f.Since.Format(time.DateOnly))
	}
	if !f.Until.IsZero() {
		d.Until = new(f.Until.AddDate(0, 0, -1).Format(time.DateOnly))
	}
	for _, g := range c.Groups {
		d.Groups = append(d.Groups, newCost(g))
	}
	return d
}

func newCost(c ledger.Cost) costDocument {
	wasted := c.Surplus + c.Replayed
	return costDocument{
		By: c.By, Provider: c.Provider, Jobs: c.Jobs,
		Calls: c.Calls, SpentUSD: sum(c.Spent, c.Priced+c.Unpriced, c.Unpriced), UnpricedCalls: c.Unpriced, FailedCalls: c.Failed,
		Avoided: c.AvoidedCalls(), AvoidedBy: c.Avoided, SavedUSD: sum(c.Saved, c.AvoidedCalls(), c.SavedUnpriced), SavedUnpriced: c.SavedUnpriced,
		WastedCalls: wasted, WastedBy: wasteDocument{c.Surplus, c.Replayed}, WastedUSD: sum(c.Wasted, wasted, c.WastedUnpriced), WastedUnpriced: c.WastedUnpriced,
		Unknown: c.Unknown, UnknownMaxUSD: c.Reserved.String(), Partial: c.Partial,
	}
}

// sum is an amount of n parts, nil where the cost of none of them is known.
func sum(amount ledger.Nano, n, unpriced int64) *string {
	if n > 0 && unpriced == n {
		return nil
	}
	return usd(&amount)
}

func printReport(w io.Writer, d reportDocument) error {
	fmt.Fprintln(w, scope(d))
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "\n%s\tJOBS\tCALLS\tSPENT USD\tAVOIDED\tSAVED USD\tWASTED\tWASTED USD\tUNKNOWN\n", strings.ToUpper(string(d.By)))
	line := func(name string, c costDocument) {
		if c.Partial {
			name += " *"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, grouped(c.Jobs), grouped(c.Calls), atLeast(c.SpentUSD, c.UnpricedCalls),
			grouped(c.Avoided), atLeast(c.SavedUSD, c.SavedUnpriced), grouped(c.WastedCalls), atLeast(c.WastedUSD, c.WastedUnpriced), grouped(c.Unknown))
	}
	for _, g := range d.Groups {
		line(groupName(g), g)
	}
	line("total", d.Total)
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, text := range remarks(d) {
		if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
	}
	return nil
}

// scope says what a report is about.
func scope(d reportDocument) string {
	s := "all days"
	switch {
	case d.Since != nil && d.Until != nil:
		s = *d.Since + " to " + *d.Until
	case d.Since != nil:
		s = *d.Since + " to today"
	case d.Until != nil:
		s = "up to " + *d.Until
	}
	s += ", in UTC"
	if d.Tenant != "" {
		s += ", tenant " + oneLine(d.Tenant)
	}
	if d.Job != "" {
		s += ", job " + oneLine(d.Job)
	}
	return s
}

func groupName(c costDocument) string {
	switch {
	case c.By == "" && c.Provider == "":
		return "(no call)"
	case c.Provider != "":
		return oneLine(c.Provider) + "/" + oneLine(c.By)
	}
	return oneLine(c.By)
}

// atLeast is an amount in a table, of which some parts may not be known.
func atLeast(amount *string, unpriced int64) string {
	if amount != nil && unpriced > 0 {
		return "> " + *amount
	}
	return text(amount)
}

// remarks are what the table does not say.
func remarks(d reportDocument) (lines []string) {
	t := d.Total
	if t.Avoided > 0 {
		var causes []string
		for _, c := range ledger.Causes() {
			causes = append(causes, fmt.Sprintf("%s %s", grouped(t.AvoidedBy[c]), c))
		}
		lines = append(lines, "avoided: "+strings.Join(causes, ", "))
	}
	if t.WastedCalls > 0 {
		lines = append(lines, fmt.Sprintf("wasted: answers that no job needed: %s, calls sent again before their outcome was known: %s",
			grouped(t.WastedBy.Surplus), grouped(t.WastedBy.Replayed)))
	}
	bound := ""
	if t.UnknownMaxUSD != "0" {
		bound = "; those with a bound cost at most " + t.UnknownMaxUSD + " USD"
	}
	for _, r := range []struct {
		n    int64
		text string
	}{
		{t.UnpricedCalls, "answered at a cost that is not known, and in no sum: %s; see worker prices check"},
		{t.FailedCalls, "failed without a result and perhaps billed, in no sum: %s"},
		{t.SavedUnpriced, "avoided at a saving that is not known, and in no sum: %s"},
		{t.Unknown, "calls whose outcome is not known, perhaps billed, in no sum: %s" + bound},
	} {
		if r.n > 0 {
			lines = append(lines, fmt.Sprintf(r.text, grouped(r.n)))
		}
	}
	if t.Partial {
		lines = append(lines, "* "+missing(d))
	}
	return lines
}

// printCSV prints the groups for a spreadsheet. An amount of which nothing is known is empty.
func printCSV(w io.Writer, d reportDocument) error {
	t := csv.NewWriter(w)
	head := []string{string(d.By), "provider", "jobs", "calls", "spent_usd", "unpriced_calls", "failed_calls", "avoided"}
	for _, c := range ledger.Causes() {
		head = append(head, string(c))
	}
	all := [][]string{append(head, "saved_usd", "saved_unpriced", "wasted_calls", "surplus", "replayed", "wasted_usd", "wasted_unpriced",
		"unknown", "unknown_max_usd", "partial")}
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	amount := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	for _, c := range d.Groups {
		line := []string{c.By, c.Provider, n(c.Jobs), n(c.Calls), amount(c.SpentUSD), n(c.UnpricedCalls), n(c.FailedCalls), n(c.Avoided)}
		for _, cause := range ledger.Causes() {
			line = append(line, n(c.AvoidedBy[cause]))
		}
		all = append(all, append(line, amount(c.SavedUSD), n(c.SavedUnpriced), n(c.WastedCalls), n(c.WastedBy.Surplus), n(c.WastedBy.Replayed),
			amount(c.WastedUSD), n(c.WastedUnpriced), n(c.Unknown), c.UnknownMaxUSD, strconv.FormatBool(c.Partial)))
	}
	return t.WriteAll(all)
}
