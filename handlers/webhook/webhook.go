// Package webhook posts to somebody's HTTP API as a step of a job: once, where that can be had.
//
//	charge := webhook.Step("charge", webhook.Endpoint{Header: authorization, Window: 23 * time.Hour},
//		func(o Order) (webhook.Request, error) {
//			return webhook.JSON("https://api.shop.example/charges", o)
//		})
//
// Every request carries an Idempotency-Key that the step's key determines ([Key]). What an answer means:
//
//	2xx                    done; the body is the step's result, as far as it came
//	425, 429               refused for now; Retry-After is heeded
//	409                    refused for now; with a Window unknown, since a request of this key may be under way
//	408, 499, other 5xx    unknown, and so is no answer
//	501, 505, other 4xx    refused for good
//	3xx                    refused for good; no redirect is followed
//
// What is unknown is held, unless the receiver keeps the promise of the key ([Endpoint].Window): then the same request is made again under
// the same key until it is answered, which is how such a receiver is asked what became of it. When the window is over the receiver may
// have forgotten the key, nothing is repeated any more, and the step is held.
package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// Endpoint is somebody's API, or a part of it.
type Endpoint struct {
	// Header goes with every request, such as Authorization.
	Header http.Header
	// Window is how long a request may be repeated under its key: shorter than the receiver remembers keys, such as 23 h where it promises
	// 24. 0: it promises nothing, and a request whose outcome is unknown is held.
	Window time.Duration
	// KeyHeader is where the receiver looks for the key. "": Idempotency-Key.
	KeyHeader string
	// Client makes the repetitions, which the receiver answers from what it keeps. It should follow no
	// redirects. nil: one of this package.
	Client *http.Client
}

// Request is what to post. It must be the same for the same input: a receiver refuses another request under a key that it knows.
type Request struct {
	URL    string
	Header http.Header // in addition to the endpoint's, which it goes before
	Body   []byte
}

// JSON is a request with v as its body.
func JSON(address string, v any) (Request, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return Request{}, job.Failf("PO614 the request cannot be made: %w", err)
	}
	return Request{URL: address, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}, nil
}

// Answer is the result of the step.
type Answer struct {
	Status int    `json:"status"`
	Body   string `json:"body,omitempty"` // of it at most MaxAnswer bytes
	Cut    bool   `json:"cut,omitempty"`  // there was more
}

// MaxAnswer is how much of an answer's body is kept, in bytes.
const MaxAnswer = 64 << 10

// Timeout is that of one attempt.
const Timeout = 30 * time.Second

// MaxRuns is how often a step is tried where nothing was sent or the answer was "not now": by the consumer's usual waits for
// half a day, so that an outage of a receiver needs nobody's help.
const MaxRuns = 60

// Step makes a step that posts to e. write makes the request of a step's input; its errors have the classes that those of handlers
// have. The step may be changed before it is registered: Provider, OnUnknown, Reconcile, Retry, Timeout, MaxRuns.
func Step[In job.Keyed](name string, e Endpoint, write func(In) (Request, error)) job.Step[In, Answer] {
	s := job.Step[In, Answer]{
		Name: name, Timeout: Timeout, MaxRuns: MaxRuns,
		Do: func(ctx context.Context, a *job.Attempt, in In) (Answer, error) {
			q, err := write(in)
			if err != nil {
				return Answer{}, err
			}
			return e.send(ctx, a, q)
		},
	}
	if e.Window > 0 {
		s.Reconcile = func(ctx context.Context, o job.Open, in In) (Answer, job.Finding, error) {
			q, err := write(in)
			if err != nil {
				return Answer{}, job.CannotTell, err
			}
			return e.repeat(ctx, o, q)
		}
	}
	return s
}

// Key is the idempotency key of the step with that key: 64 characters, which tell nothing of it.
func Key(k ledger.Key) string {
	h := sha256.Sum256([]byte(k.Tenant + "\x00" + k.Text))
	return hex.EncodeToString(h[:])
}

