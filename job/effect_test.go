package job

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// keyed posts with an idempotency key, and reads the answer.
func keyed(ctx context.Context, c *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"a":1}`))
	if err != nil {
		return "", err
	}
	req.Header.Set("Idempotency-Key", "the-key")
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.Status + " " + string(text), err
}

// flaky answers the first request of each connection and closes it when it has read another, as servers do that
// give up a connection that was kept.
func flaky(t *testing.T) (url string, posts *atomic.Int64) {
	posts = new(atomic.Int64)
	type connKey struct{}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		posts.Add(1)
		io.Copy(io.Discard, r.Body)
		if r.Context().Value(connKey{}).(*atomic.Int64).Add(1) > 1 {
			panic(http.ErrAbortHandler)
		}
	}))
	srv.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, new(atomic.Int64))
	}
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.URL, posts
}

// TestEffectSendsOnce: net/http takes an Idempotency-Key as leave to repeat a POST by itself; an effect's client, which passes the
// key on, does not.
func TestEffectSendsOnce(t *testing.T) {
	url, posts := flaky(t)
	plain := &http.Client{Transport: &http.Transport{}}
	for range 2 {
		if _, err := keyed(t.Context(), plain, url); err != nil {
			t.Fatal(err)
		}
	}
	if posts.Load() != 3 {
		t.Fatalf("a plain client made %d POSTs of two calls; without the third this test proves nothing", posts.Load())
	}
	posts.Store(0)
	for range 2 {
		f := &fake{}
		got := ask(t, testRun(t, f, nil), "shop", 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
			return keyed(ctx, a.Effect(), url)
		})
		if got.err != nil || got.out != "200 OK " || f.one(t).state != ledger.Received {
			t.Errorf("%q, %v; %+v", got.out, got.err, f.attempts)
		}
	}
	if posts.Load() != 2 {
		t.Errorf("two effects made %d POSTs", posts.Load())
	}
}

// effects are what a receiver can do, and what the attempt comes to when Do says fine whenever it got an answer.
func TestEffectOutcome(t *testing.T) {
	says := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-Request-Id", "req_1")
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	for _, c := range []struct {
		name    string
		serve   http.HandlerFunc
		state   ledger.AttemptState
		class   string
		status  int
		out     string
		errWith string
	}{
		{name: "204", serve: says(204, ""), state: ledger.Received, class: "done", status: 204, out: "204 No Content "},
		{name: "a model's error", serve: says(200, `{"error":"none"}`), state: ledger.Received, class: "done", status: 200, out: `200 OK {"error":"none"}`},
		{name: "a model's wait", serve: says(200, `{"object":"response","status":"queued"}`), state: ledger.Received, class: "done", status: 200, out: `200 OK {"object":"response","status":"queued"}`},
		{name: "500 is Do's to judge", serve: says(500, "oops"), state: ledger.Received, class: "done", status: 500, out: "500 Internal Server Error oops"},
		{name: "redirected", serve: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
		},
			state: ledger.Received, class: "done", status: 307, out: "307 Temporary Redirect "},
		{name: "no answer", serve: func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body); panic(http.ErrAbortHandler) },
			state: ledger.Sent, class: "closed", errWith: "PO370"},
		{name: "half an answer", serve: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, state: ledger.Sent, class: "unsure", status: 200, errWith: "unexpected EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			served := new(atomic.Int64)
			var key atomic.Value
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				served.Add(1)
				key.Store(r.Header.Get("Idempotency-Key"))
				c.serve(w, r)
			}))
			defer srv.Close()
			f := &fake{}
			got := ask(t, testRun(t, f, nil), "shop", 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
				return keyed(ctx, a.Effect(), srv.URL)
			})
			at := f.one(t)
			if served.Load() != 1 || key.Load() != "the-key" || at.state != c.state || at.evidence.Class != c.class || at.evidence.Status != c.status || got.out != c.out {
				t.Errorf("%d served with key %q, %s %s %d, %q; want %s %s %d, %q", served.Load(), key.Load(), at.state, at.evidence.Class, at.evidence.Status, got.out, c.state, c.class, c.status, c.out)
			}
			if id := at.evidence.ProviderRequestID; c.state == ledger.Received && c.status != 307 && id != "req_1" {
				t.Errorf("the request's id is on record as %q", id)
			}
			if c.errWith != "" && (got.err == nil || !strings.Contains(got.err.Error(), c.errWith) || !errors.Is(got.err, ErrHeld)) {
				t.Errorf("error %v", got.err)
			}
		})
	}
}

// A lost answer is unknown, even where Do knows nothing of classes and calls every error retryable.
func TestEffectLostIsUnknown(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body); panic(http.ErrAbortHandler) }))
	defer srv.Close()
	for name, as := range map[string]func(error) error{"retry": Retry, "fail": Fail, "nil": func(error) error { return nil }} {
		f := &fake{}
		got := ask(t, testRun(t, f, nil), "shop", 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
			_, err := keyed(ctx, a.Effect(), srv.URL)
			return "done", as(err)
		})
		if at := f.one(t); at.state != ledger.Sent || at.evidence.Class != "closed" || !errors.Is(got.err, ErrHeld) {
			t.Errorf("%s: %s %s, %v", name, at.state, at.evidence.Class, got.err)
		}
	}
}

// TestEffectNotSent: what fails before the first byte leaves nothing on record, and may be tried again.
func TestEffectNotSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	for name, c := range map[string]struct{ url, class string }{
		"refused": {"http://" + l.Addr().String(), "refused"},
		"no TLS":  {strings.Replace(plain.URL, "http:", "https:", 1), "tls"},
		"scheme":  {"ftp://127.0.0.1/", "connect"},
	} {
		f := &fake{}
		got := ask(t, testRun(t, f, nil), "shop", 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
			return keyed(ctx, a.Effect(), c.url)
		})
		class, _ := ClassOf(got.err)
		if f.sends != 0 || got.outcome.evidence.Class != c.class || class != Retryable || !strings.Contains(got.err.Error(), "PO371") {
			t.Errorf("%s: %d gates, %+v, %v", name, f.sends, got.outcome, got.err)
		}
	}
}

// TestEffectGate: a gate that refuses lets nothing out; one that is in doubt neither, and the attempt is not sent.
func TestEffectGate(t *testing.T) {
	var served atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	defer srv.Close()
	for _, c := range []struct {
		refuse, want error
		settles      []ledger.AttemptState
	}{
		{ledger.ErrLost, ErrLost, nil},
		{ledger.ErrCancelled, ErrCancelled, nil},
		{errStore, errStore, []ledger.AttemptState{ledger.NotSent}},
	} {
		f := &fake{onSend: func(context.Context) error { return c.refuse }}
		got := ask(t, testRun(t, f, nil), "shop", 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
			return keyed(ctx, a.Effect(), srv.URL)
		})
		var states []ledger.AttemptState
		for _, e := range f.settled() {
			states = append(states, e.State)
		}
		if !errors.Is(got.err, c.want) || served.Load() != 0 || !slices.Equal(states, c.settles) {
			t.Errorf("%v: %v, %d served, settled as %v", c.refuse, got.err, served.Load(), states)
		}
	}
}

// TestEffectOneRequest: an attempt makes one request, whichever client is asked for it, and none when Do has returned.
func TestEffectOneRequest(t *testing.T) {
	var served atomic.Int64
	gone := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if served.Add(1); r.URL.Path == "/slow" {
			io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			close(gone)
		}
	}))
	defer srv.Close()
	f := &fake{}
	var late *http.Client
	got := ask(t, testRun(t, f, nil), "shop", 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
		late = a.Effect()
		out, err := keyed(ctx, late, srv.URL)
		for _, second := range []*http.Client{a.Effect(), a.HTTP()} {
			if text, err := keyed(ctx, second, srv.URL); err == nil && !strings.Contains(text, "PO364") || err != nil && !strings.Contains(err.Error(), "PO364") {
				t.Errorf("a second request got %q, %v", text, err)
			}
		}
		return out, err
	})
	if _, err := keyed(t.Context(), late, srv.URL); err == nil || !strings.Contains(err.Error(), "PO365") {
		t.Errorf("a request after Do returned says %v", err)
	}
	if got.err != nil || served.Load() != 1 || f.one(t).state != ledger.Received {
		t.Errorf("%v: %d served, %+v", got.err, served.Load(), f.attempts)
	}
	// One that nobody waits for any more ends with Do.
	f = &fake{}
	asked := make(chan error, 1)
	ask(t, testRun(t, f, nil), "shop", 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
		go func() { _, err := keyed(context.Background(), a.Effect(), srv.URL+"/slow"); asked <- err }()
		for served.Load() != 2 {
			time.Sleep(time.Millisecond)
		}
		return "", errors.New("not waited for")
	})
	<-gone
	if err := <-asked; err == nil || f.one(t).state != ledger.Sent {
		t.Errorf("the request left behind says %v, the attempt is %s", err, f.one(t).state)
	}
}
