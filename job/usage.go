package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/paidonce/paidonce/ledger"
)

// count is a number of tokens from a provider. What is no whole number from 0 to
// maxCount is as good as absent: usage is never a reason to refuse an answer.
type count struct{ n *int64 }

// maxCount bounds one count, so that sums stay in range.
const maxCount = 1 << 40

// UnmarshalJSON never fails.
func (c *count) UnmarshalJSON(b []byte) error {
	if n, err := strconv.ParseInt(string(b), 10, 64); err == nil && n >= 0 && n <= maxCount {
		c.n = &n
	}
	return nil
}

// details is the breakdown of a count.
type details struct {
	Cached count `json:"cached_tokens"`
}

// tally is usage as the providers give it. A later one is laid over an earlier
// one: streams report it in pieces, each cumulative.
type tally struct {
	// OpenAI chat, and most that speak its language. Prompt includes cached.
	Prompt        count   `json:"prompt_tokens"`
	Completion    count   `json:"completion_tokens"`
	PromptDetails details `json:"prompt_tokens_details"`
	// OpenAI responses: Input includes cached, and Anthropic: it does not.
	Input        count   `json:"input_tokens"`
	Output       count   `json:"output_tokens"`
	InputDetails details `json:"input_tokens_details"`
	CacheRead    count   `json:"cache_read_input_tokens"`
	CacheWrite   count   `json:"cache_creation_input_tokens"`
	// Bedrock Converse: as Anthropic.
	AWSInput  count `json:"inputTokens"`
	AWSOutput count `json:"outputTokens"`
	AWSRead   count `json:"cacheReadInputTokens"`
	AWSWrite  count `json:"cacheWriteInputTokens"`
	// Gemini: the prompt includes cached, the candidates leave thoughts out.
	GeminiPrompt   count `json:"promptTokenCount"`
	GeminiCached   count `json:"cachedContentTokenCount"`
	GeminiOutput   count `json:"candidatesTokenCount"`
	GeminiThoughts count `json:"thoughtsTokenCount"`
}

// add lays a later tally over t.
func (t *tally) add(n *tally) {
	if n == nil {
		return
	}
	from := n.counts()
	for i, c := range t.counts() {
		if from[i].n != nil {
			c.n = from[i].n
		}
	}
}

func (t *tally) counts() []*count {
	return []*count{
		&t.Prompt, &t.Completion, &t.PromptDetails.Cached,
		&t.Input, &t.Output, &t.InputDetails.Cached, &t.CacheRead, &t.CacheWrite,
		&t.AWSInput, &t.AWSOutput, &t.AWSRead, &t.AWSWrite,
		&t.GeminiPrompt, &t.GeminiCached, &t.GeminiOutput, &t.GeminiThoughts,
	}
}

// usage normalises: In is everything that was read, cached or not, Out everything
// that was generated, reasoning included, and Cached the part of In that was read
// from a cache (what was written to one is dearer, not cheaper, and stays in In).
func (t tally) usage() ledger.Usage {
	switch {
	case t.Prompt.n != nil || t.Completion.n != nil:
		return ledger.Usage{In: t.Prompt.n, Cached: t.PromptDetails.Cached.n, Out: t.Completion.n}
	case t.Input.n != nil || t.Output.n != nil:
		cached := t.CacheRead.n
		if cached == nil {
			cached = t.InputDetails.Cached.n
		}
		return ledger.Usage{In: plus(t.Input, t.CacheRead, t.CacheWrite), Cached: cached, Out: t.Output.n}
	case t.AWSInput.n != nil || t.AWSOutput.n != nil:
		return ledger.Usage{In: plus(t.AWSInput, t.AWSRead, t.AWSWrite), Cached: t.AWSRead.n, Out: t.AWSOutput.n}
	}
	return ledger.Usage{In: t.GeminiPrompt.n, Cached: t.GeminiCached.n, Out: plus(t.GeminiOutput, t.GeminiThoughts)}
}

// plus adds what is known to a count; the sum of an unknown one is unknown.
func plus(c count, more ...count) *int64 {
	if c.n == nil {
		return nil
	}
	sum := *c.n
	for _, m := range more {
		if m.n != nil {
			sum += *m.n
		}
	}
	return &sum
}

// document is what the guard reads of a provider's JSON, be it an answer, an error
// or an event of a stream.
type document struct {
	ID         string          `json:"id"`
	ResponseID string          `json:"responseId"` // Gemini's id
	Object     string          `json:"object"`
	Type       string          `json:"type"`
	Status     string          `json:"status"`
	Message    json.RawMessage `json:"message"` // message_start: the message; Bedrock: the error's text
	Response   *document       `json:"response"`
	Error      json.RawMessage `json:"error"`
	RequestID  string          `json:"request_id"` // Anthropic, in errors
	Code       json.RawMessage `json:"code"`       // an error event of OpenAI's responses has it at the top
	Choices    []choice        `json:"choices"`
	Output     json.RawMessage `json:"output"`
	Content    json.RawMessage `json:"content"`
	Usage      *tally          `json:"usage"`
	Metadata   *tally          `json:"usageMetadata"` // Gemini
}

type choice struct {
	Index  int     `json:"index"`
	Finish *string `json:"finish_reason"`
}

// readDocument reads one JSON object, whole and with nothing after it. Fields of an
// unexpected type are passed over.
func readDocument(b []byte) (document, bool) {
	var d document
	if t := bytes.TrimLeft(b, " \t\r\n"); len(t) == 0 || t[0] != '{' {
		return d, false
	}
	err := json.Unmarshal(b, &d)
	if _, mistyped := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !mistyped {
		return document{}, false
	}
	return d, true
}

// objectID is the provider's name for the answer.
func (d document) objectID() string {
	if d.ID != "" {
		return clean(d.ID, maxID)
	}
	return clean(d.ResponseID, maxID)
}

// tally is the document's usage as given; nil if it has none.
func (d document) tally() *tally {
	if d.Usage != nil {
		return d.Usage
	}
	return d.Metadata
}

// absent reports whether a field is missing or null.
func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

const (
	maxID   = 256 // bytes of an id that are kept
	maxText = 400 // bytes of a provider's message that are kept
)

// clean makes a provider's text fit for rows, logs and errors: printable, valid and
// of bounded length.
func clean(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	s = strings.TrimSpace(s)
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
