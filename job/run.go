package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// Run is one execution of a handler under one lease. It is safe for use by many
// goroutines of the handler.
type Run struct {
	cfg RunConfig

	// calls and declared, the steps, are set by Handler.Run before user code sees the run.
	calls    map[string]CallInfo
	declared map[string]bool

	mu      sync.Mutex
	ended   bool // the result was taken: nothing can be added to it
	used    []ledger.ID
	follows *follows // nil: nothing was asked for
	unsent  []ledger.AttemptID
	sticky  error
	flights []*flight     // one for each call; few, so that a map would be most of what a waiting run takes
	open    []openAttempt // without a definite end
	begun   int           // attempts
	sent    int           // of these, those that passed the gate
	fell    *[]byte       // the stack of the last panic aside; nil: there was none
}

// follows is what a result is to bring along.
type follows struct {
	hooks    []ledger.Hook
	steps    []ledger.StepAsk
	messages []ledger.MessageAsk
}

// openAttempt may be on record as open, under its call's policy.
type openAttempt struct {
	id     ledger.ID
	policy Policy
}

// RunConfig is what a run is made of. The consumer fills it in; handlers never see it. One is kept for each call that waits
// for its model, so what all runs of a worker have in common is its Worker's.
type RunConfig struct {
	*Worker                // required, made by NewWorker
	Lease   *ledger.Lease  // required, and not to be changed
	Number  int            // of this run, from 1
	Origin  *ledger.Origin // of the message, and not to be changed; nil: nothing is known
	Action  string         // the job's name
	// Day is what its tenant and action may spend in a day.
	Day ledger.DayLimits
	// Ended says why no new call may be sent any more: the lease is lost, the run is
	// past its deadline, a person cancelled. nil, or nil returned: calls may be sent.
	Ended func() error
	// Log is the run's own logger. nil: discarded.
	Log *slog.Logger
}

// Seen is one attempt, for metrics and logs.
type Seen struct {
	Call, Route, Provider, Model string

	State    ledger.AttemptState // Sent: unknown
	Class    string
	Took     time.Duration // from the send to the end
	Usage    ledger.Usage
	Cost     *ledger.Nano // booked; nil: unknown
	Replayed bool         // a saved answer was used; nothing was sent
	Surplus  bool         // the answer came too late to be needed, and its cost is wasted
}

// Computed is the source of a cost that was computed from usage and a price.
const Computed = "computed"

// NewRun makes a run.
func NewRun(cfg RunConfig) *Run {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Ended == nil {
		cfg.Ended = func() error { return nil }
	}
	return &Run{cfg: cfg}
}

// Key is the job's key.
func (r *Run) Key() ledger.Key { return r.cfg.Lease.Key }

// Number counts the runs of the job, from 1.
func (r *Run) Number() int { return r.cfg.Number }

// Origin is what is known of the message beside its content: when it was sent, its group, its
// trace. A run from the ledger has that of the message that asked for the job first.
// It may differ between runs, so nothing that is paid for may depend on it.
func (r *Run) Origin() ledger.Origin {
	if r.cfg.Origin == nil {
		return ledger.Origin{}
	}
	return *r.cfg.Origin
}

// Log is a logger that names the job and the run.
func (r *Run) Log() *slog.Logger { return r.cfg.Log }

// OnCommit adds work to the transaction that commits the result. Users call the
// typed door of their ledger instead, such as postgres.OnCommit(j, …).
func (r *Run) OnCommit(h ledger.Hook) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.asking()
	f.hooks = append(f.hooks, h)
}

// asking is what is to follow the result, to be added to. The lock is held.
func (r *Run) asking() *follows {
	if r.follows == nil {
		r.follows = new(follows)
	}
	return r.follows
}

// asked is what is to follow the result. The lock is held.
func (r *Run) asked() follows {
	if r.follows == nil {
		return follows{}
	}
	return *r.follows
}

// Sticky is the first error that forbids committing a result, whatever the
// handler returned: ErrHeld, ErrLost, ErrBudget, ErrCalls, ErrLifetime, ErrDayBudget, ErrMismatch, ErrStopping, ErrCancelled,
// and ledger.ErrKey.
func (r *Run) Sticky() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sticky
}

// Result is what to commit for body: with the hooks, the answers used, and the steps and messages that follow.
func (r *Run) Result(body []byte) ledger.Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	with := r.asked()
	return ledger.Result{ID: ledger.NewID(), Body: body, Used: r.used, Hooks: with.hooks, Steps: with.steps, Messages: with.messages}
}

func (r *Run) stick(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sticky == nil {
		r.sticky = err
	}
	return err
}

// use says that the call is given the answer of an attempt.
func (r *Run) use(ref ledger.CallRef, id ledger.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if fl := r.flight(ref); fl != nil {
		fl.from = id
	}
	r.used = append(r.used, id)
}

// began says that an attempt may be on record as open from here.
func (r *Run) began(id ledger.ID, p Policy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = append(r.open, openAttempt{id, p})
	r.begun++
}

// passed says that an attempt is on record as sent.
func (r *Run) passed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent++
}

// Paid reports whether the run may have paid for anything: an attempt of it passed the gate.
func (r *Run) Paid() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sent > 0
}

// MayWaste reports whether answers of the job may be left that its result does not use: an earlier run
// may have got them, or an attempt of this one that the answer used did not come from.
func (r *Run) MayWaste() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cfg.Number > 1 || r.begun > len(r.used)
}

