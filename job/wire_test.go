package job

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

const okBody = `{"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,"finish_reason":"stop","message":{"content":"hi"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}`

// listener is a raw TCP server that counts the bytes of its clients.
type listener struct {
	net.Listener
	conns, bytes atomic.Int64
	wg           sync.WaitGroup
}

// listen serves connections with serve, which may be nil: they are read to the end.
func listen(t *testing.T, serve func(c net.Conn, r *bufio.Reader)) *listener {
	t.Helper()
	nl, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{Listener: nl}
	l.wg.Go(func() {
		for {
			c, err := nl.Accept()
			if err != nil {
				return
			}
			l.conns.Add(1)
			l.wg.Go(func() {
				defer c.Close()
				r := bufio.NewReader(io.TeeReader(c, counter{&l.bytes}))
				if serve != nil {
					serve(c, r)
				}
				io.Copy(io.Discard, r)
			})
		}
	})
	t.Cleanup(func() {
		nl.Close()
		l.wg.Wait()
	})
	return l
}

func (l *listener) url() string { return "http://" + l.Addr().String() }

type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// post sends one request and reads the whole response.
func post(ctx context.Context, h *http.Client, url, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := h.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status + " " + string(b))
	}
	return string(b), err
}

// asking makes a call that posts to url.
func asking(t *testing.T, j *Run, url string) asked[string] {
	t.Helper()
	return ask(t, j, "openai", 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
		return post(ctx, a.HTTP(), url, `{"model":"m"}`)
	})
}

// TestGateRefused: the connection is made, and not one byte is written on it.
func TestGateRefused(t *testing.T) {
	for name, c := range map[string]struct {
		refusal error
		class   string
		again   again
		sticky  error
		settles int
	}{
		"lost":       {ledger.ErrLost, "", aborted, ErrLost, 0},
		"budget":     {ledger.ErrBudget, "", aborted, ErrBudget, 0},
		"cancelled":  {ledger.ErrCancelled, "", aborted, ErrCancelled, 0},
		"late":       {ledger.ErrLate, "", relook, nil, 0},
		"request":    {ledger.ErrRequest, "", never, nil, 0},
		"repeated":   {ledger.ErrRepeated, "gate_unanswered", soon, nil, 1},
		"unanswered": {errStore, "gate_unanswered", soon, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t, nil)
			n := 0
			f := &fake{onSend: func(context.Context) error {
				if n++; n > 1 { // a relook looks again, and stops here
					return ledger.ErrRequest
				}
				return c.refusal
			}}
			j := testRun(t, f, nil)
			var first *Attempt
			got := ask(t, j, "openai", 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
				if first == nil {
					first = a
				}
				return post(ctx, a.HTTP(), l.url(), "{}")
			})
			if got.err == nil {
				t.Error("the call has no error")
			}
			if o := first.out; o == nil || o.evidence.State != ledger.NotSent || o.again != c.again || o.evidence.Class != c.class {
				t.Errorf("outcome %+v, want not_sent, class %q, again %d", o, c.class, c.again)
			}
			if !errors.Is(j.Sticky(), c.sticky) {
				t.Errorf("sticky %v, want %v", j.Sticky(), c.sticky)
			}
			if s := f.settled(); len(s) != c.settles {
				t.Errorf("settled %+v, want %d", s, c.settles)
			}
			l.Close()
			l.wg.Wait()
			if l.conns.Load() == 0 || l.bytes.Load() != 0 {
				t.Errorf("%d connections with %d bytes, want some and no byte", l.conns.Load(), l.bytes.Load())
			}
		})
	}
}

// TestGateSlow: a gate that answers after the window sends nothing, whatever it says,
// and the attempt is settled.
func TestGateSlow(t *testing.T) {
	l := listen(t, nil)
	f := &fake{onSend: func(ctx context.Context) error {
		time.Sleep(ledger.SendWindow + 50*time.Millisecond) // deaf to its context, as a lost reply is
		return nil
	}}
	got := asking(t, testRun(t, f, nil), l.url())
	if row := f.one(t); row.state != ledger.NotSent || row.evidence.Class != "window_over" {
		t.Errorf("on record: %s, %s", row.state, row.evidence.Class)
	}
	if !errors.Is(got.err, errWindow) || got.outcome.again != soon {
		t.Errorf("the call says %v, again %d", got.err, got.outcome.again)
	}
	l.Close()
	l.wg.Wait()
	if l.bytes.Load() != 0 {
		t.Errorf("%d bytes were written", l.bytes.Load())
	}
}

