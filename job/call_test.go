package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/memory"
)

// bench is one job in a real ledger, and a worker that runs it.
type bench struct {
	t      *testing.T
	l      *memory.Ledger
	worker ledger.WorkerID
	budget ledger.Nano
	change func(*RunConfig)
}

var benchKey = ledger.Key{Tenant: "acme", Text: "acme:job:1"}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, l: memory.New()}
	var err error
	if b.worker, err = b.l.Join(t.Context(), ledger.Worker{ID: "w1", TTL: 24 * time.Hour}); err != nil {
		t.Fatal(err)
	}
	return b
}

// run claims the job for one more run.
func (b *bench) run() *Run {
	b.t.Helper()
	c, err := b.l.Claim(b.t.Context(), ledger.Request{Key: benchKey, Action: "job", Input: []byte("{}"), Carrier: ledger.CarriedByBroker,
		Worker: b.worker, Token: ledger.NewID(), MaxRun: 12 * time.Hour, Budget: b.budget})
	if err != nil || c.Verdict != ledger.Run {
		b.t.Fatalf("claim: %s, %v", c.Verdict, err)
	}
	j := testRun(b.t, b.l, func(cfg *RunConfig) {
		cfg.Lease, cfg.Number = &c.Lease, c.Run
		if b.change != nil {
			b.change(cfg)
		}
	})
	return j
}

// release ends the run j without a result and returns the job's state.
func (b *bench) release(j *Run) ledger.State {
	b.t.Helper()
	r, err := b.l.Release(b.t.Context(), *j.cfg.Lease, ledger.Outcome{Error: ledger.JobError{Class: "retry"}, Who: "w1"})
	if err != nil {
		b.t.Fatal(err)
	}
	if r.State == ledger.Ready {
		if err := b.l.MakeDue(benchKey); err != nil {
			b.t.Fatal(err)
		}
	}
	return r.State
}

// attempts prints the job's attempts: route, state, class.
func (b *bench) attempts() []string {
	b.t.Helper()
	j, err := b.l.Job(b.t.Context(), benchKey)
	if err != nil {
		b.t.Fatal(err)
	}
	var s []string
	for _, a := range j.Attempts {
		s = append(s, fmt.Sprintf("%s %s %s", a.Route, a.State, a.Evidence.Class))
	}
	return s
}

func (b *bench) want(attempts ...string) {
	b.t.Helper()
	if got := b.attempts(); !slices.Equal(got, attempts) {
		b.t.Errorf("attempts %q, want %q", got, attempts)
	}
}

// sending is a route that marks itself as sent and then answers as told, one answer
// an attempt, the last one for all that follow.
func sending(name string, answers ...any) Route[string, string] {
	var mu sync.Mutex
	n := 0
	return Route[string, string]{Name: name, Provider: "test", Timeout: time.Minute,
		Do: func(ctx context.Context, a *Attempt, in string) (string, error) {
			if err := a.Sent(ctx); err != nil {
				return "", err
			}
			mu.Lock()
			defer mu.Unlock()
			v := answers[min(n, len(answers)-1)]
			n++
			switch v := v.(type) {
			case error:
				return "", v
			case func():
				v()
			}
			return fmt.Sprint(v, ":", in), nil
		}}
}

// calls runs c on j as its handler would.
func calls(t *testing.T, j *Run, c Call[string, string], in string) (string, error) {
	t.Helper()
	if err := c.info().check(); err != nil {
		t.Fatal(err)
	}
	j.mu.Lock()
	j.calls = map[string]CallInfo{c.Name: c.info()}
	j.mu.Unlock()
	return c.Run(t.Context(), j, in)
}

var (
	errBusy = errors.New("busy")
	errBad  = errors.New("bad")
)

// TestCallOnce: an answer is asked for once, in the run and in later ones.
func TestCallOnce(t *testing.T) {
	b := newBench(t)
	c := Call[string, string]{Name: "c", Routes: []Route[string, string]{sending("a", "one", "two")}}
	for n := range 3 {
		j := b.run()
		for range 2 {
			if v, err := calls(t, j, c, "in"); v != "one:in" || err != nil {
				t.Errorf("run %d: %q, %v", n, v, err)
			}
		}
		if used := j.Result(nil).Used; len(used) != 1 {
			t.Errorf("run %d used the answers %v, want one", n, used)
		}
		b.release(j)
	}
	b.want("a received done")
}

