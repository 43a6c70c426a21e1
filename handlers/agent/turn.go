package agent

import (
	"context"
	"encoding/json"
	"fmt"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/packages/param"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"

	"github.com/paidonce/paidonce/handlers/provider"
	"github.com/paidonce/paidonce/job"
)

// newTurn makes the call that is one turn of the model.
func newTurn(s provider.Settings, box *toolbox) job.Call[Turn, Reply] {
	return job.Call[Turn, Reply]{
		Name: "turn", Config: Prompt, Memo: job.ByInput,
		Routes: provider.Routes(s, provider.Ways[Turn, Reply]{
			OpenAI: func(ctx context.Context, client *openai.Client, a *job.Attempt, t Turn) (Reply, error) {
				return viaOpenAI(ctx, client, a, t, box)
			},
			Anthropic: func(ctx context.Context, client *anthropic.Client, a *job.Attempt, t Turn) (Reply, error) {
				return viaAnthropic(ctx, client, a, t, box)
			},
		}),
		Retry:     s.Retry,
		OnUnknown: s.OnUnknown,
		Reconcile: func(ctx context.Context, o job.Open) (Reply, job.Finding, error) {
			c, found, err := provider.Stored(ctx, s, o)
			if err != nil || found != job.Happened {
				return Reply{}, found, err
			}
			text, tools, err := provider.OpenAIReply(c)
			return Reply{text, tools}, found, err
		},
	}
}

// useID names use i of step n towards a provider. The ids that providers gave are not kept: these are as
// good, the same in every run, and fit when a task changes providers.
func useID(n, i int) string { return fmt.Sprintf("use_%d_%d", n+1, i+1) }

func viaOpenAI(ctx context.Context, client *openai.Client, a *job.Attempt, t Turn, box *toolbox) (Reply, error) {
	p := openai.ChatCompletionNewParams{
		Model:    a.Model(),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.DeveloperMessage(instructions), openai.UserMessage(t.Goal)},
		Store:    openai.Bool(true), // so that a lost answer can be found
		Metadata: provider.Metadata(a),
	}
	for n, s := range t.Steps {
		asked := openai.ChatCompletionAssistantMessageParam{}
		if s.Text != "" {
			asked.Content.OfString = openai.String(s.Text)
		}
		for i, u := range s.Uses {
			asked.ToolCalls = append(asked.ToolCalls, openai.ChatCompletionMessageToolCallUnionParam{OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
				ID: useID(n, i), Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{Name: u.Tool, Arguments: u.Arguments}}})
		}
		p.Messages = append(p.Messages, openai.ChatCompletionMessageParamUnion{OfAssistant: &asked})
		for i, r := range s.Results {
			p.Messages = append(p.Messages, openai.ToolMessage(r, useID(n, i)))
		}
	}
	for _, tool := range box.tools {
		p.Tools = append(p.Tools, openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: tool.Name, Description: openai.String(tool.Description), Parameters: tool.parameters()}))
	}
	c, err := client.Chat.Completions.New(ctx, p)
	if err != nil {
		return Reply{}, err
	}
	text, tools, err := provider.OpenAIReply(c)
	return Reply{text, tools}, err
}

func viaAnthropic(ctx context.Context, client *anthropic.Client, a *job.Attempt, t Turn, box *toolbox) (Reply, error) {
	p := anthropic.MessageNewParams{
		Model:     anthropic.Model(a.Model()),
		MaxTokens: 4096,
		System:    []anthropic.TextBlockParam{{Text: instructions}},
		Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(t.Goal))},
	}
	for n, s := range t.Steps {
		var asked, said []anthropic.ContentBlockParamUnion
		if s.Text != "" {
			asked = append(asked, anthropic.NewTextBlock(s.Text))
		}
		for i, u := range s.Uses {
			asked = append(asked, anthropic.NewToolUseBlock(useID(n, i), u.object(), u.Tool))
			said = append(said, anthropic.NewToolResultBlock(useID(n, i), s.Results[i], false))
		}
		p.Messages = append(p.Messages, anthropic.NewAssistantMessage(asked...), anthropic.NewUserMessage(said...))
	}
	for _, tool := range box.tools {
		u := anthropic.ToolUnionParamOfTool(param.Override[anthropic.ToolInputSchemaParam](tool.Schema), tool.Name)
		u.OfTool.Description = anthropic.String(tool.Description)
		p.Tools = append(p.Tools, u)
	}
	m, err := client.Messages.New(ctx, p)
	if err != nil {
		return Reply{}, err
	}
	text, tools, err := provider.AnthropicReply(m)
	return Reply{text, tools}, err
}

// object is the arguments as a provider takes them that wants an object. Those that a model of another
// provider got wrong are still shown to it.
func (u Use) object() json.RawMessage {
	if a := []byte(u.Arguments); isObject(a) {
		return a
	}
	b, err := json.Marshal(map[string]string{"arguments": u.Arguments})
	if err != nil {
		panic(err) // a map of strings
	}
	return b
}
