package ledger

import (
	"context"
	"fmt"
)

// Reopener lets people run jobs again that have ended, and those at once that wait.
type Reopener interface {
	// Reopen makes an ended job ready. With a token a new generation begins (J18): its calls are made and
	// paid again, what the earlier ones made is kept, and answers that nobody used become surplus. Without
	// one a failed job goes on where it ended (J18r): captured answers are used, and a call whose
	// outcome was closed as unknown is made again only where DoublePay says so. Either way its runs are
	// counted anew, the ledger carries it, and the leave is on its history.
	//
	// With Waiting a job that is ready is due at once (J18w), whatever it waits for; the rest of it stays.
	//
	// ErrNotFound: no such job. ErrState: it has not ended, or (J18r) not failed, or (J18w) is not ready. ErrNoInput: its input
	// is not stored, or past its retention. ErrDoublePay: see there.
	Reopen(ctx context.Context, r Reopening) (Reopened, error)
}

// Reopening is a person's order.
type Reopening struct {
	Key Key
	// Token makes J18 happen once: chosen by the person, and of no other order for this job. It is
	// remembered as long as the job is. Empty: J18r.
	Token     string
	Waiting   bool   // J18w; then Token is empty
	DoublePay bool   // J18r: calls that may have been paid may be paid again
	Reason    string // must not be empty
	Who       string // must not be empty
}

// MaxToken bounds a reopening's token, in bytes.
const MaxToken = 200

// Check refuses an order that cannot be stored or does not say why and by whom, with ErrRequest.
func (r Reopening) Check() error {
	switch {
	case Text(r.Reason) == "" || Text(r.Who) == "":
		return fmt.Errorf("%w: an order to run a job again has a reason and a name", ErrRequest)
	case r.Waiting && r.Token != "":
		return fmt.Errorf("%w: a new generation of a job that waits", ErrRequest)
	case len(r.Token) > MaxToken || Text(r.Token) != r.Token:
		return fmt.Errorf("%w: the token %q is no text of at most %d bytes", ErrRequest, r.Token, MaxToken)
	}
	return nil
}

// Rule is the transition that is asked for.
func (r Reopening) Rule() Transition {
	switch {
	case r.Token != "":
		return Row("J18")
	case r.Waiting:
		return Row("J18w")
	}
	return Row("J18r")
}

// Told is what the history says beside the transition's name.
func (r Reopening) Told(f Facts) string {
	switch {
	case r.Token != "":
		return fmt.Sprintf(", token %s: %s", r.Token, r.Reason)
	case f.UnknownCalls > 0 && !r.Waiting:
		return fmt.Sprintf(", %d calls may be paid twice: %s", f.UnknownCalls, r.Reason)
	}
	return ": " + r.Reason
}

// Reopened is what came of it.
type Reopened struct {
	State      State // the job's now
	Generation int   // from 1
	Again      bool  // the token was used before, and nothing happened this time
}

// ReopenRefusal is the error for a reopening that the guard forbids; nil for "".
func ReopenRefusal(f Facts, guard string) error {
	switch guard {
	case "state":
		return fmt.Errorf("%w: the job is %s", ErrState, f.State)
	case "no_call_twice":
		return fmt.Errorf("%w: %d of them", ErrDoublePay, f.UnknownCalls)
	}
	return Refusal(guard)
}