// TestGateLeft: whoever stops waiting while the gate is asked sends nothing, and the
// attempt is settled.
func TestGateLeft(t *testing.T) {
	for name, leave := range map[string]func(caller, drained func()){
		"caller": func(caller, _ func()) { caller() },
		"drain":  func(_, drained func()) { drained() }, // of a request that does not follow the route's context
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t, nil)
			paid, drained := context.WithCancel(t.Context())
			asking, left := make(chan struct{}), make(chan struct{})
			f := &fake{onSend: func(context.Context) error {
				close(asking)
				<-left
				return nil
			}}
			got := ask(t, testRun(t, f, func(c *RunConfig) { c.Paid = paid }), "openai", 1500*time.Millisecond, func(ctx context.Context, a *Attempt) (string, error) {
				caller, cancel := context.WithCancel(context.WithoutCancel(ctx))
				defer cancel()
				go func() {
					<-asking
					leave(cancel, drained)
					for x := a.guard.x; x.ctx.Err() == nil && !x.gate.abandoned(); {
						time.Sleep(time.Millisecond) // until the guard has heard of it
					}
					close(left)
				}()
				return post(caller, a.HTTP(), l.url(), "{}")
			})
			if row := f.one(t); row.state != ledger.NotSent || row.evidence.Class != "cancelled" || got.err == nil {
				t.Errorf("on record: %s, %s; %v", row.state, row.evidence.Class, got.err)
			}
			l.Close()
			l.wg.Wait()
			if l.bytes.Load() != 0 {
				t.Errorf("%d bytes were written", l.bytes.Load())
			}
		})
	}
}

// TestGateLast: names, dialling, handshakes and refused connections come before the gate.
func TestGateLast(t *testing.T) {
	closed := listen(t, nil)
	closed.Close()
	plain := listen(t, func(c net.Conn, _ *bufio.Reader) { c.Close() })
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer untrusted.Close()
	for name, c := range map[string]struct{ url, class string }{
		"refused":   {closed.url(), "refused"},
		"no tls":    {strings.Replace(plain.url(), "http:", "https:", 1), "tls"},
		"untrusted": {untrusted.URL, "tls"},
		"no name":   {"http://name.invalid", "dns"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			got := asking(t, testRun(t, f, nil), c.url)
			if f.sends != 0 || len(f.settled()) != 0 {
				t.Errorf("the gate was asked %d times, %d settles", f.sends, len(f.settled()))
			}
			if o := got.outcome; o.evidence.State != ledger.NotSent || o.evidence.Class != c.class || o.again != soon {
				t.Errorf("outcome %s, %s, again %d; want not_sent, %s, soon (%v)", o.evidence.State, o.evidence.Class, o.again, c.class, got.err)
			}
		})
	}
}

// TestConnectTimeout: a route's timeout that ends while dialling sends nothing.
func TestConnectTimeout(t *testing.T) {
	f := &fake{}
	j := testRun(t, f, func(c *RunConfig) {
		c.Wire = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
	})
	got := ask(t, j, "openai", 50*time.Millisecond, func(ctx context.Context, a *Attempt) (string, error) {
		return post(ctx, a.HTTP(), "http://10.0.0.1", "{}")
	})
	if o := got.outcome; o.evidence.State != ledger.NotSent || f.sends != 0 {
		t.Errorf("outcome %+v, the gate was asked %d times", o, f.sends)
	}
}

// TestHalfRequest: a request that did not go out whole was not made.
func TestHalfRequest(t *testing.T) {
	l := listen(t, func(c net.Conn, r *bufio.Reader) {
		r.ReadString('\n')
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	})
	f := &fake{}
	got := ask(t, testRun(t, f, nil), "openai", 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
		return post(ctx, a.HTTP(), l.url(), `{"text":"`+strings.Repeat("x", 30<<20)+`"}`)
	})
	if row := f.one(t); row.state != ledger.NotSent || row.evidence.Class != "cut_request" || got.outcome.again != soon {
		t.Errorf("on record: %s, %s, again %d (%v)", row.state, row.evidence.Class, got.outcome.again, got.err)
	}
}

// TestOneRequest: an attempt makes one request, from however many clients and
// goroutines, and none after its route has returned.
func TestOneRequest(t *testing.T) {
	var served atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		served.Add(1)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, okBody)
	}))
	defer srv.Close()
	f := &fake{}
	var ok, refused atomic.Int64
	var late *http.Client
	got := ask(t, testRun(t, f, nil), "openai", 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
		late = a.HTTP()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				_, err := post(ctx, a.HTTP(), srv.URL, "{}")
				switch {
				case err == nil:
					ok.Add(1)
				case strings.Contains(err.Error(), "PO364"):
					refused.Add(1)
				}
			})
		}
		wg.Wait()
		return "done", nil
	})
	_, err := post(t.Context(), late, srv.URL, "{}")
	if err == nil || !strings.Contains(err.Error(), "PO365") {
		t.Errorf("a request after the route returned says %v", err)
	}
	if got.err != nil || served.Load() != 1 || ok.Load() != 1 || refused.Load() != 19 || f.sends != 1 {
		t.Errorf("%v: %d served, %d ok, %d refused, %d gates", got.err, served.Load(), ok.Load(), refused.Load(), f.sends)
	}
}

// TestSentAndHTTP: a second gate of one attempt refuses and leaves the first alone.
func TestSentAndHTTP(t *testing.T) {
	l := listen(t, nil)
	f := &fake{}
	got := ask(t, testRun(t, f, nil), "openai", 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
		if err := a.Sent(ctx); err != nil {
			return "", err
		}
		if err := a.Sent(ctx); !errors.Is(err, errSecond) {
			t.Errorf("a second Sent says %v", err)
		}
		_, err := post(ctx, a.HTTP(), l.url(), "{}")
		if err == nil {
			t.Error("a request beside Sent went out")
		}
		return "sent", nil
	})
	if row := f.one(t); got.err != nil || row.state != ledger.Received || f.sends != 1 {
		t.Errorf("%v: on record %s, %d gates", got.err, row.state, f.sends)
	}
}

