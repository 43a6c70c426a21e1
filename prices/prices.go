// Package prices says what a call to a model costs: a dated table of list prices, and files of
// the same form for what it does not have.
//
// Prices are decimal US dollars per million tokens, and are kept as whole nano-dollars per
// million. A cost is computed in whole numbers and rounded once, at the end of one attempt, half
// up to the nano-dollar. What nobody can price has no cost; it is never zero.
package prices

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// Usage is what an answer says was used, counted the same for every provider.
type Usage struct {
	In           int64 // tokens read, those of the three caches included
	CacheRead    int64 // of In: read from a cache
	CacheWrite   int64 // of In: written to one for the usual time (Anthropic: 5 minutes)
	CacheWrite1h int64 // of In: written to one for an hour
	Out          int64 // tokens generated, reasoning included
	Reasoning    int64 // of Out
	// Terms are what else the price depends on: the service tier that was served, if it is not the
	// standard one (batch, flex, priority, fast), where it ran (us), and things that no
	// price is known for, such as audio.
	Terms []string
}

// Call is an answered call to a model.
type Call struct {
	Provider string // as the route names it, in any case
	Model    string // as the route names it
	Answered string // as the answer names it; "": it does not
	At       time.Time
	Usage    Usage
	NoUsage  bool // the answer does not say what was used
}

// Price is what a model costs from one day on, in nano-dollars per million tokens.
type Price struct {
	Provider string
	Model    string
	From     time.Time // midnight UTC; it ends where the next one begins
	Above    int64     // for requests that read more tokens than this

	Input, CacheRead, CacheWrite, CacheWrite1h, Output, Reasoning ledger.Nano

	// Factors are what the terms multiply the whole cost by; a term without one has no price.
	Factors map[string]Factor
	Source  string // "built-in", or the file and its line
}

// Factor multiplies a price. It is in billionths: Factor(500_000_000) halves.
type Factor int64

// String prints the factor as a decimal number: "0.5".
func (f Factor) String() string { return ledger.Nano(f).String() }

// Table is a set of prices. It does not change, and many goroutines may use it.
type Table struct {
	models map[model][]Price // each in the order of From, then of Above
}

type model struct{ provider, name string }

// With is the table with the models of another laid over it: a model that the other one has, is
// priced by that alone.
func (t *Table) With(other *Table) *Table {
	both := &Table{models: make(map[model][]Price, len(t.models)+len(other.models))}
	for _, from := range []*Table{t, other} {
		maps.Copy(both.models, from.models)
	}
	return both
}

// Prices lists the table by provider, model, day and threshold.
func (t *Table) Prices() []Price {
	var all []Price
	for _, ps := range t.models {
		all = append(all, ps...)
	}
	slices.SortFunc(all, func(a, b Price) int {
		return cmp.Or(strings.Compare(a.Provider, b.Provider), strings.Compare(a.Model, b.Model), order(a, b))
	})
	return all
}

// order is that of one model's prices.
func order(a, b Price) int { return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Above, b.Above)) }

// Has says why a call to the model has no price at that time, or nil.
func (t *Table) Has(provider, name string, at time.Time) error {
	_, err := t.find(Call{Provider: provider, Model: name, At: at})
	return err
}

// Cost is what a call cost. An error says why nobody knows; it begins with its code.
func (t *Table) Cost(c Call) (ledger.Nano, error) {
	p, err := t.find(c)
	if err != nil {
		return 0, err
	}
	if c.NoUsage {
		return 0, unpriced(c, "its answer does not say what was used")
	}
	u := c.Usage
	uncached, answer := u.In-u.CacheRead-u.CacheWrite-u.CacheWrite1h, u.Out-u.Reasoning
	if min(uncached, u.CacheRead, u.CacheWrite, u.CacheWrite1h, answer, u.Reasoning) < 0 {
		return 0, unpriced(c, "its usage contradicts itself")
	}
	total, by := new(big.Int), big.NewInt(1_000_000)
	for _, part := range []struct {
		tokens int64
		price  ledger.Nano
	}{{uncached, p.Input}, {u.CacheRead, p.CacheRead}, {u.CacheWrite, p.CacheWrite}, {u.CacheWrite1h, p.CacheWrite1h},
		{answer, p.Output}, {u.Reasoning, p.Reasoning}} {
		total.Add(total, new(big.Int).Mul(big.NewInt(part.tokens), big.NewInt(int64(part.price))))
	}
	for _, term := range u.Terms {
		f, ok := p.Factors[term]
		if !ok {
			return 0, unpriced(c, "%s knows no price for %q", p.Source, term)
		}
		total.Mul(total, big.NewInt(int64(f)))
		by.Mul(by, big.NewInt(1_000_000_000))
	}
	// Half up: (2*total + by) / (2*by), of numbers that are not negative.
	total.Add(total.Lsh(total, 1), by)
	total.Quo(total, by.Lsh(by, 1))
	if !total.IsInt64() || total.Int64() > int64(mostCost) { // the counts are nonsense, and sums of such costs would leave an int64
		return 0, unpriced(c, "it is out of range")
	}
	return ledger.Nano(total.Int64()), nil
}

// mostCost is the most that a call may cost.
const mostCost = 1_000_000 * ledger.USD

// find is the price of a call: by the name that its route has, else by the one in the answer.
func (t *Table) find(c Call) (Price, error) {
	for _, name := range []string{c.Model, c.Answered} {
		for _, n := range []string{name, undated(name)} {
			if ps, ok := t.models[model{strings.ToLower(c.Provider), n}]; ok {
				return effective(ps, c)
			}
		}
	}
	return Price{}, unpriced(c, "no price is known for the model")
}

// effective is the one of a model's prices that a call falls under: of the last day that has
// come, that of the highest threshold that was passed.
func effective(ps []Price, c Call) (p Price, err error) {
	found := false
	for _, next := range ps {
		switch {
		case next.From.After(c.At):
		case !found || next.From.After(p.From) || c.Usage.In > next.Above:
			p, found = next, true
		}
	}
	if !found {
		return p, unpriced(c, "its first price (%s) is from %s", ps[0].Source, ps[0].From.Format(time.DateOnly))
	}
	return p, nil
}

func unpriced(c Call, why string, a ...any) error {
	return fmt.Errorf("PO067 the cost of a call to %s %s is not known: "+why, append([]any{strings.ToLower(c.Provider), cmp.Or(c.Model, c.Answered)}, a...)...)
}

// undated is a model's name without the date of its snapshot: gpt-5-mini-2025-08-07 and
// claude-haiku-4-5-20251001 are gpt-5-mini and claude-haiku-4-5. Nothing else is taken off.
func undated(name string) string {
	for _, form := range []string{"-" + time.DateOnly, "-20060102"} {
		if at := len(name) - len(form); at > 0 {
			if _, err := time.Parse(form, name[at:]); err == nil {
				return name[:at]
			}
		}
	}
	return name
}
