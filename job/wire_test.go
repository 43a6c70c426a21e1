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
