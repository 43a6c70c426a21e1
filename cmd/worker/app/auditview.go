package app

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/paidonce/paidonce/cmd/worker/audit"
	"github.com/paidonce/paidonce/ledger"
)

// printAudit prints what an audit found on one screen.
func printAudit(w io.Writer, r *audit.Report, top int) error {
	fmt.Fprintf(w, "%s%s cost %s.\n", calls(r.Calls), span(r), spent(r))
	if r.Repeated == 0 {
		fmt.Fprintln(w, "None of them had been made and paid before.")
	} else {
		fmt.Fprintf(w, "%s of them (%s) had been made and paid before: %s.\n", grouped(r.Repeated), share(r.Repeated, r.Calls), wasted(r))
		if err := printRepeats(w, r, top); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	for _, line := range asides(r) {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

func calls(n int64) string {
	if n == 1 {
		return "1 call"
	}
	return grouped(n) + " calls"
}

// printRepeats prints the tables: when, of what, the worst.
func printRepeats(w io.Writer, r *audit.Report, top int) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "\nREPEATED\tTIMES\tWASTED USD\tWHAT IT LOOKS LIKE")
	for _, p := range r.Patterns {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", when(p), grouped(p.Repeated), amount(p.Wasted), p.Text)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(t, "\nJOB\tCALLS\tREPEATS\tWASTED USD")
	for _, j := range r.Jobs[:min(len(r.Jobs), top)] {
		fmt.Fprintf(t, "%s\t%s\t%s (%s)\t%s\n", oneLine(cmp.Or(j.Job, "(not said)")), grouped(j.Calls), grouped(j.Repeated), share(j.Repeated, j.Calls), amount(j.Wasted))
	}
	if more := len(r.Jobs) - top; more > 0 {
		fmt.Fprintf(t, "and %d more\n", more)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	worst, by := r.TopByCost, "money"
	if r.WastedUSD == nil {
		worst, by = r.Top, "count"
	}
	fmt.Fprintf(t, "\nWORST BY %s\tPAID\tWASTED USD\tFIRST\tLAST\n", strings.ToUpper(by))
	for _, o := range worst {
		fmt.Fprintf(t, "%s %s\t%s times\t%s\t%s\t%s\n", oneLine(cmp.Or(o.Job, "(not said)")), oneLine(cmp.Or(o.Entity, o.Hash[:12])), grouped(o.Count), amount(o.Wasted), minute(o.FirstAt), minute(o.LastAt))
	}
	return t.Flush()
}

// asides are what is not in the tables: what was not counted, and how calls were told apart.
func asides(r *audit.Report) (lines []string) {
	for _, n := range []struct {
		n    int64
		text string
	}{
		{r.Failed, "refused or failed, not paid"},
		{r.Unknown, "ended without an answer (a timeout, 502, 504), not counted as paid, though the provider may have charged for them"},
		{r.Cached, "answered out of a cache, not paid"},
		{r.Unidentified, "paid calls that say neither entity nor input, compared with none; see --entity and --input"},
		{r.Untimed, "calls that say no time that can be read; see --time"},
		{r.Unpriced, "paid calls that say no cost (it is not computed from tokens); see --cost"},
		{r.LoggedAgain, "lines about a call that another line is about, by the provider's id"},
		{r.OtherLines, "lines about something else than a call"},
		{r.BadLines, "lines that cannot be read"},
	} {
		if n.n > 0 {
			lines = append(lines, n.text+": "+grouped(n.n))
		}
	}
	for _, f := range r.Faults {
		lines = append(lines, fmt.Sprintf("  %s:%d: %s", oneLine(f.File), f.Line, oneLine(f.Text)))
	}
	return append(lines, "what makes a call the same: "+identity(r))
}

// identity names the fields that tell calls apart.
func identity(r *audit.Report) string {
	var parts []string
	for _, part := range []string{"job", "entity", "prompt", "input"} {
		var fields []string
		for _, f := range r.Fields {
			if f.Part == part {
				fields = append(fields, f.Path)
			}
		}
		parts = append(parts, part+" ("+cmp.Or(strings.Join(fields, ", "), "no such field")+")")
	}
	return strings.Join(parts, ", ")
}

func when(p audit.Pattern) string {
	period := audit.Period(time.Duration(p.Seconds) * time.Second)
	switch p.Kind {
	case audit.AtOnce:
		return "within 1 s"
	case audit.Soon:
		return "within 10 s"
	case audit.Every:
		return "every " + period
	case audit.After:
		return "after " + period
	case audit.Untimed:
		return "at an unknown time"
	}
	return "later"
}

func span(r *audit.Report) string {
	if r.FirstAt == nil {
		return ""
	}
	return fmt.Sprintf(" from %s to %s", minute(r.FirstAt), minute(r.LastAt))
}

func minute(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Format("2006-01-02 15:04")
}

func spent(r *audit.Report) string {
	switch {
	case r.SpentUSD == nil:
		return "an unknown amount"
	case r.Unpriced > 0:
		return "at least " + dollars(*r.SpentUSD) + " USD"
	}
	return dollars(*r.SpentUSD) + " USD"
}

// wasted says what the repeats cost, and how much of all that is.
func wasted(r *audit.Report) string {
	switch {
	case r.WastedUSD == nil:
		return fmt.Sprintf("%s tokens wasted, at a cost that is not known", grouped(r.WastedTokens))
	case r.WastedUnpriced > 0 || r.Unpriced > 0:
		return fmt.Sprintf("at least %s USD wasted", dollars(*r.WastedUSD))
	}
	return fmt.Sprintf("%s USD wasted, %s of the bill", dollars(*r.WastedUSD), share(int64(*r.WastedUSD), int64(*r.SpentUSD)))
}

// amount is a waste in a table.
func amount(w audit.Wasted) string {
	switch {
	case w.WastedUSD == nil:
		return "unknown"
	case w.WastedUnpriced > 0:
		return "> " + dollars(*w.WastedUSD)
	}
	return dollars(*w.WastedUSD)
}

// dollars rounds an amount for people: cents from one dollar on, below it four decimals, below those all.
func dollars(n ledger.Nano) string {
	unit, places := ledger.USD/100, 2
	switch {
	case n == 0:
		return "0"
	case n < ledger.USD/1000:
		return n.String()
	case n < ledger.USD:
		unit, places = ledger.USD/10_000, 4
	}
	rounded := (n + unit/2) / unit
	per := ledger.USD / unit
	return fmt.Sprintf("%s.%0*d", grouped(int64(rounded/per)), places, int64(rounded%per))
}

// share is a part of a whole in per cent, with one decimal.
func share(part, whole int64) string {
	if whole == 0 {
		return "0 %"
	}
	for part > 1<<50 { // nano-dollars of millions of dollars
		part, whole = part/2, whole/2
	}
	tenths := (part*1000 + whole/2) / whole
	return fmt.Sprintf("%d.%d %%", tenths/10, tenths%10)
}

// grouped prints a number in groups of three digits.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	var groups []string
	for len(s) > 3 {
		groups = append(groups, s[len(s)-3:])
		s = s[:len(s)-3]
	}
	groups = append(groups, s)
	slices.Reverse(groups)
	return strings.Join(groups, ",")
}
