package modelserver

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// The providers, as Request and Line name them.
const (
	OpenAI    = "openai"
	Anthropic = "anthropic"
)

// The routes that generate, as Request and Line name them.
const (
	ChatCompletions = "/v1/chat/completions"
	Responses       = "/v1/responses"
	Messages        = "/v1/messages"
)

// Request is what a client asked for.
type Request struct {
	Provider     string // OpenAI or Anthropic
	Route        string // ChatCompletions, Responses or Messages
	Model        string
	Prompt       string // all its texts, instructions first, a line each
	Stream       bool
	IncludeUsage bool              // chat: usage in the stream
	Store        bool              // can be asked for later, by its id or metadata
	Background   bool              // responses: answered at once, generated meanwhile
	Tier         string            // service_tier, as asked for
	Schema       json.RawMessage   // JSON schema that the answer has to satisfy; nil: none
	Tools        []Tool            // that it offers the model
	Turn         int               // of the conversation, from 1: one more than the answers that it repeats
	Metadata     map[string]string // OpenAI's; of Anthropic's the user_id
	Header       http.Header
	Body         []byte // as received
}

// ClientID is the client's own name for the request.
func (r Request) ClientID() string { return r.Header.Get("X-Client-Request-Id") }

// MetadataKey is the metadata job_key, which Anthropic has no room for: there it is
// the user_id.
func (r Request) MetadataKey() string {
	return cmp.Or(r.Metadata["job_key"], r.Metadata["user_id"])
}

// queued reports whether the answer is only that an answer is coming.
func (r Request) queued() bool { return r.Background && !r.Stream }

var marker = regexp.MustCompile(`\[key:([^\]\n]+)\]`)

// PromptKey is the key in the first marker [key:…] of the prompt.
func (r Request) PromptKey() string {
	if m := marker.FindStringSubmatch(r.Prompt); m != nil {
		return m[1]
	}
	return ""
}

// defaultKey is Options.KeyOf unless set.
func defaultKey(r Request) string {
	return cmp.Or(r.PromptKey(), r.MetadataKey(), r.ClientID())
}

// wireRequest is the union of the three request bodies.
type wireRequest struct {
	Model         string          `json:"model"`
	Stream        bool            `json:"stream"`
	Store         *bool           `json:"store"`
	Background    bool            `json:"background"`
	Tier          string          `json:"service_tier"`
	Metadata      map[string]any  `json:"metadata"`
	System        any             `json:"system"`       // messages
	Instructions  any             `json:"instructions"` // responses
	Input         any             `json:"input"`        // responses
	Messages      json.RawMessage `json:"messages"`     // chat, messages
	Tools         []wireTool      `json:"tools"`        // chat, messages
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	ResponseFormat struct { // chat
		JSONSchema struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	} `json:"response_format"`
	Text struct { // responses
		Format struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"format"`
	} `json:"text"`
	OutputConfig struct { // messages
		Format struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"format"`
	} `json:"output_config"`
}

func parse(route string, h http.Header, body []byte) (Request, error) {
	r := Request{Provider: OpenAI, Route: route, Header: h, Body: body}
	if route == Messages {
		r.Provider = Anthropic
	}
	var in wireRequest
	if err := json.Unmarshal(body, &in); err != nil {
		//lint:ignore ST1005 the provider's own words
		return r, fmt.Errorf("We could not parse the JSON body of your request: %w", err)
	}
	r.Model, r.Stream, r.Background = in.Model, in.Stream, in.Background && route == Responses
	r.IncludeUsage, r.Tier = in.StreamOptions.IncludeUsage, in.Tier
	r.Store = route == Responses // kept unless declined
	if in.Store != nil {
		r.Store = *in.Store
	}
	r.Metadata = make(map[string]string, len(in.Metadata))
	for k, v := range in.Metadata {
		r.Metadata[k] = fmt.Sprint(v)
	}
	for _, schema := range []json.RawMessage{in.ResponseFormat.JSONSchema.Schema, in.Text.Format.Schema, in.OutputConfig.Format.Schema} {
		if schema != nil {
			r.Schema = schema
		}
	}
	var messages any
	if in.Messages != nil {
		if err := json.Unmarshal(in.Messages, &messages); err != nil {
			return r, err
		}
	}
	r.Prompt = strings.Join(texts(nil, in.System, in.Instructions, in.Input, messages), "\n")
	if err := r.conversation(in); err != nil {
		return r, err
	}
	switch {
	case r.Model == "":
		return r, errors.New("you must provide a model parameter")
	case r.Prompt == "":
		return r, errors.New("the request has no text to answer")
	}
	return r, nil
}

// texts collects the texts of messages, whichever of the providers' shapes they
// have: a string, a list of parts, an object with text or content.
func texts(found []string, vs ...any) []string {
	for _, v := range vs {
		switch v := v.(type) {
		case string:
			found = append(found, v)
		case []any:
			found = texts(found, v...)
		case map[string]any:
			found = texts(found, v["text"], v["content"], v["output"])
		}
	}
	return found
}
