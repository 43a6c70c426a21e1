package job

import (
	"bytes"
	"encoding/json"
)

// Part says what of a job a Redact is given. Others may join: a hook returns nil for
// those that it does not know.
type Part string

// The parts of a job that people are shown.
const (
	// PartAnswer is a captured answer as it is kept: an HTTP response (status line, headers, an
	// empty line, the provider's bytes), or JSON where a route under Attempt.Sent, a Reconcile or a person gave it.
	PartAnswer Part = "answer"
	// PartResult is the job's result, in JSON. What is returned for it must be JSON too.
	PartResult Part = "result"
	// PartText is a text that may quote the input, an answer or user code: an error or a panic in the log, the
	// job's error, the reason of a line of its history or of a dead letter. Not JSON.
	PartText Part = "text"
)

// Shown is body as people may see it: what the definition's Redact makes of it, or body itself
// where there is none, as without a handler (h is nil). Where Redact panics, returns nil, or makes of a
// result what is no JSON, nothing of body is in it: it is a text that says so, a JSON string for a result.
func (h *Handler) Shown(part Part, body []byte) []byte {
	if h == nil || h.redact == nil || len(body) == 0 {
		return body
	}
	out, why := h.redacted(part, bytes.Clone(body))
	if why == "" && part == PartResult && !json.Valid(out) {
		why = "made no JSON of it"
	}
	if why == "" {
		return out
	}
	withheld := "(withheld: Redact of " + h.name + " " + why + ")"
	if part != PartResult {
		return []byte(withheld)
	}
	out, err := json.Marshal(withheld)
	if err != nil {
		panic(err) // strings always encode
	}
	return out
}

// ShownText is Shown for a text.
func (h *Handler) ShownText(s string) string { return string(h.Shown(PartText, []byte(s))) }

// redacted calls the user's hook, and says why there is nothing to show. The value of a panic may
// quote what was to be hidden, so it is dropped.
func (h *Handler) redacted(part Part, body []byte) (out []byte, why string) {
	defer func() {
		if recover() != nil {
			out, why = nil, "panicked"
		}
	}()
	if out = h.redact(part, body); out == nil {
		return nil, "returned nil"
	}
	return out, ""
}
