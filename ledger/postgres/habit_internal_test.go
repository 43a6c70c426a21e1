package postgres

import (
	"testing"

	"github.com/paidonce/paidonce/ledger"
)

// TestLikelyNew: an insert is tried first while most keys are new, and never for what is known to have a row.
func TestLikelyNew(t *testing.T) {
	var h habit
	fresh := &ledger.Request{Carrier: ledger.CarriedByBroker, Receives: 1}
	see := func(n int, isNew bool) {
		for range n {
			h.saw(isNew)
		}
	}
	for _, c := range []struct {
		name  string
		n     int
		isNew bool
		want  bool
	}{
		{"nothing seen", 0, true, false},
		{"a few new", habitSpan / 2, true, false},
		{"many new", 1000, true, true},
		{"a few duplicates among them", habitSpan / 4, false, true},
		{"a storm", habitSpan, false, false},
		{"a long storm", 1000, false, false},
		{"new ones again", 2 * habitSpan, true, true},
	} {
		if see(c.n, c.isNew); h.likelyNew(fresh) != c.want {
			t.Errorf("%s: likely new is %v", c.name, !c.want)
		}
	}
	for _, r := range []*ledger.Request{{Carrier: ledger.CarriedByBroker, Receives: 2}, {Carrier: ledger.CarriedByLedger}} {
		if h.likelyNew(r) {
			t.Errorf("receives %d, carried by the %s: taken for new", r.Receives, r.Carrier)
		}
	}
}
