package job

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	claude "github.com/anthropics/anthropic-sdk-go/v2"
	claudeopt "github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/openai/openai-go/v3"
	openaiopt "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

const prompt = "[key:acme:job:1] The quick brown fox jumps over the lazy dog, again and again, until somebody pays for it."

// said is what a client made of an answer.
type said struct {
	ID, Text  string
	In, Out   int64 // tokens, as the API counts them
	Cached    int64
	Complete  bool // a whole body, or the terminal event was there
	Status    int  // of an error
	RequestID string
	Code      string
	Message   string
}

// client asks for an answer once, with the defaults of an SDK but for its address.
type client struct {
	name     string
	provider string
	stream   bool
	ask      func(ctx context.Context, h *http.Client, url string) (said, error)
}

var clients = []client{
	{"chat", "openai", false, askChat},
	{"chat stream", "openai", true, askChatStream},
	{"responses", "openai", false, askResponses},
	{"responses stream", "openai", true, askResponsesStream},
	{"messages", "anthropic", false, askMessages},
	{"messages stream", "anthropic", true, askMessagesStream},
	{"plain", "", false, askPlain(false)},
	{"plain stream", "", true, askPlain(true)},
}

func gpt(h *http.Client, url string) openai.Client {
	return openai.NewClient(openaiopt.WithHTTPClient(h), openaiopt.WithBaseURL(url+"/v1/"), openaiopt.WithAPIKey("test"))
}

func haiku(h *http.Client, url string) claude.Client {
	return claude.NewClient(claudeopt.WithHTTPClient(h), claudeopt.WithBaseURL(url), claudeopt.WithAPIKey("test"))
}

// fault turns an SDK's error into what it shows.
func (s *said) fault(err error) error {
	if oe, ok := errors.AsType[*openai.Error](err); ok {
		s.Status, s.Code, s.Message, s.RequestID = oe.StatusCode, oe.Code, oe.Message, oe.Response.Header.Get("X-Request-Id")
	}
	if ae, ok := errors.AsType[*claude.Error](err); ok {
		s.Status, s.Code, s.Message, s.RequestID = ae.StatusCode, string(ae.Type()), ae.Message, ae.RequestID
	}
	return err
}

func chatParams() openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: "gpt-5-mini",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)}}
}

func askChat(ctx context.Context, h *http.Client, url string) (s said, err error) {
	c := gpt(h, url)
	a, err := c.Chat.Completions.New(ctx, chatParams())
	if err != nil {
		return s, s.fault(err)
	}
	s.ID, s.Text, s.Complete = a.ID, a.Choices[0].Message.Content, a.Choices[0].FinishReason == "stop"
	s.In, s.Out, s.Cached = a.Usage.PromptTokens, a.Usage.CompletionTokens, a.Usage.PromptTokensDetails.CachedTokens
	return s, nil
}

func askChatStream(ctx context.Context, h *http.Client, url string) (s said, err error) {
	p := chatParams()
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	c := gpt(h, url)
	st := c.Chat.Completions.NewStreaming(ctx, p)
	defer st.Close()
	for st.Next() {
		e := st.Current()
		s.ID = e.ID
		if len(e.Choices) > 0 {
			s.Text += e.Choices[0].Delta.Content
			s.Complete = s.Complete || e.Choices[0].FinishReason == "stop"
		}
		s.In, s.Out, s.Cached = e.Usage.PromptTokens, e.Usage.CompletionTokens, e.Usage.PromptTokensDetails.CachedTokens
	}
	return s, s.fault(st.Err())
}

func responseParams() responses.ResponseNewParams {
	return responses.ResponseNewParams{Model: "gpt-5-mini", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(prompt)}}
}

func (s *said) response(r responses.Response) {
	s.ID, s.Text, s.Complete = r.ID, r.OutputText(), r.Status == "completed"
	s.In, s.Out, s.Cached = r.Usage.InputTokens, r.Usage.OutputTokens, r.Usage.InputTokensDetails.CachedTokens
}

func askResponses(ctx context.Context, h *http.Client, url string) (s said, err error) {
	c := gpt(h, url)
	r, err := c.Responses.New(ctx, responseParams())
	if err != nil {
		return s, s.fault(err)
	}
	s.response(*r)
	return s, nil
}

func askResponsesStream(ctx context.Context, h *http.Client, url string) (s said, err error) {
	c := gpt(h, url)
	st := c.Responses.NewStreaming(ctx, responseParams())
	defer st.Close()
	for st.Next() {
		switch e := st.Current().AsAny().(type) {
		case responses.ResponseCreatedEvent:
			s.ID = e.Response.ID
		case responses.ResponseCompletedEvent:
			s.response(e.Response)
		case responses.ResponseFailedEvent:
			s.Code = string(e.Response.Error.Code)
			return s, errors.New("the response failed")
		}
	}
	return s, s.fault(st.Err())
}

func messageParams() claude.MessageNewParams {
	return claude.MessageNewParams{Model: "claude-haiku-4-5", MaxTokens: 1000,
		Messages: []claude.MessageParam{claude.NewUserMessage(claude.NewTextBlock(prompt))}}
}

func (s *said) message(m claude.Message) {
	s.ID, s.Complete = m.ID, m.StopReason == "end_turn"
	s.Cached, s.Out = m.Usage.CacheReadInputTokens, m.Usage.OutputTokens
	s.In = m.Usage.InputTokens + m.Usage.CacheReadInputTokens + m.Usage.CacheCreationInputTokens
	for _, b := range m.Content {
		s.Text += b.Text
	}
}

func askMessages(ctx context.Context, h *http.Client, url string) (s said, err error) {
	c := haiku(h, url)
	m, err := c.Messages.New(ctx, messageParams())
	if err != nil {
		return s, s.fault(err)
	}
	s.message(*m)
	return s, nil
}

func askMessagesStream(ctx context.Context, h *http.Client, url string) (s said, err error) {
	c := haiku(h, url)
	st := c.Messages.NewStreaming(ctx, messageParams())
	defer st.Close()
	var m claude.Message
	stopped := false
	for st.Next() {
		e := st.Current()
		if err := m.Accumulate(e); err != nil {
			return s, err
		}
		stopped = stopped || e.Type == "message_stop"
	}
	s.message(m)
	s.Complete = stopped
	return s, s.fault(st.Err())
}

// askPlain is net/http without an SDK, to a provider that has no name.
func askPlain(stream bool) func(context.Context, *http.Client, string) (said, error) {
	return func(ctx context.Context, h *http.Client, url string) (s said, err error) {
		body := `{"model":"gpt-5-mini","messages":[{"role":"user","content":"` + prompt + `"}]}`
		if stream {
			body = strings.Replace(body, "{", `{"stream":true,"stream_options":{"include_usage":true},`, 1)
		}
		req, err := http.NewRequestWithContext(ctx, "POST", url+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			return s, err
		}
		resp, err := h.Do(req)
		if err != nil {
			return s, err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusOK {
			s.Status = resp.StatusCode
			return s, errors.New(resp.Status)
		}
		s.Text, s.RequestID = string(b), resp.Header.Get("X-Request-Id")
		s.Complete = strings.HasSuffix(s.Text, "data: [DONE]\n\n") || strings.HasSuffix(s.Text, "}")
		return s, err
	}
}
