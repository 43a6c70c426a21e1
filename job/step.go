package job

import (
	"context"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// Step is a side effect that follows a result: a mail, a post, a request to somebody's API. It has a key of its
// own and a row of its own under it, so it happens once however many jobs ask for it, and is held, resolved, retried
// and cancelled alone: it is a job like any other, which the ledger carries. In is its message.
//
// A handler asks for it with [Step.After]; a worker runs it once [RegisterStep] was told of it. What must
// happen before there is a result is a [Call], not a step.
//
// A step that was sent and whose outcome is not known is unknown; what happens then is OnUnknown's to say, and its
// zero value is to hold. The job that asked for it is done whatever becomes of it.
type Step[In Keyed, Out any] struct {
	// Name is the step's name in keys, metrics, configuration and on the command line, as a job's is. Required.
	Name string
	// Provider is whom the effect goes to, a metric label. "": the step's name.
	Provider string
	// Config is the version of what shapes the effect beside In, recorded with each attempt.
	Config string
	// Timeout bounds one attempt, from the connection to the last byte. Required.
	Timeout time.Duration
	// Retry bounds attempts within one run after a definite failure. The zero value does not retry within a run;
	// the runs themselves are retried as those of jobs are.
	Retry Backoff
	// AtOnce and PerMinute bound the attempts of this process, as those of a Route do. 0: no bound.
	AtOnce, PerMinute int
	// OnUnknown is the policy for an unknown outcome. Zero: Hold.
	OnUnknown Policy
	// Reconcile looks for evidence of an attempt whose outcome is unknown. in is the step's input. nil: none
	// can be had, the policy decides.
	Reconcile func(ctx context.Context, o Open, in In) (Out, Finding, error)
	// Do makes the effect, once, and returns what is known of it: the step's result. Over HTTP it sends with
	// a.Effect(); for all else it calls a.Sent immediately before the effect. (a.HTTP() is for model providers: it
	// judges answers by itself.) With a.Object it names what it made. Required.
	//
	// Of its errors Fail and Retry mean that the effect definitely did not happen, and anything
	// else that it may have.
	Do func(ctx context.Context, a *Attempt, in In) (Out, error)

	// MaxRun, MaxRuns, Volatile and Redact are those of a Def.
	MaxRun   time.Duration
	MaxRuns  int
	Volatile []string
	Redact   func(part Part, body []byte) []byte
}

// stepCall is the name of the one call of a step's job.
const stepCall = "do"

// Stepped is a Step of any types, for Def.Steps.
type Stepped interface{ stepName() string }

// Steps lists the steps of a handler.
func Steps(steps ...Stepped) []Stepped { return steps }

func (s Step[In, Out]) stepName() string { return s.Name }

// RegisterStep adds the handler that runs a step. It panics as Register does. A message that names the step as
// its job is run too, as the same step if its key is the same.
func RegisterStep[In Keyed, Out any](r *Registry, s Step[In, Out]) {
	call := s.call()
	Register(r, Def[In, Out]{
		Name: s.Name, Uses: Uses(call), MaxRun: s.MaxRun, MaxRuns: s.MaxRuns, Volatile: s.Volatile, Redact: s.Redact,
		Handle: func(ctx context.Context, j *Run, in In) (Out, error) { return call.Run(ctx, j, in) },
	})
	r.byName[s.Name].step = true
}

// call is the one call that a step makes.
func (s Step[In, Out]) call() Call[In, Out] {
	provider := s.Provider
	if provider == "" {
		provider = s.Name
	}
	c := Call[In, Out]{Name: stepCall, Config: s.Config, Retry: s.Retry, OnUnknown: s.OnUnknown, gratis: true,
		Routes: []Route[In, Out]{{Name: s.Name, Provider: provider, Timeout: s.Timeout, AtOnce: s.AtOnce, PerMinute: s.PerMinute, Free: true, Do: s.Do}}}
	if s.Reconcile != nil {
		c.Reconcile = func(ctx context.Context, o Open) (Out, Finding, error) {
			var none Out
			var in In
			if o.Input == nil {
				return none, CannotTell, nil
			}
			if err := decodeStrict(o.Input, &in); err != nil {
				return none, CannotTell, fmt.Errorf("PO403 input of %s: %w", s.Name, err)
			}
			return s.Reconcile(ctx, o, in)
		}
	}
	return c
}

// After asks for the step once the job has a result, and not before: it is put on record in the result's own
// transaction, and a run that ends without a result has asked for nothing. The job does not wait for it. A key that is on record
// already, from this job or another, is kept as it is: the step is not made again.
//
// Asked twice in one run for the same key and input, it is one. An error means that the step was not asked for: it
// is not in the Steps of the job's Def (PO580), its input is too large for one row (PO581), it yields no key or one
// that cannot be a step of this job (PO582), the run asks for that key with another input (PO583), or its handler
// has returned (PO584), or work of OnCommit or RunTx asks (PO631). All are permanent, and a handler that swallows one does not
// get its result committed, but for PO584, which comes too late for that.
func (s Step[In, Out]) After(j *Run, in In) error {
	if err := j.inWork("step " + s.Name + " was asked for"); err != nil {
		return err
	}
	read, err := Encode(s.Name, in, s.Volatile...)
	if err != nil {
		return j.stick(Failf("PO582 step %s: %w", s.Name, err))
	}
	origin := j.Origin()
	origin.ReplyTo, origin.Correlation = "", "" // who waits for the job's answer does not wait for the step's
	return j.after(ledger.StepAsk{Key: read.Key.Ledger(), Action: s.Name, InputHash: read.Hash, Input: read.Body, Origin: origin})
}

// maxStepInput is the largest input of a step, in bytes.
const maxStepInput = ledger.InlineInput - ledger.WrapRoom

// after notes what is to follow the result.
func (r *Run) after(ask ledger.StepAsk) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return Failf("PO584 step %s was asked for when the handler had returned: ask in the handler itself", ask.Key)
	}
	err := r.askable(ask)
	if err == nil {
		for _, a := range r.asked().steps {
			if a.Key != ask.Key {
				continue
			}
			if a.Action == ask.Action && a.InputHash == ask.InputHash {
				return nil
			}
			err = fmt.Errorf("PO583 step %s is asked for as %s with input %s, and was as %s with input %s: another effect has another key",
				ask.Key, ask.Action, ask.InputHash, a.Action, a.InputHash)
		}
	}
	if err != nil {
		err = Fail(err)
		if r.sticky == nil {
			r.sticky = err
		}
		return err
	}
	f := r.asking()
	f.steps = append(f.steps, ask)
	return nil
}

