package job

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// Attempt is one wire request of a call. A route's Do is given one, and sends at most
// one paid request under it, by HTTP or after Sent.
type Attempt struct {
	run    *Run
	spec   ledger.Attempt   // without its ClientRequestID, which is ID
	replay *ledger.Response // a saved answer to play back; nothing is sent then
	paid   context.Context  // how long the wire request may last, whoever waits for it
	free   bool             // what Sent marks costs nothing
	gratis bool             // nor does a request by HTTP

	// Guarded by mu:
	asked  bool // the gate was asked, which happens once
	manual bool // gated by Sent or Effect
	mu     sync.Mutex
	guard  *guard    // of HTTP; nil: it was not asked for
	effect *effect   // of Effect; nil: it was not asked for
	gated  time.Time // when the gate was passed; zero: it was not
	object string    // the provider's name for what it made, as user code says
	out    *outcome  // nil: still open
}

// outcome is what became of an attempt, as far as its sender can tell.
type outcome struct {
	evidence ledger.Evidence // State Sent: unknown
	again    again           // what the call may do next, when there is no answer
	wait     time.Duration   // the provider's Retry-After; 0: none
	err      error           // what to tell the user; nil when received
	rested   bool            // the route was not tried at all
	surplus  bool            // received, and the job did not need it any more
}

// again says what helps against an outcome.
type again int

const (
	never   again = iota // nothing on this route: another route may do
	soon                 // the same request after a backoff
	later                // this route not for minutes: quota, spend limit
	aborted              // the gate refused: nothing on any route
	relook               // an answer arrived meanwhile: look for it
)

// ID names the attempt. It is sent to providers that take a client request id.
func (a *Attempt) ID() string { return a.spec.ID.String() }

// Key is the job's key, for providers that keep metadata with an answer.
func (a *Attempt) Key() ledger.Key { return a.run.Key() }

// Model is the route's model, so that one Do can serve several routes.
func (a *Attempt) Model() string { return a.spec.Model }

// HTTP is a client for the one paid request of this attempt. Give it to a stock
// SDK as its HTTP client and change nothing else. It puts the sent mark on
// record before the first byte, lets one request out whatever the SDK's retry
// settings are, keeps the answer before user code sees the end of it, and plays
// a kept answer back instead of asking again. It follows no redirects.
func (a *Attempt) HTTP() *http.Client {
	return &http.Client{
		Transport:     newGuard(a),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Free is a plain client for requests that cost nothing: tokens, polls, look-ups. It is Unguarded.
func (a *Attempt) Free() *http.Client { return Unguarded() }

// Sent is the mark for what does not go over HTTP: mail, gRPC, SQL. Call it
// immediately before the effect, and do nothing when it returns an error.
// When ctx has ended it asks nothing, and returns the cause. When ctx ends meanwhile it does too, but not before the gate
// has answered, for up to ledger.SendWindow, and the attempt is on record as not sent.
// The value that Do returns becomes the recorded answer; of an error, Fail and Retry mean
// that it definitely did not happen, and anything else that it may have.
func (a *Attempt) Sent(ctx context.Context) error {
	if a.free {
		a.spec.Day = ledger.DayLimits{} // as Effect does
	}
	var err error
	if a.run.aside(func() { err = a.mark(ctx) }); err != nil {
		return err
	}
	a.mu.Lock()
	a.manual = true
	a.mu.Unlock()
	return nil
}

// mark goes through the gate for a caller who goes on only while ctx lasts.
func (a *Attempt) mark(ctx context.Context) error {
	if err := a.gate(ctx); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return a.unsent(ctx, "cancelled", context.Cause(ctx))
	}
	return nil
}

// gate is the last durable write before money. It opens once an attempt; after nil
// the caller writes to the wire at once. It is not cut short by the end of ctx: a
// gate that was asked and given up on leaves a doubt behind, and it takes at
// most a send window.
func (a *Attempt) gate(ctx context.Context) error {
	a.mu.Lock()
	again := a.asked
	a.asked = true
	a.mu.Unlock()
	if again {
		return errSecond // whatever the first did stays as it is
	}
	if a.replay != nil {
		return a.abort(never, fmt.Errorf("PO330 call %s has a saved answer that its route did not use; nothing was sent", a.spec.Call.Name))
	}
	if err := a.run.cfg.Ended(); err != nil {
		return a.abort(aborted, a.run.stick(err))
	}
	if left, draining := a.run.cfg.DrainLeft(); draining && left < a.spec.Timeout {
		return a.abort(aborted, a.run.stick(ErrStopping))
	}
	if ctx.Err() != nil {
		return a.abort(soon, fmt.Errorf("before the send gate: %w", context.Cause(ctx)))
	}
	issued, spec := time.Now(), a.spec
	spec.ClientRequestID = a.ID()
	gctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ledger.SendWindow)
	defer cancel()
	err := a.run.cfg.Ledger.Send(gctx, *a.run.cfg.Lease, spec)
	switch {
	case err == nil:
	case errors.Is(err, ledger.ErrLate):
		return a.abort(relook, err)
	case errors.Is(err, ledger.ErrRequest):
		return a.abort(never, err)
	case refusal(err) != nil:
		return a.abort(aborted, a.run.refused(err))
	default:
		// The gate may be on record. Nothing was sent and nothing will be.
		return a.unsent(ctx, "gate_unanswered", fmt.Errorf("asking the send gate: %w", err))
	}
	if elapsed(issued) > ledger.SendWindow {
		return a.unsent(ctx, "window_over", errWindow)
	}
	a.run.passed()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gated = time.Now()
	return nil
}

