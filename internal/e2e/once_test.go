package e2e

import (
	"fmt"
	"testing"

	"github.com/paidonce/paidonce/ledger"
)

// Three processes, three messages for each key: one line on the bill for each, and
// every other delivery is answered from the ledger.
func TestDuplicatesArePaidOnce(t *testing.T) {
	const keys, times = 300, 3
	w := NewWorld(t, Options{})
	w.Submit(times, Docs(keys)...)
	for i := range 3 {
		w.Start(fmt.Sprint(i))
	}
	w.UntilState(ledger.Done)
	w.UntilQuiet()
	if n := w.Sum("paidonce_calls_avoided_total"); n != keys*(times-1) {
		t.Errorf("%v calls avoided, want %d", n, keys*(times-1))
	}
	for _, p := range w.procs {
		p.Leave()
	}
	w.Check(Expect{})
}
