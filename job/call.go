package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// Call is a paid request with a name. Within one job it is answered once: asked
// again, in this run or a later one, it returns the saved answer without sending.
//
// A call that was sent and whose outcome is not known makes the job unknown; what
// happens then is OnUnknown's to say, and its zero value is to hold.
type Call[In, Out any] struct {
	// Name is the call's name within its job. Required.
	Name string
	// Config is the version of what shapes the answer beside In, such as the
	// prompt; it is recorded with each attempt.
	Config string
	// Routes are tried in order; all belong to this one call. Required.
	Routes []Route[In, Out]
	// Retry bounds attempts on one route after a definite failure. The zero value does
	// not retry within a run.
	Retry Backoff
	// OnUnknown is the policy for an unknown outcome. Zero: Hold.
	OnUnknown Policy
	// Reconcile looks for evidence of an attempt whose outcome is unknown. nil: none
	// can be had, the policy decides.
	Reconcile func(ctx context.Context, o Open) (Out, Finding, error)
	// Memo says what makes two calls the same. Zero: the name.
	Memo Memo
}

// Route is one way to make a call.
type Route[In, Out any] struct {
	Name     string // required, unique within the call
	Provider string // "openai", "anthropic", …: a bounded set, it is a metric label
	Model    string
	// Timeout bounds one attempt, from the connection to the last byte. Required.
	Timeout time.Duration
	// Reserve is an upper bound of one attempt's cost, held against the job's
	// budget until the real cost is known. 0: nothing is held.
	Reserve ledger.Nano
	// Do makes the request through a, with a.HTTP() as the SDK's HTTP client, and turns
	// the answer into Out. It also runs on saved answers, so it must not depend on
	// anything but the answer.
	Do func(ctx context.Context, a *Attempt, in In) (Out, error)
}

// Backoff is the waiting time between attempts: First, doubling up to Ceil, each
// with up to a quarter of jitter.
type Backoff struct {
	Max   int           // attempts after the first one; 0: none
	First time.Duration // 0: 1 s
	Ceil  time.Duration // 0: 30 s. A provider that asks for more ends the run instead
}

// Policy is what to do about an unknown outcome for which no evidence turns up.
type Policy struct {
	kind    string
	replays int
}

// Hold keeps the job unknown until a person decides. It is the zero value.
func Hold() Policy { return Policy{} }

// Replay sends again, at most n times a job, when the hold time is over: it accepts paying
// twice. Each replay is on record.
func Replay(n int) Policy { return Policy{kind: "replay", replays: n} }

// FailUnknown gives the job up when the hold time is over.
func FailUnknown() Policy { return Policy{kind: "fail"} }

// Replays is the n of Replay(n), else 0.
func (p Policy) Replays() int { return p.replays }

// Fails reports whether the policy is FailUnknown.
func (p Policy) Fails() bool { return p.kind == "fail" }

// String prints the policy as configuration writes it: hold, replay:N, fail.
func (p Policy) String() string {
	switch p.kind {
	case "":
		return "hold"
	case "replay":
		return fmt.Sprintf("replay:%d", p.replays)
	}
	return p.kind
}

// ParsePolicy reads what String prints; "" is hold.
func ParsePolicy(s string) (Policy, error) {
	var n int
	switch {
	case s == "" || s == "hold":
		return Hold(), nil
	case s == "fail":
		return FailUnknown(), nil
	}
	if c, err := fmt.Sscanf(s, "replay:%d", &n); c == 1 && err == nil && n > 0 && s == fmt.Sprintf("replay:%d", n) {
		return Replay(n), nil
	}
	return Policy{}, fmt.Errorf("PO324 policy %q is none of hold, replay:N (N at least 1), fail", s)
}

// Memo says what makes two calls of one job the same call.
type Memo int

// The memos.
const (
	ByName   Memo = iota // one answer a job
	ByInput              // one answer for each input: agent tools, fan-out
	EachCall             // never the same: polling. It is paid at every run
)

// Run returns the call's answer: the saved one if there is one, else what a route
// got. Its errors are sticky where going on would be unsafe (ErrHeld, ErrLost, …);
// others say why there is no answer, with a class.
func (c Call[In, Out]) Run(ctx context.Context, j *Run, in In) (Out, error) {
	var none Out
	if _, declared := j.calls[c.Name]; !declared {
		return none, Failf("PO325 call %q is not in the Uses of its job", c.Name)
	}
	ref, err := c.ref(in)
	if err != nil {
		return none, Fail(err)
	}
	v, err := j.once(ctx, ref, func() (any, error) { return c.answer(ctx, j, ref, in) })
	if err != nil {
		return none, err
	}
	out, _ := v.(Out) // a nil interface has no dynamic type
	return out, nil
}

func (c Call[In, Out]) ref(in In) (ledger.CallRef, error) {
	ref := ledger.CallRef{Name: c.Name}
	var err error
	switch c.Memo {
	case ByInput:
		ref.InputKey, err = inputKey(in)
	case EachCall:
		ref.InputKey = ledger.NewID().String()
	}
	return ref, err
}

// answer is the story of a call: look for a captured answer, else try the routes in
// order until one answers or it is not safe to go on.
func (c Call[In, Out]) answer(ctx context.Context, j *Run, ref ledger.CallRef, in In) (any, error) {
	for {
		looked, err := j.look(ctx, ref)
		if err != nil {
			return nil, err
		}
		if looked.Answer != nil {
			return c.played(ctx, j, ref, *looked.Answer, in)
		}
		if looked.Open > 0 { // of this very run: its own earlier attempt was not settled
			return nil, j.stick(ErrHeld)
		}
		v, o, err := c.routes(ctx, j, ref, looked.Late, in)
		if o == nil || o.again != relook {
			return v, err
		}
	}
}

