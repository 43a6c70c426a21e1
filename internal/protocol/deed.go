package protocol

import (
	"errors"

	"github.com/paidonce/paidonce/ledger"
)

// deed is a verb as a step of the model made it, and what the model says of it: enough to ask a real ledger for the same,
// and to compare what it answers.
type deed struct {
	verb   verb
	worker int8
	epoch  uint8 // of the worker
	token  uint8
	copy   int8 // the worker's delivery; nobody: it runs from the stored input
	fence  uint8
	late   uint8
	call   uint8
	n      int8 // attempt; nobody: none
	end    attemptState
	by     ledger.Actor
	proof  bool // it was asked for after the settle window
	fail   bool
	order  order
	rule   string // that is asked for, where the verb does not say

	got     string // the transition that was made; "": none
	guard   string // the first that does not hold, where one transition was asked for
	want    error  // what the verb returns; nil: no error
	verdict ledger.Verdict
	answer  int8 // look: attempt whose answer was found; nobody: none
	open    bool // look: calls are
}

type verb string

const (
	claims    verb = "claim"
	looks     verb = "look"
	sends     verb = "send"
	settles   verb = "settle"
	applies   verb = "apply"
	completes verb = "complete"
	releases  verb = "release"
	carries   verb = "carry"
	replays   verb = "replay"
	submits   verb = "submit"
	sweeps    verb = "sweep"
	purges    verb = "purge"
	adopts    verb = "adopt"
	keeps     verb = "keep"
	givesUp   verb = "give up"
	cancels   verb = "cancel"
	reopens   verb = "reopen"
)

// String names what happened, for the history that a difference is told with.
func (d deed) String() string {
	s := string(d.verb) + " " + d.rule + d.got
	if d.guard != "" {
		s += " refused by " + d.guard
	}
	switch {
	case d.verb == claims && d.got == "":
		s += d.verdict.String()
		if d.want != nil {
			s += d.want.Error()
		}
	case d.verb == settles:
		s += string(" " + attemptStates[d.end])
	case d.verb == looks && d.answer != nobody:
		s += "finds an answer"
	case d.want != nil:
		s += " " + d.want.Error()
	}
	return s
}

// tell notes a verb for whoever leads a ledger along. Nobody does while the model is explored.
func (m *move) tell(d deed) {
	if m.tells != nil {
		*m.tells = append(*m.tells, d)
	}
}

// kind is the ledger's error that err wraps, as far as a verb tells its callers.
func kind(err error) error {
	for _, k := range []error{ledger.ErrLost, ledger.ErrCancelled, ledger.ErrBudget, ledger.ErrDayBudget, ledger.ErrCalls, ledger.ErrLifetime,
		ledger.ErrLate, ledger.ErrRepeated, ledger.ErrOpen, ledger.ErrClosed, ledger.ErrNotFound, ledger.ErrTooEarly, ledger.ErrNoInput,
		ledger.ErrDoublePay, ledger.ErrState} {
		if errors.Is(err, k) {
			return k
		}
	}
	return err
}

// verdict is what a claim that made transition id is told of the row.
func (m *move) verdict(i int, id string) ledger.Verdict {
	r := &m.row
	switch {
	case id == "J1" || id == "J2" || id == "J3" || id == "J5":
		return ledger.Run
	case m.other(&m.workers[i]):
		return ledger.Mismatch
	case r.state == done && r.purged:
		return ledger.Purged
	}
	return [...]ledger.Verdict{ready: ledger.NotDue, running: ledger.Busy, unknown: ledger.HeldUnknown, done: ledger.Saved,
		failed: ledger.HasFailed, cancelled: ledger.IsCancelled}[r.state]
}
