package job

import (
	"bufio"
	"context"
	"errors"
	"io"
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
