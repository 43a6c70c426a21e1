package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/paidonce/paidonce/internal/jitter"
	"github.com/paidonce/paidonce/ledger"
)

// once is the answer of the run's one question of that name and input, and where it comes from: one goroutine asks, and
// others wait for it.
func (q *question[In, Out]) once(ctx context.Context) (out Out, fl *flight, err error) {
	fl, first := q.run.board(&q.ref)
	if first {
		err = q.fly(ctx, fl)
	} else {
		fl, err = fl.wait(ctx)
	}
	if err == nil {
		out, _ = fl.v.(Out) // a nil interface has no dynamic type
	}
	return out, fl, err
}

func (q *question[In, Out]) fly(ctx context.Context, fl *flight) error {
	defer q.run.landed(fl)
	fl.v, fl.err = q.answer(ctx)
	return fl.err
}

// question is a call of one run. Its methods are on the stack while an answer is waited for,
// of thousands at once, so they pass pointers on and leave what is large to others.
type question[In, Out any] struct {
	Call[In, Out]
	run *Run
	ref ledger.CallRef
	in  In
}

func newQuestion[In, Out any](c *Call[In, Out], j *Run, in In) (*question[In, Out], error) {
	if err := j.inWork("call " + c.Name + " was made"); err != nil {
		return nil, err
	}
	if _, declared := j.calls[c.Name]; !declared {
		return nil, Failf("PO325 call %q is not in the Uses of its job", c.Name)
	}
	q := &question[In, Out]{*c, j, ledger.CallRef{Name: c.Name}, in}
	switch c.Memo {
	case ByInput:
		var err error
		if q.ref.InputKey, err = inputKey(in); err != nil {
			return nil, Fail(err)
		}
	case EachCall:
		q.ref.InputKey = ledger.NewID().String()
	}
	return q, nil
}

// answer is the story of a call: look for a captured answer, else try the routes in
// order until one answers or it is not safe to go on.
func (q *question[In, Out]) answer(ctx context.Context) (any, error) {
	for {
		looked, err := q.run.look(ctx, q.ref)
		if err != nil {
			return nil, err
		}
		if looked.Answer != nil {
			return q.played(ctx, looked.Answer)
		}
		if looked.Open > 0 { // of this very run: its own earlier attempt was not settled
			return nil, q.run.stick(ErrHeld)
		}
		v, o, err := q.routes(ctx, looked.Late)
		if o == nil || o.again != relook {
			return v, err
		}
	}
}

// routes returns the answer of the first route that has one. A nil error with an
// outcome of relook asks the caller to look again.
func (q *question[In, Out]) routes(ctx context.Context, late int64) (any, *outcome, error) {
	var o *outcome
	var ends []*outcome // the last of each route
	var errs []error
	tried := false
	for i := range q.Routes {
		rt := &q.Routes[i]
		for n := 0; ; n++ {
			var v any
			var err error
			v, o, err = q.drive(ctx, rt, late)
			tried = tried || o == nil || !o.rested
			if o == nil || o.evidence.State == ledger.Received || o.again == aborted || o.again == relook {
				return v, o, err
			}
			if o.evidence.State == ledger.Sent && (q.askable(rt, o) || !q.replayed(ctx)) {
				return nil, o, q.heldBy(rt, o)
			}
			errs = append(errs, routeError(rt.Name, o.err))
			if o.rested && i < len(q.Routes)-1 || !q.Retry.wait(ctx, n, o) {
				break
			}
		}
		ends = append(ends, o)
	}
	return nil, o, exhausted(q.Name, tried, ends, errs)
}

// heldBy is the error of a call that must not be made again: nobody knows what became of it.
func (q *question[In, Out]) heldBy(rt *Route[In, Out], o *outcome) error {
	return fmt.Errorf("%w: %w", q.run.stick(ErrHeld), routeError(rt.Name, o.err))
}

// routeError says which route err is of. It is no part of its callers: they wait for models.
//
//go:noinline
func routeError(route string, err error) error { return fmt.Errorf("route %s: %w", route, err) }

// askable reports whether the provider can be asked about an unknown attempt, by the name of its answer or by the
// attempt's own. No policy pays again before it was.
func (q *question[In, Out]) askable(rt *Route[In, Out], o *outcome) bool {
	return q.Reconcile != nil && (o.evidence.ObjectID != "" || rt.Traced)
}

// replayed reports whether the policy let this run go on past an unknown attempt
// (J16o), which means accepting to pay twice. The ledger closes every open attempt of the
// job with it, so the policies of their calls are asked too; one that begins
// meanwhile is not past its timeout, and the ledger refuses then.
func (q *question[In, Out]) replayed(ctx context.Context) bool {
	j := q.run
	most := min(q.OnUnknown.Replays(), j.replays())
	if most == 0 {
		return false
	}
	ctx, cancel := j.settling(ctx)
	defer cancel()
	err := j.cfg.Ledger.Replay(ctx, *j.cfg.Lease, ledger.ReplayPolicy{
		Max: most, Who: j.cfg.Who, Reason: "policy " + q.OnUnknown.String() + " of call " + q.Name})
	if err != nil {
		j.cfg.Log.InfoContext(ctx, "replay not allowed now", "call", q.Name, "error", err)
	}
	return err == nil
}

