package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

var (
	here     = roadKey{"job", "call", "primary"}
	goesOn   = func() error { return nil }
	answerOK = &outcome{evidence: ledger.Evidence{State: ledger.Received}}
)

func refusedAs(class string, wait time.Duration) *outcome {
	return &outcome{evidence: ledger.Evidence{State: ledger.Rejected, Class: class}, again: soon, wait: wait}
}

// TestAtOnce: no more attempts are under way than the route allows, who came first goes first, and who gives up
// takes nobody's place.
func TestAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, l := NewTraffic(), limits{atOnce: 2}
		var under, most atomic.Int64
		var all sync.WaitGroup
		var mu sync.Mutex
		var order []int
		for i := range 6 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i == 3 { // before its turn
					time.AfterFunc(time.Second, cancel)
				}
				rest, err := tr.enter(ctx, here, l, goesOn)
				if i == 3 {
					if !errors.Is(err, context.Canceled) {
						t.Errorf("who gave up is told %v", err)
					}
					return
				}
				if rest != 0 || err != nil {
					t.Errorf("enter: %v %v", rest, err)
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				most.Store(max(most.Load(), under.Add(1)))
				time.Sleep(10 * time.Second)
				under.Add(-1)
				tr.leave(here, answerOK)
			})
		}
		all.Wait()
		if most.Load() != 2 || !slices.Equal(order, []int{0, 1, 2, 4, 5}) {
			t.Errorf("at most %d were under way, in the order %v", most.Load(), order)
		}
		if r := tr.road(here); r.under != 0 || len(r.queue) != 0 {
			t.Errorf("at the end %d are under way and %d wait", r.under, len(r.queue))
		}
		// A turn that comes as its owner leaves goes on to the next.
		for range 2 {
			tr.enter(t.Context(), here, l, goesOn)
		}
		gone, next := make(chan struct{}), make(chan struct{})
		tr.road(here).queue = []chan struct{}{gone, next}
		tr.leave(here, answerOK)
		tr.drop(tr.road(here), gone)
		select {
		case <-next:
		default:
			t.Error("a turn was lost with who gave it up")
		}
	})
}

// TestWaitingEnds: who waits for a route hears that its run is over.
func TestWaitingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, began := NewTraffic(), time.Now()
		ended := func() error {
			if time.Since(began) > 10*time.Second {
				return ErrStopping
			}
			return nil
		}
		tr.enter(t.Context(), here, limits{atOnce: 1}, goesOn)
		if _, err := tr.enter(t.Context(), here, limits{atOnce: 1}, ended); err != ErrStopping {
			t.Errorf("waiting for a turn ended with %v", err)
		}
		tr.leave(here, answerOK)
		tr.enter(t.Context(), here, limits{perMinute: 1}, goesOn)
		if _, err := tr.enter(t.Context(), here, limits{perMinute: 1}, ended); err != ErrStopping {
			t.Errorf("waiting for the next minute ended with %v", err)
		}
		tr.leave(here, answerOK)
		if r := tr.road(here); r.under != 0 {
			t.Errorf("%d are under way", r.under)
		}
	})
}

// TestPerMinute: attempts begin evenly, however long they take.
func TestPerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, began := NewTraffic(), time.Now()
		at := make([]string, 4)
		var all sync.WaitGroup
		for i := range at {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				tr.enter(t.Context(), here, limits{perMinute: 20}, goesOn)
				at[i] = time.Since(began).Round(time.Second).String()
			})
		}
		all.Wait()
		if got := strings.Join(at, " "); got != "0s 3s 6s 9s" {
			t.Errorf("attempts began at %s", got)
		}
	})
}

