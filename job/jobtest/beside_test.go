package jobtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// meeting makes two requests be under way side by side, in the order that is the worst to tell them apart: both gates are open
// before either request is out, and the one whose gate was first goes first. Who is not there is waited for no longer than a second.
type meeting struct{ gated, out [2]signal }

type signal struct {
	once sync.Once
	c    chan struct{}
}

func newMeeting() *meeting {
	m := new(meeting)
	for i := range 2 {
		m.gated[i].c, m.out[i].c = make(chan struct{}), make(chan struct{})
	}
	return m
}

func (s *signal) give() { s.once.Do(func() { close(s.c) }) }

func (s *signal) wait(ctx context.Context) {
	select {
	case <-s.c:
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
}

// ask makes request i of the meeting. Its header is longer than what is written at once, so its gate is open when the last of
// it is written down.
func (m *meeting) ask(ctx context.Context, c *http.Client, i int) (sorted, error) {
	var out sorted
	if i == 1 {
		m.gated[0].wait(ctx)
	}
	defer m.gated[i].give()
	defer m.out[i].give()
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() {
		m.gated[i].give()
		if i == 0 {
			m.gated[1].wait(ctx)
		} else {
			m.out[0].wait(ctx)
		}
	}})
	req, err := http.NewRequestWithContext(traced, http.MethodPost, modelURL+"/"+string("ab"[i]), strings.NewReader("x"))
	if err != nil {
		return out, err
	}
	req.Header.Set("X-Client-Request-Id", "an id of the user's own")
	req.Header.Set("X-Pad", strings.Repeat("x", 8<<10))
	resp, err := c.Do(req)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || resp.StatusCode != http.StatusOK {
		return out, fmt.Errorf("the model says %d: %w", resp.StatusCode, err)
	}
	return out, nil
}

// echo answers with the last letter of the path.
var echo = Options{Provider: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"topic":%q}`, r.URL.Path[len(r.URL.Path)-1:])
})}

// Two calls side by side, whose requests are named by the user, are each their own: an answer that was lost is found for the
// call that asked for it.
func TestCallsSideBySide(t *testing.T) {
	var m *meeting
	call := func(i int) job.Call[ticket, sorted] {
		return job.Call[ticket, sorted]{Name: string("ab"[i]), Routes: []job.Route[ticket, sorted]{{Name: "only", Provider: "example", Model: "m", Timeout: time.Minute,
			Do: func(ctx context.Context, a *job.Attempt, _ ticket) (sorted, error) { return m.ask(ctx, a.HTTP(), i) }}}}
	}
	a, b := call(0), call(1)
	def := plain(func(ctx context.Context, j *job.Run, in ticket) (sorted, error) {
		m = newMeeting()
		var outs [2]sorted
		var errs [2]error
		var both sync.WaitGroup
		for i, c := range []job.Call[ticket, sorted]{a, b} {
			both.Go(func() { outs[i], errs[i] = c.Run(ctx, j, in) })
		}
		both.Wait()
		for _, err := range errs {
			if err != nil {
				return sorted{}, err
			}
		}
		return sorted{outs[0].Topic + outs[1].Topic}, nil
	}, a, b)
	whens := map[string]bool{}
	CrashEverywhere(t, def, in, func(t testing.TB, e End[sorted]) {
		whens[e.When] = true
		if e.State != ledger.Done || e.Result.Topic != "ab" || e.Sends["a"] != 1 || e.Sends["b"] != 1 {
			t.Errorf("%s: %s %q, sent %v", e.When, e.State, e.Result.Topic, e.Sends)
		}
	}, echo)
	for _, name := range []string{"a", "b"} {
		for _, w := range []string{"the worker dies after the provider got the request of call %s, before it answers", "the worker dies after the provider answered call %s, before settle"} {
			if w = fmt.Sprintf(w, name); !whens[w] {
				t.Errorf("nothing happened as %q; there are %v", w, slices.Sorted(maps.Keys(whens)))
			}
		}
	}
}

// So are two steps whose effects go over HTTP, where no request has an id.
func TestStepsSideBySide(t *testing.T) {
	var m *meeting
	step := func(i int) job.Step[mail, string] {
		return job.Step[mail, string]{Name: string("ab"[i]), Timeout: time.Minute, Do: func(ctx context.Context, a *job.Attempt, _ mail) (string, error) {
			out, err := m.ask(ctx, a.Effect(), i)
			return out.Topic, err
		}}
	}
	a, b := step(0), step(1)
	def := plain(func(_ context.Context, j *job.Run, in ticket) (sorted, error) {
		m = newMeeting()
		for id, s := range map[string]job.Step[mail, string]{"1": a, "2": b} {
			if err := s.After(j, mail{in.Tenant, id, ""}); err != nil {
				return sorted{}, err
			}
		}
		return sorted{"billing"}, nil
	})
	def.Steps = job.Steps(a, b)
	opt := echo
	opt.Steps = func(reg *job.Registry) { job.RegisterStep(reg, a); job.RegisterStep(reg, b) }
	CrashEverywhere(t, def, in, func(t testing.TB, e End[sorted]) {
		if e.State != ledger.Done || e.Sends["a"] != 1 || e.Sends["b"] != 1 || e.Steps["acme:mail:1"] != ledger.Done || e.Steps["acme:mail:2"] != ledger.Done {
			t.Errorf("%s: %s, sent %v, steps %v", e.When, e.State, e.Sends, e.Steps)
		}
	}, opt)
}

// Of effects of a job's own calls nobody is asked whose they are: what they leave unknown has no log, and no name would change that.
func TestEffectsOfCallsSideBySide(t *testing.T) {
	var m *meeting
	call := func(i int) job.Call[ticket, string] {
		return job.Call[ticket, string]{Name: string("ab"[i]), Routes: []job.Route[ticket, string]{{Name: "only", Provider: "example", Model: "m", Timeout: time.Minute,
			Do: func(ctx context.Context, a *job.Attempt, _ ticket) (string, error) {
				if err := a.Sent(ctx); err != nil {
					return "", err
				}
				m.gated[i].give()
				if m.gated[1-i].wait(ctx); i == 0 {
					Did("a message")
					return "told", nil
				}
				time.Sleep(time.Second) // in the run with the fault the worker dies meanwhile
				return "nothing to tell", nil
			}}}}
	}
	a, b := call(0), call(1)
	def := plain(func(ctx context.Context, j *job.Run, in ticket) (sorted, error) {
		m = newMeeting()
		var errs [2]error
		var both sync.WaitGroup
		for i, c := range []job.Call[ticket, string]{a, b} {
			both.Go(func() { _, errs[i] = c.Run(ctx, j, in) })
		}
		both.Wait()
		return sorted{"billing"}, errors.Join(errs[:]...)
	}, a, b)
	r := &recorder{TB: t}
	e := runReporting(t, r, def, in, []Option{echo, CrashAt(Before(Settle).Of("a"))})
	if len(r.said) > 0 || e.State != ledger.Unknown || e.Did["a message"] != 1 {
		t.Errorf("%s, did %v; it is said: %q", e.State, e.Did, r.said)
	}
}
