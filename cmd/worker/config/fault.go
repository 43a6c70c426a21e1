package config

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Source says where a value was set.
type Source struct {
	Kind string // default, file, environment or flag
	At   string // worker.yaml:3:9, PAIDONCE_LEDGER_URL, --ledger
}

// String is for people: "worker.yaml:3:9", "environment PAIDONCE_LEDGER_URL".
func (s Source) String() string {
	switch s.Kind {
	case "default", "":
		return "default"
	case "file":
		return s.At
	}
	return s.Kind + " " + s.At
}

// Fault is one thing that is wrong with the configuration.
type Fault struct {
	Code   string // PO0xx
	Path   string // consumer.lease
	Value  string // as written, secrets hidden; "": it does not matter
	Source Source
	Text   string // what is wrong and what to do
}

// Error is one line: code, path, value, where it was set, what is wrong.
func (f Fault) Error() string {
	var b strings.Builder
	b.WriteString(f.Code)
	for _, part := range []string{f.Path, f.Value} {
		if part != "" {
			b.WriteString(" " + part)
		}
	}
	if f.Source != (Source{}) {
		fmt.Fprintf(&b, " (%s)", f.Source)
	}
	return printable(b.String() + ": " + f.Text)
}

// printable is a text in one line, without what a terminal would obey: names in a file may hold anything.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// Faults are all that is wrong, in the order of the configuration.
type Faults []Fault

// Error has a line for each.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// nearest is the candidate that s was probably meant to be, or "".
func nearest(s string, candidates []string) string {
	best, least := "", max(1, len(s)/3)+1
	for _, c := range candidates {
		if d := distance(s, c); d < least {
			best, least = c, d
		}
	}
	return best
}

// distance counts the letters to insert, delete, replace or swap with a neighbour.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
