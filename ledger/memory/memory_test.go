package memory_test

import (
	"os"
	"testing"

	"github.com/paidonce/paidonce/ledger/ledgertest"
)

func TestLedger(t *testing.T) {
	ledgertest.Run(t, func(t *testing.T) *ledgertest.Harness {
		h := ledgertest.Memory(t)
		if os.Getenv(mutantVariable) != "" {
			h.Part = 10 // a hundred processes run the suite, and its cases find them, not its chance
		}
		return h
	})
}
