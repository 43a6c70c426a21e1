package job

import (
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/paidonce/paidonce/ledger"
)

// FuzzRefusal: whatever a server refuses with, it is one of the table's outcomes, its texts fit into rows, a wait is within
// its bounds, and the credential that it repeats is gone.
func FuzzRefusal(f *testing.F) {
	for _, b := range bodies {
		f.Add(500, "openai", b.id, "", "", []byte(b.body))
	}
	f.Add(429, "anthropic", "req_1", "1e300", "Wed, 21 Oct 2099 07:28:00 GMT", []byte(`{"type":"error","error":{"type":"rate_limit_error","message":"\u0000"}}`))
	f.Add(429, "bedrock", "", "-5", "NaN", []byte(`{"message":{"a":1}}`))
	f.Add(401, "", "", "", "", []byte(`{"error":{"message":"Incorrect API key provided: `+plantedKey+`","type":"t"}}`))
	f.Fuzz(func(t *testing.T, status int, provider, id, ms, after string, body []byte) {
		req, err := http.NewRequest("POST", "https://h/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+plantedKey)
		x := &exchange{credentials: credentials(req), flavour: flavours[provider]}
		h := http.Header{"X-Request-Id": {id}, "Retry-After-Ms": {ms}, "Retry-After": {after}, "X-Amzn-Errortype": {id}}
		e := x.readError(h, body)
		r := x.flavour.refusal(status, e)
		if r.class == "" || r.state != ledger.Sent && r.state != ledger.Rejected && r.state != ledger.FailedAttempt {
			t.Fatalf("%d is %+v", status, r)
		}
		if r.state == ledger.Rejected && (status >= 500 && !e.own || status < 300) {
			t.Fatalf("%d with %q is taken for a no", status, body)
		}
		if w := retryAfter(h, time.Now()); w < 0 || w > maxRetryAfter {
			t.Fatalf("wait %s", w)
		}
		for _, s := range append([]string{e.text, e.kind, e.requestID}, e.codes...) {
			if !utf8.ValidString(s) || strings.ContainsRune(s, 0) || len(s) > maxText {
				t.Fatalf("text %q", s)
			}
		}
		if strings.Contains(e.text, plantedKey) {
			t.Fatalf("%q shows the key", e.text)
		}
	})
}
