package modelserver_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	anthropicopt "github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/openai/openai-go/v3"
	openaiopt "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"github.com/paidonce/paidonce/internal/modelserver"
)

const prompt = "[key:acme:summarize:1] The quick brown fox jumps over the lazy dog, again and again, until somebody pays for it."

// wantText is what the server makes of prompt.
const wantText = "Summary of 17 words: The quick brown fox jumps over the lazy dog, again and again,"

// start runs a server whose bill has to be in order at the end.
func start(t *testing.T, opt modelserver.Options) *modelserver.Server {
	t.Helper()
	ms, err := modelserver.Start(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ms.Close(); err != nil {
			t.Errorf("close the model server: %v", err)
		}
	})
	return ms
}

// got is what a client made of an answer.
type got struct {
	id, text  string
	in, out   int64 // tokens, as the API counts them
	cached    int64
	complete  bool // the terminal event was there, or a whole body
	err       error
	status    int // of an API error
	code      string
	requestID string
}

// client asks for an answer to prompt once, in one of the six ways.
type client struct {
	name   string
	stream bool
	plain  bool // net/http, no SDK
	ask    func(ctx context.Context, url string, o options) got
}

// options are the SDKs'.
type options struct {
	openai    []openaiopt.RequestOption
	anthropic []anthropicopt.RequestOption
}

func noRetries() options {
	return options{
		openai:    []openaiopt.RequestOption{openaiopt.WithMaxRetries(0)},
		anthropic: []anthropicopt.RequestOption{anthropicopt.WithMaxRetries(0)},
	}
}

var clients = []client{
	{"chat", false, false, askChat},
	{"chat stream", true, false, askChatStream},
	{"responses", false, false, askResponses},
	{"responses stream", true, false, askResponsesStream},
	{"messages", false, false, askMessages},
	{"messages stream", true, false, askMessagesStream},
	{"net/http", false, true, askPlain(false)},
	{"net/http stream", true, true, askPlain(true)},
}

func openAI(url string, o options) openai.Client {
	opts := append([]openaiopt.RequestOption{openaiopt.WithBaseURL(url + "/v1/"), openaiopt.WithAPIKey("test")}, o.openai...)
	return openai.NewClient(opts...)
}

func claude(url string, o options) anthropic.Client {
	opts := append([]anthropicopt.RequestOption{anthropicopt.WithBaseURL(url), anthropicopt.WithAPIKey("test")}, o.anthropic...)
	return anthropic.NewClient(opts...)
}

func chatParams() openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:         "gpt-5-mini",
		Messages:      []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)},
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	}
}

func (g *got) chatUsage(u openai.CompletionUsage) {
	g.in, g.out, g.cached = u.PromptTokens, u.CompletionTokens, u.PromptTokensDetails.CachedTokens
}

func (g *got) fail(err error) got {
	g.err = err
	var oe *openai.Error
	var ae *anthropic.Error
	switch {
	case errors.As(err, &oe):
		g.status, g.code, g.requestID = oe.StatusCode, oe.Code, oe.Response.Header.Get("X-Request-Id")
	case errors.As(err, &ae):
		g.status, g.code, g.requestID = ae.StatusCode, string(ae.Type()), ae.RequestID
	}
	return *g
}

func askChat(ctx context.Context, url string, o options) (g got) {
	p := chatParams()
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{}
	c := openAI(url, o)
	a, err := c.Chat.Completions.New(ctx, p)
	if err != nil {
		return g.fail(err)
	}
	g.id, g.text, g.complete = a.ID, a.Choices[0].Message.Content, a.Choices[0].FinishReason == "stop"
	g.chatUsage(a.Usage)
	return g
}

func askChatStream(ctx context.Context, url string, o options) (g got) {
	c := openAI(url, o)
	s := c.Chat.Completions.NewStreaming(ctx, chatParams())
	defer s.Close()
	for s.Next() {
		e := s.Current()
		g.id = e.ID
		if len(e.Choices) > 0 {
			g.text += e.Choices[0].Delta.Content
			g.complete = g.complete || e.Choices[0].FinishReason == "stop"
		}
		g.chatUsage(e.Usage)
	}
	return g.fail(s.Err())
}

