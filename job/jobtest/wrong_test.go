package jobtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/job"
)

// recorder is a testing.TB that keeps what it is told.
type recorder struct {
	testing.TB
	said []string
}

func (r *recorder) Helper()                   {}
func (r *recorder) Error(args ...any)         { r.said = append(r.said, fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, a ...any) { r.said = append(r.said, fmt.Sprintf(f, a...)) }

// Fatalf ends the goroutine, as that of a test does.
func (r *recorder) Fatalf(f string, a ...any) {
	r.Errorf(f, a...)
	runtime.Goexit()
}

// only wants one report, with all of this in it.
func (r *recorder) only(t *testing.T, parts ...string) {
	t.Helper()
	if len(r.said) != 1 {
		t.Fatalf("%d reports, want one with %q:\n%s", len(r.said), parts, strings.Join(r.said, "\n"))
	}
	t.Log(r.said[0])
	for _, p := range parts {
		if !strings.Contains(r.said[0], p) {
			t.Errorf("the report has no %q:\n%s", p, r.said[0])
		}
	}
}

// everywhere crashes a job everywhere and returns what is reported.
func everywhere(t *testing.T, def job.Def[ticket, sorted], opts ...Option) *recorder {
	t.Helper()
	r := &recorder{TB: t}
	crashEverywhere(t, r, def, in, nil, opts)
	return r
}

func seven(t *testing.T, def job.Def[ticket, sorted], opts ...Option) *recorder {
	t.Helper()
	r := &recorder{TB: t}
	sevenPaths(t, r, def, in, opts)
	return r
}

func plain(handle func(context.Context, *job.Run, ticket) (sorted, error), uses ...job.Used) job.Def[ticket, sorted] {
	return job.Def[ticket, sorted]{Name: "ticket.sort", Uses: uses, Handle: handle}
}

// An HTTP call made outside of job.Call is seen, and paid twice where the worker dies after it.
func TestCallOutside(t *testing.T) {
	def := plain(func(ctx context.Context, _ *job.Run, m ticket) (sorted, error) {
		return post(ctx, http.DefaultClient, m.Text)
	})
	everywhere(t, def, model).only(t,
		"ticket.sort: POST https://models.example/v1/sort was sent by the handler itself, outside of any call or step, and paid 2 times",
		"when:  the worker dies after the provider got the request of POST https://models.example/v1/sort, before it answers (and in ",
		"fix:   the handler calls the provider outside of job.Call", "a.HTTP()",
		`again: jobtest.Run(t, def, in, jobtest.CrashAt(jobtest.Before(jobtest.Wire).Of("POST https://models.example/v1/sort")`)
}

// The same without the handler's context.
func TestCallOutsideWithoutContext(t *testing.T) {
	def := plain(func(_ context.Context, _ *job.Run, m ticket) (sorted, error) {
		return post(context.Background(), http.DefaultClient, m.Text)
	})
	everywhere(t, def, model).only(t, "and paid 2 times", "the handler calls the provider outside of job.Call")
}

// An effect that the handler has by itself is seen, and made twice where the worker dies after it.
func TestMailInTheHandler(t *testing.T) {
	call := sortCall()
	def := plain(func(ctx context.Context, j *job.Run, m ticket) (sorted, error) {
		out, err := call.Run(ctx, j, m)
		if err == nil {
			Did("mail to ann")
		}
		return out, err
	}, call)
	everywhere(t, def, model).only(t, "mail to ann was done by the handler itself, outside of any call or step: 2 times",
		"when:  the worker dies after the handler of ticket.sort returned, before the commit", "fix:   an effect is made again by every run of the handler: make it a job.Step", "counted in memory.Then, not by Did",
		"again: jobtest.Run(t, def, in, jobtest.CrashAt(jobtest.Before(jobtest.Complete)")
}

// clocked has a clock in its key.
type clocked struct{ ticket }

func (m clocked) JobKey() job.Key {
	return job.K(m.Tenant, "ticket.sort", m.ID, time.Now().Format(time.DateOnly))
}

// random has a random id in it.
type random struct{ ticket }

func (m random) JobKey() job.Key { return job.K(m.Tenant, "ticket.sort", rand.Text()) }

func TestKeyOfClock(t *testing.T) {
	call := sortCall()
	def := job.Def[clocked, sorted]{Name: "ticket.sort", Uses: job.Uses(call),
		Handle: func(ctx context.Context, j *job.Run, m clocked) (sorted, error) { return call.Run(ctx, j, m.ticket) }}
	r := &recorder{TB: t}
	crashEverywhere(t, r, def, clocked{in}, nil, []Option{model})
	r.only(t, "one message became 2 jobs: acme:ticket.sort:48213:2000-01-01, acme:ticket.sort:48213:2000-01-02", "JobKey may depend on the message alone")
}

// A job that does not end without faults is told of, and not judged under them.
func TestKeyOfRandom(t *testing.T) {
	def := job.Def[random, sorted]{Name: "ticket.sort", Handle: func(context.Context, *job.Run, random) (sorted, error) { return sorted{"billing"}, nil }}
	c := newSubject(t, def, random{in}, nil)
	o := c.simulate(t, nil)
	o.problems = judge(o, o)
	var all findings
	all.add(nil, o.problems)
	r := &recorder{TB: t}
	all.report(r, c.name)
	r.only(t, "the message was dead-lettered: PO405", "when:  nothing happens to the run", "fix:   JobKey may depend on the message alone: no clock, no random id")
}

// A loop around the call asks again where the outcome is unknown, or the provider refused.
func TestLoopAroundTheCall(t *testing.T) {
	call := sortCall()
	def := plain(func(ctx context.Context, j *job.Run, m ticket) (out sorted, err error) {
		for range 3 {
			if out, err = call.Run(ctx, j, m); err == nil {
				return out, nil
			}
			time.Sleep(time.Second)
		}
		return out, err
	}, call)
	seven(t, def, model).only(t, "one run asked for call sort 3 times, though it had ended without an answer",
		"when:  the first answer is slow, and the worker is stopped in order after the send gate of call sort, before the request goes out",
		"fix:   the handler retries by a loop of its own", `again: jobtest.Run(t, def, in, jobtest.SlowAnswer(), jobtest.Restart(jobtest.After(jobtest.Send).Of("sort")`)
}

// A handler that goes on with a default has its result refused, and is told so.
func TestSwallowedUnknown(t *testing.T) {
	call := sortCall()
	def := plain(func(ctx context.Context, j *job.Run, m ticket) (sorted, error) {
		out, err := call.Run(ctx, j, m)
		if err != nil {
			return sorted{"other"}, nil
		}
		return out, nil
	}, call)
	seven(t, def, model).only(t, "the handler returned a result, and swallowed: PO310", "fix:   return the error of Call.Run", "again: jobtest.Run(t, def, in, jobtest.SlowAnswer(), jobtest.Restart(")
	r := &recorder{TB: t}
	runReporting(t, r, def, in, []Option{model, LateAnswer()})
	r.only(t, "the handler returned a result, and swallowed: PO310", "when:  the first answer comes after the call's timeout", "again: jobtest.Run(t, def, in, jobtest.LateAnswer()")
}

// A clock in the input of a call that is memoised by it makes another call of it in the next run.
func TestClockInTheInput(t *testing.T) {
	type dated struct{ Text, Now string }
	call := job.Call[dated, sorted]{Name: "sort", Memo: job.ByInput, Routes: []job.Route[dated, sorted]{{Name: "only", Provider: "example", Model: "m", Timeout: time.Minute,
		Do: func(ctx context.Context, a *job.Attempt, m dated) (sorted, error) { return post(ctx, a.HTTP(), m.Text) }}}}
	def := plain(func(ctx context.Context, j *job.Run, m ticket) (sorted, error) {
		return call.Run(ctx, j, dated{m.Text, time.Now().String()})
	}, call)
	everywhere(t, def, model).only(t, "call sort was paid 2 times, and 1 times when nothing happened", "when:  the worker dies after the provider got the request of call sort, before it answers",
		"fix:   the input of the call differs from run to run (a clock, a random id")
}

// A step's key that differs from run to run is seen where the commit is made again.
func TestRandomStepKey(t *testing.T) {
	call, step := sortCall(), mailStep()
	def := plain(func(ctx context.Context, j *job.Run, m ticket) (sorted, error) {
		out, err := call.Run(ctx, j, m)
		return out, errors.Join(err, step.After(j, mail{m.Tenant, rand.Text(), out.Topic}))
	}, call)
	def.Steps = job.Steps(step)
	everywhere(t, def, withMail(model)).only(t, "two runs of the job asked for different steps: first acme:mail:", "when:  the worker dies after the handler of ticket.sort returned, before the commit",
		"fix:   a step's key may depend on the message")
}

// What one run leaves in the process must not change the calls of the next.
func TestCallLeftOut(t *testing.T) {
	call := sortCall()
	var done string
	def := plain(func(ctx context.Context, j *job.Run, m ticket) (sorted, error) {
		if j.Number() > 1 && done != "" {
			return sorted{done}, nil
		}
		out, err := call.Run(ctx, j, m)
		done = out.Topic
		return out, err
	}, call)
	everywhere(t, def, model).only(t, "an answer of call sort was paid for and thrown away", "when:  the worker dies after the handler of ticket.sort returned, before the commit", "did not ask for a call that an earlier one had paid for")
}

// What is missing of a job is told before a run, and not from within a bubble.
func TestStepNotRegistered(t *testing.T) {
	r := &recorder{TB: t}
	var trying sync.WaitGroup
	trying.Go(func() { newSubject(r, sorter(), in, []Option{model}) })
	trying.Wait()
	r.only(t, `PO585 job ticket.sort asks for step "mail"`, "jobtest.Options{Steps:")
}

// A job that cannot run at all is told once, by its error.
func TestNotInUses(t *testing.T) {
	call := sortCall()
	def := plain(func(ctx context.Context, j *job.Run, m ticket) (sorted, error) { return call.Run(ctx, j, m) })
	r := &recorder{TB: t}
	c := newSubject(t, def, in, []Option{model})
	o := c.simulate(t, nil)
	var all findings
	all.add(nil, judge(o, o))
	all.report(r, c.name)
	if len(r.said) > 0 || !strings.Contains(o.ended(), "PO325") {
		t.Errorf("the end is %s, the reports are %q", o.ended(), r.said)
	}
}

// A fault that does not come to pass proves nothing.
func TestNoSuchPoint(t *testing.T) {
	r := &recorder{TB: t}
	runReporting(t, r, sorter(), in, []Option{withMail(model), CrashAt(Before(Release))})
	r.only(t, "it did not happen", "when:  the worker dies before the job is given back")
}

func TestNoCollisions(t *testing.T) {
	NoCollisions(t, func(tenant, id string) job.Key { return ticket{Tenant: tenant, ID: id}.JobKey() })
	for name, c := range map[string]struct {
		key  func(tenant, id string) job.Key
		want []string
	}{
		"one for all tenants":  {func(_, id string) job.Key { return job.K("shared", "sort", id) }, []string{`is one of tenant "shared"`, "two jobs have the key"}},
		"joined by hand":       {func(tenant, id string) job.Key { return job.K("t", "sort", tenant+":"+id) }, []string{"two jobs have the key t:sort:", "is one of tenant"}},
		"a part is cut":        {func(tenant, id string) job.Key { return job.K(tenant, "sort", id[:1]) }, []string{"two jobs have the key", "whole and unchanged"}},
		"a clock":              {func(tenant, id string) job.Key { return job.K(tenant, "sort", id, time.Now().Format(time.DateOnly)) }, []string{"a day later"}},
		"no entity":            {func(tenant, id string) job.Key { return job.K(tenant, "sort") }, []string{"have no key: PO301"}},
		"the revision is left": {func(tenant, id string) job.Key { return job.K(tenant, "sort", strings.TrimPrefix(id, "v3")+"x") }, []string{"two jobs have the key"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{TB: t}
			noCollisions(t, r, c.key)
			for _, w := range c.want {
				if !strings.Contains(strings.Join(r.said, "\n"), w) {
					t.Errorf("no report has %q:\n%s", w, strings.Join(r.said, "\n"))
				}
			}
			t.Log(strings.Join(r.said, "\n"))
		})
	}
}

// Of two effects beside each other a name says whose each is. Without it nobody knows whether the step that died made its own, and the kit says so.
func TestEffectOfNobody(t *testing.T) {
	run := func(mailed, posted string) *recorder {
		var m *meeting
		tell := func(ctx context.Context, a *job.Attempt, i int) error {
			if i == 1 {
				m.gated[0].wait(ctx)
			}
			if err := a.Sent(ctx); err != nil {
				return err
			}
			m.gated[i].give()
			defer m.out[i].give()
			if i == 0 {
				m.gated[1].wait(ctx)
				Did(mailed)
				return nil
			}
			m.out[0].wait(ctx)
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, modelURL, nil)
			if err != nil {
				return err
			}
			resp, err := http.DefaultClient.Do(req) // a dead worker goes no further
			if err != nil {
				return err
			}
			Did(posted)
			return resp.Body.Close()
		}
		step := func(i int) job.Step[mail, int] {
			return job.Step[mail, int]{Name: []string{"mail", "post"}[i], Timeout: time.Minute, Do: func(ctx context.Context, a *job.Attempt, _ mail) (int, error) {
				return 0, tell(ctx, a, i)
			}}
		}
		a, b := step(0), step(1)
		def := plain(func(_ context.Context, j *job.Run, in ticket) (sorted, error) {
			m = newMeeting()
			return sorted{"billing"}, errors.Join(a.After(j, mail{in.Tenant, "1", ""}), b.After(j, mail{in.Tenant, "2", ""}))
		})
		def.Steps = job.Steps(a, b)
		opt := model
		opt.Steps = func(reg *job.Registry) { job.RegisterStep(reg, a); job.RegisterStep(reg, b) }
		r := &recorder{TB: t}
		e := runReporting(t, r, def, in, []Option{opt, CrashAt(Before(Settle).In("mail"))})
		if e.Did[mailed] != 1 {
			t.Errorf("did %v", e.Did)
		}
		return r
	}
	if r := run("a mail", "a post"); len(r.said) > 0 {
		t.Errorf("of effects with names it is said: %q", r.said)
	}
	run("one", "two").only(t, "it cannot be known which of them made the effect one, since all were about to: mail acme:mail:1, post acme:mail:2", "fix:   name an effect after its step")
}

// A dead worker's handler does nothing any more, not even with an answer that was on its way to it.
func TestDeadHandlersStop(t *testing.T) {
	def := plain(func(ctx context.Context, _ *job.Run, m ticket) (sorted, error) {
		out, err := post(ctx, http.DefaultClient, m.Text)
		Did("mail to ann")
		return out, err
	})
	e := runReporting(t, &recorder{TB: t}, def, in, []Option{model, CrashAt(Before(Wire))})
	if e.Did["mail to ann"] != 1 {
		t.Errorf("did %v: the dead worker's handler went on", e.Did)
	}
}
