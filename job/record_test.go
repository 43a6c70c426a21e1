package job

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	claudeopt "github.com/anthropics/anthropic-sdk-go/v2/option"
	openaiopt "github.com/openai/openai-go/v3/option"

	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/ledger"
)

// TestSettleRetried: the answer reaches user code when it is on record, also if that
// takes some tries.
func TestSettleRetried(t *testing.T) {
	ms := model(t, modelserver.Options{})
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			f := &fake{}
			failed := 0
			f.onSettle = func(_ int, e ledger.Evidence) error {
				if e.State == ledger.Received && failed < 2 {
					failed++
					return errStore
				}
				return nil
			}
			got := ask(t, testRun(t, f, nil), c.provider, 30*time.Second, func(ctx context.Context, a *Attempt) (said, error) {
				s, err := c.ask(ctx, a.HTTP(), ms.URL())
				if f.one(t).state != ledger.Received {
					t.Error("user code saw the end of an answer that was not on record")
				}
				return s, err
			})
			if got.err != nil || !got.out.Complete || failed != 2 {
				t.Errorf("%+v, %v after %d failed tries", got.out, got.err, failed)
			}
			replay(t, f, c, got.out, "http://127.0.0.1:1")
		})
	}
}

// TestNotRecorded: an answer that cannot be recorded is not handed over as a whole
// one, and the run cannot commit.
func TestNotRecorded(t *testing.T) {
	ms := model(t, modelserver.Options{})
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			f := &fake{onSettle: func(int, ledger.Evidence) error { return errStore }}
			paid, drained := context.WithCancel(t.Context())
			f.onSettle = func(_ int, e ledger.Evidence) error {
				if e.State == ledger.Received {
					drained() // the worker's time is over
				}
				return errStore
			}
			j := testRun(t, f, func(cfg *RunConfig) { cfg.Paid = paid })
			got := ask(t, j, c.provider, 30*time.Second, func(ctx context.Context, a *Attempt) (said, error) {
				s, err := c.ask(ctx, a.HTTP(), ms.URL())
				if err == nil || s.Complete {
					t.Errorf("user code was given %+v, %v", s, err)
				}
				return s, nil // and swallows it
			})
			if row := f.one(t); row.state != ledger.Sent {
				t.Errorf("on record: %s", row.state)
			}
			if !errors.Is(got.err, ErrHeld) || !errors.Is(j.Sticky(), ErrHeld) || got.outcome.evidence.Class != "unrecorded" {
				t.Errorf("the call says %v, sticky %v, class %s", got.err, j.Sticky(), got.outcome.evidence.Class)
			}
		})
	}
}

// TestRequestTimeout: an SDK's own timeout makes it ask again; that is refused, and the
// answer to the first request is kept.
func TestRequestTimeout(t *testing.T) {
	ms := model(t, modelserver.Options{Latency: 300 * time.Millisecond})
	for name, c := range map[string]func(ctx context.Context, h *http.Client) error{
		"openai": func(ctx context.Context, h *http.Client) error {
			c := gpt(h, ms.URL())
			_, err := c.Chat.Completions.New(ctx, chatParams(), openaiopt.WithRequestTimeout(50*time.Millisecond))
			return err
		},
		"anthropic": func(ctx context.Context, h *http.Client) error {
			c := haiku(h, ms.URL())
			_, err := c.Messages.New(ctx, messageParams(), claudeopt.WithRequestTimeout(50*time.Millisecond))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			before, f := ms.Requests(), &fake{}
			got := ask(t, testRun(t, f, nil), name, 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
				return "", c(ctx, a.HTTP())
			})
			if n := ms.Requests() - before; n != 1 || f.one(t).state != ledger.Received || got.err == nil {
				t.Errorf("%d requests, on record %s, %v", n, f.one(t).state, got.err)
			}
		})
	}
}

// TestRouteTimeout: a route's timeout ends the request; what happened is unknown.
func TestRouteTimeout(t *testing.T) {
	ms := model(t, modelserver.Options{})
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			ms.ScriptAny(modelserver.Fault{Hold: true, Events: 2})
			before, f := ms.Requests(), &fake{}
			got := ask(t, testRun(t, f, nil), c.provider, 200*time.Millisecond, func(ctx context.Context, a *Attempt) (said, error) {
				return c.ask(ctx, a.HTTP(), ms.URL())
			})
			if n := ms.Requests() - before; n != 1 {
				t.Errorf("%d requests", n)
			}
			check(t, f, got, verdict{state: ledger.Sent, class: "timeout"})
			if id := f.one(t).evidence.ObjectID; c.stream && id == "" {
				t.Error("the id of the stream is not on record")
			}
		})
	}
}

// TestBodyTimeout: so does one in mid-body.
func TestBodyTimeout(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, okBody[:9])
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer srv.Close()
	f := &fake{}
	got := ask(t, testRun(t, f, nil), "openai", 200*time.Millisecond, func(ctx context.Context, a *Attempt) (string, error) {
		return post(ctx, a.HTTP(), srv.URL, "{}")
	})
	check(t, f, got, verdict{state: ledger.Sent, class: "timeout"})
}

// TestDrainOver: the end of the worker's drain time cuts a request; it is unknown.
func TestDrainOver(t *testing.T) {
	ms := model(t, modelserver.Options{})
	ms.ScriptAny(modelserver.Fault{Hold: true})
	paid, drained := context.WithCancelCause(t.Context())
	over := errors.New("the drain time is over") // of the worker, as the consumer says it
	f := &fake{}
	go func() {
		ms.WaitFor(t.Context(), func(modelserver.Line) bool { return true })
		drained(over)
	}()
	got := ask(t, testRun(t, f, func(c *RunConfig) { c.Paid = paid }), "openai", 30*time.Second, func(ctx context.Context, a *Attempt) (said, error) {
		return askChat(ctx, a.HTTP(), ms.URL())
	})
	check(t, f, got, verdict{state: ledger.Sent, class: "cancelled"})
	if !errors.Is(got.err, over) {
		t.Errorf("the call says %v, and not that %v", got.err, over)
	}
}

