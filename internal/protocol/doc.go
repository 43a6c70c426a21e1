// Package protocol explores the rules of ledger/state.go: every order in which two
// workers, their sweepers and reconcilers, a provider, a broker, producers and a person can
// take their steps, with crashes, freezes, lapses, lost replies and late answers between any two.
//
// The decisions are the product's own: the model asks the guards of ledger.Transitions through
// ledger.PickClaim, ledger.PickRelease, ledger.Pick and Transition.Allows, and moves a row as
// ledger/memory does; a test leads that ledger along histories of the model and compares the two
// after each step. What it knows beside the row is the truth: what reached the provider, what
// it billed, who gave which permission. In each world it reaches it asks whether the guarantee still holds:
//
//   - nothing is paid twice without a permission on record,
//   - no paid answer is lost, and none that is in the ledger is asked for again,
//   - a message is acknowledged only when its outcome is durable,
//   - a generation has one result,
//   - from every world there is a way, without another fault, to an end or to a person,
//
// and then the rules that people rely on: a live owner keeps its run, nothing runs before it is due,
// budgets hold, a cancel holds, no row is as the schema forbids.
//
// The model is small on purpose: one job of one call, at most three attempts, two copies of its
// message, a few faults. Time has no numbers: each limit (a lease, a deadline, the send window, the settle
// window, a route's timeout, hold) is over at any moment after it began, in every order that its
// definition allows. One thing is assumed that nothing can enforce: between the last look at the
// send window and the first byte a process does not sleep for longer than the settle window (README,
// "not guaranteed"). Scenario.SlowSocket drops the assumption, and a test shows what is lost with it.
package protocol
