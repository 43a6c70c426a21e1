// Package summarize is the job ticket.summary: it reads a support thread and says in
// a few sentences what it is about. It is a model to copy: a message with a key, one
// paid call, a handler of ordinary Go, and two steps that tell people of the result.
package summarize

import (
	"context"
	"errors"
	"regexp"
	"time"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/openai/openai-go/v3"

	"github.com/paidonce/paidonce/handlers/provider"
	"github.com/paidonce/paidonce/job"
)

// Name is the job's name.
const Name = "ticket.summary"

// Prompt is the version of the instructions below. Raise it when they change: another
// prompt gives another answer, so it is another job.
const Prompt = "p7"

const instructions = `You summarise support tickets for the colleague who takes over.
Say in at most five sentences what the customer wants, what was tried, and what is open.
Use only what the thread says. Answer with the summary alone.`

// Ticket is the message.
type Ticket struct {
	Tenant   string `json:"tenant"`
	Ticket   string `json:"ticket"`
	Revision int    `json:"revision"` // of the thread: an edited one is another job
	Thread   string `json:"thread"`
	Notify   Notify `json:"notify,omitzero"`
}

// Notify says whom to tell of the summary, by steps that follow the job.
type Notify struct {
	Email string `json:"email,omitempty"` // an address
	Slack string `json:"slack,omitempty"` // a channel, by its id or its name; DefaultChannel: the worker's
}

// Summary is the result.
type Summary struct {
	Summary string `json:"summary"`
}

// JobKey names the job, such as acme:ticket.summary:48213:v3:p7.
func (t Ticket) JobKey() job.Key {
	return job.K(t.Tenant, Name, t.Ticket).Rev(t.Revision).Prompt(Prompt)
}

// Routes are tried unless Settings name others.
var Routes = []provider.Route{
	{Name: "primary", Provider: provider.OpenAI, Model: "gpt-5-mini", Timeout: 90 * time.Second},
}

// New makes the job. Zero settings are a usable configuration.
func New(s provider.Settings, tell Tell) job.Def[Ticket, Summary] {
	s = s.WithDefaults(Routes)
	summarise := job.Call[Ticket, Summary]{
		Name: "summarise", Config: Prompt,
		Routes:    provider.Routes(s, provider.Ways[Ticket, Summary]{OpenAI: viaOpenAI, Background: inBackground, Anthropic: viaAnthropic}),
		Retry:     s.Retry,
		OnUnknown: s.OnUnknown,
		Reconcile: func(ctx context.Context, o job.Open) (Summary, job.Finding, error) {
			return lookUp(ctx, s, o)
		},
	}
	return job.Def[Ticket, Summary]{
		Name: Name, Uses: job.Uses(summarise), Steps: tell.steps(), Limits: s.Limits, MaxRun: s.MaxRun, MaxRuns: s.MaxRuns, Redact: Redact,
		Handle: func(ctx context.Context, j *job.Run, t Ticket) (Summary, error) {
			if err := errors.Join(t.check(), tell.check(t.Notify)); err != nil {
				return Summary{}, err
			}
			out, err := summarise.Run(ctx, j, t)
			if err != nil {
				return Summary{}, err
			}
			return out, tell.after(j, t, out)
		},
	}
}

// address is what looks like a mail address, in JSON too: behind an escape that is kept.
var address = regexp.MustCompile(`(\\u[0-9a-fA-F]{4}|\\.)?[^\s"'<>()\[\]{},;:\\@]+@[^\s"'<>()\[\]{},;:\\@]+`)

// Redact hides customers' addresses from who looks at the job, or at one of its steps, or reads the log. The
// result is shown whole: it is what the job is for.
func Redact(part job.Part, body []byte) []byte {
	switch part {
	case job.PartResult:
		return body
	case job.PartAnswer, job.PartText:
		return address.ReplaceAll(body, []byte("${1}(address)"))
	}
	return nil
}

// check refuses, before anything is paid, what no run can make good.
func (t Ticket) check() error {
	if t.Thread == "" {
		return job.Failf("PO352 the ticket has no thread to summarise")
	}
	return nil
}

func viaOpenAI(ctx context.Context, client *openai.Client, a *job.Attempt, t Ticket) (Summary, error) {
	c, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
		Model:    a.Model(),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.DeveloperMessage(instructions), openai.UserMessage(t.Thread)},
		Store:    openai.Bool(true), // so that a lost answer can be found
		Metadata: provider.Metadata(a),
	})
	if err != nil {
		return Summary{}, err
	}
	text, err := provider.OpenAIText(c)
	return Summary{text}, err
}

func inBackground(ctx context.Context, client *openai.Client, a *job.Attempt, t Ticket) (Summary, error) {
	text, err := provider.Respond(ctx, client, a, instructions, t.Thread, provider.Schema{})
	return Summary{text}, err
}

func viaAnthropic(ctx context.Context, client *anthropic.Client, a *job.Attempt, t Ticket) (Summary, error) {
	m, err := client.Messages.New(ctx, anthropic.MessageNewParams{
		Model:     anthropic.Model(a.Model()),
		MaxTokens: 1024,
		System:    []anthropic.TextBlockParam{{Text: instructions}},
		Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(t.Thread))},
	})
	if err != nil {
		return Summary{}, err
	}
	text, err := provider.AnthropicText(m)
	return Summary{text}, err
}

// lookUp finds an answer that was lost on its way to us, where the provider keeps one.
func lookUp(ctx context.Context, s provider.Settings, o job.Open) (Summary, job.Finding, error) {
	text, found, err := provider.StoredText(ctx, s, o)
	return Summary{text}, found, err
}
