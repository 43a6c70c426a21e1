package simulate

import (
	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/ledger"
)

// mutant is what is wrong with a world, so that the checker has something to see. The zero value: nothing is.
type mutant struct {
	name   string
	table  func() (undo func())
	store  func(ledger.Store) ledger.Store
	source func(*world, broker.Source) broker.Source
}
