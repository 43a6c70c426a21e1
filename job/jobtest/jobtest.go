package jobtest

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// Options shape a run. The zero value is a usable one, for a handler that asks OpenAI or Anthropic for text.
type Options struct {
	// Provider answers every request over HTTP, of calls and steps alike; r.Host says for whom it is. nil: a stand-in that speaks the APIs of OpenAI and
	// Anthropic, and says Answer. It must not wait for anything but time.
	Provider http.Handler
	// Answer is what the models of the stand-in say. "": "ok".
	Answer string
	// Latency is how long each paid answer takes. 0: 1 s.
	Latency time.Duration
	// Free says that a request costs nothing and has no effect, so that it may be made anywhere and any number of times. nil: GET and HEAD.
	Free func(r *http.Request) bool
	// Steps registers the steps that the job asks for, with job.RegisterStep, and jobs that it publishes messages to, with job.Register: other
	// messages go nowhere. It is called for each worker. nil: it has none.
	Steps func(reg *job.Registry)
	// Config is that of the workers; what it must have, such as a source, a store and a name, it gets. The zero value has
	// four slots, a lease of 30 s, and the consumer's defaults.
	Config consumer.Config
}

// Option is Options or a [Fault].
type Option interface{ apply(*setup) }

type setup struct {
	Options
	faults []Fault
}

func (o Options) apply(s *setup) { s.Options = o }

// End is what a run came to: everything that is on record, and everything that went out.
type End[Out any] struct {
	When   string       // what happened to the run, in words, as reports say it
	State  ledger.State // of the job; "": there is none
	Result Out          // of a job that is done
	Error  string       // of one that failed
	Runs   int          // that counted
	Held   bool         // its outcome was unknown until somebody found out
	// Deliveries counts the hand-outs of messages: two of a run to which nothing happens, since the message is submitted once more a day later.
	Deliveries int
	// Sends counts the requests and effects that went out, by the call's name, or the step's.
	Sends map[string]int
	Spend ledger.Nano             // that is known of the job
	Steps map[string]ledger.State // by key
	Did   map[string]int          // what fakes of yours told, by name
	Job   ledger.Job              // the whole row, with attempts and history
}

// Run runs the job under faults, if there are any, and returns its end. What breaks a rule is an error of t.
func Run[In job.Keyed, Out any](t *testing.T, def job.Def[In, Out], in In, opts ...Option) End[Out] {
	t.Helper()
	return runReporting(t, t, def, in, opts)
}

// runReporting reports to tb.
func runReporting[In job.Keyed, Out any](t *testing.T, tb testing.TB, def job.Def[In, Out], in In, opts []Option) End[Out] {
	t.Helper()
	c := newSubject(t, def, in, opts)
	o := c.clean(t)
	var all findings
	if len(c.faults) == 0 {
		all.add(nil, o.problems)
	} else {
		base := o
		o = c.simulate(t, c.faults)
		all.add(c.faults, judge(base, o))
	}
	all.report(tb, c.name)
	return endOf[Out](t, o)
}

// CrashEverywhere runs the job once as it is, and then once for each point before and after which something is on record or has gone out: the
// claim, the send gate, the wire, settle, the commit, the ack, and the same of its steps. There the worker dies, and a fresh one goes on. Each of these is a subtest, named by its
// point, and check is given its end; nil: only the rules are checked. Faults among the options happen in each.
func CrashEverywhere[In job.Keyed, Out any](t *testing.T, def job.Def[In, Out], in In, check func(t testing.TB, end End[Out]), opts ...Option) {
	t.Helper()
	crashEverywhere(t, t, def, in, check, opts)
}

