package job

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// secureModel answers over TLS, and offers HTTP/2 as providers do.
func secureModel(t *testing.T) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Proto", r.Proto)
		io.WriteString(w, okBody)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv
}

// forward is a proxy that answers CONNECT with status, and pipes if that is 200.
func forward(t *testing.T, status string, want func(*http.Request)) *listener {
	t.Helper()
	return listen(t, func(c net.Conn, r *bufio.Reader) {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if req.Method != http.MethodConnect {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
			return
		}
		want(req)
		io.WriteString(c, "HTTP/1.1 "+status+"\r\n\r\n")
		if !strings.HasPrefix(status, "200") {
			return
		}
		to, err := net.Dial("tcp", req.Host)
		if err != nil {
			return
		}
		defer to.Close()
		go func() {
			io.Copy(c, to)
			c.Close()
		}()
		io.Copy(to, r)
	})
}

// wireTo trusts srv, and uses the proxy if there is one.
func wireTo(srv *httptest.Server, proxy string) *http.Transport {
	tr := srv.Client().Transport.(*http.Transport).Clone()
	if proxy != "" {
		u, err := url.Parse(proxy)
		if err != nil {
			panic(err)
		}
		tr.Proxy = http.ProxyURL(u)
	}
	return tr
}

// TestTLS: through TLS, with and without a tunnel, one HTTP/1.1 request goes out, and
// the gate is asked when the tunnel stands.
func TestTLS(t *testing.T) {
	srv := secureModel(t)
	asked := false
	proxy := forward(t, "200 Connection established", func(r *http.Request) {
		if user, pass, ok := (&http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}).BasicAuth(); !ok || user != "u" || pass != "p" {
			t.Errorf("the proxy was given %v", r.Header)
		}
		if asked {
			t.Error("the gate was asked before the tunnel stood")
		}
	})
	for name, via := range map[string]string{"direct": "", "tunnel": "http://u:p@" + proxy.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			asked = false
			f := &fake{onSend: func(context.Context) error { asked = true; return nil }}
			got := ask(t, testRun(t, f, func(c *RunConfig) { c.Wire = wireTo(srv, via) }), "openai", 30*time.Second,
				func(ctx context.Context, a *Attempt) (string, error) {
					resp, err := open(ctx, a, srv.URL)
					if err != nil {
						return "", err
					}
					defer resp.Body.Close()
					return resp.Header.Get("X-Proto"), nil
				})
			if got.err != nil || got.out != "HTTP/1.1" || f.one(t).state != ledger.Received || f.sends != 1 {
				t.Errorf("%q, %v, on record %s, %d gates", got.out, got.err, f.one(t).state, f.sends)
			}
		})
	}
	if proxy.conns.Load() != 1 {
		t.Errorf("%d connections to the proxy, want 1", proxy.conns.Load())
	}
}

// TestProxyFails: a proxy that refuses, or is of a kind that would open the gate, sends nothing.
func TestProxyFails(t *testing.T) {
	srv := secureModel(t)
	refusing := forward(t, "407 Proxy Authentication Required", func(*http.Request) {})
	silent := listen(t, func(c net.Conn, _ *bufio.Reader) { c.Close() })
	for name, c := range map[string]struct {
		proxy, class string
		again        again
	}{
		"refuses": {refusing.url(), "proxy", soon},
		"closes":  {silent.url(), "proxy", soon},
		"socks":   {"socks5://127.0.0.1:1", "request", never},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			got := asking(t, testRun(t, f, func(cfg *RunConfig) { cfg.Wire = wireTo(srv, c.proxy) }), srv.URL)
			if o := got.outcome; o.evidence.State != ledger.NotSent || o.evidence.Class != c.class || o.again != c.again || f.sends != 0 {
				t.Errorf("outcome %s, %s, again %d, %d gates (%v)", o.evidence.State, o.evidence.Class, o.again, f.sends, got.err)
			}
		})
	}
}

// TestPlainProxy: a request without TLS goes to the proxy as net/http does it.
func TestPlainProxy(t *testing.T) {
	proxy := forward(t, "", nil)
	u, err := url.Parse(proxy.url())
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{}
	got := ask(t, testRun(t, f, func(c *RunConfig) { c.Wire = &http.Transport{Proxy: http.ProxyURL(u)} }), "", 30*time.Second,
		func(ctx context.Context, a *Attempt) (string, error) {
			return post(ctx, a.HTTP(), "http://model.invalid/v1", "{}")
		})
	if got.err != nil || got.out != "{}" || f.one(t).state != ledger.Received {
		t.Errorf("%q, %v", got.out, got.err)
	}
}

// TestDialers: a base that dials by itself keeps doing so, and its TLS is not redone.
func TestDialers(t *testing.T) {
	srv := secureModel(t)
	trusted := srv.Client().Transport.(*http.Transport).TLSClientConfig
	dialed := 0
	f := &fake{}
	wire := &http.Transport{DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialed++
		cfg := trusted.Clone()
		cfg.NextProtos = nil
		return (&tls.Dialer{Config: cfg}).DialContext(ctx, network, srv.Listener.Addr().String())
	}}
	got := asking(t, testRun(t, f, func(c *RunConfig) { c.Wire = wire }), srv.URL)
	if got.err != nil || dialed != 1 || f.one(t).state != ledger.Received {
		t.Errorf("%v, dialled %d times", got.err, dialed)
	}
}
