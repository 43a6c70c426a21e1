// Package ledger says what is kept about every job, and who may change it.
//
// The ledger is the authority: brokers redeliver, workers die and wake again,
// clients give up on calls that went through, and only the rows decide what
// happens next. The rules are the table in state.go; a verb is one atomic unit
// that locks the job row, checks a row of the table against it, and writes.
//
// Three rules hold for every implementation.
//
// Money guards read the locked job row alone. A sub-select on another table would
// see an older snapshot. (The owner's worker row may be read stale: a wrong
// takeover costs work, never a second call.)
//
// The store's clock decides, read once per row while the lock is held; times
// that go back to a worker are turned into its own clock on the safe side.
//
// Every verb may be repeated with the same arguments after an error that says
// nothing (a lost reply): it then finds its own effect and reports it.
//
// Losing a lease takes away the right to change state, never the right to report:
// Settle needs no lease.
package ledger

import (
	"context"
	"iter"
	"time"
)

// Ledger is what a run needs. All methods may be called at the same time; none
// holds a connection, a lock or a transaction after it returns.
// Bodies that were handed to one must not be changed afterwards: a verb whose context has ended may still be under way.
type Ledger interface {
	// Claim asks to run a job. It reads the row without locking it, so
	// that a duplicate of a finished job changes no row; then J1-J5 and J19c.
	// Busy is an answer, not an error. Of many callers with one key exactly one
	// is told Run; a caller whose reply was lost repeats the request with the
	// same Token and is told Run again, with the same lease. ErrClosed: the job
	// could run, but not under this worker's epoch, which is closed. Keys are compared byte
	// by byte; ErrRequest refuses those that are not UTF-8 or hold a zero byte.
	//
	// A mismatch writes nothing. Budget, MaxCalls and Lifetime are those of the latest claim that was told
	// Run, the input that of the first; one larger than InlineInput that of the first which
	// could store it, up to MaxBody. An input that is not stored is the message's alone: the job
	// stays with its broker. A claim carried by the ledger makes a job with a
	// stored input the ledger's.
	Claim(ctx context.Context, r Request) (Claimed, error)

	// Look reads what is known of one call of the job: the captured answer if there is
	// one, and the count of late answers that the next Send must name. ErrLost when
	// the fence moved on. An answer that is past its retention is not found, and its job has ended: the gate refuses.
	Look(ctx context.Context, l Lease, c CallRef) (Looked, error)

	// Send is the gate (J7): the last durable write before money is spent. After
	// nil the attempt is on record as sent and the caller may write to the wire,
	// once, within [SendWindow] of having called. ErrLost, ErrCancelled,
	// ErrBudget, ErrCalls, ErrLifetime, ErrDayBudget, ErrLate and ErrRequest mean: nothing is on record; send nothing
	// under this id. ErrRepeated, which comes before all of them, means: it is on record.
	//
	// Of the owner's two deadlines the gate heeds the run's alone: it is on the job
	// row. An epoch closed meanwhile does not stop a call; a takeover does.
	// After any other error the caller must assume the attempt is on record: it
	// sends nothing and settles it as not sent.
	Send(ctx context.Context, l Lease, a Attempt) error

	// Settle records what came back (J8, J9), or more evidence on an attempt that
	// stays open (Evidence.State Sent). It needs no lease, and accepts an answer
	// whatever became of the attempt and the job meanwhile. Settling twice
	// with the same state is nil and changes nothing. A definite state, or Sent,
	// on an attempt that is received or definite already is ErrState and changes nothing.
	// ErrTooEarly: a reconciler's "no" that proves nothing yet; an AskedAt
	// in the ledger's future counts as now. ErrNotFound: no such attempt (a gate that never
	// committed).
	//
	// An attempt closed as unknown takes a definite state too, which frees its reserve and
	// leaves the job as it is. A job's cost is the sum of what is known of its
	// attempts' costs, reported with whatever state; nil until one is known.
	Settle(ctx context.Context, id AttemptID, e Evidence) (Settled, error)

	// Complete commits the result, the user's rows (Result.Hooks), the steps that follow
	// (Result.Steps, J10s), the messages (Result.Messages) and the state done in one transaction (J10). ErrLost, ErrOpen or an error wrapping ErrHook mean
	// that nothing was committed. Implementations retry serialization failures, so
	// hooks may run twice; after a commit whose reply is lost they read the row
	// again, locked, and answer what it says.
	Complete(ctx context.Context, l Lease, r Result) error

	// Apply commits the user's rows for a captured answer, with the mark on its attempt that they are (J10a), while
	// the run goes on. nil: they are there, by this call or by an earlier one, and then work did not run. ErrLost, an error
	// wrapping ErrHook, ErrNotFound (no such attempt) and ErrState (no captured answer) mean that this call committed nothing, and so
	// does ErrLate: an answer of the same call came first, which Look tells. Else as Complete.
	Apply(ctx context.Context, l Lease, attempt ID, work Hook) error

	// Release ends a run without a result. The ledger decides from the locked row:
	// calls open: unknown (J13), whatever the outcome asked for; flagged:
	// cancelled (J19b); else ready or failed (J11, J12). ErrLost: somebody
	// else decided already. Repeated while the job is still ready, failed or cancelled
	// under the same fence it answers what became of it. A panic is counted however
	// the run ends.
	Release(ctx context.Context, l Lease, o Outcome) (Released, error)

	// Carry makes the ledger the job's carrier while the run goes on, so that its
	// delivery can be acknowledged before the broker takes it back. ErrNoInput: the
	// row cannot be run from the ledger.
	Carry(ctx context.Context, l Lease) error

	// Replay closes the open attempts as unknown without waiting for their outcome
	// (J16 for a reconciler, J16o for a run): the one way to pay twice, and on record.
	// ErrLost and ErrCancelled as for Send; for any other guard that does not hold,
	// ErrState with its name.
	Replay(ctx context.Context, l Lease, p ReplayPolicy) error
}