// used reports whether the gate was asked.
func (a *Attempt) used() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

var errWindow = fmt.Errorf("PO331 the send gate took longer than %s; nothing was sent", ledger.SendWindow)

// elapsed is the longer of wall-clock and monotonic time since t: Go's monotonic
// clock stands still while a machine sleeps, and the wall clock may be set back.
func elapsed(t time.Time) time.Duration {
	return max(time.Since(t), time.Now().Round(0).Sub(t.Round(0)))
}

func (a *Attempt) unsent(ctx context.Context, class string, err error) error {
	_, serr := a.run.keep(ctx, a.spec.ID, ledger.Evidence{State: ledger.NotSent, Class: class})
	if errors.Is(serr, ledger.ErrNotFound) {
		serr = nil // no row: the gate did not commit
	}
	a.finish(outcome{evidence: ledger.Evidence{State: ledger.NotSent, Class: class}, again: soon, err: err})
	return errors.Join(err, serr)
}

// abort ends an attempt that has no row.
func (a *Attempt) abort(next again, err error) error {
	a.finish(outcome{evidence: ledger.Evidence{State: ledger.NotSent}, again: next, err: err})
	return err
}

// finish fixes the outcome; the first one counts.
func (a *Attempt) finish(o outcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.out == nil {
		a.out = &o
	}
}

// capture records an outcome that the wire showed, durably, before user code may act on
// it. An answer that cannot be recorded is reported as unknown: the run
// must not commit a result that a later run could not be given.
func (a *Attempt) capture(ctx context.Context, o outcome) {
	a.mu.Lock()
	o.evidence.ObjectID = cmp.Or(o.evidence.ObjectID, a.object)
	a.mu.Unlock()
	s, err := a.run.keep(ctx, a.spec.ID, o.evidence)
	if err != nil {
		o.err = errors.Join(o.err, fmt.Errorf("recording what call %s got: %w", a.spec.Call.Name, err))
		o.evidence.State, o.evidence.Class = ledger.Sent, "unrecorded"
	}
	if err != nil || s.Known {
		o.evidence.Cost, o.evidence.CostSource = nil, "" // it is not booked by this
	}
	if o.surplus = s.Surplus; o.surplus {
		a.run.cfg.Log.WarnContext(ctx, "paid answer not needed any more", "call", a.spec.Call.Name, "attempt_id", a.spec.ID.String())
	}
	a.finish(o)
}

// close fixes the outcome after Do returned, and returns it; nil when Do sent
// nothing and asked for nothing.
func (a *Attempt) close(ctx context.Context, value any, err error) *outcome {
	a.mu.Lock()
	g, e := a.guard, a.effect
	a.mu.Unlock()
	if g != nil {
		g.end()
	}
	if e != nil {
		e.end()
	}
	a.mu.Lock()
	open, gated, manual := a.out == nil, a.gated, a.manual
	a.mu.Unlock()
	var o *outcome // to be recorded
	if open && manual && !gated.IsZero() {
		o = manualOutcome(value, err, a.free) // here and not aside, since it may be user code that encodes the value
		if e != nil {
			e.seen(&o.evidence, gated)
		}
	}
	var out *outcome
	a.run.aside(func() { out = a.closed(ctx, o, err) })
	return out
}

