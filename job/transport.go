package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/paidonce/paidonce/ledger"
)

const (
	maxAnswer  = ledger.MaxBody // bytes of an answer's body that are read
	maxRefusal = 1 << 20        // bytes of a refusal that are read
	maxRequest = 256 << 20      // bytes of a request's body

	retryHeader = "X-Should-Retry"
)

var (
	errSecond  = errors.New("PO364 this attempt has made its one request; nothing was sent (requests that cost nothing go through Free)")
	errOver    = errors.New("PO365 the attempt is over; nothing was sent")
	errWaiting = errors.New("PO367 the caller stopped waiting; the request goes on and its answer is kept")
)

// guard is the transport of one attempt. It lets one request out, through the send
// gate, and records what becomes of it before user code sees it.
//
// The request does not end with the caller's context, nor with the caller's interest:
// once its first byte is out it is paid for, so it is read to its end, for as long as the
// attempt lasts, and close waits for it.
type guard struct {
	a *Attempt

	mu   sync.Mutex
	shot bool      // the one request was asked for
	over bool      // Do has returned
	x    *exchange // nil: none yet
}

// newGuard returns the attempt's guard: the same for every client of it.
func newGuard(a *Attempt) http.RoundTripper {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.guard == nil {
		a.guard = &guard{a: a}
	}
	return a.guard
}

// RoundTrip answers the first request of the attempt, from the saved answer if
// there is one. It returns no errors: both model SDKs repeat a request that has no
// response, whatever the error, and obey a header of one that has.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	x, resp := g.begin(req)
	if x == nil {
		return resp, nil
	}
	go x.run()
	select {
	case <-x.answered:
		return x.answer, nil
	case <-req.Context().Done():
		return x.left(), nil
	}
}

// begin makes the attempt's exchange, or the answer if there is to be none.
func (g *guard) begin(req *http.Request) (*exchange, *http.Response) {
	if err := g.take(); err != nil {
		closeBody(req)
		return nil, synthetic(req, "refused", err)
	}
	if g.a.replay != nil {
		resp, err := replayed(g.a.replay, req)
		if err != nil {
			return nil, synthetic(req, "damaged", err)
		}
		resp.Header.Set(retryHeader, "false")
		return nil, resp
	}
	x, err := g.prepare(req)
	if err != nil {
		if !g.a.used() {
			g.a.finish(outcome{evidence: notSent("request"), again: never, err: err})
		}
		return nil, synthetic(req, "not_sent", err)
	}
	return x, nil
}

// replayed is a saved answer for the client that asked for it.
func replayed(saved *ledger.Response, req *http.Request) (*http.Response, error) {
	var asked struct {
		Stream bool `json:"stream"`
	}
	if saved.Codec != codecObject { // its own request asked for it, whatever it looks like
		closeBody(req)
	} else if body, err := readRequest(req); err == nil && json.Unmarshal(body, &asked) == nil && asked.Stream {
		// A client that reads events would see none, and a clean end.
		return nil, errors.New("PO363 the saved answer was found at the provider in one piece, and the route reads a stream")
	}
	return decodeResponse(saved, req)
}

// take hands out the attempt's one request.
func (g *guard) take() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.over:
		return errOver
	case g.shot, g.a.used():
		return errSecond
	}
	g.shot = true
	return nil
}

// prepare reads the request's body, so that nothing of the caller's is touched after
// RoundTrip returns, and makes the wire request.
func (g *guard) prepare(req *http.Request) (*exchange, error) {
	body, err := readRequest(req)
	if err != nil {
		return nil, fmt.Errorf("PO368 the request's body cannot be read; nothing was sent: %w", err)
	}
	g.a.reckon(body)
	x := newExchange(g.a, req)
	x.credentials = credentials(req)
	x.gate = newSendGate(x.ctx, g.a)
	if x.wire, err = newWire(g.a.run.cfg.Wire, x.gate, req.URL); err != nil {
		x.cancel(err)
		return nil, err
	}
	out := req.Clone(x.traced())
	out.GetBody, out.Close = nil, true
	out.Body, out.ContentLength, out.TransferEncoding = http.NoBody, int64(len(body)), nil
	if len(body) > 0 {
		out.Body = io.NopCloser(bytes.NewReader(body))
	}
	// A gateway may take these as leave to send again, and no model provider honours them.
	out.Header.Del("Idempotency-Key")
	out.Header.Del("X-Idempotency-Key")
	out.Header.Del("Accept-Encoding") // only what the wire can undo, so that answers are readable
	if x.wire.compresses(out) {
		out.Header.Set("Accept-Encoding", gzipCoding)
	}
	if out.Header.Get("X-Client-Request-Id") == "" {
		out.Header.Set("X-Client-Request-Id", g.a.ID())
	}
	x.request = out
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		x.cancel(errOver)
		return nil, errOver
	}
	g.x = x
	return x, nil
}

// end is called when Do has returned: it lets no request out any more and waits for
// the one under way.
func (g *guard) end() {
	g.mu.Lock()
	g.over = true
	x := g.x
	g.mu.Unlock()
	if x != nil {
		x.leave()
		<-x.ended
	}
}

// readRequest reads and closes a request's body.
func readRequest(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	defer req.Body.Close()
	var b bytes.Buffer
	if req.ContentLength > 0 {
		b.Grow(int(min(req.ContentLength, maxRequest)) + bytes.MinRead)
	}
	n, err := b.ReadFrom(io.LimitReader(req.Body, maxRequest+1))
	switch {
	case err != nil:
		return nil, err
	case n > maxRequest:
		return nil, fmt.Errorf("it is larger than %d bytes", maxRequest)
	case req.ContentLength > 0 && n != req.ContentLength:
		return nil, fmt.Errorf("it has %d bytes of the %d announced", n, req.ContentLength)
	}
	return b.Bytes(), nil
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}
