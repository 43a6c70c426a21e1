package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/paidonce/paidonce/ledger"
)

// Usage is what a call used, in tokens as the log has them; -1 is not known.
type Usage struct{ In, Cached, Out int64 }

// Price says what a call cost whose line does not; false if it is not known.
type Price func(model string, u Usage) (cost ledger.Nano, known bool)

// outcome is what became of a call.
type outcome int

const (
	paid    outcome = iota // it brought an answer, or nothing says otherwise
	failed                 // it was refused or went wrong for certain
	unknown                // it ended without an answer, and the provider may have charged for it
	cached                 // it was answered out of a cache
)

// identity is a hash of what a call was about.
type identity [16]byte

// call is one line that tells of a call.
type call struct {
	outcome     outcome
	identity    identity // zero: the line does not say what it was about
	job, entity string
	at          int64  // in nanoseconds since 1970; 0: not known
	cost        int64  // in nano-USD; -1: not known
	tokens      int64  // in and out; -1: not known
	answer      uint64 // hash of the provider's id of the answer; 0: not known
	paths       paths
}

// paths are the fields that were used of a line, by the part that they are of.
type paths []path

type path struct{ part, field string }

// maxCost is the largest cost of one call that is believed, so that sums of many stay in range.
const maxCost = 100_000 * int64(ledger.USD)

// maxTokens bounds the tokens of one call likewise.
const maxTokens = 1 << 40

var errNotUTF8 = errors.New("it is not UTF-8")

// parse reads a line. A nil call is a line about something else.
func (f *Fields) parse(line []byte, price Price) (*call, error) {
	if !utf8.Valid(line) {
		return nil, errNotUTF8 // other bytes would all be read as one and the same character
	}
	d, err := read(line)
	if err != nil {
		return nil, err
	}
	r := &reading{document: d}
	c := &call{}
	u := Usage{r.number("tokens", f.TokensIn), r.number("tokens", f.TokensCached), r.number("tokens", f.TokensOut)}
	model := r.text("model", f.Model)
	cost := r.firstThat("cost", f.Cost, func(v json.RawMessage) bool { return money(v) >= 0 })
	inputs := r.all("input", f.Input)
	if model == "" && cost == nil && len(inputs) == 0 && u.In < 0 && u.Out < 0 {
		return nil, nil
	}
	c.cost = money(cost)
	if c.cost < 0 && price != nil {
		if n, ok := price(model, u); ok && n >= 0 && int64(n) <= maxCost {
			c.cost = int64(n)
		}
	}
	if c.tokens = max(u.In, 0) + max(u.Out, 0); u.In < 0 && u.Out < 0 {
		c.tokens = -1
	}
	if t := r.firstThat("time", f.Time, func(v json.RawMessage) bool { _, ok := instant(plain(v)); return ok }); t != nil {
		c.at, _ = instant(plain(t))
	}
	c.outcome = outcomeOf(r.first("status", f.Status), r.first("error", f.Error), r.first("cache", f.Cache))
	c.identify(r, f, inputs)
	c.paths = r.used
	return c, nil
}

