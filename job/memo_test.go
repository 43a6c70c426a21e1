package job

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// TestMemo: what makes two calls the same.
func TestMemo(t *testing.T) {
	for memo, want := range map[Memo]int{ByName: 1, ByInput: 2, EachCall: 6} {
		b := newBench(t)
		c := Call[string, string]{Name: "c", Memo: memo, Routes: []Route[string, string]{sending("a", "x")}}
		for range 2 {
			j := b.run()
			for _, in := range []string{"one", "two", "one"} {
				v, err := calls(t, j, c, in)
				if err != nil || memo != ByName && v != "x:"+in {
					t.Errorf("memo %d: %q, %v", memo, v, err)
				}
			}
			b.release(j)
		}
		if got := len(b.attempts()); got != want {
			t.Errorf("memo %d: %d requests, want %d", memo, got, want)
		}
	}
}

// TestSingleFlight: goroutines of a run that ask the same share one request; what
// differs does not wait for it.
func TestSingleFlight(t *testing.T) {
	b := newBench(t)
	j := b.run()
	started, release := make(chan struct{}), make(chan struct{})
	var sent atomic.Int64
	c := Call[string, string]{Name: "c", Memo: ByInput, Routes: []Route[string, string]{{Name: "a", Timeout: time.Minute,
		Do: func(ctx context.Context, a *Attempt, in string) (string, error) {
			if err := a.Sent(ctx); err != nil {
				return "", err
			}
			sent.Add(1)
			if in == "slow" {
				close(started)
				<-release
			}
			return in, nil
		}}}}
	j.calls = map[string]CallInfo{"c": c.info()}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if v, err := c.Run(t.Context(), j, "slow"); v != "slow" || err != nil {
				t.Errorf("%q, %v", v, err)
			}
		})
	}
	<-started
	if v, err := c.Run(t.Context(), j, "other"); v != "other" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errBad)
	if _, err := c.Run(ctx, j, "slow"); !errors.Is(err, errBad) {
		t.Errorf("one that stopped waiting says %v", err)
	}
	close(release)
	wg.Wait()
	if sent.Load() != 2 {
		t.Errorf("%d requests, want 2", sent.Load())
	}
}

// TestFlightPanics: a panic is its own goroutine's; the others are told.
func TestFlightPanics(t *testing.T) {
	b := newBench(t)
	j := b.run()
	started, release := make(chan struct{}), make(chan struct{})
	c := Call[string, string]{Name: "c", Routes: []Route[string, string]{{Name: "a", Timeout: time.Minute,
		Do: func(context.Context, *Attempt, string) (string, error) {
			close(started)
			<-release
			panic("user code")
		}}}}
	j.calls = map[string]CallInfo{"c": c.info()}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		c.Run(t.Context(), j, "in")
	})
	<-started
	wg.Go(func() {
		if _, err := c.Run(t.Context(), j, "in"); !errors.Is(err, errRoutePanic) {
			t.Errorf("a waiting goroutine is told %v", err)
		}
	})
	for waiting := false; !waiting; { // until the second one waits, or it would fly itself
		time.Sleep(time.Millisecond)
		j.mu.Lock()
		waiting = len(j.flights) == 1
		j.mu.Unlock()
	}
	time.Sleep(10 * time.Millisecond)
	close(release)
	wg.Wait()
	if n := len(b.attempts()); n != 0 {
		t.Errorf("%d attempts", n)
	}
}

// TestRefusals by the ledger and the worker: nothing is sent, and it sticks.
func TestGateRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(b *bench)
		during  func(b *bench)
		want    error
	}{
		"budget": {func(b *bench) { b.budget = 5 }, nil, ErrBudget},
		"lost":   {nil, func(b *bench) { b.l.LapseRun(benchKey) }, ErrLost},
		"cancelled": {nil, func(b *bench) {
			b.l.Resolve(b.t.Context(), ledger.Resolution{Key: benchKey, Action: ledger.Cancel, By: ledger.ByPerson})
		}, ErrCancelled},
		"draining": {func(b *bench) {
			b.change = func(c *RunConfig) { c.DrainLeft = func() (time.Duration, bool) { return time.Second, true } }
		}, nil, ErrStopping},
		"ended": {func(b *bench) { b.change = func(c *RunConfig) { c.Ended = func() error { return ErrLost } } }, nil, ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if c.prepare != nil {
				c.prepare(b)
			}
			j := b.run()
			if c.during != nil {
				c.during(b)
			}
			a := sending("a", "ok")
			a.Reserve = 10
			_, err := calls(t, j, Call[string, string]{Name: "c", Routes: []Route[string, string]{a, sending("b", "ok")}, Retry: Backoff{Max: 3}}, "in")
			if !errors.Is(err, c.want) || !errors.Is(j.Sticky(), c.want) {
				t.Errorf("%v, sticky %v; want %v", err, j.Sticky(), c.want)
			}
			b.want()
		})
	}
}

