package job

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// exchange is one request and what came of it.
type exchange struct {
	a       *Attempt
	caller  *http.Request // user code's
	request *http.Request // the wire's
	flavour flavour
	paid    context.Context // the attempt's
	ctx     context.Context // of the wire: it lasts as long as the attempt may
	cancel  context.CancelCauseFunc
	gate    *sendGate
	wire    *wire

	answered chan struct{}  // closed when answer is there
	answer   *http.Response // for user code
	ended    chan struct{}  // closed when the outcome is recorded and nothing runs any more

	wrote     chan error   // gets what the transport says of its writing
	firstByte atomic.Int64 // when it came, in Unix nanoseconds; 0: it did not

	credentials []string // of the request, the longest first

	// What was seen, for the evidence.
	status    int
	requestID string
	objectID  string
	bill      bill
	tee       *tee   // of an event stream
	noteDone  func() // ends the note of a stream's id; nil: there is none
}

func newExchange(a *Attempt, req *http.Request) *exchange {
	x := &exchange{a: a, caller: req, flavour: flavours[strings.ToLower(a.spec.Provider)],
		answered: make(chan struct{}), ended: make(chan struct{}), wrote: make(chan error, 1)}
	paid, done := a.paid, func() {}
	if paid == nil {
		paid, done = a.run.paid(req.Context(), a.spec.Timeout)
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(req.Context()))
	stop := context.AfterFunc(paid, func() { cancel(ended(paid)) })
	x.paid, x.ctx, x.cancel = paid, ctx, func(err error) { stop(); cancel(err); done() }
	return x
}

// traced is the wire's context with the marks that the outcome is read from.
func (x *exchange) traced() context.Context {
	return httptrace.WithClientTrace(x.ctx, &httptrace.ClientTrace{
		WroteRequest: func(i httptrace.WroteRequestInfo) {
			select {
			case x.wrote <- i.Err:
			default:
			}
		},
		GotFirstResponseByte: func() { x.firstByte.CompareAndSwap(0, time.Now().UnixNano()) },
	})
}

// leave says that nobody waits. A request that is not out yet is stopped; where nobody waits
// because the attempt's time is over, that is why.
func (x *exchange) leave() {
	if x.gate.leave() {
		x.cancel(cmp.Or(ended(x.paid), errCallerLeft))
	}
}

// left is the answer for a caller whose context has ended.
func (x *exchange) left() *http.Response {
	x.leave()
	select {
	case <-x.answered: // it came in the same moment
		return x.answer
	default:
		return synthetic(x.caller, "left", fmt.Errorf("%w: %w", errWaiting, context.Cause(x.caller.Context())))
	}
}

// run sends the request, records the outcome, and answers user code.
func (x *exchange) run() {
	defer close(x.ended)
	defer x.cancel(context.Canceled)
	defer x.rescue()
	request := x.request
	x.request = nil // it is not kept while the answer is waited for
	resp, err := x.wire.send(request)
	if err != nil {
		x.broken(err)
		return
	}
	defer resp.Body.Close()
	x.status, x.requestID = resp.StatusCode, requestID(resp.Header)
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		x.refused(resp)
	case media == "text/event-stream":
		x.stream(resp)
	default:
		x.whole(resp)
	}
}

// rescue turns a panic of this package into an unknown outcome: the answer of a
// paid request must not take the process down, and the jobs beside it.
func (x *exchange) rescue() {
	err := x.log(recover())
	if err == nil {
		return
	}
	x.gate.seal()
	x.a.finish(outcome{evidence: x.evidence(ledger.Sent, "panic"), err: err})
	x.fail("unknown", err)
	if x.tee != nil { // user code may be reading
		x.tee.pass(x.tee.text, x.tee.let, err)
	}
}

// caught is rescue for what the outcome does not depend on.
func (x *exchange) caught() { x.log(recover()) }

// log logs a panic and makes an error of it; nil for none.
func (x *exchange) log(v any) error {
	if v == nil {
		return nil
	}
	x.a.run.cfg.Log.Error("the request guard panicked", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	return fmt.Errorf("PO369 the request guard panicked: %v", v)
}

// broken ends a request that has no response.
func (x *exchange) broken(err error) {
	if !x.gate.seal() {
		// Nothing was written. A gate that refused has ended the attempt itself, and one
		// that Sent had opened before is for Sent's outcome.
		if !errors.Is(err, errSecond) {
			x.a.finish(outcome{evidence: notSent(unsentClass(err)), again: soon,
				err: fmt.Errorf("PO371 nothing was sent to %s: %w", x.host(), err)})
		}
		x.fail("not_sent", err)
		return
	}
	if werr := x.writing(); werr != nil || x.gate.incomplete() {
		x.record(outcome{evidence: x.evidence(ledger.NotSent, "cut_request"), again: soon,
			err: fmt.Errorf("PO371 the request to %s did not go out whole: %w", x.host(), cmp.Or(werr, err))})
	} else {
		x.record(x.unknown(lostClass(err), err))
	}
	x.fail("unknown", err)
}

// writing is what the transport says of its writing. It closed the connection, so
// the answer is near; without one the request counts as written.
func (x *exchange) writing() error {
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case err := <-x.wrote:
		return err
	case <-t.C:
		return nil
	}
}

