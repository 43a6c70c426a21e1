package provider

import (
	"strings"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/openai/openai-go/v3"

	"github.com/paidonce/paidonce/job"
)

// ToolCall is a model's wish to call a tool.
type ToolCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // as the model wrote them; JSON, if it made no mistake
}

// OpenAIText is the text of a completion. A refusal and an answer that was cut short
// are permanent failures: asked again, the saved answer would be the same.
func OpenAIText(c *openai.ChatCompletion) (string, error) {
	text, calls, err := OpenAIReply(c)
	if err == nil && len(calls) > 0 {
		return "", incomplete(c.ID, "finish_reason", c.Choices[0].FinishReason)
	}
	return text, err
}

// OpenAIReply is the text of a completion and the tools that it asks for, in its order; of
// either there may be none. Its errors are those of OpenAIText.
func OpenAIReply(c *openai.ChatCompletion) (string, []ToolCall, error) {
	if len(c.Choices) == 0 {
		return "", nil, job.Failf("PO350 the answer %s has no choices", c.ID)
	}
	m := c.Choices[0]
	if m.Message.Refusal != "" {
		return "", nil, job.Failf("PO351 the model refused: %s", m.Message.Refusal)
	}
	var calls []ToolCall
	for _, t := range m.Message.ToolCalls {
		calls = append(calls, ToolCall{t.Function.Name, t.Function.Arguments})
	}
	// Servers that speak OpenAI's protocol may say stop where they ask for tools.
	if m.FinishReason != "stop" && (m.FinishReason != "tool_calls" || len(calls) == 0) {
		return "", nil, incomplete(c.ID, "finish_reason", m.FinishReason)
	}
	return m.Message.Content, calls, nil
}

// AnthropicText is the text of a message, as OpenAIText.
func AnthropicText(m *anthropic.Message) (string, error) {
	text, calls, err := AnthropicReply(m)
	if err == nil && len(calls) > 0 {
		return "", incomplete(m.ID, "stop_reason", string(m.StopReason))
	}
	return text, err
}

// AnthropicReply is the text of a message and the tools that it asks for, as OpenAIReply.
func AnthropicReply(m *anthropic.Message) (string, []ToolCall, error) {
	var text strings.Builder
	var calls []ToolCall
	for _, block := range m.Content {
		text.WriteString(block.Text)
		if block.Type == "tool_use" {
			calls = append(calls, ToolCall{block.Name, string(block.Input)})
		}
	}
	switch {
	case m.StopReason == anthropic.StopReasonRefusal:
		return "", nil, job.Failf("PO351 the model refused")
	case m.StopReason == anthropic.StopReasonEndTurn && len(calls) == 0, m.StopReason == anthropic.StopReasonToolUse && len(calls) > 0:
		return text.String(), calls, nil
	}
	return "", nil, incomplete(m.ID, "stop_reason", string(m.StopReason))
}

// incomplete is the error of an answer that cannot be used as it is.
func incomplete(id, field, reason string) error {
	return job.Failf("PO350 the answer %s is not complete: %s %s", id, field, reason)
}
