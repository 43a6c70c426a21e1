package modelserver

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Kind is what goes wrong, in the end, with one request.
type Kind string

// Kinds in which the answer is generated and billed, and then this happens to it.
const (
	Answer      Kind = ""             // nothing: the client gets it
	Close       Kind = "close"        // the connection ends before any header
	Reset       Kind = "reset"        // the same with a TCP reset
	Cut         Kind = "cut"          // it ends in mid-answer: half of a body, or after Fault.Events of a stream
	CleanEnd    Kind = "clean_end"    // half of a body, or a stream without its terminal event, ended as if that were all
	StreamError Kind = "stream_error" // a stream ends with the provider's error event; a body is a ServerError
	HTML200     Kind = "html_200"     // a proxy answers 200 with a page
	BadGateway  Kind = "bad_gateway"  // a proxy answers 502 with a page
	GatewayTime Kind = "gateway_time" // a proxy answers 504 with a page
)

// Kinds in which nothing is generated: refusals in the provider's own words (with
// one exception, a page), and a connection that dies before the request is read.
const (
	BadRequest    Kind = "bad_request"    // 400
	Unauthorized  Kind = "unauthorized"   // 401
	Forbidden     Kind = "forbidden"      // 403
	TimedOut      Kind = "timed_out"      // 408
	Conflict      Kind = "conflict"       // 409
	TooLarge      Kind = "too_large"      // 413
	RateLimit     Kind = "rate_limit"     // 429 with Retry-After
	SpendLimit    Kind = "spend_limit"    // 429 that no waiting cures, without Retry-After
	ServerError   Kind = "server_error"   // 500
	Overloaded    Kind = "overloaded"     // 503 of the provider's
	Unavailable   Kind = "unavailable"    // 503 of a proxy's, with a page
	Overloaded529 Kind = "overloaded_529" // 529
	// ResetUnread resets the connection before the body is read. The key is not
	// known then: script it for any key, or under the X-Client-Request-Id.
	ResetUnread Kind = "reset_unread"
)

// Fault is what happens to one request. The zero Fault is a normal answer.
// Durations are nanoseconds in JSON.
type Fault struct {
	Kind Kind `json:"kind,omitempty"`
	// Times is how many requests it is for. 0: one; negative: all that follow.
	Times int `json:"times,omitempty"`
	// Before passes before anything is generated; a client that leaves meanwhile pays nothing.
	Before time.Duration `json:"before,omitempty"`
	// After passes between the bill line and the first byte: a late answer.
	After time.Duration `json:"after,omitempty"`
	// Hold keeps the answer back, bill line written, until Release. With Events,
	// a stream is held after so many.
	Hold bool `json:"hold,omitempty"`
	// Events is how many events of a stream pass before it is cut, ended, held or
	// broken by an error. 0: half of them; for CleanEnd all but the terminal ones;
	// for Hold none.
	Events int `json:"events,omitempty"`
	// Billed overrides what Kind says: a 500 that was paid for, a 502 that never
	// reached the model. nil: as Kind says.
	Billed *bool `json:"billed,omitempty"`
	// RetryAfter is the header of refusals, in whole seconds. 0: one second for
	// RateLimit, else no header.
	RetryAfter time.Duration `json:"retry_after,omitempty"`
	// Ends is the status in which a response in background mode ends: failed, incomplete or
	// cancelled. "": completed.
	Ends string `json:"ends,omitempty"`
	// Lag is how many look-ups of what is stored do not find it yet, although it is there.
	// Negative: none ever does.
	Lag int `json:"lag,omitempty"`
	// Header is added to the answer's.
	Header map[string]string `json:"header,omitempty"`
}

// name is the fault's in the bill.
func (f Fault) name() string {
	n := string(f.Kind)
	if f.Hold {
		n = join(n, "hold")
	}
	if f.After > 0 {
		n = join(n, "late")
	}
	return n
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "+" + b
}

// Storm lets a share of the requests fail that no script names. What happens to the
// nth request of a key depends on Seed, key and n alone, not on the order in which
// keys arrive.
type Storm struct {
	Seed   uint64
	Rate   float64 // 0..1
	Faults []Fault // one of these, with equal chances
}

// draw is the storm's fault for the nth request of key.
func (s Storm) draw(key string, n int) Fault {
	h := fnv.New64a()
	h.Write([]byte(key)) // never fails
	r := rand.New(rand.NewPCG(s.Seed, h.Sum64()+uint64(n)))
	if len(s.Faults) == 0 || r.Float64() >= s.Rate {
		return Fault{}
	}
	return s.Faults[r.IntN(len(s.Faults))]
}

// Script is the body of POST /script. It adds to what was scripted before.
type Script struct {
	Key    string  `json:"key"`           // business key
	Any    bool    `json:"any,omitempty"` // for requests of keys that have none of their own; Key is ignored
	Faults []Fault `json:"faults"`
}

