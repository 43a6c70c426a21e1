package modelserver

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// usage is tokens as Line counts them.
type usage struct{ in, cached, written, written1h, out, reasoning int64 }

// generation is an answer, however it is going to be delivered.
type generation struct {
	Request
	id        string // object id
	requestID string
	created   time.Time
	text      string
	calls     []ToolCall // that it asks for
	usage     usage
}

// object is JSON to be.
type object = map[string]any

// event is one server-sent event; without a name when name is empty.
func event(name string, data any) []byte {
	b := encode(data)
	if name != "" {
		return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, b)
	}
	return fmt.Appendf(nil, "data: %s\n\n", b)
}

// encode is for values of this package's making, all of which are JSON.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// tokens estimates; four bytes are a token.
func tokens(s string) int64 { return int64(len(s)+3) / 4 }

func newGeneration(r Request, requestID, text string, calls []ToolCall) *generation {
	prefix := map[string]string{ChatCompletions: "chatcmpl-", Responses: "resp_", Messages: "msg_"}[r.Route]
	in, out := tokens(r.Prompt), tokens(text)+callTokens(calls)
	// An eighth is cached and a quarter thought, so that nobody can ignore what that does to a cost.
	u := usage{in: in, cached: in / 8, out: out, reasoning: out / 4}
	if r.Provider == Anthropic {
		u.written, u.written1h = in/8, in/16
	}
	return &generation{Request: r, id: prefix + rand.Text(), requestID: requestID, created: time.Now(), text: text, calls: calls, usage: u}
}

// tier is that which served the request. Anthropic sells its other tiers in advance.
func (g *generation) tier() string {
	if g.Provider == Anthropic {
		return "standard"
	}
	if g.Tier == "flex" || g.Tier == "priority" {
		return g.Tier
	}
	return "default"
}

// pieces cuts the text as a stream would, into eight if it is long enough.
func (g *generation) pieces() []string {
	runes := []rune(g.text)
	size := max(1, (len(runes)+7)/8)
	var ps []string
	for len(runes) > size {
		ps, runes = append(ps, string(runes[:size])), runes[size:]
	}
	return append(ps, string(runes))
}

// Summary is the default answer: a short text that depends on the prompt alone,
// or the smallest value that the request's schema allows.
func Summary(r Request) string {
	var schema map[string]any
	if err := json.Unmarshal(r.Schema, &schema); err == nil {
		return string(encode(smallest(schema)))
	}
	words := strings.Fields(marker.ReplaceAllString(r.Prompt, ""))
	return fmt.Sprintf("Summary of %d words: %s", len(words), strings.Join(words[:min(12, len(words))], " "))
}

// smallest builds a value of a JSON schema as the providers take them: without
// references, all properties present.
func smallest(schema map[string]any) any {
	if vs, ok := schema["enum"].([]any); ok && len(vs) > 0 {
		return vs[0]
	}
	typ := schema["type"]
	if ts, ok := typ.([]any); ok && len(ts) > 0 {
		typ = ts[0] // ["string", "null"]
	}
	switch typ {
	case "object":
		m := map[string]any{}
		properties, _ := schema["properties"].(map[string]any)
		for name, p := range properties {
			p, _ := p.(map[string]any)
			m[name] = smallest(p)
		}
		return m
	case "array":
		return []any{}
	case "integer", "number":
		return 0
	case "boolean":
		return false
	case "null":
		return nil
	}
	return ""
}
