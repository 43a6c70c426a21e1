package simulate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger/memory"
)

// JobKey implements job.Keyed.
func (o order) JobKey() job.Key { return job.K(o.Tenant, o.Kind, o.Doc) }

type (
	orderCall = job.Call[order, string]
	orderStep = job.Step[order, string]
	route     = job.Route[order, string]
)

// post makes the one request of an attempt.
func post(ctx context.Context, a *job.Attempt, c *http.Client, call string) (*http.Response, []byte, error) {
	body, _ := json.Marshal(map[string]string{"Key": a.Key().Text, "Call": call, "Model": a.Model()}) // strings always encode
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://provider.test/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("X-Client-Request-Id", a.ID())
	resp, err := c.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp, body, err
}

// via is a route that asks the provider. call names the request, from what it is asked for.
func via(name string, call func(order) string) route {
	return route{Name: name, Provider: "openai", Model: "sim", Timeout: routeTime, Do: func(ctx context.Context, a *job.Attempt, in order) (string, error) {
		resp, body, err := post(ctx, a, a.HTTP(), call(in))
		if err != nil || resp.StatusCode != http.StatusOK {
			return "", fmt.Errorf("the provider did not answer: %w", errors.Join(err, errNoAnswer))
		}
		return contentOf(body)
	}}
}

var errNoAnswer = errors.New("no answer")

func called(name string) func(order) string { return func(order) string { return name } }

// look asks the provider's list about an attempt.
func (w *world) look(o job.Open) (string, job.Finding, error) {
	r := w.known(o.ClientRequestID)
	if w.fails("look " + w.nameOf(o.ClientRequestID)) {
		return "", job.CannotTell, errNoAnswer
	}
	switch {
	case r == nil:
		return "", job.Absent, nil
	case time.Now().Before(r.done):
		return "", job.StillRunning, nil
	}
	if r.call != "do" {
		o.Answered(r.object)
	}
	return r.text, job.Happened, nil
}

// callNamed is a call by one route.
func (w *world) callNamed(name string, p job.Policy) orderCall {
	return orderCall{Name: name, OnUnknown: p, Routes: []route{via("primary", called(name))}}
}

// asks makes a call's unknown attempts such as the provider is asked about.
func (w *world) asks(c orderCall) orderCall {
	c.Routes[0].Traced = true
	c.Reconcile = func(_ context.Context, o job.Open) (string, job.Finding, error) { return w.look(o) }
	return c
}

func (w *world) mail() orderStep {
	return orderStep{Name: "mail", Timeout: routeTime,
		Do: func(ctx context.Context, a *job.Attempt, in order) (string, error) {
			resp, _, err := post(ctx, a, a.Effect(), "do")
			switch {
			case err != nil:
				return "", job.Unsure(err)
			case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusInternalServerError:
				return "", job.Retry(errNoAnswer)
			case resp.StatusCode != http.StatusOK:
				return "", job.Unsure(errNoAnswer)
			}
			return "sent", nil
		},
		Reconcile: func(_ context.Context, o job.Open, _ order) (string, job.Finding, error) { return w.look(o) }}
}

// register registers all handlers.
func (w *world) register(reg *job.Registry) {
	a, b := w.callNamed("a", job.Hold()), w.callNamed("b", job.Replay(1))
	b.Retry = job.Backoff{Max: 2, First: time.Second}
	w.handler(reg, "one", []orderCall{a})
	w.handler(reg, "two", []orderCall{w.callNamed("a", job.Replay(1)), b})
	f := w.callNamed("f", job.Replay(1))
	f.Routes = append(f.Routes, via("fallback", called("f")))
	f.Retry = job.Backoff{Max: 1, First: time.Second}
	w.handler(reg, "fallback", []orderCall{f})
	asked := w.asks(w.callNamed("r", job.Hold()))
	asked.Retry = job.Backoff{Max: 2, First: time.Second}
	w.handler(reg, "asked", []orderCall{asked})
	w.handler(reg, "steps", []orderCall{w.asks(w.callNamed("s", job.Replay(1)))})
	fan := orderCall{Name: "fan", Memo: job.ByInput, OnUnknown: job.FailUnknown(), Routes: []route{via("primary", func(o order) string { return "fan" + o.Text })}}
	w.handler(reg, "fan", []orderCall{fan})
	w.handler(reg, "note", nil)
	job.RegisterStep(reg, w.mail())
}