func responseParams() responses.ResponseNewParams {
	return responses.ResponseNewParams{
		Model:    "gpt-5-mini",
		Input:    responses.ResponseNewParamsInputUnion{OfString: openai.String(prompt)},
		Metadata: shared.Metadata{"job_key": "acme:by-metadata:1"},
	}
}

func (g *got) response(r responses.Response) {
	g.id, g.text, g.complete = r.ID, r.OutputText(), r.Status == "completed"
	g.in, g.out, g.cached = r.Usage.InputTokens, r.Usage.OutputTokens, r.Usage.InputTokensDetails.CachedTokens
}

func askResponses(ctx context.Context, url string, o options) (g got) {
	c := openAI(url, o)
	r, err := c.Responses.New(ctx, responseParams())
	if err != nil {
		return g.fail(err)
	}
	g.response(*r)
	return g
}

func askResponsesStream(ctx context.Context, url string, o options) (g got) {
	c := openAI(url, o)
	s := c.Responses.NewStreaming(ctx, responseParams())
	defer s.Close()
	var text strings.Builder
	for s.Next() {
		switch e := s.Current().AsAny().(type) {
		case responses.ResponseCreatedEvent:
			g.id = e.Response.ID
		case responses.ResponseTextDeltaEvent:
			text.WriteString(e.Delta)
		case responses.ResponseCompletedEvent:
			g.response(e.Response)
			if e.Response.OutputText() != text.String() {
				return g.fail(errors.New("deltas and completed differ"))
			}
		case responses.ResponseFailedEvent:
			g.response(e.Response)
			g.code = string(e.Response.Error.Code)
		}
	}
	g.text = text.String()
	return g.fail(s.Err())
}

func messageParams() anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: "claude-haiku-4-5", MaxTokens: 1000,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(prompt))},
	}
}

func (g *got) message(m anthropic.Message) {
	g.id, g.complete = m.ID, m.StopReason == "end_turn"
	g.in, g.out, g.cached = m.Usage.InputTokens+m.Usage.CacheCreationInputTokens, m.Usage.OutputTokens, m.Usage.CacheReadInputTokens
	for _, b := range m.Content {
		g.text += b.Text
	}
}

func askMessages(ctx context.Context, url string, o options) (g got) {
	c := claude(url, o)
	m, err := c.Messages.New(ctx, messageParams())
	if err != nil {
		return g.fail(err)
	}
	g.message(*m)
	return g
}

func askMessagesStream(ctx context.Context, url string, o options) (g got) {
	c := claude(url, o)
	s := c.Messages.NewStreaming(ctx, messageParams())
	defer s.Close()
	var m anthropic.Message
	stopped := false
	for s.Next() {
		e := s.Current()
		if err := m.Accumulate(e); err != nil {
			return g.fail(err)
		}
		stopped = stopped || e.Type == "message_stop"
	}
	g.message(m)
	g.complete = stopped
	return g.fail(s.Err())
}

// askPlain sends what the chat client would, and takes the body as it comes.
func askPlain(stream bool) func(context.Context, string, options) got {
	return func(ctx context.Context, url string, _ options) (g got) {
		body := `{"model":"gpt-5-mini","messages":[{"role":"user","content":"` + prompt + `"}]}`
		if stream {
			body = strings.Replace(body, "{", `{"stream":true,`, 1)
		}
		req, err := http.NewRequestWithContext(ctx, "POST", url+modelserver.ChatCompletions, strings.NewReader(body))
		if err != nil {
			return g.fail(err)
		}
		req.GetBody = nil
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return g.fail(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		g.text, g.requestID, g.err = string(b), resp.Header.Get("X-Request-Id"), err
		if resp.StatusCode != http.StatusOK {
			g.status = resp.StatusCode
			return g
		}
		g.complete = strings.HasSuffix(g.text, "data: [DONE]\n\n") || strings.HasSuffix(g.text, "}")
		return g
	}
}
