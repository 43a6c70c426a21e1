package consumer

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// Trace is told what a consumer does. Every function may be nil, is called from many
// goroutines at once, and must not block. A panic of one is logged, the first time, and goes
// no further. Names of jobs come from the registry
// ("unknown" stands for a message that names none), so they are a bounded set.
// Package consumer/prom turns a Trace into metrics.
type Trace struct {
	// Delivered: a delivery was dealt with. outcome is acked, nacked, dead_lettered,
	// handed_off, lost (the broker had taken it back, or could not be told in time), or unroutable (there is no
	// dead-letter queue for it, and it comes back).
	Delivered func(job, outcome string)
	// Replied: an answer was sent to who asked for it. outcome is sent, unsent (the broker did not take it; the
	// delivery is given back, and where the ledger carries the job there is none) or unroutable (nobody takes it: dropped).
	Replied func(job, outcome string)
	// Claimed: the ledger answered a claim.
	Claimed func(job string, v ledger.Verdict)
	// Avoided: a delivery got the saved result instead of a run. cause is
	// redelivered, duplicate_message or ack_lost. cost is what the saved result had
	// cost, nil if unknown.
	Avoided func(job, cause string, cost *ledger.Nano)
	// Called: an attempt ended, or a saved answer was played back.
	Called func(job string, s job.Seen)
	// Found: a reconciler found the answer of an attempt that had ended without one, or what one that failed
	// had cost.
	Found func(job string, s job.Seen)
	// Wasted: a job was done without this answer, which had been paid for. An answer that came after
	// that is told by Called or Found alone, as surplus.
	Wasted func(job string, cost ledger.Nano)
	// OverDay: a run ended because a budget of the day had no room for its next call.
	OverDay func(job string)
	// Ended: a run ended. state is the job's afterwards; waited is from the delivery to
	// the start of the handler.
	Ended func(job string, state ledger.State, waited, took time.Duration)
	// Extended: a delivery's visibility was extended; result is ok, lost, limit or error.
	Extended func(result string)
	// Renewed: the worker's lease was renewed with margin left of the old one.
	Renewed func(margin time.Duration)
	// Reconciled: an open attempt was looked at; finding is that of job.Finding, or
	// error, too_early, or the policy that was applied (replay, fail, hold).
	Reconciled func(job, provider, finding string)
	// Ledger: a verb of the ledger took this long.
	Ledger func(op string, took time.Duration, err error)
	// Slots: running handlers, of all.
	Slots func(busy, all int)
	// Draining: the drain began.
	Draining func()
}

// tracer tells a Trace. Its functions are the user's, and many are told from loops that
// must go on.
type tracer struct {
	Trace
	log  *slog.Logger
	said sync.Map // the functions whose panic was logged
}

// guard is deferred around the one of that name.
func (t *tracer) guard(function string) {
	v := recover()
	if v == nil {
		return
	}
	if _, again := t.said.LoadOrStore(function, true); !again {
		t.log.Error("trace panicked; said once", "function", function, "panic", v, "stack", string(debug.Stack()))
	}
}

func (t *tracer) delivered(job, outcome string) {
	if t.Delivered != nil {
		defer t.guard("Delivered")
		t.Delivered(job, outcome)
	}
}

func (t *tracer) replied(job, outcome string) {
	if t.Replied != nil {
		defer t.guard("Replied")
		t.Replied(job, outcome)
	}
}

func (t *tracer) claimed(job string, v ledger.Verdict) {
	if t.Claimed != nil {
		defer t.guard("Claimed")
		t.Claimed(job, v)
	}
}

func (t *tracer) avoided(job, cause string, cost *ledger.Nano) {
	if t.Avoided != nil {
		defer t.guard("Avoided")
		t.Avoided(job, cause, cost)
	}
}

func (t *tracer) called(job string, s job.Seen) {
	if t.Called != nil {
		defer t.guard("Called")
		t.Called(job, s)
	}
}

