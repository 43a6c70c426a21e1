package memory_test

import (
	"testing"

	"github.com/paidonce/paidonce/ledger/ledgertest"
)

func TestLedger(t *testing.T) {
	ledgertest.Run(t, func(t *testing.T) *ledgertest.Harness { return ledgertest.Memory(t) })
}