// handler registers one that makes these calls, each after the other.
func (w *world) handler(reg *job.Registry, name string, calls []orderCall) {
	def := job.Def[order, string]{Name: name, Steps: job.Steps(w.mail())}
	for _, c := range calls {
		def.Uses = append(def.Uses, job.Uses(c)...)
	}
	def.Handle = func(ctx context.Context, j *job.Run, in order) (string, error) {
		trouble := w.trouble(j, name)
		if err := trouble("before"); err != nil {
			return "", err
		}
		got, err := w.work(ctx, j, in, calls)
		if err != nil && !w.swallows(j) {
			return "", err
		}
		if err := trouble("after"); err != nil {
			return "", err
		}
		w.commits(j)
		if name == "steps" {
			if err := errors.Join(w.mail().After(j, order{in.Tenant, "mail", in.Doc, ""}),
				j.Publish("note", order{in.Tenant, "note", in.Doc + "-1", ""}), j.Publish("note", order{in.Tenant, "note", in.Doc + "-2", ""})); err != nil {
				return "", err
			}
		}
		return got, nil
	}
	job.Register(reg, def)
}

// work makes the calls and returns what they were answered.
func (w *world) work(ctx context.Context, j *job.Run, in order, calls []orderCall) (string, error) {
	var got []string
	for _, c := range calls {
		if c.Memo == job.ByInput {
			return w.fan(ctx, j, in, c)
		}
		v, err := c.Run(ctx, j, in)
		if err != nil {
			return "", err
		}
		got = append(got, v)
	}
	return strings.Join(got, "; "), nil
}

// fan makes a call twice, for two inputs, at the same time.
func (w *world) fan(ctx context.Context, j *job.Run, in order, c orderCall) (string, error) {
	var wg sync.WaitGroup
	got, errs := make([]string, 2), make([]error, 2)
	for i := range got {
		of := in
		of.Text = fmt.Sprint(i)
		wg.Go(func() { got[i], errs[i] = c.Run(ctx, j, of) })
	}
	wg.Wait()
	return strings.Join(got, "; "), errors.Join(errs...)
}

// commits counts an effect in the result's own commit.
func (w *world) commits(j *job.Run) {
	key := j.Key().Text
	memory.OnCommit(j, func(ctx context.Context) error {
		if w.fails("hook " + key) {
			return errors.New("the user's own work did not go well")
		}
		memory.Then(ctx, func() { w.effects[key]++ }) // under the ledger's lock
		return nil
	})
}

// trouble is what the handler's own code does wrong in this run.
func (w *world) trouble(j *job.Run, kind string) func(where string) error {
	n := w.nth("run " + j.Key().Text)
	id := fmt.Sprintf("handler %s %d", j.Key().Text, n)
	if kind == "note" || n > 3 || !w.bad(id) {
		return func(string) error { return nil }
	}
	c := w.plan.chance
	where := []string{"before", "after"}[c.below(2, id, "where")]
	return func(at string) error {
		if at != where {
			return nil
		}
		w.say(j.Key().Text, "%s: trouble", id)
		switch c.below(5, id, "what") {
		case 0:
			return errors.New("something went wrong")
		case 1:
			return job.RetryIn(3*time.Second, errors.New("not now"))
		case 2:
			return job.Later(10*time.Second, errors.New("it waits for others"))
		case 3:
			panic("the handler's own fault")
		}
		if c.likely(0.3, id, "permanent") {
			return job.Fail(errors.New("it cannot be done"))
		}
		return nil
	}
}

// swallows says that the handler goes on although a call had no answer. What it makes must not be committed when that is sticky.
func (w *world) swallows(j *job.Run) bool {
	return w.plan.chance.likely(0.05, "swallow", j.Key().Text, fmt.Sprint(j.Number()))
}
