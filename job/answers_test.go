package job

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

func zipped(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	io.WriteString(w, s)
	w.Close()
	return b.String()
}

// TestWireAnswers: what a server may do within HTTP/1.1, and what becomes of it.
func TestWireAnswers(t *testing.T) {
	const head = "Content-Type: application/json\r\nX-Request-Id: r\r\n"
	sized := func(extra, body string) string {
		return fmt.Sprintf("HTTP/1.1 200 OK\r\n%s%sContent-Length: %d\r\n\r\n%s", head, extra, len(body), body)
	}
	plain := sized("", okBody)
	for name, c := range map[string]struct {
		answer string
		base   *http.Transport
		state  ledger.AttemptState
		class  string
	}{
		"plain":              {plain, nil, ledger.Received, "done"},
		"to the end":         {"HTTP/1.0 200 OK\r\n" + head + "\r\n" + okBody, nil, ledger.Received, "done"},
		"chunked":            {"HTTP/1.1 200 OK\r\n" + head + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(okBody), okBody), nil, ledger.Received, "done"},
		"early hints":        {"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + plain, nil, ledger.Received, "done"},
		"compressed":         {sized("Content-Encoding: GZIP\r\n", zipped(okBody)), nil, ledger.Received, "done"},
		"compressed and cut": {strings.TrimSuffix(sized("Content-Encoding: gzip\r\n", zipped(okBody)), zipped(okBody)[20:]), nil, ledger.Sent, "cut_body"},
		"not asked for":      {sized("Content-Encoding: gzip\r\n", zipped(okBody)), &http.Transport{DisableCompression: true}, ledger.Received, "done"},
		"no HTTP":            {"SSH-2.0-OpenSSH\r\n\r\n", nil, ledger.Sent, "broken"},
		"header cut":         {"HTTP/1.1 200 OK\r\nContent-Ty", nil, ledger.Sent, "broken"},
		"header too large":   {sized("X-Pad: "+strings.Repeat("x", 5000)+"\r\n", okBody), &http.Transport{MaxResponseHeaderBytes: 4096}, ledger.Sent, "broken"},
		"hints without end":  {strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 500), &http.Transport{MaxResponseHeaderBytes: 4096}, ledger.Sent, "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			var seen *http.Request
			l := listen(t, func(conn net.Conn, r *bufio.Reader) {
				if seen, _ = http.ReadRequest(r); seen == nil {
					return
				}
				io.Copy(io.Discard, seen.Body)
				io.WriteString(conn, c.answer)
				conn.Close()
			})
			f := &fake{}
			got := asking(t, testRun(t, f, func(cfg *RunConfig) { cfg.Wire = c.base }), l.url())
			if row := f.one(t); row.state != c.state || row.evidence.Class != c.class {
				t.Errorf("on record: %s, %s; want %s, %s (%v)", row.state, row.evidence.Class, c.state, c.class, got.err)
			}
			if c.state == ledger.Received && got.out != okBody && got.out != zipped(okBody) {
				t.Errorf("the answer is %q (%v)", got.out, got.err)
			}
			l.Close()
			l.wg.Wait()
			if asks := seen.Header.Get("Accept-Encoding") == "gzip"; asks == (c.base != nil && c.base.DisableCompression) || !seen.Close {
				t.Errorf("the request has the header %v, close %v", seen.Header, seen.Close)
			}
		})
	}
}

// TestEarlyRefusal: a server may refuse before it has read the request.
func TestEarlyRefusal(t *testing.T) {
	done := make(chan struct{})
	l := listen(t, func(c net.Conn, r *bufio.Reader) {
		r.Peek(1)
		io.WriteString(c, "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\n{}")
		<-done // not one byte more is read
	})
	f := &fake{}
	got := ask(t, testRun(t, f, nil), "openai", 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
		return post(ctx, a.HTTP(), l.url(), strings.Repeat("x", 32<<20))
	})
	close(done)
	if row := f.one(t); row.state != ledger.Rejected || row.evidence.Class != "rate_limited" {
		t.Errorf("on record: %s, %s (%v)", row.state, row.evidence.Class, got.err)
	}
}

// TestNotSendable: what cannot be a request is none, and costs nothing.
func TestNotSendable(t *testing.T) {
	l := listen(t, nil)
	for name, spoil := range map[string]func(*http.Request){
		"scheme":       func(r *http.Request) { r.URL.Scheme = "ftp" },
		"no host":      func(r *http.Request) { r.URL.Host = "" },
		"method":       func(r *http.Request) { r.Method = "POST /x HTTP/1.1\r\nX:" },
		"header name":  func(r *http.Request) { r.Header["X-A: b\r\nX-B"] = []string{"c"} },
		"header value": func(r *http.Request) { r.Header.Set("Authorization", "Bearer key\n") },
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			got := ask(t, testRun(t, f, nil), "openai", 30*time.Second, func(ctx context.Context, a *Attempt) (string, error) {
				req, err := http.NewRequestWithContext(ctx, "POST", l.url(), strings.NewReader("{}"))
				if err != nil {
					return "", err
				}
				spoil(req)
				resp, err := newGuard(a).RoundTrip(req)
				if err != nil {
					return "", err
				}
				defer resp.Body.Close()
				return resp.Status, nil
			})
			if o := got.outcome; f.sends != 0 || o.evidence.State != ledger.NotSent || strings.Contains(o.err.Error(), "key") {
				t.Errorf("%d gates, outcome %+v", f.sends, o)
			}
		})
	}
	if l.conns.Load() != 0 {
		t.Errorf("%d connections, want none", l.conns.Load())
	}
}

// TestDeafDialer: a dialer that ignores its context does not hold the attempt, and the
// connection that it brings too late is closed.
func TestDeafDialer(t *testing.T) {
	closed, release := make(chan struct{}), make(chan struct{})
	wire := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		<-release
		ours, theirs := net.Pipe()
		go func() {
			io.Copy(io.Discard, theirs)
			close(closed)
		}()
		return ours, nil
	}}
	f := &fake{}
	got := ask(t, testRun(t, f, func(c *RunConfig) { c.Wire = wire }), "openai", 20*time.Millisecond, func(ctx context.Context, a *Attempt) (string, error) {
		return post(ctx, a.HTTP(), "http://model.invalid", "{}")
	})
	if o := got.outcome; o.evidence.State != ledger.NotSent || o.evidence.Class != "connect_timeout" || f.sends != 0 {
		t.Errorf("outcome %s, %s, %d gates (%v)", o.evidence.State, o.evidence.Class, f.sends, got.err)
	}
	close(release)
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Error("the connection is left open")
	}
}

// TestLeftTooLate: where nobody waits because the attempt's time is over, that is the reason on
// record, whichever of the two is heard of first.
func TestLeftTooLate(t *testing.T) {
	for _, c := range []struct {
		left time.Duration
		want error
	}{{-time.Second, context.DeadlineExceeded}, {time.Hour, errCallerLeft}} {
		x := &exchange{}
		var stop context.CancelFunc
		x.paid, stop = context.WithTimeout(t.Context(), c.left)
		defer stop()
		x.ctx, x.cancel = context.WithCancelCause(t.Context())
		x.gate = newSendGate(x.ctx, nil)
		x.leave()
		if got := context.Cause(x.ctx); got != c.want {
			t.Errorf("with %s left: %v, want %v", c.left, got, c.want)
		}
	}
}