// routes returns the answer of the first route that has one. A nil error with an
// outcome of relook asks the caller to look again.
func (c Call[In, Out]) routes(ctx context.Context, j *Run, ref ledger.CallRef, late int64, in In) (any, *outcome, error) {
	var o *outcome
	var ends []outcome // the last of each route
	var errs []error
	for _, rt := range c.Routes {
		for n := 0; ; n++ {
			var v any
			var err error
			v, o, err = c.attempt(ctx, j, ref, rt, late, in)
			if o == nil || o.evidence.State == ledger.Received || o.again == aborted || o.again == relook {
				return v, o, err
			}
			if o.evidence.State == ledger.Sent && !c.replayed(ctx, j) {
				return nil, o, fmt.Errorf("%w: route %s: %w", j.stick(ErrHeld), rt.Name, o.err)
			}
			errs = append(errs, fmt.Errorf("route %s: %w", rt.Name, o.err))
			if !c.Retry.wait(ctx, n, o) {
				break
			}
		}
		ends = append(ends, *o)
	}
	return nil, o, c.exhausted(ends, errs)
}

// replayed reports whether the policy let this run go on past an unknown attempt
// (J16o), which means accepting to pay twice. The ledger closes every open attempt of the
// job with it, so the policies of their calls are asked too; one that begins
// meanwhile is not past its timeout, and the ledger refuses then.
func (c Call[In, Out]) replayed(ctx context.Context, j *Run) bool {
	most := min(c.OnUnknown.Replays(), j.replays())
	if most == 0 {
		return false
	}
	ctx, cancel := j.settling(ctx)
	defer cancel()
	err := j.cfg.Ledger.Replay(ctx, j.cfg.Lease, ledger.ReplayPolicy{
		Max: most, Who: j.cfg.Who, Reason: "policy " + c.OnUnknown.String() + " of call " + c.Name})
	if err != nil {
		j.cfg.Log.InfoContext(ctx, "replay not allowed now", "call", c.Name, "error", err)
	}
	return err == nil
}

// exhausted is the error of a call that no route answered: as soon as waiting helps
// on one of them the job is to be tried again, and it is permanent when it helps on none.
func (c Call[In, Out]) exhausted(ends []outcome, errs []error) error {
	err := fmt.Errorf("call %s has no answer: %w", c.Name, errors.Join(errs...))
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
	if !again {
		return Fail(err)
	}
	return RetryIn(in, err)
}

// attempt sends one request and classifies its end.
func (c Call[In, Out]) attempt(ctx context.Context, j *Run, ref ledger.CallRef, rt Route[In, Out], late int64, in In) (any, *outcome, error) {
	id := ledger.NewID()
	a := &Attempt{run: j, spec: ledger.Attempt{ID: id, Call: ref, Route: rt.Name, Provider: rt.Provider, Model: rt.Model,
		Config: c.Config, ClientRequestID: id.String(), Timeout: rt.Timeout, Reserve: rt.Reserve, LateSeen: late}}
	j.began(id, c.OnUnknown)
	v, o, err := c.do(ctx, a, rt, in)
	if o == nil || o.evidence.State != ledger.Sent {
		j.over(id)
	}
	if o != nil && o.evidence.State == ledger.Received {
		j.use(id)
	}
	return v, o, err
}

// played runs a route on a saved answer.
func (c Call[In, Out]) played(ctx context.Context, j *Run, ref ledger.CallRef, ans ledger.Captured, in In) (any, error) {
	j.use(ans.Attempt)
	rt := c.Routes[0]
	for _, r := range c.Routes {
		if r.Name == ans.Route {
			rt = r
		}
	}
	j.cfg.Saw(Seen{Call: c.Name, Route: ans.Route, Provider: rt.Provider, Model: rt.Model, State: ledger.Received, Class: "saved", Replayed: true})
	if ans.Response.Codec == codecJSON {
		var v Out
		if err := json.Unmarshal(ans.Response.Body, &v); err != nil {
			return nil, fmt.Errorf("PO332 saved answer of call %s does not read as %T: %w", c.Name, v, err)
		}
		return v, nil
	}
	a := &Attempt{run: j, replay: &ans.Response, spec: ledger.Attempt{ID: ans.Attempt, Call: ref, Route: rt.Name,
		Provider: rt.Provider, Model: rt.Model, ClientRequestID: ans.Attempt.String(), Timeout: rt.Timeout}}
	v, _, err := c.do(ctx, a, rt, in)
	return v, err
}

// do runs user code for one attempt. Its panic is passed on after the outcome is fixed.
func (c Call[In, Out]) do(ctx context.Context, a *Attempt, rt Route[In, Out], in In) (v any, o *outcome, err error) {
	pctx, cancel := a.run.paid(ctx, rt.Timeout)
	defer cancel()
	a.paid = pctx
	finished := false
	defer func() {
		if !finished {
			a.close(ctx, nil, errors.New("the route panicked"))
		}
	}()
	out, err := rt.Do(pctx, a, in)
	finished = true
	o = a.close(ctx, out, err)
	switch {
	case o == nil: // nothing was sent
		return out, nil, err
	case o.evidence.State == ledger.Received && err != nil:
		return nil, o, fmt.Errorf("call %s was answered, and the answer is kept: %w", c.Name, err)
	case o.evidence.State == ledger.Received:
		return out, o, nil
	case o.err == nil:
		o.err = err
	}
	return nil, o, o.err
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
	d += time.Duration(rand.Int64N(int64(d)/4 + 1))
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
