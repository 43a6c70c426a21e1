package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// Settle implements ledger.Ledger.
func (l *Ledger) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	if err := e.Check(); err != nil {
		return ledger.Settled{}, err
	}
	e = e.Clean()
	now, unlock, err := l.begin(ctx)
	if err != nil {
		return ledger.Settled{}, err
	}
	defer unlock()
	r := l.row(id.Tenant, id.Job)
	a := r.attempt(id.ID)
	f := l.facts(r, now)
	f.Exists = a != nil
	if a != nil {
		f.Attempt, f.Settleable = a.State, e.Settleable(a.SentAt, now)
		defer l.rebook(a, a.held(), a.cost())
	}
	t := ledger.Row("J9")
	switch e.State {
	case ledger.Received:
		t = ledger.Row("J8")
	case ledger.Sent:
		return r.note(a, e, now)
	}
	switch guard := t.Allows(f); {
	case guard == "exists":
		return ledger.Settled{}, ledger.ErrNotFound
	case guard != "" && a.State == e.State: // its own effect, before a reply that was lost; or another's
		return ledger.Settled{Job: r.State, Surplus: a.Surplus, Known: a.Evidence.By != e.By}, nil
	case guard == "definite":
		return ledger.Settled{}, ledger.ErrTooEarly
	case guard != "":
		return ledger.Settled{}, fmt.Errorf("%w: the attempt is %s already", ledger.ErrState, a.State)
	case e.State == ledger.Received:
		r.capture(a, e, now)
		r.settled(t, a, e, now)
	default:
		r.merge(a, e)
		r.end(a, e.State, now)
		r.settled(t, a, e, now)
	}
	return ledger.Settled{Job: r.State, Surplus: a.Surplus}, nil
}

// note adds evidence to an attempt that stays as it is.
func (r *row) note(a *attempt, e ledger.Evidence, now time.Time) (ledger.Settled, error) {
	switch {
	case a == nil:
		return ledger.Settled{}, ledger.ErrNotFound
	case a.State != ledger.Sent && a.State != ledger.UnknownAttempt:
		return ledger.Settled{}, fmt.Errorf("%w: the attempt is %s already", ledger.ErrState, a.State)
	}
	r.merge(a, e)
	r.UpdatedAt = now
	return ledger.Settled{Job: r.State, Surplus: a.Surplus}, nil
}

// capture keeps an answer (J8), whatever became of the attempt and the job.
func (r *row) capture(a *attempt, e ledger.Evidence, now time.Time) {
	r.merge(a, e)
	open := a.State == ledger.Sent
	a.response, a.HasAnswer = response(e.Response), true
	r.captures++
	a.captured = r.captures
	r.end(a, ledger.Received, now)
	r.closeOpen(now, func(b *attempt) bool { return b.Call == a.Call && b.Generation == a.Generation })
	a.Surplus = r.State == ledger.Done || a.Generation < r.Generation
	if a.Fence != r.Fence || !open {
		r.late++
	}
}

// settled writes the history of J8 and J9: an unknown job that waits for nothing more
// is ready.
func (r *row) settled(t ledger.Transition, a *attempt, e ledger.Evidence, now time.Time) {
	reason := fmt.Sprintf(", attempt %d %s", a.N, e.State)
	if e.Reason != "" {
		reason += ": " + e.Reason
	}
	to := r.State
	if r.State == ledger.Unknown && r.OpenCalls == 0 {
		to, r.NextAt = ledger.Ready, now
		r.disown()
	}
	r.moveTo(to, t, now, cmp.Or(e.Who, string(e.By)), reason)
}

// merge adds what is new in e to what is known of the attempt, and books the cost.
func (r *row) merge(a *attempt, e ledger.Evidence) {
	k := &a.Evidence
	k.Class = cmp.Or(e.Class, k.Class)
	k.By, k.Who, k.Reason = e.By, cmp.Or(e.Who, k.Who), cmp.Or(e.Reason, k.Reason)
	k.Status = cmp.Or(e.Status, k.Status)
	k.ProviderRequestID = cmp.Or(e.ProviderRequestID, k.ProviderRequestID)
	k.ObjectID = cmp.Or(e.ObjectID, k.ObjectID)
	k.FirstByte = cmp.Or(e.FirstByte, k.FirstByte)
	k.Usage.In = clone(cmp.Or(e.Usage.In, k.Usage.In))
	k.Usage.Cached = clone(cmp.Or(e.Usage.Cached, k.Usage.Cached))
	k.Usage.Out = clone(cmp.Or(e.Usage.Out, k.Usage.Out))
	k.CostSource = cmp.Or(e.CostSource, k.CostSource)
	if e.Cost != nil {
		var booked, total ledger.Nano
		if k.Cost != nil {
			booked = *k.Cost
		}
		if r.Cost != nil {
			total = *r.Cost
		}
		k.Cost, r.Cost = clone(e.Cost), new(total-booked+*e.Cost)
	}
}

// clone copies what p points to, so that no caller shares memory with a row.
func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}

func response(p *ledger.Response) *ledger.Response {
	if p == nil {
		return nil
	}
	return &ledger.Response{Codec: p.Codec, Body: bytes.Clone(p.Body)}
}

func result(p *ledger.Result) *ledger.Result {
	if p == nil {
		return nil
	}
	return &ledger.Result{ID: p.ID, Body: bytes.Clone(p.Body), Schema: p.Schema}
}
