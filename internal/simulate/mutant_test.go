package simulate

import (
	"flag"
	"strings"
	"testing"
)

var guard = flag.String("guard", "", "the guard to take out of the table of transitions alone, as J7/fence: is it seen?")

// Every mutant is seen: some history of a few hundred shows what is wrong with it, and the same history without it does not.
func TestMutants(t *testing.T) {
	all := mutants()
	if !raced { // it is seen in few histories, and which ones is certain without the race detector alone
		all = append(all, late(without("J7", "fence"), 20))
	}
	if row, name, ok := strings.Cut(*guard, "/"); ok {
		all = []mutant{without(row, name)}
	}
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) {
			seed, o := seen(t, m)
			if sound := play(t, seed, nil, mutant{}); len(sound.violations) > 0 {
				t.Fatalf("seed %d is broken without the mutant: %q", seed, sound.violations)
			}
			t.Logf("seed %d of %d: %q", seed, m.from, o.violations[0])
		})
	}
}

func seen(t *testing.T, m mutant) (uint64, outcome) {
	t.Helper()
	for s := max(m.from, 1); s <= m.from+400; s++ {
		if o := play(t, s, nil, m); len(o.violations) > 0 {
			return s, o
		}
	}
	t.Fatal("no history shows it")
	return 0, outcome{}
}

// Of a history that fails little is left, which fails by the same rule, and tells how.
func TestShrink(t *testing.T) {
	m := mutants()[0]
	seed, o := seen(t, m)
	small, off := shrink(t, seed, m, o)
	if rule := ruleOf(o.violations[0]); !small.breaks(rule) || len(small.parts()) > 2 || len(off) == 0 {
		t.Errorf("of %d parts are left %q, which show %q, and not %s", len(o.parts()), small.parts(), small.violations, rule)
	}
	if text := small.report(seed); !strings.Contains(text, "CHECKER") || !strings.Contains(text, "producer publishes") {
		t.Errorf("the report is\n%s", text)
	}
}
