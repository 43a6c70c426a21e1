package job

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/paidonce/paidonce/ledger"
)

// body is what came in one piece, as it was read.
type body struct {
	resp     *http.Response
	media    string
	text     []byte
	document document
	isObject bool
	err      error // why there is no more of it
}

func readBody(resp *http.Response) body {
	b := body{resp: resp}
	b.media, _, _ = mime.ParseMediaType(resp.Header.Get("Content-Type"))
	b.text, b.err = readAnswer(resp)
	b.document, b.isObject = readDocument(b.text)
	return b
}

// whole ends a request whose answer comes in one piece.
func (x *exchange) whole(resp *http.Response) {
	b := readBody(resp)
	x.objectID, x.bill = b.document.objectID(), b.document.bill()
	if b.err == nil && b.document.pending() {
		b = x.await(b)
		x.bill = b.document.bill()
	}
	o := x.judged(b)
	recorded := x.record(o)
	switch {
	case recorded && o.evidence.State == ledger.Received && o.err != nil:
		x.fail("too_large", o.err)
		return
	case !recorded || b.err != nil:
		x.fail("unknown", x.lost(b.err))
		return
	}
	x.deliver(x.response(b.resp, io.NopCloser(bytes.NewReader(b.text)), int64(len(b.text))))
}

// judged is the outcome of a request that was answered in one piece.
func (x *exchange) judged(b body) outcome {
	d := b.document
	switch {
	case errors.Is(b.err, ErrTooLarge) && b.media != "text/html":
		return x.received(b.resp, b.text)
	case errors.Is(b.err, ErrTooLarge):
		return x.unknown("unparsable", fmt.Errorf("a page of more than %d bytes is no answer of the provider's", maxAnswer))
	case b.err != nil && timedOut(b.err):
		return x.unknown("timeout", b.err)
	case b.err != nil && d.pending():
		return x.unknown(lostClass(b.err), b.err)
	case b.err != nil:
		return x.unknown("cut_body", b.err)
	case !b.isObject && !x.plausible(b.media, b.resp, b.text):
		return x.unknown("unparsable", fmt.Errorf("a whole body of %d bytes (%s) is no answer of the provider's", len(b.text), cmp.Or(b.media, "no content type")))
	case b.isObject && d.broken():
		return x.faulted(d)
	}
	return x.received(b.resp, b.text)
}

// plausible reports whether a body that is no JSON object can be an answer, and a whole
// one: its length or coding must show that nothing is missing, a page is none, what
// calls itself JSON must be some, and a known provider names the request.
func (x *exchange) plausible(media string, resp *http.Response, body []byte) bool {
	framed := resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0 || resp.Uncompressed
	isJSON := media == "application/json" || strings.HasSuffix(media, "+json")
	switch {
	case media == "text/html":
		return false
	case isJSON && resp.Header.Get("Content-Encoding") == "":
		return x.flavour == generic && json.Valid(body)
	}
	return framed && (x.flavour == generic || media != "" && x.requestID != "")
}

// readAnswer reads a whole body, up to its limit.
func readAnswer(resp *http.Response) ([]byte, error) {
	var b bytes.Buffer
	if resp.ContentLength > 0 {
		b.Grow(int(min(resp.ContentLength, maxAnswer)) + bytes.MinRead)
	}
	n, err := b.ReadFrom(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && n > maxAnswer {
		err = ErrTooLarge
	}
	return b.Bytes(), err
}
