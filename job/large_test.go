package job

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// TestTooLarge: of an answer over the limit the beginning is kept. It is not handed over, and the call is
// not made again, whatever user code makes of the error.
func TestTooLarge(t *testing.T) {
	for media, c := range map[string]struct {
		state ledger.AttemptState
		class string
		codec string
	}{
		"application/json":  {ledger.Received, "too_large", "http-cut"},
		"text/event-stream": {ledger.Received, "too_large", "http-cut"},
		"text/html":         {ledger.Sent, "unparsable", ""},
	} {
		t.Run(media, func(t *testing.T) {
			requests := 0
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests++
				w.Header().Set("Content-Type", media)
				w.Header().Set("X-Request-Id", "req_1")
				if media == "text/event-stream" { // counts so far, which are not the last ones
					io.WriteString(w, "data: {\"id\":\"c\",\"model\":\"gpt-5-mini\",\"choices\":[],\"usage\":{\"prompt_tokens\":1000,\"completion_tokens\":1}}\n\n")
				}
				line := []byte("data: " + strings.Repeat("x", 1<<20-8) + "\n\n")
				for range maxAnswer>>20 + 1 {
					if _, err := w.Write(line); err != nil {
						return
					}
				}
			}))
			defer srv.Close()
			f := &fake{}
			post := func(swallow bool) func(context.Context, *Attempt) (string, error) {
				return func(ctx context.Context, a *Attempt) (string, error) {
					out, err := post(ctx, a.HTTP(), srv.URL, "{}")
					if swallow {
						return "something else", nil
					}
					return out, err
				}
			}
			got := ask(t, priced(t, f), "openai", 5*time.Minute, post(true))
			row := f.one(t)
			if c := cost(row.evidence); c != "unknown" {
				t.Errorf("what was cut off has cost %s", c)
			}
			if row.state != c.state || row.evidence.Class != c.class || row.evidence.ProviderRequestID != "req_1" || got.err == nil {
				t.Errorf("on record: %s, %s, %s; %.200v", row.state, row.evidence.Class, row.evidence.ProviderRequestID, got.err)
			}
			if c.codec == "" {
				return
			}
			if r := row.evidence.Response; r.Codec != c.codec || len(r.Body) != maxKept || !bytes.HasPrefix(r.Body, []byte("HTTP/1.1 200 OK\r\n")) {
				t.Errorf("kept: %s, %d bytes, %.40q", r.Codec, len(r.Body), r.Body)
			}
			again := ask(t, testRun(t, f, nil), "openai", 5*time.Minute, post(false))
			for _, err := range []error{got.err, again.err} {
				if class, _ := ClassOf(err); !errors.Is(err, ErrTooLarge) || class != Permanent {
					t.Errorf("the call says %.200v (%s)", err, class)
				}
			}
			if requests != 1 || len(f.attempts) != 1 {
				t.Errorf("%d requests, %d attempts", requests, len(f.attempts))
			}
		})
	}
}

// TestTooLargeByHand: so it is for what is not sent over HTTP.
func TestTooLargeByHand(t *testing.T) {
	for _, over := range []int{0, 1} {
		f := &fake{}
		sent := 0
		do := func(ctx context.Context, a *Attempt) (string, error) {
			if err := a.Sent(ctx); err != nil {
				return "", err
			}
			sent++
			return strings.Repeat("x", maxKept-2+over), nil // and two quotes
		}
		first := ask(t, testRun(t, f, nil), "smtp", time.Minute, do)
		again := ask(t, testRun(t, f, nil), "smtp", time.Minute, do)
		row := f.one(t)
		want := map[int]string{0: "json", 1: "json-cut"}[over]
		if row.state != ledger.Received || row.evidence.Response.Codec != want || len(row.evidence.Response.Body) != maxKept || sent != 1 {
			t.Errorf("on record: %s, %s, %d bytes; sent %d times", row.state, row.evidence.Response.Codec, len(row.evidence.Response.Body), sent)
		}
		for _, got := range []asked[string]{first, again} {
			if errors.Is(got.err, ErrTooLarge) != (over > 0) || (got.err == nil) != (len(got.out) > 0) {
				t.Errorf("over by %d: %d bytes, %.200v", over, len(got.out), got.err)
			}
		}
	}
}