// askable is why the run cannot ask for a step; nil: it can.
func (r *Run) askable(ask ledger.StepAsk) error {
	own := r.cfg.Lease.Key
	switch {
	case !r.declared[ask.Action]:
		return fmt.Errorf("PO580 step %q is not in the Steps of its job", ask.Action)
	case len(ask.Input) > maxStepInput:
		return fmt.Errorf("PO581 input of step %s has %d bytes, and one row holds %d: give it a reference, such as the key of the job's result",
			ask.Key, len(ask.Input), maxStepInput)
	case ask.Key == own:
		return fmt.Errorf("PO582 step %s of %s has the key of the job itself: JobKey of its message must name the step", ask.Action, own)
	case ask.Key.Tenant != own.Tenant:
		return fmt.Errorf("PO582 step %s belongs to another tenant than its job %s", ask.Key, own)
	}
	return nil
}

// Object names what the attempt made at the provider: a message id, a timestamp, a number. It is on record as the
// attempt's object, is shown as the step's remote id, and is what Reconcile is given in Open.ObjectID. The latest
// before the outcome is recorded counts: after Sent that is when Do returns, and over HTTP when the answer is
// read, so that there it must be known before; an id in the answer itself goes first. "": none.
func (a *Attempt) Object(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.object = clean(id, maxID)
}

// Object names what was found at the provider, as Attempt.Object does. It goes with Happened.
func (o Open) Object(id string) {
	if o.found != nil {
		o.found.ObjectID = clean(id, maxID)
	}
}