// TestCallRoutes: definite failures go on to another try or route, within what Retry allows.
func TestCallRoutes(t *testing.T) {
	for name, c := range map[string]struct {
		routes   []Route[string, string]
		max      int
		want     string
		class    Class
		in       time.Duration
		attempts []string
	}{
		"again": {[]Route[string, string]{sending("a", Retry(errBusy), "ok")}, 1, "ok:in", "", 0,
			[]string{"a rejected refused", "a received done"}},
		"not again": {[]Route[string, string]{sending("a", Retry(errBusy), "ok")}, 0, "", Retryable, 0,
			[]string{"a rejected refused"}},
		"next": {[]Route[string, string]{sending("a", Fail(errBad)), sending("b", "ok")}, 3, "ok:in", "", 0,
			[]string{"a failed failed", "b received done"}},
		"spent, then next": {[]Route[string, string]{sending("a", Retry(errBusy)), sending("b", "ok")}, 1, "ok:in", "", 0,
			[]string{"a rejected refused", "a rejected refused", "b received done"}},
		"none": {[]Route[string, string]{sending("a", Fail(errBad)), sending("b", Fail(errBad))}, 1, "", Permanent, 0,
			[]string{"a failed failed", "b failed failed"}},
		"waiting helps on the first": {[]Route[string, string]{sending("a", RetryIn(time.Hour, errBusy)), sending("b", Fail(errBad))}, 1, "", Retryable, time.Hour,
			[]string{"a rejected refused", "b failed failed"}},
		"the shorter wait": {[]Route[string, string]{sending("a", RetryIn(time.Hour, errBusy)), sending("b", RetryIn(time.Minute, errBusy))}, 0, "", Retryable, time.Minute,
			[]string{"a rejected refused", "b rejected refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				v, err := calls(t, b.run(), Call[string, string]{Name: "c", Routes: c.routes, Retry: Backoff{Max: c.max}}, "in")
				class, in := ClassOf(err)
				if v != c.want || (err == nil) != (c.class == "") || err != nil && (class != c.class || in != c.in) {
					t.Errorf("%q, %v (%s, %s); want %q, %s, %s", v, err, class, in, c.want, c.class, c.in)
				}
				b.want(c.attempts...)
			})
		})
	}
}

// TestBackoff: waits double up to the ceiling, heed the provider, and end with the context.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		soonIn := func(d time.Duration) *outcome { return &outcome{again: soon, wait: d} }
		for _, c := range []struct {
			b    Backoff
			n    int
			o    *outcome
			want time.Duration // 0: no wait at all
		}{
			{Backoff{Max: 9}, 0, soonIn(0), time.Second},
			{Backoff{Max: 9}, 3, soonIn(0), 8 * time.Second},
			{Backoff{Max: 9}, 8, soonIn(0), 30 * time.Second},
			{Backoff{Max: 99, First: 200 * time.Hour, Ceil: 500 * time.Hour}, 60, soonIn(0), 500 * time.Hour},
			{Backoff{Max: 9, First: time.Minute, Ceil: time.Second}, 0, soonIn(0), time.Second},
			{Backoff{Max: 9}, 0, soonIn(10 * time.Second), 10 * time.Second},
			{Backoff{Max: 9}, 0, soonIn(31 * time.Second), 0},
			{Backoff{Max: 1}, 1, soonIn(0), 0},
			{Backoff{Max: 9}, 0, &outcome{again: never}, 0},
			{Backoff{Max: 9}, 0, &outcome{again: later}, 0},
		} {
			start := time.Now()
			ok := c.b.wait(t.Context(), c.n, c.o)
			if took := time.Since(start); ok != (c.want > 0) || took < c.want || took > c.want+c.want/4 {
				t.Errorf("%+v, try %d, asked for %s: %t after %s, want %s", c.b, c.n, c.o.wait, ok, took, c.want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if (Backoff{Max: 9}).wait(ctx, 0, soonIn(0)) {
			t.Error("the wait outlived its context")
		}
	})
}

// TestManual: what user code returns after Sent is what is recorded.
func TestManual(t *testing.T) {
	for name, c := range map[string]struct {
		answer any
		want   string
	}{
		"value":    {"ok", "a received done"},
		"fail":     {Fail(errBad), "a failed failed"},
		"retry":    {Retry(errBusy), "a rejected refused"},
		"unsure":   {Unsure(errBad), "a sent unsure"},
		"no class": {errBad, "a sent unsure"},
	} {
		b := newBench(t)
		j := b.run()
		_, err := calls(t, j, Call[string, string]{Name: "c", Routes: []Route[string, string]{sending("a", c.answer)}}, "in")
		if (err == nil) != (name == "value") || errors.Is(err, ErrHeld) != strings.Contains(c.want, "sent") {
			t.Errorf("%s: %v", name, err)
		}
		b.want(c.want)
	}
}

// TestNotEncodable: a value that cannot be kept leaves the call open.
func TestNotEncodable(t *testing.T) {
	b := newBench(t)
	j := b.run()
	c := Call[string, chan int]{Name: "c", Routes: []Route[string, chan int]{{Name: "a", Timeout: time.Minute,
		Do: func(ctx context.Context, a *Attempt, _ string) (chan int, error) { return nil, a.Sent(ctx) }}}}
	j.calls = map[string]CallInfo{"c": c.info()}
	if _, err := c.Run(t.Context(), j, ""); !errors.Is(err, ErrHeld) {
		t.Errorf("%v, want ErrHeld", err)
	}
	b.want("a sent answer_not_encodable")
}

