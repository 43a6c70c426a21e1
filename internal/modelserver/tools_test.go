package modelserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"

	"github.com/paidonce/paidonce/internal/modelserver"
)

// A conversation through both SDKs: the first turn asks for every tool, each with an id of its own, and
// the second one answers. Both are on the bill, and the ids lead from one to the other.
func TestTools(t *testing.T) {
	for name, converse := range map[string]func(ctx context.Context, url string) (asked []string, answer string, err error){
		"chat": converseChat, "messages": converseMessages,
	} {
		t.Run(name, func(t *testing.T) {
			ms := start(t, modelserver.Options{})
			asked, answer, err := converse(t.Context(), ms.URL())
			if err != nil {
				t.Fatal(err)
			}
			if want := []string{`add {"a":0,"b":0}`, `say {"word":""}`}; !slices.Equal(asked, want) {
				t.Errorf("asked for %q, want %q", asked, want)
			}
			if !strings.Contains(answer, "Summary of 21 words: The quick brown fox") {
				t.Errorf("the answer is %q", answer)
			}
			lines := ms.BillByKey()["acme:summarize:1"]
			if len(lines) != 2 || lines[0].Out == 0 || lines[1].In <= lines[0].In || lines[0].ObjectID == lines[1].ObjectID {
				t.Errorf("bill %+v", lines)
			}
		})
	}
}

// schemas are the tools that the clients offer.
var schemas = []struct{ name, schema string }{
	{"add", `{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}}}`},
	{"say", `{"type":"object","properties":{"word":{"type":"string"}}}`},
}

func converseChat(ctx context.Context, url string) (asked []string, answer string, err error) {
	c := openAI(url, noRetries())
	p := openai.ChatCompletionNewParams{Model: "gpt-5-mini", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)}}
	for _, s := range schemas {
		var schema map[string]any
		if err := json.Unmarshal([]byte(s.schema), &schema); err != nil {
			return nil, "", err
		}
		p.Tools = append(p.Tools, openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: s.name, Parameters: schema}))
	}
	first, err := c.Chat.Completions.New(ctx, p)
	if err != nil {
		return nil, "", err
	}
	if f := first.Choices[0].FinishReason; f != "tool_calls" {
		return nil, "", fmt.Errorf("finish_reason %s", f)
	}
	p.Messages = append(p.Messages, first.Choices[0].Message.ToParam())
	for _, call := range first.Choices[0].Message.ToolCalls {
		asked = append(asked, call.Function.Name+" "+call.Function.Arguments)
		p.Messages = append(p.Messages, openai.ToolMessage("seven eight", call.ID))
	}
	second, err := c.Chat.Completions.New(ctx, p)
	if err != nil {
		return nil, "", err
	}
	return asked, second.Choices[0].Message.Content, nil
}

func converseMessages(ctx context.Context, url string) (asked []string, answer string, err error) {
	c := claude(url, noRetries())
	p := messageParams()
	for _, s := range schemas {
		var schema anthropic.ToolInputSchemaParam
		if err := json.Unmarshal([]byte(s.schema), &schema); err != nil {
			return nil, "", err
		}
		p.Tools = append(p.Tools, anthropic.ToolUnionParamOfTool(schema, s.name))
	}
	first, err := c.Messages.New(ctx, p)
	if err != nil {
		return nil, "", err
	}
	if first.StopReason != anthropic.StopReasonToolUse {
		return nil, "", fmt.Errorf("stop_reason %s", first.StopReason)
	}
	var results []anthropic.ContentBlockParamUnion
	for _, b := range first.Content {
		asked = append(asked, b.Name+" "+string(b.Input))
		results = append(results, anthropic.NewToolResultBlock(b.ID, "seven eight", false))
	}
	p.Messages = append(p.Messages, first.ToParam(), anthropic.NewUserMessage(results...))
	second, err := c.Messages.New(ctx, p)
	if err != nil {
		return nil, "", err
	}
	return asked, second.Content[0].Text, nil
}

// What no provider takes is refused, and costs nothing.
func TestToolFaults(t *testing.T) {
	const user = `{"role":"user","content":"hello"}`
	const asks = `{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]}`
	const uses = `{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]}`
	for name, c := range map[string]struct{ route, body string }{
		"no name":       {modelserver.ChatCompletions, `{"model":"m","messages":[` + user + `],"tools":[{}]}`},
		"a stream":      {modelserver.ChatCompletions, `{"model":"m","stream":true,"messages":[` + user + `],"tools":[{"function":{"name":"f"}}]}`},
		"responses":     {modelserver.Responses, `{"model":"m","input":"hello","tools":[{"name":"f"}]}`},
		"no result":     {modelserver.ChatCompletions, `{"model":"m","messages":[` + user + `,` + asks + `,` + user + `]}`},
		"no result yet": {modelserver.ChatCompletions, `{"model":"m","messages":[` + user + `,` + asks + `]}`},
		"no call":       {modelserver.ChatCompletions, `{"model":"m","messages":[` + user + `,` + asks + `,{"role":"tool","tool_call_id":"b","content":"x"}]}`},
		"no call there": {modelserver.Messages, `{"model":"m","messages":[` + user + `,` + uses + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"b"}]}]}`},
		"an id twice":   {modelserver.Messages, strings.Replace(`{"model":"m","messages":[`+user+`,`+uses+`]}`, `[{"type"`, `[{"type":"tool_use","id":"a","input":{}},{"type"`, 1)},
		"no object":     {modelserver.Messages, strings.Replace(`{"model":"m","messages":[`+user+`,`+uses+`]}`, `"input":{}`, `"input":"x"`, 1)},
	} {
		ms := start(t, modelserver.Options{})
		if resp, text := post(t, ms.URL()+c.route, c.body); resp.StatusCode != 400 || len(ms.Bill()) != 0 {
			t.Errorf("%s: HTTP %d %s, %d lines on the bill", name, resp.StatusCode, text, len(ms.Bill()))
		}
	}
}
