package jobtest

import (
	"fmt"
	"strings"
	"testing"
)

// finding is a kind of problem, and the runs that have it.
type finding struct {
	problem
	when  string // of the heaviest
	again string // how to make it happen again
	count int
}

// findings are told at the end, each kind once.
type findings []*finding

// add takes up the problems of one run.
func (all *findings) add(faults []Fault, ps []problem) {
	when, again := describe(faults)
	seen := map[string]bool{}
	for _, p := range ps {
		f := all.find(p.kind)
		if f == nil {
			f = &finding{problem: p, when: when, again: again}
			*all = append(*all, f)
		}
		if p.weight > f.weight {
			f.problem, f.when, f.again = p, when, again
		}
		if !seen[p.kind] {
			seen[p.kind] = true
			f.count++
		}
	}
}

func (all findings) find(kind string) *finding {
	for _, f := range all {
		if f.kind == kind {
			return f
		}
	}
	return nil
}

// nothing is what happens to a run without faults.
const nothing = "nothing happens to the run"

// describe says what happened to a run, in words and in Go.
func describe(faults []Fault) (when, again string) {
	var words, exprs []string
	for _, f := range faults {
		words = append(words, f.String())
		if e := f.expr(); e != "" {
			exprs = append(exprs, e)
		}
	}
	if len(words) == 0 {
		return nothing, ""
	}
	return strings.Join(words, ", and "), strings.Join(exprs, ", ")
}

// report is an error of t for each kind.
func (all findings) report(t testing.TB, name string) {
	t.Helper()
	for _, f := range all {
		also := ""
		if f.count > 1 {
			also = fmt.Sprintf(" (and in %d more runs)", f.count-1)
		}
		text := fmt.Sprintf("jobtest: %s: %s\n    when:  %s%s\n    fix:   %s", name, f.what, f.when, also, f.fix)
		if f.again != "" {
			text += "\n    again: jobtest.Run(t, def, in, " + f.again + ")"
		}
		t.Error(text)
	}
}
