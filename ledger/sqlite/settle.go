package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// attempt is what settling looks at.
type attempt struct {
	state      ledger.AttemptState
	n          int
	generation int
	fence      int64
	call       ledger.CallRef
	reserve    ledger.Nano
	sentAt     time.Time
	endedAt    time.Time
	cost       *ledger.Nano
	surplus    bool
	captured   *int
	by         ledger.Actor // who reported last
	budgets    *int         // that it was sent under; nil: none
	budgetDay  *int64
}

func readAttempt(s scanner) (*attempt, error) {
	var a attempt
	var sent int64
	var ended, cost *int64
	err := s.Scan(&a.state, &a.n, &a.generation, &a.fence, &a.call.Name, &a.call.InputKey, &a.reserve, &sent, &ended, &cost, &a.surplus, &a.captured, &a.by, &a.budgets, &a.budgetDay)
	a.sentAt, a.endedAt = time.UnixMicro(sent), at(ended)
	if cost != nil {
		a.cost = new(ledger.Nano(*cost))
	}
	return &a, err
}

// attempt reads an attempt; nil: there is no such attempt.
func (t *tx) attempt(id ledger.AttemptID) (*attempt, error) {
	a, err := one(context.Background(), t, readAttempt, "attempt_found", id.Tenant, id.Job, id.ID[:])
	if err == ledger.ErrNotFound {
		return nil, nil
	}
	return a, err
}

// Settle implements ledger.Ledger.
func (l *Ledger) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	if err := e.Check(); err != nil {
		return ledger.Settled{}, err
	}
	e = e.Clean()
	if e.State == ledger.Received {
		row, err := l.split(ctx, id.Tenant, id.Job, e.Response.Body, ledger.InlineBody)
		if err != nil {
			return ledger.Settled{}, err
		}
		e.Response = &ledger.Response{Codec: e.Response.Codec, Body: row}
	}
	return write(ctx, l, fmt.Sprintf("settle attempt %s as %s", id.ID, e.State), func(t *tx) (ledger.Settled, error) { return t.settle(id, e) })
}

func (t *tx) settle(id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	a, err := t.attempt(id)
	if err != nil {
		return ledger.Settled{}, err
	}
	if a == nil {
		return ledger.Settled{}, ledger.ErrNotFound
	}
	r, err := t.facts(id.Tenant, id.Job)
	if err != nil {
		return ledger.Settled{}, err
	}
	f := r.facts(t.now)
	f.Attempt, f.Settleable = a.state, e.Settleable(a.sentAt, t.now)
	rule := ledger.Row("J9")
	switch e.State {
	case ledger.Received:
		rule = ledger.Row("J8")
	case ledger.Sent:
		return t.note(r, a, id, e)
	}
	switch guard := rule.Allows(f); {
	case guard != "" && a.state == e.State: // its own effect, before a reply that was lost; or another's
		return ledger.Settled{Job: r.State, Surplus: a.surplus, Known: a.by != e.By}, nil
	case guard == "definite":
		return ledger.Settled{}, ledger.ErrTooEarly
	case guard != "":
		return ledger.Settled{}, fmt.Errorf("%w: the attempt is %s already", ledger.ErrState, a.state)
	default:
		if err := t.end(r, a, rule, id, e); err != nil {
			return ledger.Settled{}, err
		}
	}
	return ledger.Settled{Job: r.State, Surplus: a.surplus}, nil
}

// note adds evidence to an attempt that stays as it is.
func (t *tx) note(r *row, a *attempt, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	if a.state != ledger.Sent && a.state != ledger.UnknownAttempt {
		return ledger.Settled{}, fmt.Errorf("%w: the attempt is %s already", ledger.ErrState, a.state)
	}
	if err := t.rebook(r, a, 0, r.book(a, e)); err != nil {
		return ledger.Settled{}, err
	}
	if err := t.evidence(a, id, e); err != nil {
		return ledger.Settled{}, err
	}
	return ledger.Settled{Job: r.State, Surplus: a.surplus}, t.settled(r)
}