// send makes the one request of an attempt.
func (e Endpoint) send(ctx context.Context, a *job.Attempt, q Request) (Answer, error) {
	req, err := e.request(ctx, a.Key(), q)
	if err != nil {
		return Answer{}, job.Fail(err)
	}
	resp, err := a.Effect().Do(req)
	if err != nil {
		return Answer{}, plain(err)
	}
	defer resp.Body.Close()
	return e.judge(resp)
}

// repeat makes a request again under its key. Nothing but success says what became of the first one: a refusal may be one that
// came before anybody looked at the key.
func (e Endpoint) repeat(ctx context.Context, o job.Open, q Request) (Answer, job.Finding, error) {
	if time.Since(o.SentAt) >= e.Window {
		return Answer{}, job.CannotTell, nil
	}
	req, err := e.request(ctx, o.Key, q)
	if err != nil {
		return Answer{}, job.CannotTell, err
	}
	req.GetBody = nil
	resp, err := cmp.Or(e.Client, repeats).Do(req)
	if err != nil {
		return Answer{}, job.CannotTell, plain(err)
	}
	defer resp.Body.Close()
	answer := read(resp)
	switch {
	case success(resp.StatusCode):
		return answer, job.Happened, nil
	case resp.StatusCode == http.StatusConflict:
		return Answer{}, job.StillRunning, nil
	}
	return Answer{}, job.CannotTell, fmt.Errorf("PO613 the outcome is unknown: asked again under its key, the receiver answered %d %.200q", resp.StatusCode, answer.Body)
}

// repeats makes every request over a connection of its own.
var repeats = &http.Client{
	Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// request makes the request of a step. No error shows its address, which may be a secret.
func (e Endpoint) request(ctx context.Context, k ledger.Key, q Request) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, q.URL, bytes.NewReader(q.Body))
	if err != nil || req.URL.Host == "" || req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return nil, errors.New("PO614 the request cannot be made: its address is no http or https URL")
	}
	for _, h := range []http.Header{e.Header, q.Header} {
		for name, values := range h {
			req.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	req.Header.Set(cmp.Or(e.KeyHeader, "Idempotency-Key"), Key(k))
	return req, nil
}

// plain is an error of an http.Client without the address.
func plain(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

func success(status int) bool { return status >= 200 && status < 300 }

// judge says what an answer means.
func (e Endpoint) judge(resp *http.Response) (Answer, error) {
	answer := read(resp)
	err := fmt.Errorf("%s answered %d %.200q", resp.Request.URL.Host, resp.StatusCode, answer.Body)
	switch status := resp.StatusCode; {
	case success(status):
		return answer, nil
	case status == http.StatusTooEarly, status == http.StatusTooManyRequests, status == http.StatusConflict && e.Window == 0:
		return Answer{}, job.RetryIn(wait(resp.Header), fmt.Errorf("PO612 refused for now: %w", err))
	case status == http.StatusConflict, status == http.StatusRequestTimeout, status == 499,
		status >= 500 && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported:
		return Answer{}, job.Unsure(fmt.Errorf("PO613 the outcome is unknown: %w", err))
	}
	return Answer{}, job.Fail(fmt.Errorf("PO612 refused: %w", err))
}

// read reads an answer's body as far as it is kept. That of a success which breaks off is one: the status has said it all.
func read(resp *http.Response) Answer {
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxAnswer+1))
	a := Answer{Status: resp.StatusCode, Cut: err != nil || len(body) > MaxAnswer}
	a.Body = string(bytes.ToValidUTF8(body[:min(len(body), MaxAnswer)], []byte("\uFFFD")))
	return a
}

const longestWait = time.Hour

// wait is how long the receiver asks to wait, 0 if it does not.
func wait(h http.Header) time.Duration {
	v := h.Get("Retry-After")
	if n, err := strconv.Atoi(v); err == nil {
		return time.Duration(min(max(n, 0), int(longestWait/time.Second))) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil {
		return min(max(time.Until(t), 0), longestWait)
	}
	return 0
}
