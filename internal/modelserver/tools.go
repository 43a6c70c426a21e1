package modelserver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Tool is something that a client offers the model to call.
type Tool struct {
	Name   string
	Schema json.RawMessage // JSON schema of its arguments
}

// ToolCall is an answer's wish to call a tool.
type ToolCall struct {
	Name      string
	Arguments string // JSON of an object. Anything else goes out as it is in chat; in messages there are only objects
}

// ToolsOnce is the default of Options.CallTools: the first turn of a conversation asks for every tool
// once, with the smallest arguments that its schema allows, and later ones answer.
func ToolsOnce(r Request) []ToolCall {
	if r.Turn > 1 {
		return nil
	}
	calls := make([]ToolCall, len(r.Tools))
	for i, tool := range r.Tools {
		var schema map[string]any
		if err := json.Unmarshal(tool.Schema, &schema); err != nil {
			schema = nil
		}
		arguments, ok := smallest(schema).(map[string]any)
		if !ok {
			arguments = object{}
		}
		calls[i] = ToolCall{tool.Name, string(encode(arguments))}
	}
	return calls
}

// newAnswer is what the model makes of a request: it asks for tools, or says something.
func (s *Server) newAnswer(r Request, requestID string) *generation {
	if len(r.Tools) > 0 {
		if calls := s.opt.CallTools(r); len(calls) > 0 {
			return newGeneration(r, requestID, "", calls)
		}
	}
	return newGeneration(r, requestID, s.opt.Generate(r), nil)
}

// wireTool is a tool in the words of either provider.
type wireTool struct {
	Name     string          `json:"name"` // messages
	Schema   json.RawMessage `json:"input_schema"`
	Function struct {        // chat
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// conversation reads what a request offers, and how far it has come.
func (r *Request) conversation(in wireRequest) error {
	r.Turn = 1
	return errors.Join(r.offered(in.Tools), r.turns(in.Messages))
}

func (r *Request) offered(offered []wireTool) error {
	if len(offered) > 0 && (r.Stream || r.Route == Responses) {
		return errors.New("this server has no tools in streams and in responses")
	}
	for i, w := range offered {
		t := Tool{cmp.Or(w.Name, w.Function.Name), w.Schema}
		if r.Route == ChatCompletions {
			t.Schema = w.Function.Parameters
		}
		if t.Name == "" {
			return fmt.Errorf("tools[%d] has no name", i)
		}
		r.Tools = append(r.Tools, t)
	}
	return nil
}

// wireMessage is a message of a conversation, as far as tools go.
type wireMessage struct {
	Role      string `json:"role"`
	CallID    string `json:"tool_call_id"` // chat, of a tool's message
	ToolCalls []struct {
		ID       string `json:"id"`
		Function struct {
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"` // chat
	Content json.RawMessage `json:"content"` // messages: blocks, or a string
}

type wireBlock struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
}

// turns counts the turn that a conversation asks for, from 1, and refuses what both providers
// refuse: a tool's call without its result in what follows, and a result that nobody asked for.
func (r *Request) turns(messages json.RawMessage) error {
	var all []wireMessage
	if err := json.Unmarshal(messages, &all); err != nil && len(messages) > 0 {
		return fmt.Errorf("messages: %w", err)
	}
	open := map[string]bool{}
	for _, m := range all {
		calls, results, err := m.calls()
		if err != nil {
			return err
		}
		for _, id := range results {
			if !open[id] {
				return fmt.Errorf("the result of tool call %q answers no call", id)
			}
			delete(open, id)
		}
		if m.Role != "tool" && len(open) > 0 {
			return fmt.Errorf("%d tool calls have no result in what follows them", len(open))
		}
		for _, id := range calls {
			if id == "" || open[id] {
				return fmt.Errorf("the id %q of a tool call is empty or used twice", id)
			}
			open[id] = true
		}
		if m.Role == "assistant" {
			r.Turn++
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("%d tool calls have no result", len(open))
	}
	return nil
}

// calls lists the ids of the calls and of the results in a message.
func (m wireMessage) calls() (calls, results []string, err error) {
	for _, c := range m.ToolCalls {
		calls = append(calls, c.ID)
	}
	if m.Role == "tool" {
		results = append(results, m.CallID)
	}
	var blocks []wireBlock
	if json.Unmarshal(m.Content, &blocks) != nil {
		return calls, results, nil // a string
	}
	for _, b := range blocks {
		switch b.Type {
		case "tool_use":
			if in := bytes.TrimSpace(b.Input); len(in) == 0 || in[0] != '{' {
				return nil, nil, fmt.Errorf("the input of tool call %q is no object", b.ID)
			}
			calls = append(calls, b.ID)
		case "tool_result":
			results = append(results, b.ToolUseID)
		}
	}
	return calls, results, nil
}

// callTokens counts those of the calls of an answer.
func callTokens(calls []ToolCall) int64 {
	var text strings.Builder
	for _, c := range calls {
		text.WriteString(c.Name + c.Arguments)
	}
	return tokens(text.String())
}

// callID names the i-th call of a generation.
func (g *generation) callID(i int) string {
	prefix := map[string]string{ChatCompletions: "call_", Messages: "toolu_"}[g.Route]
	return fmt.Sprintf("%s%s%d", prefix, g.id[strings.LastIndexAny(g.id, "-_")+1:], i)
}

// chatMessage is the message of a chat completion, and why it ends.
func (g *generation) chatMessage() (message object, finish string) {
	message = object{"role": "assistant", "content": g.text, "refusal": nil, "annotations": []object{}}
	if len(g.calls) == 0 {
		return message, "stop"
	}
	calls := make([]object, len(g.calls))
	for i, c := range g.calls {
		calls[i] = object{"id": g.callID(i), "type": "function", "function": object{"name": c.Name, "arguments": c.Arguments}}
	}
	message["content"], message["tool_calls"] = orNull(g.text), calls
	return message, "tool_calls"
}

// blocks are the content of a message, and why it ends.
func (g *generation) blocks() (content []object, stop string) {
	if g.text != "" || len(g.calls) == 0 {
		content = append(content, object{"type": "text", "text": g.text})
	}
	if len(g.calls) == 0 {
		return content, "end_turn"
	}
	for i, c := range g.calls {
		var input object
		if err := json.Unmarshal([]byte(c.Arguments), &input); err != nil {
			input = object{"text": c.Arguments}
		}
		content = append(content, object{"type": "tool_use", "id": g.callID(i), "name": c.Name, "input": input})
	}
	return content, "tool_use"
}
