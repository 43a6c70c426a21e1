package job

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// The sticky errors. A handler that swallows one does not get its result committed:
// the run remembers it. Compare with errors.Is.
var (
	// ErrHeld: a call of this job was sent and its outcome is not known. The job is
	// kept as unknown until evidence, its policy or a person decides.
	ErrHeld = errors.New("PO310 a call's outcome is unknown; the job is held")
	// ErrLost: the run lost its lease; somebody else decides about the job now.
	ErrLost = errors.New("PO311 the run lost its lease")
	// ErrBudget: the next call would take the job over its budget.
	ErrBudget = errors.New("PO312 the job is over its budget")
	// ErrDayBudget: the next call would take the tenant, or the job's action of that tenant, over what may be spent in
	// a day. The job waits; nothing was sent.
	ErrDayBudget = errors.New("PO621 the day's budget is used up")
	// ErrCalls: the job has sent as many calls as Limits.Calls allows.
	ErrCalls = errors.New("PO623 the job has sent as many calls as it may")
	// ErrLifetime: the time is over in which Limits.Lifetime lets the job send calls.
	ErrLifetime = errors.New("PO625 the job is past its lifetime")
	// ErrMismatch: the handler asks for a call in a way that its earlier run did not.
	ErrMismatch = errors.New("PO313 the call does not match its record")
	// ErrStopping: the worker is draining and the call would not end in time. The
	// job is given back and the run does not count.
	ErrStopping = errors.New("PO314 the worker is stopping")
	// ErrResting: all routes of a call rest, since their providers said that they are overloaded or that a quota is
	// used up. Nothing was sent, and the run does not count. It is not sticky.
	ErrResting = errors.New("PO346 every route rests; nothing was sent")
	// ErrCancelled: a person cancelled the job.
	ErrCancelled = errors.New("PO315 the job was cancelled")
)

// ErrTooLarge: a call was answered with more than a ledger keeps. Its beginning is kept, so the call is
// never made again: whoever asks for its answer is given this error. It is permanent, not sticky: a handler
// may do without the answer.
var ErrTooLarge = fmt.Errorf("PO366 the answer is larger than %d bytes; its beginning is kept", maxKept)

// Class says what an error of a handler means for its job.
type Class string

// The classes of a handler's errors.
const (
	Permanent Class = "permanent" // the job fails; only a person opens it again
	Retryable Class = "retry"     // another run may go well
	Unknown   Class = "unknown"   // something may have happened that is not recorded
	Waiting   Class = "waiting"   // what the job needs is under way elsewhere; another run will see
)

// Error is an error with a class. Make one with Fail, Retry, RetryIn, Unsure or Later.
type Error struct {
	Class Class
	In    time.Duration // Retryable, Waiting: wait at least this long; 0: by the backoff
	Err   error
}

// Error is the text of the wrapped error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *Error) Unwrap() error { return e.Err }

// Fail says that no further run can help. The job fails, and its error is the
// answer to every later delivery.
func Fail(err error) error { return classed(Permanent, 0, err) }

// Retry says that another run may go well. It is what an error without a class
// means too, since paid calls are not made again.
func Retry(err error) error { return classed(Retryable, 0, err) }

// RetryIn is Retry, not sooner than after d.
func RetryIn(d time.Duration, err error) error { return classed(Retryable, d, err) }

// Unsure says that what was sent under Attempt.Sent may have happened. It is also
// what an error without a class means there.
func Unsure(err error) error { return classed(Unknown, 0, err) }

// Later puts the job aside until d is over, because what it needs takes its time elsewhere: a batch, a person. It is no
// failure: the run does not count, holds no slot meanwhile, and the ledger brings the job back, so its message
// is acknowledged. The next run starts anew, with the answers that were paid for. Nothing bounds how often a handler may
// say so; how long it waits in all is the handler's to decide. It waits no less than the consumer's first backoff.
func Later(d time.Duration, why error) error { return classed(Waiting, d, why) }

// Failf is Fail with a formatted text.
func Failf(format string, a ...any) error { return Fail(fmt.Errorf(format, a...)) }

func classed(c Class, in time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Class: c, In: in, Err: err}
}

// ClassOf is the class of err: that of the outermost Error in its tree,
// Retryable when there is none.
func ClassOf(err error) (Class, time.Duration) {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class, e.In
	}
	return Retryable, 0
}

// PanicError is a panic of user code, caught.
type PanicError struct {
	Value any
	Stack []byte
}

// Panicked is the PanicError of a panic that was recovered on this goroutine just now. What was raised again, since it happened on
// another goroutine, may say by a method Panicked what it was and where: a ledger that makes its statements elsewhere does.
func Panicked(v any) *PanicError {
	p := &PanicError{v, debug.Stack()}
	if far, ok := v.(interface{ Panicked() (any, []byte) }); ok {
		value, stack := far.Panicked()
		p.Value, p.Stack = value, append(append(p.Stack, elsewhere...), stack...)
	}
	return p
}

// elsewhere is between the stack of who was told of a panic and that of who made it.
const elsewhere = "\npanicked elsewhere: "

// Error names the panic's value; the stack is logged apart.
func (e *PanicError) Error() string { return fmt.Sprintf("PO316 the handler panicked: %v", e.Value) }
