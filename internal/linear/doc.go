// Package linear asks of the ledgers what no single test of theirs can: that whatever many workers were told
// at once, over connections that break, could have been told one after another by a ledger of one job. Histories of claims, looks,
// gates, settles, completions, releases, closed epochs and sweeps are recorded on real ledgers and checked by porcupine against the
// rules of ledger/state.go, written down once more as a function of one small row.
//
// A request whose reply was lost may have happened, may happen after its caller was told of the error, or not at all: the checker tries
// all three. Two things a ledger may say at any time are no breach: a claim that meets a locked row is told Busy, and a sweep may pass one over.
package linear
