package job

import (
	"errors"
	"io"
	"net/http"
)

// errTooLong ends an answer that an unguarded client reads no further.
var errTooLong = errors.New("PO653 the answer is longer than a ledger keeps, and is not read on")

// Unguarded is a client for requests that cost nothing and may be repeated: look-ups, polls, tokens. Nothing that it sends is on
// record. It verifies who answers, reads at most as much of an answer as a ledger keeps (the rest is an error), and follows no redirects, which would take
// a key in a header of its own to wherever they lead. Time limits are the context's.
func Unguarded() *http.Client { return unguarded }

var unguarded = &http.Client{
	Transport:     bounded{most: maxAnswer},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// bounded is Go's transport with a limit on bodies.
type bounded struct{ most int64 }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err == nil {
		resp.Body = &boundedBody{resp.Body, b.most}
	}
	return resp, err
}

type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLong
	}
	return n, err
}
