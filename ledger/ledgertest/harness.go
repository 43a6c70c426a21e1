// Package ledgertest holds the suite that every ledger passes.
//
// A ledger's test describes it in a [Harness] and calls [Run]. The suite reads
// rows through ledger.Reader alone, and makes time pass through the harness, so
// nothing sleeps against a real store.
package ledgertest

import (
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// Harness is one fresh, empty ledger and the means to make time pass in it. Every
// case gets its own.
//
// The functions end the test (t.Fatal) when they cannot do their work, an unknown
// job or worker included. They may be called while verbs run. Whoever makes the
// harness closes what it opened (t.Cleanup).
type Harness struct {
	// Store is the ledger under test: no jobs, no workers.
	Store ledger.Store

	// Seeds is how many seeds the random operations play, each some sixty of them.
	// 0: 600. A store that waits for a disk wants fewer.
	Seeds int

	// Part is how much of its rounds a race runs: one in so many of them. 0: all. A store that waits for a disk
	// wants fewer.
	Part int

	// LapseWorker ends the worker's lease now. Its epoch stays open until a sweep
	// closes it.
	LapseWorker func(id ledger.WorkerID)

	// LapseRun ends the run deadline of a running job now.
	LapseRun func(k ledger.Key)

	// MakeDue sets the job's next_at to now: it is due from this moment on, not
	// since earlier.
	MakeDue func(k ledger.Key)

	// AgeUnknown lets an unknown job have been unknown for d longer. Nothing else
	// moves.
	AgeUnknown func(k ledger.Key, d time.Duration)

	// AgeAttempts moves the time of sending of all the job's attempts back by d, and
	// with it whatever is kept of their routes' timeouts (the time after which the
	// last open one cannot land any more).
	AgeAttempts func(k ledger.Key, d time.Duration)

	// AgeRow lets the job have been as it is for d longer: the times at which it
	// was created, began its generation, was last changed, due and done move back by d, and by whole days what the store
	// derives from the first. The run deadline, the time since it is unknown, the history and
	// the times of the attempts stay.
	AgeRow func(k ledger.Key, d time.Duration)

	// AgeBudgets moves all budgets of a day back by whole days, and with them the day on which their
	// attempts are booked.
	AgeBudgets func(days int)
	// AgeMessages lets all messages of the outbox have been there for d longer.
	AgeMessages func(d time.Duration)

	// Hook makes work of the user that writes mark in the result's transaction, to
	// a place of the harness's own (a table, for a database).
	Hook func(mark string) ledger.Hook

	// FailingHook makes work of the user that fails with err, after it wrote a mark
	// of its own ("failing") in the transaction.
	FailingHook func(err error) ledger.Hook

	// Marks lists the marks that are committed, in any order, repeats included.
	Marks func() []string

	// Room is what the store adds to a body at most: the largest body is smaller by it. 0: nothing.
	Room int

	// Chunks are the rows of large bodies. nil: the ledger keeps bodies whole.
	Chunks *Chunks
}

// Run puts a ledger through the suite. It calls newHarness once per case, for an
// empty ledger each time. A case that fails says what is broken.
func Run(t *testing.T, newHarness func(t *testing.T) *Harness) {
	for _, group := range groups {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				t.Cleanup(func() {
					if t.Failed() {
						t.Logf("broken: %s", c.broken)
					}
				})
				e := &env{T: t, Harness: newHarness(t)}
				e.worker = e.join("w1")
				c.run(e)
			})
		}
	}
}

// groups are all the cases.
var groups = [][]testCase{claimCases, keyCases, sendCases, settleCases, evidenceCases, finishCases, applyCases, stepCases, outboxCases, releaseCases, workerCases, unknownCases, reopenCases, readCases, raceCases, purgeCases, bodyCases, submitCases, costCases, countCases, budgetCases, limitCases, randomCases}

// testCase is one property of a ledger. broken says, for whoever reads the
// failure, what would go wrong in production.
type testCase struct {
	name   string
	broken string
	run    func(*env)
}
