package job

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/paidonce/paidonce/ledger"
)

// The codecs of saved answers.
const (
	codecHTTP = "http" // status line, headers and body, in the form of the wire
	codecJSON = "json" // a value that user code made

	// codecObject is an object of the provider's that a reconciler found and could not read. Routes are given it
	// as the answer in one piece that it is.
	codecObject = "object"

	// cutSuffix marks the codec of an answer of which the ledger has the beginning alone.
	cutSuffix = "-cut"
)

// maxKept is the largest answer that is kept whole, as it is encoded: a little below what a ledger
// takes, for those who wrap it on its way there, as encryption does.
const maxKept = ledger.MaxBody - ledger.WrapRoom

// keepable is an answer as it is kept. One that is too large is an answer all the same: it
// was paid for, and so is each further one.
func keepable(r *ledger.Response) (*ledger.Response, error) {
	if len(r.Body) <= maxKept {
		return r, nil
	}
	return &ledger.Response{Codec: r.Codec + cutSuffix, Body: r.Body[:maxKept]}, Fail(ErrTooLarge)
}

// answered is the outcome with an answer.
func answered(e ledger.Evidence, r *ledger.Response) outcome {
	r, err := keepable(r)
	if e.Response = r; err != nil {
		e.Class = "too_large"
	}
	return outcome{evidence: e, err: err}
}

// hop are headers that speak of the connection and not of the answer.
var hop = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Te": true, "Trailer": true,
	"Transfer-Encoding": true, "Upgrade": true, "Alt-Svc": true, "Content-Length": true, retryHeader: true,
}

// secret are parts of the names of headers that nobody should find in a ledger.
var secret = []string{"cookie", "authoriz", "authenticat", "api-key", "secret", "session"}

// kept reports whether a header is saved with the answer.
func kept(name string) bool {
	if hop[name] {
		return false
	}
	low := strings.ToLower(name)
	for _, s := range secret {
		if strings.Contains(low, s) {
			return false
		}
	}
	return true
}

// unsound reports whether a name or value of a header would not be read back.
func unsound(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// encodeResponse saves an answer so that decodeResponse gives the same one. Headers
// are in the order of their names: the same answer is the same bytes.
func encodeResponse(status int, header http.Header, body []byte) *ledger.Response {
	var b bytes.Buffer
	b.Grow(len(body) + 1024)
	fmt.Fprintf(&b, "HTTP/1.1 %03d %s\r\n", status, http.StatusText(status))
	h := http.Header{}
	for k, v := range header {
		if kept(k) && !slices.ContainsFunc(append([]string{k}, v...), unsound) {
			h[k] = v
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Write(&b) // a buffer takes everything
	b.WriteString("\r\n")
	b.Write(body)
	return &ledger.Response{Codec: codecHTTP, Body: b.Bytes()}
}

// decodeResponse reads a saved answer. The body is not copied.
func decodeResponse(r *ledger.Response, req *http.Request) (*http.Response, error) {
	if r.Codec == codecObject {
		return &http.Response{Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
			Header:        http.Header{"Content-Type": {"application/json"}, "Content-Length": {strconv.Itoa(len(r.Body))}},
			ContentLength: int64(len(r.Body)), Body: io.NopCloser(bytes.NewReader(r.Body))}, nil
	}
	if r.Codec != codecHTTP {
		return nil, fmt.Errorf("PO363 the saved answer is in codec %q, which no HTTP client reads", r.Codec)
	}
	src := bytes.NewReader(r.Body)
	br := bufio.NewReader(src)
	resp, err := http.ReadResponse(br, req)
	if err != nil {
		return nil, fmt.Errorf("PO363 the saved answer is damaged: %w", err)
	}
	body := r.Body[len(r.Body)-src.Len()-br.Buffered():]
	if resp.ContentLength != int64(len(body)) {
		return nil, fmt.Errorf("PO363 the saved answer is damaged: %d bytes of %d", len(body), resp.ContentLength)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}