// Workers keeps one row per worker process. A job names its owner's row and
// epoch and holds no lease time of its own, so renewing ten thousand jobs is one
// small update.
type Workers interface {
	// Join makes a row, or opens the next epoch of an existing one.
	Join(ctx context.Context, w Worker) (WorkerID, error)
	// Renew pushes the worker's lease out to ttl from now. ErrClosed: the epoch
	// was closed (the lease had lapsed); every lease under it is lost.
	Renew(ctx context.Context, id WorkerID, ttl time.Duration) (Renewed, error)
	// Flagged names the worker's running jobs that a person flagged (J19f), as a renewal does. It reads,
	// and reads nothing but these, so that a worker can ask often.
	Flagged(ctx context.Context, id WorkerID) ([]Key, error)
	// Leave closes the epoch: what the worker still owned is free at once.
	Leave(ctx context.Context, id WorkerID) error
	// Count adds deliveries that were answered with a saved result, many at a time: nothing is written
	// on the way of a single one. The worker's latest batch is remembered, so one that is
	// repeated before the next counts once; the epoch does not matter. ErrNotFound: no such worker.
	Count(ctx context.Context, id WorkerID, batch ID, all []Avoided) error
}

// Reconciler is what the sweeper and the reconciler need.
type Reconciler interface {
	// Sweep closes the epochs of workers whose lease is over and lapses their jobs
	// with open calls (J4), as well as those past their run deadline; flagged ones
	// with nothing open are cancelled (J19c). At most n jobs at a time.
	Sweep(ctx context.Context, n int) (Swept, error)
	// Due lists up to n jobs that the ledger should run from their stored input:
	// carried by the ledger, and ready and due, or running with a lapsed owner and
	// nothing open; and, whatever their carrier, those that have been so for
	// longer than grace (the broker may have dropped their message): ready since
	// NextAt, running since UpdatedAt. Of these actions, none named: of any. A listed job
	// is not owned: claim it like any other. The list ends early where the inputs on it reach
	// MaxBody together.
	Due(ctx context.Context, n int, grace time.Duration, actions ...string) ([]Stored, error)
	// Adopt takes unknown jobs that are due for a look (J14), until the worker has a.Max
	// under the token, and tells of all these: a caller whose reply was lost, or that
	// could not put a job back, repeats it with the same Token and is told of
	// them again, under the same fences. The fence grows when a job is taken, the state stays.
	// What the worker has under another token stays where it is.
	Adopt(ctx context.Context, a Adoption) ([]Adopted, error)
	// Resolve ends an unknown job as failed (J17, error class "held"), cancels one
	// (J19), or puts an adopted one back with a later time for the next look.
	// ErrNotFound: no such job. ErrLost: it is not unknown, or not under that fence.
	// ErrState: a job that is done or failed cannot be cancelled. Adoptions of a job and their
	// ends in Keep share a line of its history ([Event.Looks]).
	Resolve(ctx context.Context, r Resolution) (Released, error)
}

// Reader is for people, reports and probes. It never locks.
type Reader interface {
	// Job returns one job with its attempts and history, or ErrNotFound.
	Job(ctx context.Context, k Key) (Job, error)
	// Jobs lists jobs, newest first (in the order in which their rows were made), without attempts, history and bodies. It
	// holds a connection while it is iterated.
	Jobs(ctx context.Context, f Filter) iter.Seq2[Job, error]
	// Unknowns counts the unknown jobs of each action.
	Unknowns(ctx context.Context) ([]UnknownCount, error)
	// Costs adds up what was called, spent, avoided and wasted, in one snapshot. Sums are exact. What is
	// past its retention is missing, and the report says so. It reads much: it is no probe.
	Costs(ctx context.Context, f CostFilter) (Costs, error)
	// Budgets lists the budgets of a day (Attempt.Day), by tenant and action.
	Budgets(ctx context.Context, f BudgetFilter) ([]Budget, error)
	// Answer returns the captured answer of an attempt. ErrNotFound: there is none, or it is past
	// its retention.
	Answer(ctx context.Context, id AttemptID) (Response, error)
	// Ping proves that the store answers and that its schema fits (ErrSchema).
	Ping(ctx context.Context) error
}

// Store is a whole ledger, as the adapters provide it.
type Store interface {
	Ledger
	Submitter
	Workers
	Reconciler
	Reopener
	Outbox
	Reader
	Purger
}

// SendWindow bounds the time from before the gate is issued to the first byte on
// the wire, by wall clock and by monotonic clock. Past it nothing is sent.
const SendWindow = 2 * time.Second