// TestPanics: before the gate nothing was sent; behind it, the answer is waited for and kept.
func TestPanics(t *testing.T) {
	ms := model(t, modelserver.Options{})
	for name, c := range map[string]struct {
		sends int
		do    func(ctx context.Context, a *Attempt)
	}{
		"before the request":    {0, func(context.Context, *Attempt) {}},
		"behind the answer":     {1, func(ctx context.Context, a *Attempt) { askChat(ctx, a.HTTP(), ms.URL()) }},
		"in mid-stream":         {1, func(ctx context.Context, a *Attempt) { open(ctx, a, ms.URL()+"/v1/chat/completions") }},
		"behind the mark":       {1, func(ctx context.Context, a *Attempt) { a.Sent(ctx) }},
		"in a request's body":   {0, func(ctx context.Context, a *Attempt) { postReader(ctx, a, ms.URL(), panicking{}) }},
		"with a broken request": {0, func(ctx context.Context, a *Attempt) { postReader(ctx, a, ms.URL(), failing503{}) }},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic was swallowed")
					}
				}()
				ask(t, testRun(t, f, nil), "openai", 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
					c.do(ctx, a)
					panic("user code")
				})
			}()
			if f.sends != c.sends {
				t.Fatalf("the gate was asked %d times, want %d", f.sends, c.sends)
			}
			if c.sends == 0 {
				return
			}
			want := ledger.Received
			if name == "in mid-stream" { // the server refuses that body
				want = ledger.Rejected
			}
			if name == "behind the mark" {
				want = ledger.Sent
			}
			if row := f.one(t); row.state != want {
				t.Errorf("on record: %s, %s; want %s", row.state, row.evidence.Class, want)
			}
		})
	}
}

type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("body") }

type failing503 struct{}

func (failing503) Read([]byte) (int, error) { return 0, errors.New("no body") }

func postReader(ctx context.Context, a *Attempt, url string, body io.Reader) {
	req, err := http.NewRequestWithContext(ctx, "POST", url, body)
	if err != nil {
		panic(err)
	}
	resp, err := a.HTTP().Do(req)
	if err == nil {
		resp.Body.Close()
	}
}

// TestGuardPanics: a fault of our own in mid-answer is an unknown outcome, not a crash.
func TestGuardPanics(t *testing.T) {
	ms := model(t, modelserver.Options{})
	for _, c := range []client{clients[0], clients[1]} {
		f := &fake{onSettle: func(int, ledger.Evidence) error { panic("a bug in the ledger") }}
		got := ask(t, testRun(t, f, nil), c.provider, 30*time.Second, func(ctx context.Context, a *Attempt) (said, error) {
			return c.ask(ctx, a.HTTP(), ms.URL())
		})
		if o := got.outcome; o.evidence.State != ledger.Sent || o.evidence.Class != "panic" || !errors.Is(got.err, ErrHeld) {
			t.Errorf("%s: outcome %s, %s; %v", c.name, o.evidence.State, o.evidence.Class, got.err)
		}
	}
}

// TestReplayOnce: the saved answer is played once an attempt, as the request was made
// once; a damaged one says so.
func TestReplayOnce(t *testing.T) {
	for name, saved := range map[string]*ledger.Response{
		"whole":   encodeResponse(200, http.Header{"Content-Type": {"application/json"}}, []byte(okBody)),
		"short":   {Codec: codecHTTP, Body: []byte("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab")},
		"no HTTP": {Codec: codecHTTP, Body: []byte("hello")},
		"value":   {Codec: codecJSON, Body: []byte("{}")},
	} {
		a := &Attempt{run: testRun(t, &fake{}, nil), replay: saved, spec: ledger.Attempt{Timeout: time.Second}}
		body, err := post(t.Context(), a.HTTP(), "http://127.0.0.1:1", "{}")
		if name == "whole" && (err != nil || body != okBody) || name != "whole" && (err == nil || !strings.Contains(err.Error(), "PO363")) {
			t.Errorf("%s: %q, %v", name, body, err)
		}
		if _, err := post(t.Context(), a.HTTP(), "http://127.0.0.1:1", "{}"); err == nil || !strings.Contains(err.Error(), "PO364") {
			t.Errorf("%s, again: %v", name, err)
		}
	}
}

// TestStaleBody: nothing of the caller's request is read after RoundTrip returned, so
// that an SDK may rewind it for the try that is refused.
func TestStaleBody(t *testing.T) {
	var sum atomic.Int64
	arrived, release := make(chan struct{}), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-release
		n, _ := io.Copy(io.Discard, r.Body)
		sum.Add(n)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, okBody)
	}))
	defer srv.Close()
	f := &fake{}
	const size = 8 << 20
	ask(t, testRun(t, f, nil), "openai", 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
		body := strings.NewReader(strings.Repeat("x", size))
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() { <-arrived; cancel() }()
		req, err := http.NewRequestWithContext(ctx, "POST", srv.URL, body)
		if err != nil {
			return "", err
		}
		resp, err := a.HTTP().Do(req)
		if err == nil {
			resp.Body.Close()
		}
		body.Seek(0, io.SeekStart)
		close(release)
		return "", err
	})
	if row := f.one(t); row.state != ledger.Received || sum.Load() != size {
		t.Errorf("on record: %s; the server read %d bytes of %d", row.state, sum.Load(), size)
	}
}