// crashEverywhere reports to tb.
func crashEverywhere[In job.Keyed, Out any](t *testing.T, tb testing.TB, def job.Def[In, Out], in In, check func(testing.TB, End[Out]), opts []Option) {
	t.Helper()
	c := newSubject(t, def, in, opts)
	base := c.clean(t)
	var all findings
	all.add(nil, base.problems)
	if check != nil && base.job.State != "" {
		check(tb, endOf[Out](t, base))
	}
	trail := base.trail
	if len(c.faults) > 0 {
		trail = c.simulate(t, c.faults).trail
	}
	for _, p := range trail {
		t.Run(p.String(), func(t *testing.T) {
			faults := append([]Fault{CrashAt(p)}, c.faults...)
			o := c.simulate(t, faults)
			all.add(faults, judge(base, o))
			if check != nil {
				check(t, endOf[Out](t, o))
			}
		})
	}
	all.report(tb, c.name)
}

// subject is the job under test with its types erased.
type subject struct {
	setup
	name     string
	body     []byte
	key      job.Key
	handler  *job.Handler
	register func(*job.Registry)
	http     map[string]bool // calls that go over HTTP, by job and name; known after the run without faults
}

func newSubject[In job.Keyed, Out any](t testing.TB, def job.Def[In, Out], in In, opts []Option) *subject {
	t.Helper()
	c := &subject{name: def.Name, key: in.JobKey()}
	for _, o := range opts {
		o.apply(&c.setup)
	}
	var err error
	if c.body, err = json.Marshal(in); err != nil {
		t.Fatalf("jobtest: the message of %s cannot be encoded: %v", def.Name, err)
	}
	if handle := def.Handle; handle != nil {
		def.Handle = watched(handle)
	}
	c.register = func(reg *job.Registry) {
		job.Register(reg, def)
		if c.Options.Steps != nil {
			c.Options.Steps(reg)
		}
	}
	reg := new(job.Registry)
	c.register(reg)
	if err := reg.Check(); err != nil {
		t.Fatalf("jobtest: the job cannot run: %v\n    fix:   register what it asks for in the test too: jobtest.Options{Steps: func(reg *job.Registry) { job.RegisterStep(reg, step) }}", err)
	}
	c.handler, _ = reg.Lookup(def.Name)
	return c
}

// watched is a handler whose results are compared with what its run may do.
func watched[In job.Keyed, Out any](handle func(context.Context, *job.Run, In) (Out, error)) func(context.Context, *job.Run, In) (Out, error) {
	return func(ctx context.Context, j *job.Run, in In) (Out, error) {
		out, err := handle(ctx, j, in)
		if sticky := j.Sticky(); err == nil && sticky != nil {
			swallowed(sticky)
		}
		return out, err
	}
}

// clean runs the job as it is. A job that ends otherwise than done then cannot be judged under faults.
func (c *subject) clean(t *testing.T) *outcome {
	t.Helper()
	o := c.simulate(t, nil)
	c.http = o.overHTTP()
	o.problems = judge(o, o)
	if o.job.State != ledger.Done {
		var all findings
		all.add(nil, o.problems)
		all.report(t, c.name)
		t.Fatalf("jobtest: %s does not end well even when nothing happens to it: %s\n    fix:   mend that first; docs/errors.md has what to do about a PO code", c.name, o.ended())
	}
	return o
}

// endOf gives the outcome its type.
func endOf[Out any](t testing.TB, o *outcome) End[Out] {
	t.Helper()
	e := End[Out]{When: cmp.Or(o.when, nothing), State: o.job.State, Runs: o.job.Runs, Held: o.held, Deliveries: o.handed, Sends: o.sends, Steps: o.steps, Did: o.did, Job: o.job}
	if o.job.Cost != nil {
		e.Spend = *o.job.Cost
	}
	if o.job.Error != nil && o.job.State != ledger.Done {
		e.Error = o.job.Error.Text
	}
	if o.job.State == ledger.Done && o.job.Result != nil {
		if err := json.Unmarshal(o.job.Result.Body, &e.Result); err != nil {
			t.Errorf("jobtest: the result %s does not read as %T: %v", o.job.Result.Body, e.Result, err)
		}
	}
	return e
}
