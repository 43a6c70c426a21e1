package job

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

// document is what the guard reads of a provider's JSON, be it an answer, an error
// or an event of a stream.
type document struct {
	ID         string `json:"id"`
	ResponseID string `json:"responseId"` // Gemini's id
	Model      word   `json:"model"`
	Version    word   `json:"modelVersion"` // Gemini's name of it
	Tier       word   `json:"service_tier"` // OpenAI, as served
	AWSTier    struct {
		Type word `json:"type"`
	} `json:"serviceTier"`
	Object    string          `json:"object"`
	Type      string          `json:"type"`
	Status    string          `json:"status"`
	Message   json.RawMessage `json:"message"` // message_start: the message; Bedrock: the error's text
	Response  *document       `json:"response"`
	Error     json.RawMessage `json:"error"`
	RequestID string          `json:"request_id"` // Anthropic, in errors
	Code      json.RawMessage `json:"code"`       // an error event of OpenAI's responses has it at the top
	Choices   []choice        `json:"choices"`
	Output    json.RawMessage `json:"output"`
	Content   json.RawMessage `json:"content"`
	Usage     *tally          `json:"usage"`
	Metadata  *tally          `json:"usageMetadata"` // Gemini
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

// bill is what the document says that its cost depends on. A batch's counts are those of its requests so far, at
// prices of their own, and no cost of its creation.
func (d document) bill() bill {
	if d.Object == "batch" {
		return bill{}
	}
	b := bill{model: clean(string(cmp.Or(d.Model, d.Version)), maxID), tier: cmp.Or(d.Tier, d.AWSTier.Type)}
	b.tally.add(d.tally())
	return b
}

// broken reports whether the provider says with it that there is no answer.
func (d document) broken() bool {
	return !absent(d.Error) && d.Output == nil && d.Choices == nil || d.Status == "failed" || d.Object == "response" && d.Status == "cancelled"
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