// closed fixes o, if there is one, and returns the outcome; an attempt that is still open then has no answer that anybody saw.
func (a *Attempt) closed(ctx context.Context, o *outcome, err error) *outcome {
	if o != nil {
		a.capture(ctx, *o)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gated.IsZero() {
		return a.out
	}
	if a.out == nil {
		a.out = &outcome{evidence: ledger.Evidence{State: ledger.Sent, Class: "no_answer_seen"}, err: err}
	}
	a.run.saw(a, *a.out)
	return a.out
}

// price puts into the evidence what an answer cost, if anybody knows.
func (a *Attempt) price(e *ledger.Evidence, b *bill) {
	if a.gratis {
		e.Cost, e.CostSource = new(ledger.Nano(0)), Computed
		return
	}
	c := b.call()
	a.mu.Lock()
	c.At = a.gated
	a.mu.Unlock()
	c.Provider, c.Model = a.spec.Provider, a.spec.Model
	if cost := a.run.cfg.Price(c); cost != nil {
		e.Cost, e.CostSource = cost, Computed
	}
}

// note adds evidence to an attempt that stays open, and reports whether it is on record. It gives up with
// ctx: what it says is repeated when the outcome is recorded.
func (a *Attempt) note(ctx context.Context, e ledger.Evidence) bool {
	e.By, e.Who = ledger.BySender, a.run.cfg.Who
	id := ledger.AttemptID{Tenant: a.run.cfg.Lease.Key.Tenant, Job: a.run.cfg.Lease.Job, ID: a.spec.ID}
	nctx, cancel := context.WithTimeout(ctx, a.run.cfg.SettleTimeout)
	defer cancel()
	_, err := a.run.cfg.Ledger.Settle(nctx, id, e)
	if err != nil && ctx.Err() == nil {
		a.run.cfg.Log.WarnContext(ctx, "answer's id not recorded yet", "call", a.spec.Call.Name, "attempt_id", a.spec.ID.String(), "error", err)
	}
	return err == nil || errors.Is(err, ledger.ErrState) // known already, and at least as well
}

// manualOutcome classifies what user code returned after Sent. free: it costs nothing.
func manualOutcome(value any, err error, free bool) *outcome {
	if err == nil {
		body, jerr := json.Marshal(value)
		if jerr != nil {
			return &outcome{evidence: ledger.Evidence{State: ledger.Sent, Class: "answer_not_encodable"}, err: jerr}
		}
		return madeOutcome(body, free)
	}
	e, ok := errors.AsType[*Error](err)
	switch {
	case ok && e.Class == Permanent:
		return &outcome{evidence: ledger.Evidence{State: ledger.FailedAttempt, Class: "failed"}, again: never, err: err}
	case ok && e.Class == Retryable:
		return &outcome{evidence: ledger.Evidence{State: ledger.Rejected, Class: "refused"}, again: soon, wait: e.In, err: err}
	}
	return &outcome{evidence: ledger.Evidence{State: ledger.Sent, Class: "unsure"}, err: err}
}

// madeOutcome is the outcome of a call that user code made, and whose answer is the JSON that its value makes.
func madeOutcome(body []byte, free bool) *outcome {
	e := ledger.Evidence{State: ledger.Received, Class: "done"}
	if free {
		e.Cost, e.CostSource = new(ledger.Nano(0)), Computed
	}
	o := answered(e, &ledger.Response{Codec: codecJSON, Body: body})
	return &o
}

func (r *Run) saw(a *Attempt, o outcome) {
	r.cfg.Saw(r.cfg.Action, Seen{Call: a.spec.Call.Name, Route: a.spec.Route, Provider: a.spec.Provider, Model: a.spec.Model,
		State: o.evidence.State, Class: o.evidence.Class, Took: time.Since(a.gated), Usage: o.evidence.Usage, Cost: o.evidence.Cost, Surplus: o.surplus})
}