// TestHold: an unknown outcome sticks to the run, whatever the handler makes of it, and
// the job becomes unknown; no policy but Replay sends again.
func TestHold(t *testing.T) {
	for _, p := range []Policy{Hold(), FailUnknown()} {
		b := newBench(t)
		j := b.run()
		c := Call[string, string]{Name: "c", OnUnknown: p, Routes: []Route[string, string]{sending("a", Unsure(errBad)), sending("b", "ok")}, Retry: Backoff{Max: 5}}
		_, err := calls(t, j, c, "in")
		_, again := calls(t, j, c, "in")
		if !errors.Is(err, ErrHeld) || !errors.Is(err, errBad) || !errors.Is(again, ErrHeld) || !errors.Is(j.Sticky(), ErrHeld) {
			t.Errorf("%s: %v; %v; sticky %v", p, err, again, j.Sticky())
		}
		b.want("a sent unsure")
		if s := b.release(j); s != ledger.Unknown {
			t.Errorf("%s: the job is %s", p, s)
		}
	}
}

// TestReplay: with the policy's leave, and not before the route's timeout, the run goes on.
func TestReplay(t *testing.T) {
	for name, c := range map[string]struct {
		aged     bool
		traced   bool
		want     string
		attempts []string
	}{
		"past its timeout":            {true, false, "ok:in", []string{"a unknown unsure", "b received done"}},
		"within it":                   {false, false, "", []string{"a sent unsure"}},
		"it can be asked about, past": {true, true, "", []string{"a sent unsure"}},
	} {
		b := newBench(t)
		j := b.run()
		a := sending("a", Unsure(errBad))
		a.Traced = c.traced
		do := a.Do
		a.Do = func(ctx context.Context, at *Attempt, in string) (string, error) {
			v, err := do(ctx, at, in)
			if c.aged {
				err = errors.Join(err, b.l.AgeAttempts(benchKey, time.Hour))
			}
			return v, err
		}
		v, err := calls(t, j, Call[string, string]{Name: "c", OnUnknown: Replay(1), Routes: []Route[string, string]{a, sending("b", "ok")},
			Reconcile: func(context.Context, Open) (string, Finding, error) { return "", CannotTell, nil }}, "in") // there is no id to ask by
		if v != c.want || errors.Is(err, ErrHeld) != (c.want == "") {
			t.Errorf("%s: %q, %v", name, v, err)
		}
		b.want(c.attempts...)
	}
}

// TestReplayNextRun: a replay without a route left is the next run's to use.
func TestReplayNextRun(t *testing.T) {
	b := newBench(t)
	j := b.run()
	a := sending("a", func() { b.l.AgeAttempts(benchKey, time.Hour) })
	do := a.Do
	n := 0
	a.Do = func(ctx context.Context, at *Attempt, in string) (string, error) {
		v, err := do(ctx, at, in)
		if n++; n == 1 {
			return "", Unsure(errBad)
		}
		return "ok" + v[len(v)-3:], err
	}
	c := Call[string, string]{Name: "c", OnUnknown: Replay(1), Routes: []Route[string, string]{a}}
	if _, err := calls(t, j, c, "in"); errors.Is(err, ErrHeld) || err == nil {
		t.Errorf("first run: %v", err)
	}
	if s := b.release(j); s != ledger.Ready {
		t.Fatalf("the job is %s", s)
	}
	if v, err := calls(t, b.run(), c, "in"); v != "ok:in" || err != nil {
		t.Errorf("second run: %q, %v", v, err)
	}
	b.want("a unknown unsure", "a received done")
}

// TestLateAnswer: an answer that arrives between the look and the gate is used, and
// nothing is sent.
func TestLateAnswer(t *testing.T) {
	b := newBench(t)
	j := b.run()
	first := Call[string, string]{Name: "c", Routes: []Route[string, string]{sending("a", Unsure(errBad))}}
	if _, err := calls(t, j, first, "in"); !errors.Is(err, ErrHeld) {
		t.Fatal(err)
	}
	row, err := b.l.Job(t.Context(), benchKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.l.AgeAttempts(benchKey, time.Hour), b.l.Replay(t.Context(), *j.cfg.Lease, ledger.ReplayPolicy{Max: 1})); err != nil {
		t.Fatal(err)
	}
	b.release(j)
	j = b.run()
	id := ledger.AttemptID{Tenant: "acme", Job: row.ID, ID: row.Attempts[0].ID}
	route := sending("a", "second")
	do := route.Do
	route.Do = func(ctx context.Context, a *Attempt, in string) (string, error) {
		if _, err := b.l.Settle(ctx, id, ledger.Evidence{State: ledger.Received, By: ledger.BySender,
			Response: &ledger.Response{Codec: "json", Body: []byte(`"late"`)}}); err != nil {
			t.Error(err)
		}
		return do(ctx, a, in)
	}
	if v, err := calls(t, j, Call[string, string]{Name: "c", Routes: []Route[string, string]{route}}, "in"); v != "late" || err != nil || j.Sticky() != nil {
		t.Errorf("%q, %v, sticky %v", v, err, j.Sticky())
	}
	b.want("a received unsure")
}
