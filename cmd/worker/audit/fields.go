package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// Fields says in which fields of a line the parts of a call are. A field is named by its path,
// such as "request.model": each dot may stand between an object and a field of it, or
// belong to a name, and an object may be there as a string of JSON too.
//
// Of Entity and Input all fields that a line has count, together. Of the others it is the first that
// a line has; of times, costs and counts the first that can be read as one. A field that is null, or an empty list, is one that it does not have.
type Fields struct {
	Time   []string // when the call was made: RFC 3339 and the like, or a number since 1970
	Job    []string // what kind of work it is
	Entity []string // what it is about: tenant and ticket, document…
	Prompt []string // version of the prompt
	Input  []string // what was asked of the model, or a hash of it

	Model                             []string
	Cost                              []string // in dollars
	TokensIn, TokensCached, TokensOut []string

	Status []string // HTTP status, or a word such as "failed"
	Error  []string // anything in it means that the call brought nothing
	Cache  []string // true: the answer came out of a cache and cost nothing
	ID     []string // the provider's id of the answer; a line with the same one is the same call
}

// under is a list of fields, at the top of a line and inside each of the objects.
func under(objects []string, names ...string) []string {
	all := names
	for _, o := range objects {
		for _, n := range names {
			all = append(all, o+"."+n)
		}
	}
	return all
}

// DefaultFields are the names that gateways, SDK wrappers and the conventions of OpenTelemetry use.
func DefaultFields() Fields {
	asked := []string{"request", "request_body", "body"}
	used := []string{"usage", "response.usage"}
	return Fields{
		Time:   []string{"time", "timestamp", "ts", "@timestamp", "created_at", "start_time", "startTime", "created"},
		Job:    []string{"job", "job_type", "task", "feature", "action", "metadata.job", "name"},
		Entity: []string{"tenant", "tenant_id", "entity", "entity_id", "metadata.tenant", "metadata.entity"},
		Prompt: []string{"prompt_version", "promptVersion", "prompt_id", "metadata.prompt_version"},
		Input: append(under(asked, "input", "messages", "prompt", "system", "instructions", "contents"),
			"gen_ai.input.messages", "gen_ai.system_instructions", "input_sha256", "input_hash", "prompt_hash"),
		Model:        append(under(asked, "model"), "model_id", "modelId", "gen_ai.request.model", "response.model"),
		Cost:         append(under(used, "cost"), "cost_usd", "response_cost", "total_cost", "calculatedTotalCost"),
		TokensIn:     append(under(used, "input_tokens", "prompt_tokens"), "tokens_in", "gen_ai.usage.input_tokens", "input.inputTokenCount"),
		TokensCached: append(under(used, "cache_read_input_tokens", "prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens"), "tokens_cached", "gen_ai.usage.cache_read.input_tokens"),
		TokensOut:    append(under(used, "output_tokens", "completion_tokens"), "tokens_out", "gen_ai.usage.output_tokens", "output.outputTokenCount"),
		Status:       []string{"status", "status_code", "http_status", "response_status", "response.status", "response.status_code"},
		Error:        []string{"error", "error_str", "error_message", "exception", "response.error", "error.type"},
		Cache:        []string{"cache_hit"},
		ID:           []string{"response_id", "response.id", "provider_request_id", "gen_ai.response.id"},
	}
}

// object is a JSON object, its values not yet read. Of a name that is there twice the last counts, as
// nearly every program reads it.
type object map[string]json.RawMessage

// document is one line, read as far as somebody asked.
type document struct {
	top    object
	inside map[*byte]object // by the first byte of the value; nil: it is no object
}

var errNoObject = errors.New("it is no JSON object")

func read(line []byte) (*document, error) {
	if len(line) == 0 || line[0] != '{' {
		return nil, errNoObject
	}
	d := &document{inside: map[*byte]object{}}
	if err := json.Unmarshal(line, &d.top); err != nil {
		return nil, err
	}
	return d, nil
}

// find is the value of the field at the path, nil if the line does not have it.
func (d *document) find(path string) json.RawMessage { return d.within(d.top, path) }

func (d *document) within(o object, path string) json.RawMessage {
	if v, ok := o[path]; ok {
		if absent(v) {
			return nil
		}
		return v
	}
	for i := strings.LastIndexByte(path, '.'); i > 0; i = strings.LastIndexByte(path[:i], '.') {
		if inner, ok := o[path[:i]]; ok {
			if v := d.within(d.open(inner), path[i+1:]); v != nil {
				return v
			}
		}
	}
	return nil
}

// open reads a value as an object, or as a string that holds one; nil if it is neither.
func (d *document) open(v json.RawMessage) object {
	if o, ok := d.inside[&v[0]]; ok {
		return o
	}
	var o object
	text := []byte(v)
	if v[0] == '"' && bytes.HasPrefix(bytes.TrimLeft(v[1:], " "), []byte("{")) {
		text = []byte(plain(v))
	}
	if bytes.HasPrefix(text, []byte("{")) && json.Unmarshal(text, &o) != nil {
		o = nil // a string that only begins like an object
	}
	d.inside[&v[0]] = o
	return o
}

// absent reports whether a value says nothing.
func absent(v json.RawMessage) bool {
	return len(v) <= 4 && (string(v) == "null" || string(v) == `""` || string(v) == "[]" || string(v) == "{}")
}

// plain is a value as text: strings without their quotes, numbers and words as they are,
// the rest as JSON with the keys of objects in order.
func plain(v json.RawMessage) string {
	switch v[0] {
	case '"':
		var s string
		if json.Unmarshal(v, &s) == nil {
			return s
		}
	case '{', '[':
		return string(canonical(v))
	}
	return string(v)
}

// canonical is JSON without white space and with the keys of objects in order; numbers keep every digit.
func canonical(v json.RawMessage) []byte {
	d := json.NewDecoder(bytes.NewReader(v))
	d.UseNumber()
	var value any
	if d.Decode(&value) != nil {
		return v // no line comes so far: it was read once
	}
	b, err := json.Marshal(value)
	if err != nil {
		return v
	}
	return b
}