// TestSavedAnswers: what is played back reads as the type of today, or says that it does not.
func TestSavedAnswers(t *testing.T) {
	b := newBench(t)
	j := b.run()
	if _, err := calls(t, j, Call[string, string]{Name: "c", Routes: []Route[string, string]{sending("gone", "x")}}, "in"); err != nil {
		t.Fatal(err)
	}
	b.release(j)
	var seen []Seen
	b.change = func(c *RunConfig) { c.Saw = func(_ string, s Seen) { seen = append(seen, s) } }
	j = b.run()
	if v, err := calls(t, j, Call[string, string]{Name: "c", Routes: []Route[string, string]{sending("new", "y")}}, "in"); v != "x:in" || err != nil {
		t.Errorf("through another route: %q, %v", v, err)
	}
	if len(seen) != 1 || !seen[0].Replayed || seen[0].Route != "gone" {
		t.Errorf("seen %+v", seen)
	}
	b.release(j)
	j = b.run()
	c := Call[string, int]{Name: "c", Routes: []Route[string, int]{{Name: "a", Timeout: 1, Do: func(context.Context, *Attempt, string) (int, error) { return 0, nil }}}}
	j.calls = map[string]CallInfo{"c": c.info()}
	if _, err := c.Run(t.Context(), j, "in"); err == nil || !strings.Contains(err.Error(), "PO332") {
		t.Errorf("as another type: %v", err)
	}
	b.want("gone received done")
}

// TestSavedNotUsed: a route that does not read the saved answer sends nothing instead.
func TestSavedNotUsed(t *testing.T) {
	f := &fake{attempts: []*fakeAttempt{{Attempt: ledger.Attempt{ID: ledger.NewID(), Call: ledger.CallRef{Name: "c"}, Route: "a"}, state: ledger.Received,
		evidence: ledger.Evidence{Response: encodeResponse(200, nil, []byte(okBody))}}}}
	_, err := calls(t, testRun(t, f, nil), Call[string, string]{Name: "c", Routes: []Route[string, string]{sending("a", "x")}}, "in")
	if err == nil || !strings.Contains(err.Error(), "PO330") || f.sends != 0 {
		t.Errorf("%v, %d gates", err, f.sends)
	}
}

// TestNotDeclared: a call that the handler does not list is refused for good.
func TestNotDeclared(t *testing.T) {
	b := newBench(t)
	c := Call[string, string]{Name: "c", Routes: []Route[string, string]{sending("a", "x")}}
	_, err := c.Run(t.Context(), b.run(), "in")
	if class, _ := ClassOf(err); class != Permanent || !strings.Contains(fmt.Sprint(err), "PO325") {
		t.Errorf("%v, %s", err, class)
	}
}

// TestPanicStates: a panic before the mark leaves nothing, one behind it an open call.
func TestPanicStates(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(ctx context.Context, a *Attempt)
		state ledger.State
		want  []string
	}{
		"before": {func(context.Context, *Attempt) {}, ledger.Ready, nil},
		"behind": {func(ctx context.Context, a *Attempt) { a.Sent(ctx) }, ledger.Unknown, []string{"a sent unsure"}},
	} {
		b := newBench(t)
		j := b.run()
		func() {
			defer func() { recover() }()
			calls(t, j, Call[string, string]{Name: "c", Routes: []Route[string, string]{{Name: "a", Timeout: time.Minute,
				Do: func(ctx context.Context, a *Attempt, _ string) (string, error) {
					c.do(ctx, a)
					panic("user code")
				}}}}, "in")
		}()
		b.want(c.want...)
		if s := b.release(j); s != c.state {
			t.Errorf("%s: the job is %s, want %s", name, s, c.state)
		}
	}
}

// TestTidy: a gate whose answer was lost and that committed later does not make the
// job unknown.
func TestTidy(t *testing.T) {
	f := &fake{}
	var kept ledger.Attempt
	f.onSend = func(context.Context) error { return errStore }
	j := testRun(t, f, nil)
	var a *Attempt
	calls(t, j, Call[string, string]{Name: "c", Routes: []Route[string, string]{{Name: "a", Timeout: time.Minute,
		Do: func(ctx context.Context, at *Attempt, _ string) (string, error) {
			a, kept = at, at.spec
			return "", at.Sent(ctx)
		}}}}, "in")
	f.attempts = []*fakeAttempt{{Attempt: kept, state: ledger.Sent}} // the statement lands after all
	j.Tidy(t.Context())
	if row := f.one(t); row.state != ledger.NotSent || row.evidence.Class != "gate_unanswered" || a.out.evidence.State != ledger.NotSent {
		t.Errorf("on record: %s, %s", row.state, row.evidence.Class)
	}
}