// over says that the attempt is certainly not open.
func (r *Run) over(id ledger.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = slices.DeleteFunc(r.open, func(o openAttempt) bool { return o.id == id })
}

// replays is how many replays every call with an open attempt allows: a replay closes
// them all.
func (r *Run) replays() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	least := math.MaxInt
	for _, o := range r.open {
		least = min(least, o.policy.Replays())
	}
	return least
}

// settling is the context of a write that must happen whatever was cancelled.
func (r *Run) settling(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), r.cfg.SettleTimeout)
}

// paid is the context of one paid call: it outlives ctx and the lease, and ends
// with the route's timeout or the worker's drain time.
func (r *Run) paid(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(&paidContext{r.cfg.Paid, context.WithoutCancel(ctx)}, timeout)
}

// paidContext ends with the worker's drain time, and has the values of another.
type paidContext struct {
	context.Context
	values context.Context // ended by nothing
}

// Value implements context.Context.
func (p *paidContext) Value(key any) any {
	if v := p.values.Value(key); v != nil {
		return v
	}
	return p.Context.Value(key)
}

// ended is why a paid call's context ended: over its time or cancelled, which classes are told by, and the cause if that says more.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// look reads what is known of a call. Of a job's first call that is nothing, and the ledger is not asked.
func (r *Run) look(ctx context.Context, ref ledger.CallRef) (ledger.Looked, error) {
	if r.untouched() {
		return ledger.Looked{}, nil
	}
	var l ledger.Looked
	var err error
	r.aside(func() { l, err = r.cfg.Ledger.Look(ctx, *r.cfg.Lease, ref) })
	switch {
	case errors.Is(err, ledger.ErrDamaged):
		return l, Fail(err) // it is paid, and no later look finds it better
	case errors.Is(err, ledger.ErrKey):
		return l, r.stick(err) // it is paid, and a worker that has the key can read it
	}
	return l, r.refused(err)
}

// untouched reports whether the ledger can have nothing of any call: the fence counts the job's owners, this run is
// the first, and it has begun no attempt. Should the fence have moved on, or an answer have come all the same, the gate refuses:
// it compares the fence, and the count of late answers with none.
func (r *Run) untouched() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cfg.Lease.Fence == 1 && r.begun == 0
}

// refused turns the ledger's refusals into this package's sticky errors.
func (r *Run) refused(err error) error {
	if told := refusal(err); told != nil {
		return r.stick(told)
	}
	return err
}

// refusal is what the ledger's refusal is called here; nil: err is none.
func refusal(err error) error {
	for _, s := range []struct{ from, to error }{
		{ledger.ErrLost, ErrLost}, {ledger.ErrBudget, ErrBudget}, {ledger.ErrCalls, ErrCalls}, {ledger.ErrLifetime, ErrLifetime},
		{ledger.ErrDayBudget, ErrDayBudget}, {ledger.ErrCancelled, ErrCancelled},
	} {
		if errors.Is(err, s.from) {
			return s.to
		}
	}
	return nil
}

// keep records evidence. The answer may be paid for already, so it tries until it
// succeeds or the worker's drain time is over, and nothing else stops it.
func (r *Run) keep(ctx context.Context, id ledger.ID, e ledger.Evidence) (ledger.Settled, error) {
	e.By, e.Who = ledger.BySender, r.cfg.Who
	aid := ledger.AttemptID{Tenant: r.cfg.Lease.Key.Tenant, Job: r.cfg.Lease.Job, ID: id}
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		s, err := r.settle(ctx, aid, e)
		switch {
		case err == nil:
			return s, nil
		case errors.Is(err, ledger.ErrState): // something at least as good is
			return ledger.Settled{Known: true}, nil
		case errors.Is(err, ledger.ErrRequest):
			return s, err
		case errors.Is(err, ledger.ErrNotFound):
			if e.State == ledger.NotSent {
				r.remember(aid)
			}
			return s, err
		}
		r.cfg.Log.WarnContext(ctx, "outcome not recorded yet", "attempt_id", id.String(), "error", err)
		select {
		case <-r.cfg.Paid.Done():
			return s, err
		case <-time.After(wait):
		}
	}
}

func (r *Run) settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	ctx, cancel := r.settling(ctx)
	defer cancel()
	return r.cfg.Ledger.Settle(ctx, id, e)
}

// remember keeps the id of an attempt whose gate gave no answer and left no row yet:
// the statement may still commit on the server.
func (r *Run) remember(id ledger.AttemptID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsent = append(r.unsent, id)
}

// Tidy settles attempts that never went out and whose gate may have been
// committed after all, so that they do not make the job look unknown. The
// consumer calls it before it ends the run.
func (r *Run) Tidy(ctx context.Context) {
	r.mu.Lock()
	ids := r.unsent
	r.mu.Unlock()
	for _, id := range ids {
		e := ledger.Evidence{State: ledger.NotSent, Class: "gate_unanswered", By: ledger.BySender, Who: r.cfg.Who}
		if _, err := r.cfg.Ledger.Settle(ctx, id, e); err != nil && !errors.Is(err, ledger.ErrNotFound) {
			r.cfg.Log.WarnContext(ctx, "unsent attempt not settled", "attempt_id", id.ID.String(), "error", err)
		}
	}
}