// script holds the faults to come and counts the requests.
type script struct {
	mu       sync.Mutex
	byKey    map[string]*queue
	any      queue
	storm    Storm
	requests map[string]int // by key
}

func (s *script) add(c Script) error {
	for _, f := range c.Faults {
		if err := f.check(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := &s.any
	if !c.Any {
		q = s.queue(c.Key)
	}
	*q = append(*q, c.Faults...)
	return nil
}

// queue returns the key's own queue. The caller holds mu.
func (s *script) queue(key string) *queue {
	if s.byKey[key] == nil {
		s.byKey[key] = new(queue)
	}
	return s.byKey[key]
}

// unread reports whether the request is to be reset before it is read, and if so
// counts it under id.
func (s *script) unread(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.take(id, true)
	if ok {
		s.requests[id]++
	}
	return ok
}

// next counts a request of key and says what happens to it.
func (s *script) next(key string) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[key]++
	if f, ok := s.take(key, false); ok {
		return f
	}
	return s.storm.draw(key, s.requests[key])
}

// count adds a request that is refused before a script is asked.
func (s *script) count(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[key]++
}

func (s *script) take(key string, unread bool) (Fault, bool) {
	if f, ok := s.queue(key).take(unread); ok {
		return f, true
	}
	return s.any.take(unread)
}

func (s *script) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.requests)
}

// queue is faults in the order in which requests meet them.
type queue []Fault

// take uses up the first fault. It is left alone if it is for requests that are
// not read and this one is, or the other way round.
func (q *queue) take(unread bool) (Fault, bool) {
	if len(*q) == 0 || ((*q)[0].Kind == ResetUnread) != unread {
		return Fault{}, false
	}
	f := (*q)[0]
	switch {
	case f.Times > 1:
		(*q)[0].Times--
	case f.Times >= 0:
		*q = (*q)[1:]
	}
	return f, true
}

// refusal is how both providers say no.
type refusal struct {
	status        int
	openai        string // type
	code          string // OpenAI's
	anthropic     string // type
	anthropicCode string // details.error_code
	message       string
}

var refusals = map[Kind]refusal{
	BadRequest:    {http.StatusBadRequest, "invalid_request_error", "", "invalid_request_error", "", "The request is not valid."},
	Unauthorized:  {http.StatusUnauthorized, "invalid_request_error", "invalid_api_key", "authentication_error", "", "The API key is not valid."},
	Forbidden:     {http.StatusForbidden, "invalid_request_error", "model_not_found", "permission_error", "", "The project has no access to this model."},
	TimedOut:      {http.StatusRequestTimeout, "server_error", "request_timeout", "timeout_error", "", "The request took too long."},
	Conflict:      {http.StatusConflict, "invalid_request_error", "conflict", "conflict_error", "", "Another request is changing the resource."},
	TooLarge:      {http.StatusRequestEntityTooLarge, "invalid_request_error", "request_too_large", "request_too_large", "", "The request is too large."},
	RateLimit:     {http.StatusTooManyRequests, "requests", "rate_limit_exceeded", "rate_limit_error", "", "Rate limit reached."},
	SpendLimit:    {http.StatusTooManyRequests, "insufficient_quota", "insufficient_quota", "rate_limit_error", "enforced_spend_limit_reached", "The spend limit is reached."},
	ServerError:   {http.StatusInternalServerError, "server_error", "server_error", "api_error", "", "The server had an error."},
	Overloaded:    {http.StatusServiceUnavailable, "service_unavailable_error", "server_is_overloaded", "overloaded_error", "", "The server is overloaded."},
	Overloaded529: {529, "service_unavailable_error", "server_is_overloaded", "overloaded_error", "", "Overloaded"},
}

// pages are the statuses under which a proxy in front of the provider speaks.
var pages = map[Kind]int{
	HTML200:     http.StatusOK,
	BadGateway:  http.StatusBadGateway,
	GatewayTime: http.StatusGatewayTimeout,
	Unavailable: http.StatusServiceUnavailable,
}

// billed reports whether the model runs before the fault.
func (f Fault) billed() bool {
	if f.Billed != nil {
		return *f.Billed
	}
	_, refused := refusals[f.Kind]
	return !refused && f.Kind != Unavailable
}

// check guards against a misspelt fault, which would be no fault.
func (f Fault) check() error {
	if !slices.Contains([]string{"", "failed", "incomplete", "cancelled"}, f.Ends) {
		return fmt.Errorf("no response ends as %q", f.Ends)
	}
	switch f.Kind {
	case Answer, Cut, CleanEnd, StreamError:
		if !f.billed() {
			return fmt.Errorf("a fault of kind %q shows some of the answer, so it is billed", f.Kind)
		}
		return nil
	case Close, Reset, ResetUnread:
		return nil
	}
	_, refused := refusals[f.Kind]
	_, page := pages[f.Kind]
	if !refused && !page {
		return fmt.Errorf("there is no fault of kind %q", f.Kind)
	}
	return nil
}
