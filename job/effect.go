package job

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// Effect is a client for the one request of an effect that goes over HTTP to somebody who is no model provider. As HTTP
// does, it puts the sent mark on record before the first byte, after whatever may fail without a doubt (names, dialling,
// TLS), lets one request out over a connection of its own, and follows no redirects. Unlike HTTP it
// judges no answer: what Do returns decides, as after Sent, since nobody else knows what the receiver's answers mean.
// Headers go as they are: an Idempotency-Key is the receiver's to honour, and makes nothing here send again.
//
// A request whose answer was lost is unknown whatever Do returns. Errors of an http.Client name the whole URL: where that
// is a secret, take it out (errors.As to *url.Error).
func (a *Attempt) Effect() *http.Client {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.effect == nil {
		a.effect = &effect{a: a, done: make(chan struct{})}
	}
	return &http.Client{
		Transport:     a.effect,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// effect is the transport of one attempt whose answer its user judges.
type effect struct {
	a    *Attempt
	done chan struct{} // closed when the one request has an answer, or none

	mu     sync.Mutex
	cancel context.CancelCauseFunc // of the one request; nil: it was not asked for
	over   bool                    // Do has returned

	// What was seen, for the evidence; to be read after done.
	status    int
	requestID string
	firstByte time.Time
}

// RoundTrip makes the attempt's one request.
func (e *effect) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := readRequest(req)
	if err != nil {
		return nil, fmt.Errorf("PO368 the request's body cannot be read; nothing was sent: %w", err)
	}
	ctx, err := e.take(req.Context())
	if err != nil {
		return nil, err
	}
	defer close(e.done)
	gate := newSendGate(ctx, e.a)
	w, err := newWire(e.a.run.cfg.Wire, gate, req.URL)
	if err != nil {
		return nil, err
	}
	out := req.Clone(ctx)
	out.Close = true
	out.Body, out.ContentLength, out.TransferEncoding = http.NoBody, int64(len(body)), nil
	if len(body) > 0 {
		out.Body = io.NopCloser(bytes.NewReader(body))
	}
	if out.Header.Get("Accept-Encoding") == "" && w.compresses(out) {
		out.Header.Set("Accept-Encoding", gzipCoding)
	}
	resp, err := w.send(out)
	if err != nil {
		return nil, e.broken(ctx, gate, req.URL.Host, err)
	}
	resp.Request = req
	e.status, e.requestID, e.firstByte = resp.StatusCode, requestID(resp.Header), time.Now()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		hideRefusal(resp, credentials(req))
	}
	return resp, nil
}

// take hands out the attempt's one request, and the context that it lives under: the caller's, no longer than
// the attempt's.
func (e *effect) take(caller context.Context) (context.Context, error) {
	used := e.a.used()
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.over:
		return nil, errOver
	case e.cancel != nil, used:
		return nil, errSecond
	}
	ctx, cancel := context.WithCancelCause(caller)
	stop := context.AfterFunc(e.a.paid, func() { cancel(ended(e.a.paid)) })
	e.cancel = func(err error) { stop(); cancel(err) }
	e.a.mu.Lock()
	e.a.manual = true
	if e.a.free {
		e.a.spec.Day = ledger.DayLimits{} // what costs nothing waits for no budget
	}
	e.a.mu.Unlock()
	return ctx, nil
}

// broken fixes the outcome of a request that has no response, and says why there is none.
func (e *effect) broken(ctx context.Context, gate *sendGate, host string, err error) error {
	o := outcome{again: soon}
	switch {
	case !gate.seal(): // a gate that refused has ended the attempt itself
		o.evidence, o.err = notSent(unsentClass(err)), fmt.Errorf("PO371 nothing was sent to %s: %w", host, err)
		e.a.finish(o)
	case gate.incomplete():
		o.evidence, o.err = notSent("cut_request"), fmt.Errorf("PO371 the request to %s did not go out whole: %w", host, err)
		e.a.capture(ctx, o)
	default:
		class := lostClass(err)
		o = outcome{evidence: ledger.Evidence{State: ledger.Sent, Class: class}, err: fmt.Errorf("PO370 outcome unknown: %s, %s: %w", host, class, err)}
		e.a.capture(ctx, o)
	}
	return o.err
}

// end is called when Do has returned: it lets no request out any more, and ends the one under way.
func (e *effect) end() {
	e.mu.Lock()
	e.over = true
	cancel := e.cancel
	e.mu.Unlock()
	if cancel != nil {
		cancel(errOver)
		<-e.done
	}
}

// seen adds what the wire showed to the evidence. gated is when the gate was passed.
func (e *effect) seen(ev *ledger.Evidence, gated time.Time) {
	ev.Status, ev.ProviderRequestID = e.status, e.requestID
	if !e.firstByte.IsZero() {
		ev.FirstByte = max(e.firstByte.Sub(gated), 1)
	}
}