// TestSentMeanwhile: a mark that is made while a request is prepared is the attempt's.
func TestSentMeanwhile(t *testing.T) {
	l := listen(t, nil)
	f := &fake{}
	got := ask(t, testRun(t, f, nil), "openai", 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
		req, err := http.NewRequestWithContext(ctx, "POST", l.url(), marking{ctx, a})
		if err != nil {
			return "", err
		}
		resp, err := a.HTTP().Do(req)
		if err == nil {
			resp.Body.Close()
		}
		return "sent", err
	})
	if row := f.one(t); got.err != nil || row.state != ledger.Received || row.evidence.Response.Codec != codecJSON {
		t.Errorf("%v: on record %s", got.err, row.state)
	}
	l.Close()
	l.wg.Wait()
	if l.bytes.Load() != 0 {
		t.Errorf("%d bytes were written", l.bytes.Load())
	}
}

// marking is a request's body that marks its attempt as sent when it is read.
type marking struct {
	ctx context.Context
	a   *Attempt
}

func (m marking) Read([]byte) (int, error) {
	m.a.Sent(m.ctx)
	return 0, io.EOF
}

// TestHeaders: what the server sees of a request, and user code of a response.
func TestHeaders(t *testing.T) {
	var seen http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header.Clone()
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("X-Should-Retry", "true")
		h.Set("Set-Cookie", "s=secret")
		h.Set("X-Ratelimit-Remaining-Tokens", "9")
		io.WriteString(w, okBody)
	}))
	defer srv.Close()
	f := &fake{}
	got := ask(t, testRun(t, f, nil), "openai", 30*time.Second, func(ctx context.Context, a *Attempt) (http.Header, error) {
		req, err := http.NewRequestWithContext(ctx, "POST", srv.URL, strings.NewReader("{}"))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Idempotency-Key", "k")
		req.Header["X-Idempotency-Key"] = []string{"k"}
		req.Header.Set("Authorization", "Bearer secret")
		resp, err := a.HTTP().Do(req)
		if err != nil {
			return nil, err
		}
		resp.Body.Close()
		if req.Header.Get("Idempotency-Key") != "k" {
			t.Error("the caller's request was changed")
		}
		return resp.Header, nil
	})
	if got.err != nil || got.out.Get("X-Should-Retry") != "false" {
		t.Errorf("%v: the response says %v", got.err, got.out)
	}
	if seen.Get("Idempotency-Key") != "" || seen.Get("X-Idempotency-Key") != "" || seen.Get("Authorization") != "Bearer secret" ||
		seen.Get("X-Client-Request-Id") != f.one(t).ID.String() {
		t.Errorf("the server saw %v", seen)
	}
	kept := string(f.one(t).evidence.Response.Body)
	for _, s := range []string{"secret", "Cookie", "X-Should-Retry"} {
		if strings.Contains(kept, s) {
			t.Errorf("%q is in the saved answer:\n%s", s, kept)
		}
	}
	if !strings.Contains(kept, "X-Ratelimit-Remaining-Tokens: 9\r\n") {
		t.Errorf("the saved answer lost a header:\n%s", kept)
	}
}

// TestRedirect: a redirect is no answer, and nothing follows it.
func TestRedirect(t *testing.T) {
	var served atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer srv.Close()
	f := &fake{}
	asking(t, testRun(t, f, nil), srv.URL)
	if row := f.one(t); row.state != ledger.Rejected || row.evidence.Class != "redirected" || served.Load() != 1 {
		t.Errorf("on record: %s, %s; %d requests", row.state, row.evidence.Class, served.Load())
	}
}

// TestNothingLeft: no goroutine and no connection outlives an attempt.
func TestNothingLeft(t *testing.T) {
	l := listen(t, func(c net.Conn, r *bufio.Reader) {
		if req, err := http.ReadRequest(r); err == nil {
			io.Copy(io.Discard, req.Body)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"id\":\"c\",\"choices\":[{\"index\":0}]}\n\n")
		}
	})
	before := runtime.NumGoroutine()
	for range 10 {
		f := &fake{}
		ask(t, testRun(t, f, nil), "openai", 50*time.Millisecond, func(ctx context.Context, a *Attempt) (string, error) {
			req, err := http.NewRequestWithContext(ctx, "POST", l.url(), strings.NewReader("{}"))
			if err != nil {
				return "", err
			}
			_, err = a.HTTP().Do(req) // the body is neither read nor closed
			return "", err
		})
		if row := f.one(t); row.state != ledger.Sent || row.evidence.Class != "timeout" || row.evidence.ObjectID != "c" {
			t.Fatalf("on record: %s, %s, %s", row.state, row.evidence.Class, row.evidence.ObjectID)
		}
	}
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
	}
}
