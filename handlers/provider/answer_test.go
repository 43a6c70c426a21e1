package provider

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/openai/openai-go/v3"

	"github.com/paidonce/paidonce/job"
)

// What each answer is as a reply, and as a text alone. An answer that is cut short is neither, whatever is
// in it: a tool call with half of its arguments must not be made.
func TestReplies(t *testing.T) {
	const call = `"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}},{"id":"b","type":"function","function":{"name":"g","arguments":""}}]`
	const use = `{"type":"tool_use","id":"a","name":"f","input":{"a": 1}},{"type":"tool_use","id":"b","name":"g","input":{}}`
	for _, c := range []struct{ provider, body, reply, text string }{
		{OpenAI, `{"choices":[{"finish_reason":"stop","message":{"content":"hi"}}]}`, "hi []", "hi"},
		{OpenAI, `{"choices":[{"finish_reason":"tool_calls","message":{"content":null,` + call + `}}]}`, ` [{f {"a": 1}} {g }]`, "PO350"},
		{OpenAI, `{"choices":[{"finish_reason":"stop","message":{"content":"wait",` + call + `}}]}`, `wait [{f {"a": 1}} {g }]`, "PO350"},
		{OpenAI, `{"choices":[{"finish_reason":"tool_calls","message":{"content":"hi"}}]}`, "PO350", "PO350"},
		{OpenAI, `{"choices":[{"finish_reason":"length","message":{"content":"h"}}]}`, "PO350", "PO350"},
		{OpenAI, `{"choices":[{"finish_reason":"length","message":{` + call + `}}]}`, "PO350", "PO350"},
		{OpenAI, `{"choices":[{"finish_reason":"stop","message":{"refusal":"no"}}]}`, "PO351", "PO351"},
		{OpenAI, `{"choices":[]}`, "PO350", "PO350"},
		{Anthropic, `{"stop_reason":"end_turn","content":[{"type":"text","text":"h"},{"type":"text","text":"i"}]}`, "hi []", "hi"},
		{Anthropic, `{"stop_reason":"tool_use","content":[{"type":"text","text":"wait"},` + use + `]}`, `wait [{f {"a": 1}} {g {}}]`, "PO350"},
		{Anthropic, `{"stop_reason":"tool_use","content":[{"type":"text","text":"hi"}]}`, "PO350", "PO350"},
		{Anthropic, `{"stop_reason":"end_turn","content":[` + use + `]}`, "PO350", "PO350"},
		{Anthropic, `{"stop_reason":"max_tokens","content":[` + use + `]}`, "PO350", "PO350"},
		{Anthropic, `{"stop_reason":"refusal","content":[]}`, "PO351", "PO351"},
	} {
		var reply, text string
		var calls []ToolCall
		var rerr, terr error
		if c.provider == OpenAI {
			a := read[openai.ChatCompletion](t, c.body)
			reply, calls, rerr = OpenAIReply(a)
			text, terr = OpenAIText(a)
		} else {
			a := read[anthropic.Message](t, c.body)
			reply, calls, rerr = AnthropicReply(a)
			text, terr = AnthropicText(a)
		}
		if got := said(fmt.Sprintf("%s %v", reply, calls), rerr); got != c.reply {
			t.Errorf("%s %s: the reply is %s, want %s", c.provider, c.body, got, c.reply)
		}
		if got := said(text, terr); got != c.text {
			t.Errorf("%s %s: the text is %s, want %s", c.provider, c.body, got, c.text)
		}
	}
}

// said is a text, or the code of the permanent error instead of it.
func said(text string, err error) string {
	if err == nil {
		return text
	}
	if class, _ := job.ClassOf(err); class != job.Permanent {
		return fmt.Sprintf("%v, which is %s", err, class)
	}
	code, _, _ := strings.Cut(err.Error(), " ")
	return code
}

func read[T any](t *testing.T, body string) *T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatal(err)
	}
	return &v
}
