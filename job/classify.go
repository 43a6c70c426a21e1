package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// flavour is the family of API that a provider speaks. The generic one has the
// rules of all: it is what providers get that nobody told us about.
type flavour string

const (
	generic   flavour = ""
	openAI    flavour = "openai"
	anthropic flavour = "anthropic"
	bedrock   flavour = "bedrock"
)

// flavours by the provider's name in the route.
var flavours = map[string]flavour{
	"openai": openAI, "azure": openAI, "azure_openai": openAI, "anthropic": anthropic,
	"bedrock": bedrock, "aws_bedrock": bedrock, "aws.bedrock": bedrock,
}

// whose says who must have written a body for a rule to apply.
type whose int

const (
	anybody  whose = iota
	provider       // the provider's own JSON error, with its request id: it saw the request
)

// rule says what a refusal means. The first that fits counts.
type rule struct {
	from, to int      // statuses
	by       whose    // who must have written the body
	words    []string // one of them is the error's type or code; nil: any
	class    string   // "" stands for http_ and the status
	state    ledger.AttemptState
	again    again
	billed   string // no, maybe, likely: for people
}

// spendWords are Anthropic's for limits that no waiting of minutes cures.
var spendWords = []string{"enforced_spend_limit_reached", "contract_spend_limit_reached", "linked_organization_spend_limit_reached", "billing_error"}

// The tables. Evidence that no row knows is no evidence: unknown.
var (
	openAIRules = []rule{
		{429, 429, anybody, []string{"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"}, "spend_limit", ledger.Rejected, later, "no"},
		{529, 529, provider, nil, "overloaded", ledger.Rejected, soon, "no"},
		{503, 503, provider, []string{"service_unavailable_error", "service_unavailable", "server_is_overloaded", "overloaded_error", "overloaded", "engine_overloaded", "slow_down"}, "overloaded", ledger.Rejected, soon, "no"},
	}
	anthropicRules = []rule{
		{400, 403, anybody, spendWords, "spend_limit", ledger.Rejected, later, "no"},
		{429, 429, anybody, spendWords, "spend_limit", ledger.Rejected, later, "no"},
		{503, 503, provider, []string{"overloaded_error"}, "overloaded", ledger.Rejected, soon, "no"},
		{529, 529, provider, []string{"overloaded_error"}, "overloaded", ledger.Rejected, soon, "no"},
	}
	bedrockRules = []rule{
		{402, 429, anybody, []string{"ServiceQuotaExceededException"}, "spend_limit", ledger.Rejected, later, "no"},
		{503, 503, provider, []string{"ServiceUnavailableException", "ModelNotReadyException"}, "overloaded", ledger.Rejected, soon, "no"},
	}
	commonRules = []rule{
		{300, 399, anybody, nil, "redirected", ledger.Rejected, never, "no"},
		{400, 400, anybody, nil, "bad_request", ledger.Rejected, never, "no"},
		{401, 401, anybody, nil, "unauthorized", ledger.Rejected, never, "no"},
		{402, 402, anybody, nil, "spend_limit", ledger.Rejected, later, "no"},
		{403, 403, anybody, nil, "forbidden", ledger.Rejected, never, "no"},
		{404, 404, anybody, nil, "not_found", ledger.Rejected, never, "no"},
		{408, 408, anybody, nil, "timeout", ledger.Sent, never, "likely"},
		{409, 409, anybody, nil, "conflict", ledger.Rejected, soon, "no"},
		{413, 413, anybody, nil, "request_too_large", ledger.Rejected, never, "no"},
		{424, 424, anybody, nil, "provider_error", ledger.FailedAttempt, soon, "maybe"},
		{425, 425, anybody, nil, "", ledger.Rejected, soon, "no"},
		{429, 429, anybody, nil, "rate_limited", ledger.Rejected, soon, "no"},
		{499, 499, anybody, nil, "", ledger.Sent, never, "maybe"}, // a proxy saw its client leave
		{400, 498, anybody, nil, "", ledger.Rejected, never, "no"},
		{502, 502, anybody, nil, "", ledger.Sent, never, "maybe"},
		{504, 504, anybody, nil, "", ledger.Sent, never, "maybe"},
		{520, 527, anybody, nil, "", ledger.Sent, never, "maybe"},
		{500, 599, provider, nil, "provider_error", ledger.FailedAttempt, soon, "maybe"},
	}
)

