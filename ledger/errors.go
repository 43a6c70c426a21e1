package ledger

import (
	"errors"
	"fmt"
)

// The errors of every ledger; compare with errors.Is. Anything else that a
// ledger returns is a fault of its store (unreachable, in recovery): nothing is
// known about the call's effect, and every verb may be repeated.
var (
	// ErrLost: the lease is not the job's any more (taken over, lapsed, resolved
	// or past its run deadline). The run may still report what it sees by
	// Settle, but changes nothing else.
	ErrLost = errors.New("PO201 lease is lost")
	// ErrCancelled: a person asked for the job to be cancelled; send nothing more.
	ErrCancelled = errors.New("PO202 job is cancelled")
	// ErrBudget: the call would take the job over its budget; it is held.
	ErrBudget = errors.New("PO203 job is over its budget")
	// ErrDayBudget: the call would take its tenant, or its action of the tenant, over what may be spent in a day.
	ErrDayBudget = errors.New("PO620 the day's budget of the tenant or of the action has no room for the call")
	// ErrCalls: the job has sent as many calls as it may; it is held.
	ErrCalls = errors.New("PO622 job has sent as many calls as it may")
	// ErrLifetime: the time in which the job may send calls is over; it is held.
	ErrLifetime = errors.New("PO624 job is past its lifetime")
	// ErrLate: an answer arrived since this run last looked; look again.
	ErrLate = errors.New("PO204 an answer arrived since the last look")
	// ErrRepeated: the attempt was gated before. Whoever sees this never sends
	// under that id: it cannot know whether the first gate's caller did.
	ErrRepeated = errors.New("PO205 attempt is gated already")
	// ErrOpen: the job has calls that were sent and not settled.
	ErrOpen = errors.New("PO206 job has calls with no recorded outcome")
	// ErrClosed: the worker's epoch is closed; its leases are lost. Join again.
	ErrClosed = errors.New("PO207 worker epoch is closed")
	// ErrNotFound: no such job or attempt.
	ErrNotFound = errors.New("PO208 not found")
	// ErrState: the job or attempt is not in a state that allows this.
	ErrState = errors.New("PO209 not allowed in this state")
	// ErrTooEarly: the lookup was issued inside the attempt's settle window, so
	// its "never happened" proves nothing yet.
	ErrTooEarly = errors.New("PO210 asked inside the settle window")
	// ErrNoInput: the row holds no input, so the ledger cannot carry it.
	ErrNoInput = errors.New("PO211 the job's input is not stored")
	// ErrHook: the user's own work in the result's transaction failed, or was
	// made for another kind of ledger. Nothing of the transaction is kept.
	ErrHook = errors.New("PO212 the handler's own transaction work failed")
	// ErrSchema: the store's schema is newer than this program, or not there.
	ErrSchema = errors.New("PO213 ledger schema does not fit")
	// ErrRequest: the arguments cannot be stored or make no sense; nothing was
	// read or written, and repeating them does not help.
	ErrRequest = errors.New("PO214 request is not valid")
	// ErrTooLarge: a body is larger than MaxBody. It is an ErrRequest too.
	ErrTooLarge error = tooLarge{}
	// ErrDoublePay: calls of the job were closed without a known outcome. They may have been paid, and
	// would be made again.
	ErrDoublePay = errors.New("PO219 calls that may have been paid would be made again")
	// ErrDamaged: a stored body is not as it was written. Nothing of it is returned.
	ErrDamaged = errors.New("PO216 stored body is damaged")
	// ErrKey: a stored body is sealed with a key that this program does not have, or has another secret for.
	// Others may read it.
	ErrKey = errors.New("PO217 body is sealed with another key")
	// ErrFull: the store has no room for what should be written. Nothing of the verb happened; it may be repeated, and is
	// done once there is room.
	ErrFull = errors.New("PO633 the ledger's disk is full")
)

type tooLarge struct{}

func (tooLarge) Error() string { return fmt.Sprintf("PO215 body is larger than %d bytes", MaxBody) }
func (tooLarge) Unwrap() error { return ErrRequest }