// TestRests: a route rests longer each time that its provider is overloaded, then one attempt tries it alone.
func TestRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := NewTraffic()
		try := func() time.Duration {
			t.Helper()
			rest, err := tr.enter(t.Context(), here, limits{}, goesOn)
			if err != nil {
				t.Fatal(err)
			}
			return rest
		}
		ends := func(o *outcome, want time.Duration) {
			t.Helper()
			if rest := try(); rest != 0 {
				t.Fatalf("the route rests for %s before", rest)
			}
			tr.leave(here, o)
			if rest := try(); rest != want {
				t.Fatalf("after %+v it rests for %s, want %s", o, rest, want)
			} else if rest == 0 {
				tr.leave(here, nil)
			}
			time.Sleep(want)
		}
		for _, o := range []*outcome{nil, answerOK, {evidence: ledger.Evidence{State: ledger.Sent}}, refusedAs("bad_request", time.Minute),
			{evidence: ledger.Evidence{State: ledger.NotSent, Class: "overloaded"}}} {
			ends(o, 0)
		}
		for _, s := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			ends(refusedAs("overloaded", 0), s*time.Second)
		}
		ends(refusedAs("rate_limited", 5*time.Minute), 5*time.Minute)
		if rest := try(); rest != 0 {
			t.Fatal("nobody may try it after its rest")
		}
		if rest := try(); rest != attention {
			t.Errorf("a second one may try it beside the first: rest %s", rest)
		}
		tr.leave(here, nil) // the one that tried sent nothing: the next tries
		ends(answerOK, 0)
		if r := tr.road(here); r.strikes != 0 {
			t.Errorf("after an answer it has %d strikes", r.strikes)
		}
		ends(refusedAs("rate_limited", 0), time.Second)
		ends(refusedAs("spend_limit", 0), 10*time.Minute)
		other := here
		other.route = "fallback"
		if rest, _ := tr.enter(t.Context(), other, limits{}, goesOn); rest != 0 {
			t.Errorf("another route rests for %s", rest)
		}
	})
}

// overloadedServer refuses the first requests of each path and answers the others.
func overloadedServer(t *testing.T, refuse int64) (url string, seen *[2]atomic.Int64) {
	t.Helper()
	seen = new([2]atomic.Int64)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := seen[map[string]int{"/primary": 0, "/fallback": 1}[r.URL.Path]].Add(1)
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/primary" && n <= refuse {
			w.Header().Set("Retry-After", "600")
			w.WriteHeader(http.StatusTooManyRequests)
			io.WriteString(w, `{"error":{"type":"rate_limit_error","message":"slow down"}}`)
			return
		}
		fmt.Fprintf(w, `{"answer":%q}`, r.URL.Path)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, seen
}

// posting is a route that asks a server.
func posting(name, url string) Route[string, string] {
	return Route[string, string]{Name: name, Provider: "openai", Model: "m", Timeout: time.Minute, Do: func(ctx context.Context, a *Attempt, in string) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/"+name, strings.NewReader("{}"))
		if err != nil {
			return "", err
		}
		resp, err := a.HTTP().Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if resp.StatusCode != 200 {
			return "", errors.New(string(b))
		}
		return string(b), err
	}}
}

// TestOverloadedRouteIsPassedBy: after one refusal the runs of a process go to the fallback at once, and where there
// is none they send nothing.
func TestOverloadedRouteIsPassedBy(t *testing.T) {
	url, seen := overloadedServer(t, 1)
	traffic := NewTraffic()
	run := func(routes ...Route[string, string]) (string, error) {
		t.Helper()
		c := Call[string, string]{Name: "ask", Routes: routes, Retry: Backoff{Max: 2}}
		j := testRun(t, &fake{}, func(cfg *RunConfig) { cfg.Traffic = traffic })
		j.calls = map[string]CallInfo{"ask": c.info()}
		return c.Run(t.Context(), j, "x")
	}
	for i := range 3 {
		if out, err := run(posting("primary", url), posting("fallback", url)); err != nil || out != `{"answer":"/fallback"}` {
			t.Errorf("run %d: %q %v", i, out, err)
		}
	}
	_, err := run(posting("primary", url))
	class, in := ClassOf(err)
	if !errors.Is(err, ErrResting) || class != Retryable || in < 590*time.Second || in > 600*time.Second {
		t.Errorf("with no other route: %v, %s, again in %s", err, class, in)
	}
	if p, f := seen[0].Load(), seen[1].Load(); p != 1 || f != 3 {
		t.Errorf("the primary was asked %d times, want once, and the fallback %d times, want 3", p, f)
	}
}
