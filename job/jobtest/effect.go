package jobtest

import (
	"fmt"
	"slices"
	"strings"
)

// doubt is an effect that one of several gates was open for.
type doubt struct {
	effect string
	gates  []*gate
}

// behind are the open gates that an effect may have been made behind: those that it is named after, by the step's name and then
// by parts of its key, or else all.
func (w *world) behind(effect string) []*gate {
	var open []*gate
	for _, g := range w.gates {
		if !g.settled && !g.wired {
			open = append(open, g)
		}
	}
	open = closest(open, func(g *gate) int { return named(effect, g.job) })
	return closest(open, func(g *gate) int {
		parts := strings.Split(g.key.Text, ":")
		return named(effect, parts[min(2, len(parts)):]...) // tenant and action are those of many
	})
}

// named is how many letters of the effect's name are of these.
func named(effect string, of ...string) (n int) {
	for _, s := range of {
		if strings.Contains(effect, s) {
			n += len(s)
		}
	}
	return n
}

// closest are those gates that are nearest.
func closest(all []*gate, near func(*gate) int) (best []*gate) {
	most := 0
	for _, g := range all {
		n := near(g)
		if n > most {
			most, best = n, nil
		}
		if n == most {
			best = append(best, g)
		}
	}
	return best
}

// credit puts an effect down to the gate behind which it was made: of several, which make one effect each, to the one that has none
// yet. Where several have none it is not known, until there are as many effects as gates.
func (w *world) credit(effect string, open []*gate) {
	w.doubts = append(w.doubts, doubt{effect, without(open)})
	for known := true; known; {
		known = false
		for _, d := range w.doubts {
			left, of := without(d.gates), 0
			for _, other := range w.doubts {
				if slices.Equal(without(other.gates), left) {
					of++
				}
			}
			if len(left) == 0 || of < len(left) {
				continue
			}
			known = true // and so more may be of what is left
			for _, g := range left {
				g.did = true
			}
		}
	}
}

// without are those gates behind which no effect was made that is known.
func without(of []*gate) (left []*gate) {
	for _, g := range of {
		if !g.did {
			left = append(left, g)
		}
	}
	return left
}

// doubtful reports whether it is not known if an effect was made behind the gate, which has none that is known, and has the report say why.
func (w *world) doubtful(g *gate) bool {
	for _, d := range w.doubts {
		if !slices.Contains(d.gates, g) {
			continue
		}
		var names []string
		for _, g := range d.gates {
			names = append(names, g.job+" "+g.key.Text)
		}
		slices.Sort(names)
		w.problems = append(w.problems, problem{kind: "doubt", weight: len(names),
			what: fmt.Sprintf("it cannot be known which of them made the effect %s, since all were about to: %s", d.effect, strings.Join(names, ", ")),
			fix:  `name an effect after its step, and where steps of one name run beside each other after their keys, as in jobtest.Did("mail about 48213")`})
		return true
	}
	return false
}