// exhausted is the error of a call that no route answered: as soon as waiting helps
// on one of them the job is to be tried again, and it is permanent when it helps on none.
func exhausted(call string, tried bool, ends []*outcome, errs []error) error {
	err := fmt.Errorf("call %s has no answer: %w", call, errors.Join(errs...))
	in, again := time.Duration(0), false
	for _, o := range ends {
		wait := o.wait
		switch {
		case o.evidence.State == ledger.Sent: // a replay is on record; the next run makes it
			wait = 0
		case o.again == never:
			continue
		case o.again == later:
			wait = max(wait, 10*time.Minute)
		}
		if !again || wait < in {
			in, again = wait, true
		}
	}
	switch {
	case !again:
		return Fail(err)
	case !tried:
		err = fmt.Errorf("%w: %w", ErrResting, err)
	}
	return RetryIn(in, err)
}

// attempt sends one request and classifies its end.
func (q *question[In, Out]) attempt(ctx context.Context, rt *Route[In, Out], late int64) (any, *outcome, error) {
	a := q.begin(rt, late)
	v, o, err := q.do(ctx, a, rt)
	if o == nil || o.evidence.State != ledger.Sent {
		q.run.over(a.spec.ID)
	}
	if o != nil && o.evidence.State == ledger.Received {
		q.run.use(q.ref, a.spec.ID)
	}
	return v, o, err
}

func (q *question[In, Out]) begin(rt *Route[In, Out], late int64) *Attempt {
	id := ledger.NewID()
	q.run.began(id, q.OnUnknown)
	day := q.run.cfg.Day
	if q.gratis {
		day = ledger.DayLimits{} // a step costs nothing over HTTP neither, and waits for no budget
	}
	return &Attempt{run: q.run, free: rt.Free, gratis: q.gratis, spec: ledger.Attempt{ID: id, Call: q.ref, Route: rt.Name, Provider: rt.Provider, Model: rt.Model,
		Config: q.Config, Timeout: rt.Timeout, Reserve: rt.Reserve, LateSeen: late, Day: day}}
}

// played runs a route on a saved answer.
func (q *question[In, Out]) played(ctx context.Context, ans *ledger.Captured) (any, error) {
	q.run.use(q.ref, ans.Attempt)
	rt := &q.Routes[0]
	for i := range q.Routes {
		if q.Routes[i].Name == ans.Route {
			rt = &q.Routes[i]
		}
	}
	q.run.cfg.Saw(q.run.cfg.Action, Seen{Call: q.Name, Route: ans.Route, Provider: rt.Provider, Model: rt.Model, State: ledger.Received, Class: "saved", Replayed: true})
	if strings.HasSuffix(ans.Response.Codec, cutSuffix) {
		return nil, fmt.Errorf("call %s was answered: %w", q.Name, Fail(ErrTooLarge))
	}
	if ans.Response.Codec == codecJSON {
		var v Out
		if err := json.Unmarshal(ans.Response.Body, &v); err != nil {
			return nil, fmt.Errorf("PO332 saved answer of call %s does not read as %T: %w", q.Name, v, err)
		}
		return v, nil
	}
	a := &Attempt{run: q.run, replay: &ans.Response, spec: ledger.Attempt{ID: ans.Attempt, Call: q.ref, Route: rt.Name,
		Provider: rt.Provider, Model: rt.Model, Timeout: rt.Timeout}}
	v, _, err := q.do(ctx, a, rt)
	return v, err
}

// do runs user code for one attempt. Its panic is passed on after the outcome is fixed.
func (q *question[In, Out]) do(ctx context.Context, a *Attempt, rt *Route[In, Out]) (v any, o *outcome, err error) {
	pctx, cancel := a.run.paid(ctx, rt.Timeout)
	defer cancel()
	a.paid = pctx
	finished := false
	defer func() {
		if !finished {
			a.close(ctx, nil, errors.New("the route panicked"))
		}
	}()
	out, err := rt.Do(pctx, a, q.in)
	finished = true
	o = a.close(ctx, out, err)
	if o == nil { // nothing was sent
		return out, nil, err
	}
	if err = o.told(q.Name, err); err != nil || o.evidence.State != ledger.Received {
		return nil, o, err
	}
	return out, o, nil
}

// told is what the caller of an attempt of that call is told when its route has returned err; nil: what the route has made of the answer.
func (o *outcome) told(call string, err error) error {
	switch {
	case o.evidence.State == ledger.Received && o.err != nil: // whatever user code makes of it: the next run gets no answer
		return fmt.Errorf("call %s was answered: %w", call, o.err)
	case o.evidence.State == ledger.Received && err != nil:
		return fmt.Errorf("call %s was answered, and the answer is kept: %w", call, err)
	case o.evidence.State == ledger.Received:
		return nil
	case o.err == nil:
		o.err = err
	}
	return o.err
}

// wait sleeps before attempt n+1 of a route and reports whether to make it.
func (b Backoff) wait(ctx context.Context, n int, o *outcome) bool {
	again := o.again == soon || o.evidence.State == ledger.Sent // a replay was allowed
	ceil := b.Ceil
	if ceil <= 0 {
		ceil = 30 * time.Second
	}
	if n >= b.Max || !again || o.wait > ceil {
		return false
	}
	first := b.First
	if first <= 0 {
		first = time.Second
	}
	d := min(first, ceil)
	for i := 0; i < n && d < ceil; i++ {
		d = min(2*d, ceil)
	}
	d = max(d, o.wait)
	d = jitter.Quarter(d)
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
