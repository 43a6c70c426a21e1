package job

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// FuzzResponse: whatever a server writes in answer to a request, the guard does not panic, the attempt has one of its outcomes, and
// an answer that is kept can be read back.
func FuzzResponse(f *testing.F) {
	head := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Request-Id: r\r\n"
	for _, text := range []string{
		head + "Content-Length: 2\r\n\r\n{}", head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", head + "Content-Length: 9223372036854775807\r\n\r\n{}",
		head + "Content-Encoding: gzip\r\n\r\n" + zipped(okBody), head + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
		"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + chatStart + chatFinish + chatUsage + chatDone,
		"HTTP/1.1 401 No\r\nContent-Length: 1\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n" + head + "\r\n{}", "HTTP/1.1 101 Switching\r\n\r\n", "HTTP/1.0 200\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", "\x16\x03\x01", "", strings.Repeat("\r\n", 50),
	} {
		f.Add([]byte(text), "openai")
		f.Add([]byte(text), "other")
	}
	f.Fuzz(func(t *testing.T, text []byte, provider string) {
		var log bytes.Buffer
		store := &fake{}
		run := testRun(t, store, func(c *RunConfig) {
			c.Log = slog.New(slog.NewTextHandler(&log, nil))
			c.Wire = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
				here, there := net.Pipe()
				go func() {
					defer there.Close()
					if _, err := http.ReadRequest(bufio.NewReader(there)); err == nil {
						there.Write(text) // it may be cut off
					}
				}()
				return here, nil
			}}
		})
		ask(t, run, map[bool]string{true: "openai", false: "other"}[provider == "openai"], time.Minute, func(ctx context.Context, a *Attempt) (string, error) {
			req, err := http.NewRequestWithContext(ctx, "POST", "http://h.test/", nil)
			if err != nil {
				return "", err
			}
			resp, err := a.HTTP().Do(req)
			if err != nil {
				return "", err
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			return string(b), err
		})
		if strings.Contains(log.String(), "panicked") {
			t.Fatalf("%s", &log)
		}
		row := store.one(t)
		switch row.state {
		case ledger.Sent, ledger.Rejected, ledger.FailedAttempt, ledger.NotSent:
		case ledger.Received:
			if resp, err := decodeResponse(row.evidence.Response, nil); err != nil || resp.StatusCode > 299 {
				t.Fatalf("the kept answer reads as %+v, %v", resp, err)
			}
		default:
			t.Fatalf("the attempt is %q", row.state)
		}
	})
}