// identify says what the call was about. Every part stands behind its length, so that no two ways of
// splitting a text are one; names of fields are left out, so that two programs that log the same call
// differently agree.
func (c *call) identify(r *reading, f *Fields, inputs []json.RawMessage) {
	entities := r.all("entity", f.Entity)
	var names []string
	for _, e := range entities {
		names = append(names, plain(e))
	}
	c.job, c.entity = r.text("job", f.Job), strings.Join(names, "/")
	prompt := r.text("prompt", f.Prompt)
	if id := r.first("id", f.ID); id != nil {
		sum := sha256.Sum256([]byte(plain(id)))
		c.answer = binary.BigEndian.Uint64(sum[:]) | 1
	}
	if len(inputs) == 0 && len(entities) == 0 {
		return
	}
	h := sha256.New()
	part := func(s string) {
		h.Write(binary.AppendUvarint(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	part(c.job)
	part(prompt)
	part(strconv.Itoa(len(names)))
	for _, n := range names {
		part(n)
	}
	for _, in := range inputs {
		part(plain(in))
	}
	copy(c.identity[:], h.Sum(nil))
}

// reading reads the parts of a call out of a line, and notes which fields they came from.
type reading struct {
	*document
	used paths
}

// first is the first of the fields that the line has, nil if it has none.
func (r *reading) first(part string, fields []string) json.RawMessage {
	return r.firstThat(part, fields, func(json.RawMessage) bool { return true })
}

// firstThat is the first of the fields that can be read as what it should be. One of the same name in
// another program's log may be something else, and does not hide the next.
func (r *reading) firstThat(part string, fields []string, reads func(json.RawMessage) bool) json.RawMessage {
	for _, f := range fields {
		if v := r.find(f); v != nil && reads(v) {
			r.used = append(r.used, path{part, f})
			return v
		}
	}
	return nil
}

// all are the fields that the line has, in the order of the list.
func (r *reading) all(part string, fields []string) (values []json.RawMessage) {
	for _, f := range fields {
		if v := r.find(f); v != nil {
			r.used = append(r.used, path{part, f})
			values = append(values, v)
		}
	}
	return values
}

func (r *reading) text(part string, fields []string) string {
	if v := r.first(part, fields); v != nil {
		return plain(v)
	}
	return ""
}

// number is a count, -1 if there is none.
func (r *reading) number(part string, fields []string) int64 {
	if v := r.firstThat(part, fields, func(v json.RawMessage) bool { return count(v) >= 0 }); v != nil {
		return count(v)
	}
	return -1
}

// count is a number of tokens, -1 if it is none.
func count(v json.RawMessage) int64 {
	if n, ok := decimal(plain(v), 0); ok && n >= 0 && n <= maxTokens {
		return n
	}
	return -1
}

// money is a cost in nano-USD, -1 if it is not known.
func money(v json.RawMessage) int64 {
	if v == nil {
		return -1
	}
	if n, ok := decimal(strings.TrimPrefix(plain(v), "$"), 9); ok && n >= 0 && n <= maxCost {
		return n
	}
	return -1
}

// outcomeOf says what became of a call from its status and its error.
func outcomeOf(status, fault, cache json.RawMessage) outcome {
	if cache != nil && string(cache) == "true" {
		return cached
	}
	if status != nil && status[0] == '{' {
		if o := ofSpan(status); o != paid {
			return o
		}
	} else if status != nil {
		if o := ofStatus(strings.ToLower(plain(status))); o != paid {
			return o
		}
	}
	if fault != nil {
		return ofError(strings.ToLower(plain(fault)))
	}
	return paid
}

// ofStatus judges an HTTP status or a word. A gateway that gave up says nothing about the provider.
func ofStatus(s string) outcome {
	if n, ok := decimal(s, 0); ok {
		switch {
		case n == 0, n == 408, n == 499, n == 502, n == 504, n >= 520 && n <= 527:
			return unknown
		case n >= 400:
			return failed
		}
		return paid
	}
	switch s {
	case "error", "failed", "failure", "rejected", "cancelled", "canceled", "not_sent":
		return failed
	case "timeout", "timed_out", "unknown":
		return unknown
	}
	return paid
}

// ofSpan judges the status of a span of OpenTelemetry, an object: its code is 2 or ends in ERROR where the
// call went wrong, and its message may say how.
func ofSpan(status json.RawMessage) outcome {
	var s struct {
		Code       json.RawMessage `json:"code"`
		StatusCode json.RawMessage `json:"status_code"`
		Message    string          `json:"message"`
	}
	if json.Unmarshal(status, &s) != nil {
		return paid
	}
	code := s.Code
	if code == nil {
		code = s.StatusCode
	}
	if code == nil {
		return paid
	}
	if word := strings.ToLower(plain(code)); word != "2" && !strings.HasSuffix(word, "error") {
		return paid
	}
	if s.Message == "" {
		return failed
	}
	return ofError(strings.ToLower(s.Message))
}

// ofError judges the text of an error: was an answer lost, or was there none?
func ofError(s string) outcome {
	switch s {
	case "false", "0", "none", "{}", "[]":
		return paid
	}
	for _, lost := range []string{"timeout", "timed out", "deadline exceeded", "connection reset", "unexpected eof", "disconnected", "broken pipe", "client closed"} {
		if strings.Contains(s, lost) {
			return unknown
		}
	}
	return failed
}
