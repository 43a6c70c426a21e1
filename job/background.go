package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/paidonce/paidonce/internal/jitter"
	"github.com/paidonce/paidonce/ledger"
)

const (
	firstPoll   = 250 * time.Millisecond
	longestPoll = 15 * time.Second
	pollTimeout = 30 * time.Second // of one poll
)

// pending reports whether the provider only says that an answer is to come, under this id: OpenAI's
// responses in background mode.
func (d document) pending() bool {
	return d.Object == "response" && (d.Status == "queued" || d.Status == "in_progress")
}

// over reports whether d says of the response with this id that nothing more will come of it.
func (d document) over(id string) bool {
	switch d.Status {
	case "completed", "incomplete", "failed", "cancelled":
		return d.Object == "response" && d.ID == id
	}
	return false
}

// await follows a response in background mode to its end and returns that, as if the provider had answered with
// it at once. Its id goes on record first: it is what a reconciler can ask about if this process dies.
//
// Polls are free and may be repeated, so whatever one of them says beside the response's end is no evidence: not found
// is a store that lags, a refusal a limit. They go on until the attempt's time is over.
func (x *exchange) await(first body) body {
	first.resp.Body.Close() // no connection is kept meanwhile
	first.err = errors.New("no poll was made")
	poll, err := x.poll(first.document.ID)
	if err != nil {
		first.err = err
		return first
	}
	began := time.Now()
	noted := false
	for wait := firstPoll; ; {
		noted = noted || x.a.note(x.ctx, x.evidence(ledger.Sent, "background"))
		select {
		case <-x.ctx.Done():
			first.err = fmt.Errorf("response %s is not over: %w; the last poll: %v", first.document.ID, context.Cause(x.ctx), first.err)
			return first
		case <-time.After(jitter.Quarter(wait)):
		}
		b, asked := x.look(poll, first.document.ID)
		if b.err == nil || errors.Is(b.err, ErrTooLarge) {
			return b
		}
		if x.ctx.Err() == nil { // else it was cut off, and the one before says more
			first.err = b.err
		}
		wait = min(max(time.Since(began)/5, firstPoll), longestPoll)
		wait = max(wait, asked)
	}
}

// poll is the request that asks for a response: the create request's own, credentials and all, without its body.
func (x *exchange) poll(id string) (*http.Request, error) {
	if strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" || id == "" {
		return nil, fmt.Errorf("a response in background mode has the id %q, which cannot be asked for", clean(id, maxID))
	}
	u := x.caller.URL.JoinPath(id)
	h := x.caller.Header.Clone()
	for _, name := range []string{"Content-Type", "Content-Length", "Content-Encoding", "Accept-Encoding", "X-Client-Request-Id",
		"Idempotency-Key", "X-Idempotency-Key"} {
		h.Del(name)
	}
	return &http.Request{Method: http.MethodGet, URL: u, Host: x.caller.Host, Header: h, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Close: true}, nil
}

// look makes one poll. What is not the end of the response is an error, with how long the provider asks to wait for
// the next.
func (x *exchange) look(poll *http.Request, id string) (body, time.Duration) {
	ctx, cancel := context.WithTimeout(x.ctx, pollTimeout)
	defer cancel()
	base := x.a.run.cfg.Wire
	if base == nil {
		base = defaultWire
	}
	resp, err := base.RoundTrip(poll.WithContext(x.a.dialling(ctx)))
	if err != nil {
		return body{err: err}, 0
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // its beginning does
		e := x.readError(resp.Header, text)
		return body{err: fmt.Errorf("%s answered %d%s", x.host(), resp.StatusCode, colon(e.text))}, retryAfter(resp.Header, time.Now())
	}
	b := readBody(resp)
	if b.err == nil && !b.document.over(id) {
		b.err = fmt.Errorf("its status is %q", clean(b.document.Status, maxID))
	}
	return b, 0
}