// rules are the tables of a flavour, in the order of their say.
func (f flavour) rules() []rule {
	switch f {
	case openAI:
		return slices.Concat(openAIRules, commonRules)
	case anthropic:
		return slices.Concat(anthropicRules, commonRules)
	case bedrock:
		return slices.Concat(bedrockRules, commonRules)
	}
	return slices.Concat(openAIRules, anthropicRules, bedrockRules, commonRules)
}

// apiError is a provider's own error, as far as it is one.
type apiError struct {
	own       bool // in the provider's form
	kind      string
	codes     []string // whatever the form has beside kind
	text      string
	requestID string
}

// readError reads a refusal's body. What a gateway or a page says is not own.
func (f flavour) readError(h http.Header, body []byte) apiError {
	d, ok := readDocument(body)
	e := apiError{requestID: requestID(h)}
	if !ok {
		return e
	}
	if e.requestID == "" {
		e.requestID = clean(d.RequestID, maxID)
	}
	var in struct {
		Type    string          `json:"type"`
		Code    json.RawMessage `json:"code"` // a string, a number or null
		Message *string         `json:"message"`
		Details struct {
			Code string `json:"error_code"`
		} `json:"details"`
	}
	typed := json.Unmarshal(d.Error, &in) == nil
	aws, _, _ := strings.Cut(h.Get("X-Amzn-Errortype"), ":")
	switch {
	case typed && (f == anthropic || f == generic) && d.Type == "error" && in.Type != "":
		e.own = true
	case typed && (f == openAI || f == generic) && in.Message != nil && (in.Type != "" || !absent(in.Code)):
		e.own = true
	case (f == bedrock || f == generic) && aws != "" && !absent(d.Message):
		e.own, e.kind = true, clean(aws, maxID)
		json.Unmarshal(d.Message, &e.text) // what is no text stays out
		e.text = clean(e.text, maxText)
		return e
	}
	var code string
	if json.Unmarshal(in.Code, &code) != nil {
		code = string(in.Code)
	}
	e.kind, e.codes = clean(in.Type, maxID), []string{clean(code, maxID), clean(in.Details.Code, maxID)}
	if in.Message != nil {
		e.text = clean(*in.Message, maxText)
	}
	return e
}

// says reports whether the error's type or code is one of words.
func (e apiError) says(words []string) bool {
	return slices.Contains(words, e.kind) || slices.ContainsFunc(e.codes, func(c string) bool { return slices.Contains(words, c) })
}

// refusal classifies an answer that is none.
func (f flavour) refusal(status int, e apiError) rule {
	for _, r := range f.rules() {
		if status < r.from || status > r.to || r.by == provider && !(e.own && e.requestID != "") || r.words != nil && !e.says(r.words) {
			continue
		}
		if r.class == "" {
			r.class = fmt.Sprintf("http_%d", status)
		}
		return r
	}
	return rule{class: fmt.Sprintf("http_%d", status), state: ledger.Sent, billed: "maybe"}
}

// requestID is the provider's name for the request.
func requestID(h http.Header) string {
	for _, name := range []string{"Request-Id", "X-Request-Id", "X-Amzn-Requestid"} {
		if id := clean(h.Get(name), maxID); id != "" {
			return id
		}
	}
	return ""
}

// maxRetryAfter bounds what a provider may ask for: who says next year is wrong.
const maxRetryAfter = time.Hour

// retryAfter is how long the provider asks to wait, 0 if it does not.
func retryAfter(h http.Header, now time.Time) time.Duration {
	for _, f := range []struct {
		name string
		unit float64
	}{{"Retry-After-Ms", 1e6}, {"Retry-After", 1e9}} {
		v := strings.TrimSpace(h.Get(f.name))
		if n, err := strconv.ParseFloat(v, 64); err == nil && !math.IsNaN(n) {
			return time.Duration(min(max(n*f.unit, 0), float64(maxRetryAfter)))
		}
		if t, err := http.ParseTime(v); err == nil {
			return min(max(t.Sub(now), 0), maxRetryAfter)
		}
	}
	return 0
}

// unsentClass names why nothing went out.
func unsentClass(err error) string {
	stage, staged := errors.AsType[*stageError](err)
	_, dns := errors.AsType[*net.DNSError](err)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, errCallerLeft):
		return "cancelled"
	case timedOut(err):
		return "connect_timeout"
	case dns:
		return "dns"
	case staged:
		return stage.stage
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	}
	return "connect"
}

// lostClass names how an answer was lost after the request went out.
func lostClass(err error) string {
	switch {
	case timedOut(err):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "closed"
	}
	return "broken"
}

func timedOut(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || ok && ne.Timeout()
}
