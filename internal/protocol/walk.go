package protocol

import (
	"cmp"
	"slices"

	"github.com/paidonce/paidonce/ledger"
)

// What leads a real ledger along: histories of the model in which no world is made equal to another, each with
// the verbs that its steps are.

// show tells of a step instead of adding it to the graph.
func (x *explorer) show(label string, took bool, m *move) {
	s := step{label: label, from: x.from, to: x.from, refused: !took, nth: x.nth, broken: cmp.Or(m.guarantee, m.rule)}
	if took {
		s.to = m.world
		s.to.clear()
	} else if len(x.heard) == 0 {
		return
	}
	s.deeds = slices.Clone(x.heard)
	x.visit(s)
}

// ending is how a verb ends, and of what row.
type ending struct {
	verb             verb
	rule, got, guard string
	end              attemptState
	by               ledger.Actor
	verdict          ledger.Verdict
	fail             bool // it returned an error
	answer           bool // it found one
	state            ledgerState
	due, cancel      bool // of the row
}

// hear keeps the way to the first step in which a verb ends as none did before: the shortest there is.
func (x *explorer) hear() {
	r := &x.from.row
	for _, d := range x.heard {
		e := ending{d.verb, d.rule, d.got, d.guard, d.end, d.by, d.verdict, d.want != nil, d.verb == looks && d.answer != nobody, r.state, r.due, r.cancel}
		if _, known := x.first[e]; !known {
			x.first[e] = append(x.way(x.now), x.nth)
		}
	}
}

// way is the history that led to a world, as the numbers of its steps.
func (x *explorer) way(n int32) []int16 {
	if n <= 0 {
		return nil
	}
	return append(x.way(x.queue[n].from), x.queue[n].nth)
}

// firsts explores until there are that many worlds, and returns a way to each end of each verb.
func (s *Scenario) firsts(worlds int) map[ending][]int16 {
	x := &explorer{Scenario: s, seen: map[world]int32{}, first: map[ending][]int16{}}
	x.add(s.start(), -1, "")
	for x.now = 0; int(x.now) < len(x.queue) && len(x.queue) < worlds && x.bad == nil; x.now++ {
		x.from, x.nth = x.queue[x.now].world, 0
		x.edges = append(x.edges, nil)
		x.all()
	}
	return x.first
}

// next lists the steps that the world allows.
func (s *Scenario) next(from world) (all []step) {
	x := &explorer{Scenario: s, from: from, visit: func(t step) { all = append(all, t) }}
	x.all()
	if x.bad != nil {
		all = append(all, step{label: "any", from: from, to: from, broken: x.bad.What})
	}
	return all
}
