package protocol

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// history is a way through the model, as a rival is led along it.
type history struct {
	*Scenario
	steps []step
}

// upTo lists its steps, up to the one with that number.
func (h history) upTo(n int) string {
	var b strings.Builder
	for i, s := range h.steps[:n+1] {
		fmt.Fprintf(&b, "\n\t%d %s", i+1, s.label)
		for _, d := range s.deeds {
			fmt.Fprintf(&b, " (%s)", d)
		}
	}
	return b.String()
}

// walk takes at most n steps, by chance. Of those that are refused it takes few.
func (s *Scenario) walk(r *rand.Rand, n int) history {
	h := history{Scenario: s}
	at := s.start()
	for len(h.steps) < n {
		all := s.next(at)
		refused := r.IntN(8) == 0
		some := slices.DeleteFunc(slices.Clone(all), func(t step) bool { return t.refused != refused })
		if len(some) == 0 {
			some = all
		}
		if len(some) == 0 {
			break
		}
		t := some[r.IntN(len(some))]
		h.steps = append(h.steps, t)
		if t.broken != "" {
			break
		}
		at = t.to
	}
	return h
}

// along takes the steps with these numbers.
func (s *Scenario) along(way []int16) (h history, err error) {
	h.Scenario = s
	at := s.start()
	for _, n := range way {
		all := s.next(at)
		i := slices.IndexFunc(all, func(t step) bool { return t.nth == n })
		if i < 0 {
			return h, fmt.Errorf("the world allows no step %d after%s", n, h.upTo(len(h.steps)-1))
		}
		h.steps = append(h.steps, all[i])
		at = all[i].to
	}
	return h, nil
}

// longer is the scenario with so much that can go wrong that a walk through it does not end soon.
func (s Scenario) longer() *Scenario {
	s.Faults += 20
	s.Verbs += 20
	s.Submits = min(s.Submits, 1) * 5
	return &s
}