// end gives an attempt its outcome (J8, J9), whatever became of the job. An unknown job
// that waits for nothing more is ready.
func (t *tx) end(r *row, a *attempt, rule ledger.Transition, id ledger.AttemptID, e ledger.Evidence) error {
	booked, freed := r.book(a, e), ledger.Nano(0)
	if a.state == ledger.Sent {
		r.OpenCalls--
	}
	if a.state == ledger.Sent || a.state == ledger.UnknownAttempt {
		freed = a.reserve
	}
	r.Reserved -= freed
	if err := t.rebook(r, a, freed, booked); err != nil {
		return err
	}
	switch counted := a.state.Counts(); {
	case a.generation != r.Generation || counted == e.State.Counts():
	case counted:
		r.uncounted++
	default:
		r.uncounted--
	}
	open := a.state == ledger.Sent
	a.state, a.endedAt = e.State, t.now
	if e.State == ledger.Received {
		a.captured = new(r.events + 1) // the event below
		a.surplus = r.State == ledger.Done || a.generation < r.Generation
		if a.fence != r.Fence || !open {
			r.late++
		}
	}
	if err := t.evidence(a, id, e); err != nil {
		return err
	}
	if e.State == ledger.Received {
		if err := t.capture(r, a, id, e); err != nil {
			return err
		}
	}
	reason := fmt.Sprintf(", attempt %d %s", a.n, e.State)
	if e.Reason != "" {
		reason += ": " + e.Reason
	}
	who := cmp.Or(e.Who, string(e.By))
	if r.State == ledger.Unknown && r.OpenCalls == 0 {
		return t.wake(r, rule, who, reason)
	}
	r.moveTo(r.State, rule, t.now, who, reason)
	return t.settled(r)
}

// wake makes an unknown job ready that waits for nothing more. changed is what settling
// changed of it.
func (t *tx) wake(changed *row, rule ledger.Transition, who, reason string) error {
	r, err := t.load(changed.Key.Tenant, changed.ID)
	if err != nil {
		return err
	}
	r.OpenCalls, r.Reserved, r.Cost, r.late, r.uncounted, r.NextAt = 0, changed.Reserved, changed.Cost, changed.late, changed.uncounted, t.now
	r.disown()
	r.moveTo(ledger.Ready, rule, t.now, who, reason)
	changed.State = r.State
	return t.save(r)
}

// settled writes what settling changed of a job whose state stays.
func (t *tx) settled(r *row) error {
	_, err := t.exec("settled", r.OpenCalls, int64(r.Reserved), nano(r.Cost), r.late, null(r.uncounted), r.events+len(r.news), micros(t.now), r.Key.Tenant, r.ID)
	if err != nil {
		return err
	}
	return t.tell(r)
}

// capture keeps an answer. It is not waited for what else is open of its call.
func (t *tx) capture(r *row, a *attempt, id ledger.AttemptID, e ledger.Evidence) error {
	if _, err := t.exec("response", id.Tenant, id.Job, id.ID[:], ledger.Text(e.Response.Codec), e.Response.Body); err != nil {
		return err
	}
	if r.OpenCalls == 0 {
		return nil
	}
	n, err := t.exec("close_call", micros(t.now), id.Tenant, id.Job, a.generation, a.call.Name, a.call.InputKey)
	r.OpenCalls -= n
	return err
}

// book adds what an attempt is known to have cost to the job, and returns how much more that is.
func (r *row) book(a *attempt, e ledger.Evidence) (more ledger.Nano) {
	if e.Cost != nil {
		more = *e.Cost - value(a.cost)
		r.Cost = new(value(r.Cost) + more)
	}
	return more
}

// evidence writes what is known of an attempt.
func (t *tx) evidence(a *attempt, id ledger.AttemptID, e ledger.Evidence) error {
	var captured any
	if a.captured != nil {
		captured = *a.captured
	}
	_, err := t.exec("settle", string(a.state), orNull(a.endedAt), captured, a.surplus, e.Class, string(e.By), e.Who, e.Reason,
		e.Status, e.ProviderRequestID, e.ObjectID, null(e.FirstByte.Microseconds()), e.Usage.In, e.Usage.Cached, e.Usage.Out,
		nano(e.Cost), e.CostSource, id.Tenant, id.Job, id.ID[:])
	return err
}