func (t *tracer) found(job string, s job.Seen) {
	if t.Found != nil {
		defer t.guard("Found")
		t.Found(job, s)
	}
}

func (t *tracer) wasted(job string, cost ledger.Nano) {
	if t.Wasted != nil {
		defer t.guard("Wasted")
		t.Wasted(job, cost)
	}
}

func (t *tracer) overDay(job string) {
	if t.OverDay != nil {
		defer t.guard("OverDay")
		t.OverDay(job)
	}
}

func (t *tracer) ended(job string, state ledger.State, waited, took time.Duration) {
	if t.Ended != nil {
		defer t.guard("Ended")
		t.Ended(job, state, waited, took)
	}
}

func (t *tracer) extended(result string) {
	if t.Extended != nil {
		defer t.guard("Extended")
		t.Extended(result)
	}
}

func (t *tracer) renewed(margin time.Duration) {
	if t.Renewed != nil {
		defer t.guard("Renewed")
		t.Renewed(margin)
	}
}

func (t *tracer) reconciled(job, provider, finding string) {
	if t.Reconciled != nil {
		defer t.guard("Reconciled")
		t.Reconciled(job, provider, finding)
	}
}

func (t *tracer) slots(busy, all int) {
	if t.Slots != nil {
		defer t.guard("Slots")
		t.Slots(busy, all)
	}
}

func (t *tracer) draining() {
	if t.Draining != nil {
		defer t.guard("Draining")
		t.Draining()
	}
}

func (t *tracer) ledger(op string, took time.Duration, err error) {
	if t.Ledger != nil {
		defer t.guard("Ledger")
		t.Ledger(op, took, err)
	}
}

// timed is a store that tells the trace how long the verbs of a run take. It is used by pointer: the stack of a call
// that waits holds the large arguments of a verb once less.
type timed struct {
	ledger.Store
	trace *tracer
}

func (s *timed) took(op string, since time.Time, err *error) {
	s.trace.ledger(op, time.Since(since), *err)
}

// Claim is timed.
func (s *timed) Claim(ctx context.Context, r ledger.Request) (c ledger.Claimed, err error) {
	defer s.took("claim", time.Now(), &err)
	return s.Store.Claim(ctx, r)
}

// Look is timed.
func (s *timed) Look(ctx context.Context, l ledger.Lease, c ledger.CallRef) (k ledger.Looked, err error) {
	defer s.took("look", time.Now(), &err)
	return s.Store.Look(ctx, l, c)
}

// Send is timed.
func (s *timed) Send(ctx context.Context, l ledger.Lease, a ledger.Attempt) (err error) {
	defer s.took("send", time.Now(), &err)
	return s.Store.Send(ctx, l, a)
}

// Settle is timed.
func (s *timed) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (d ledger.Settled, err error) {
	defer s.took("settle", time.Now(), &err)
	return s.Store.Settle(ctx, id, e)
}

// Complete is timed.
func (s *timed) Complete(ctx context.Context, l ledger.Lease, r ledger.Result) (err error) {
	defer s.took("complete", time.Now(), &err)
	return s.Store.Complete(ctx, l, r)
}

// Apply is timed.
func (s *timed) Apply(ctx context.Context, l ledger.Lease, attempt ledger.ID, work ledger.Hook) (err error) {
	defer s.took("apply", time.Now(), &err)
	return s.Store.Apply(ctx, l, attempt, work)
}

// Release is timed.
func (s *timed) Release(ctx context.Context, l ledger.Lease, o ledger.Outcome) (r ledger.Released, err error) {
	defer s.took("release", time.Now(), &err)
	return s.Store.Release(ctx, l, o)
}

// Renew is timed.
func (s *timed) Renew(ctx context.Context, id ledger.WorkerID, ttl time.Duration) (r ledger.Renewed, err error) {
	defer s.took("renew", time.Now(), &err)
	return s.Store.Renew(ctx, id, ttl)
}
