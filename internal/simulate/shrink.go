package simulate

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// mostPlays bounds how often a failing seed is played to find what it takes.
const mostPlays = 300

// shrink leaves out of a failing history what it fails without: messages, events, faults, one by one. It returns the history that is
// left, and what was left out.
func shrink(t *testing.T, seed uint64, m mutant, o outcome) (outcome, map[string]bool) {
	t.Helper()
	off, rule, plays := map[string]bool{}, ruleOf(o.violations[0]), 0
	for size := len(o.parts()); size >= 1; size /= 2 {
		for at := 0; at < len(o.parts()) && plays < mostPlays; {
			parts := o.parts()
			try := maps.Clone(off)
			for _, p := range parts[at:min(at+size, len(parts))] {
				try[p] = true
			}
			plays++
			if got := play(t, seed, try, m); got.breaks(rule) {
				o, off = got, try
			} else {
				at += size
			}
		}
	}
	return o, off
}

func ruleOf(violation string) string {
	rule, _, _ := strings.Cut(violation, ":")
	return rule
}

func (o outcome) breaks(rule string) bool {
	for _, v := range o.violations {
		if ruleOf(v) == rule {
			return true
		}
	}
	return false
}

// parts are the ids of what a history is made of.
func (o outcome) parts() (ids []string) {
	for _, s := range o.plan.sent {
		ids = append(ids, s.id)
	}
	for _, e := range o.plan.events {
		ids = append(ids, e.id)
	}
	return append(ids, o.misfortunes...)
}

// report shows a history.
func (o outcome) report(seed uint64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, with %d messages, %d events and the faults %q:\n", seed, len(o.plan.sent), len(o.plan.events), o.misfortunes)
	for _, l := range o.lines {
		b.WriteString("\t" + l + "\n")
	}
	return b.String()
}