// refused ends a request whose response is no answer.
func (x *exchange) refused(resp *http.Response) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	body = x.hide(body)
	e := x.readError(resp.Header, body)
	x.requestID = e.requestID
	r := x.flavour.refusal(resp.StatusCode, e)
	o := outcome{evidence: x.evidence(r.state, r.class), again: r.again, wait: retryAfter(resp.Header, time.Now())}
	text := fmt.Sprintf("%s answered %d %s%s%s", x.host(), resp.StatusCode, r.class, colon(e.text), x.named())
	if r.state == ledger.Sent {
		o.err = fmt.Errorf("PO370 outcome unknown: %s", text)
	} else {
		o.err = fmt.Errorf("PO372 %s (billed: %s)", text, r.billed)
	}
	if err != nil {
		o.err = fmt.Errorf("%w (its body broke off: %w)", o.err, err)
	}
	x.record(o)
	x.deliver(x.response(resp, io.NopCloser(bytes.NewReader(body)), int64(len(body))))
}

// received is the outcome with an answer.
func (x *exchange) received(resp *http.Response, body []byte) outcome {
	e := x.evidence(ledger.Received, "done")
	x.a.price(&e, &x.bill)
	return answered(e, encodeResponse(resp.StatusCode, x.hideHeader(resp.Header), body))
}

// faulted is the outcome of an answer in which the provider says that it failed.
func (x *exchange) faulted(d document) outcome {
	if d.Response != nil {
		d = *d.Response
	}
	var in struct{ Type, Message string }
	json.Unmarshal(d.Error, &in) // an error of another form has no text that we can show
	json.Unmarshal(d.Message, &in.Message)
	class := "provider_error"
	if in.Type == "overloaded_error" {
		class = "overloaded"
	}
	e := x.evidence(ledger.FailedAttempt, class)
	if b := d.bill(); b.told() { // not of a stream's beginning, whose counts are not the last ones
		x.a.price(&e, &b)
	}
	return outcome{evidence: e, again: soon,
		err: fmt.Errorf("PO372 %s broke off the answer%s%s (billed: maybe)", x.host(), colon(clean(x.hideText(cmp.Or(in.Message, in.Type)), maxText)), x.named())}
}

// unknown is the outcome of a request that may have been executed.
func (x *exchange) unknown(class string, err error) outcome {
	return outcome{evidence: x.evidence(ledger.Sent, class),
		err: fmt.Errorf("PO370 outcome unknown: %s, %s%s: %w", x.host(), class, x.named(), err)}
}

// evidence is what was seen so far.
func (x *exchange) evidence(state ledger.AttemptState, class string) ledger.Evidence {
	e := ledger.Evidence{State: state, Class: class, Status: x.status, ProviderRequestID: x.requestID, ObjectID: x.objectID, Usage: x.bill.tally.usage()}
	x.a.mu.Lock()
	defer x.a.mu.Unlock()
	if at := x.firstByte.Load(); at > 0 && !x.a.gated.IsZero() {
		e.FirstByte = max(time.Unix(0, at).Sub(x.a.gated.Round(0)), 1)
	}
	return e
}

// record puts the outcome on record and reports whether it is there.
func (x *exchange) record(o outcome) bool {
	if x.noteDone != nil {
		x.noteDone()
	}
	x.a.capture(x.ctx, o)
	x.a.mu.Lock()
	defer x.a.mu.Unlock()
	return x.a.out.evidence.Class == o.evidence.Class
}

// lost is the error of the attempt, for user code that waits for more.
func (x *exchange) lost(err error) error {
	x.a.mu.Lock()
	defer x.a.mu.Unlock()
	if x.a.out != nil && x.a.out.err != nil {
		return x.a.out.err
	}
	return err
}

// fail answers user code without a response of the provider's.
func (x *exchange) fail(kind string, err error) {
	x.deliver(synthetic(x.caller, kind, x.lost(err)))
}

// deliver answers user code. The first answer counts.
func (x *exchange) deliver(resp *http.Response) {
	if x.answer == nil {
		x.answer = resp
		close(x.answered)
	}
}

// response is the provider's, with another body, for user code.
func (x *exchange) response(from *http.Response, body io.ReadCloser, length int64) *http.Response {
	h := from.Header.Clone()
	h.Del("Content-Length")
	if length >= 0 {
		h.Set("Content-Length", strconv.FormatInt(length, 10))
	}
	h.Set(retryHeader, "false")
	return &http.Response{Status: from.Status, StatusCode: from.StatusCode, Proto: from.Proto, ProtoMajor: from.ProtoMajor, ProtoMinor: from.ProtoMinor,
		Header: h, Body: body, ContentLength: length, Uncompressed: from.Uncompressed, Request: x.caller, TLS: from.TLS}
}

func (x *exchange) host() string { return x.caller.URL.Host }

// named is the provider's request id, for messages.
func (x *exchange) named() string {
	if x.requestID == "" {
		return ""
	}
	return " (request " + x.requestID + ")"
}

func colon(s string) string {
	if s == "" {
		return ""
	}
	return ": " + s
}

func notSent(class string) ledger.Evidence {
	return ledger.Evidence{State: ledger.NotSent, Class: class}
}

// synthetic is what stands for a response where there is none: a status that no
// server sends, an error that both model SDKs show, and the header that they obey.
func synthetic(req *http.Request, kind string, err error) *http.Response {
	type text struct {
		Type    string `json:"type"`
		Code    string `json:"code"`
		Param   string `json:"param"`
		Message string `json:"message"`
	}
	body, _ := json.Marshal(struct { // strings always encode
		Type  string `json:"type"`
		Error text   `json:"error"`
	}{"error", text{"paidonce_error", kind, "", err.Error()}})
	h := http.Header{"Content-Type": {"application/json"}, "Content-Length": {strconv.Itoa(len(body))}, retryHeader: {"false"}}
	return &http.Response{Status: "599 paidonce", StatusCode: 599, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: req}
}
