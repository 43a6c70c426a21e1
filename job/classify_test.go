package job

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares have with testdata/name.
func golden(t *testing.T, name string, have []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, have, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		t.Errorf("%s differs (-update writes it anew, if that is what you want):\n%s", path, have)
	}
}

// bodies are what may stand in a refusal.
var bodies = []struct {
	name, id, body string
	header         http.Header
}{
	{"openai", "req_1", `{"error":{"message":"m","type":"server_error","param":null,"code":null}}`, nil},
	{"openai without id", "", `{"error":{"message":"m","type":"server_error","param":null,"code":null}}`, nil},
	{"openai overloaded", "req_1", `{"error":{"message":"m","type":"service_unavailable_error","code":"server_is_overloaded"}}`, nil},
	{"openai quota", "req_1", `{"error":{"message":"m","type":"insufficient_quota","code":"insufficient_quota"}}`, nil},
	{"anthropic", "req_1", `{"type":"error","error":{"type":"api_error","message":"m"}}`, nil},
	{"anthropic id in body", "", `{"type":"error","error":{"type":"api_error","message":"m"},"request_id":"req_2"}`, nil},
	{"anthropic overloaded", "req_1", `{"type":"error","error":{"type":"overloaded_error","message":"m"}}`, nil},
	{"anthropic spend", "req_1", `{"type":"error","error":{"type":"rate_limit_error","message":"m","details":{"error_code":"enforced_spend_limit_reached"}}}`, nil},
	{"bedrock", "req_1", `{"message":"m"}`, http.Header{"X-Amzn-Errortype": {"InternalServerException:http://x"}}},
	{"page", "req_1", `<html>502</html>`, nil},
	{"empty", "req_1", ``, nil},
	{"other json", "req_1", `{"detail":"upstream timed out"}`, nil},
	{"text error", "req_1", `{"error":"upstream timed out"}`, nil},
}

// TestRefusals writes down what every status means with every body, for every
// flavour; the file is the table of facts that people can read.
func TestRefusals(t *testing.T) {
	statuses := []int{101, 301, 400, 401, 402, 403, 404, 405, 408, 409, 410, 413, 422, 424, 425, 429, 451, 499, 500, 501, 502, 503, 504, 520, 524, 527, 529, 530, 599, 600}
	var out bytes.Buffer
	for _, f := range []flavour{openAI, anthropic, bedrock, generic} {
		for _, s := range statuses {
			var last string
			for _, b := range bodies {
				h := b.header.Clone()
				if h == nil {
					h = http.Header{}
				}
				if b.id != "" {
					h.Set("X-Request-Id", b.id)
				}
				r := f.refusal(s, f.readError(h, []byte(b.body)))
				line := fmt.Sprintf("%s, %s, %s, billed %s", r.state, r.class, [...]string{"never", "soon", "later"}[r.again], r.billed)
				if line != last {
					fmt.Fprintf(&out, "%-9s %d %-21s %s\n", cmpOr(string(f), "generic"), s, b.name, line)
				}
				last = line
			}
		}
	}
	golden(t, "refusals.txt", out.Bytes())
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// TestSafe: what may have been executed is never taken for a no. These are the rows
// of the table that cost money if they are wrong.
func TestSafe(t *testing.T) {
	for _, f := range []flavour{openAI, anthropic, bedrock, generic} {
		for s := 100; s < 700; s++ {
			for _, body := range []string{"", "<html>", `{"detail":"no"}`, `{"error":"no"}`, `[]`, `{"error":{"message":"cut`} {
				r := f.refusal(s, f.readError(http.Header{"X-Request-Id": {"r"}}, []byte(body)))
				if (s < 300 || s >= 500 || s == 408 || s == 499) && r.state != ledger.Sent {
					t.Errorf("%s, %d with %q is %s", f, s, body, r.state)
				}
			}
		}
	}
}

func TestReadError(t *testing.T) {
	for body, want := range map[string]apiError{
		`{"error":{"message":"a\u0000b","type":"t","code":7}}`:               {own: true, kind: "t", codes: []string{"7", ""}, text: "a b"},
		`{"error":{"message":"m","type":null,"code":"c"}}`:                   {own: true, codes: []string{"c", ""}, text: "m"},
		`{"error":{"message":"m"}}`:                                          {codes: []string{"", ""}, text: "m"},
		`{"error":{"message":1,"type":"t"}}`:                                 {},
		`{"type":"error","error":{"type":"t"},"request_id":"req_b"}`:         {own: true, kind: "t", codes: []string{"", ""}, requestID: "req_b"},
		`{"type":"error","error":{"type":"t","details":{"error_code":"d"}}}`: {own: true, kind: "t", codes: []string{"", "d"}},
	} {
		if got := generic.readError(http.Header{}, []byte(body)); got.own != want.own || got.kind != want.kind && want.own || got.text != want.text || got.requestID != want.requestID || want.own && fmt.Sprint(got.codes) != fmt.Sprint(want.codes) {
			t.Errorf("%s reads as %+v, want %+v", body, got, want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		ms, s string
		want  time.Duration
	}{
		{"", "", 0}, {"", "2", 2 * time.Second}, {"", "1.5", 1500 * time.Millisecond}, {"250", "2", 250 * time.Millisecond},
		{"", "Fri, 02 Jan 2026 03:04:15 GMT", 10 * time.Second}, {"", "Fri, 02 Jan 2026 03:04:00 GMT", 0},
		{"", "-5", 0}, {"", "1e300", time.Hour}, {"", "inf", time.Hour}, {"", "-inf", 0}, {"", "nan", 0}, {"nan", "3", 3 * time.Second},
		{"", "31536000", time.Hour}, {"", "Fri, 02 Jan 2099 03:04:15 GMT", time.Hour}, {"", "soon", 0}, {"x", "4", 4 * time.Second},
	} {
		h := http.Header{}
		h.Set("Retry-After-Ms", c.ms)
		h.Set("Retry-After", c.s)
		if got := retryAfter(h, now); got != c.want {
			t.Errorf("%q, %q: %s, want %s", c.ms, c.s, got, c.want)
		}
	}
}

func TestLostClass(t *testing.T) {
	for want, err := range map[string]error{
		"timeout":   fmt.Errorf("x: %w", context.DeadlineExceeded),
		"cancelled": context.Canceled,
		"reset":     syscall.ECONNRESET,
		"closed":    io.ErrUnexpectedEOF,
		"broken":    errors.New("malformed HTTP response"),
	} {
		if got := lostClass(err); got != want {
			t.Errorf("%v is %s, want %s", err, got, want)
		}
	}
}
