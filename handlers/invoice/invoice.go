// Package invoice is the job invoice.extract: it reads the fields of an invoice from
// its text and keeps them in a table of its own, in the same transaction as the
// result. It is a model to copy for structured answers and for rows that must never
// be doubled.
package invoice

import (
	"context"
	_ "embed" // the schema
	"encoding/json"
	"time"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"

	"github.com/paidonce/paidonce/handlers/provider"
	"github.com/paidonce/paidonce/job"
)

// Name is the job's name.
const Name = "invoice.extract"

// Prompt is the version of the instructions and the schema below. Raise it when they
// change: another prompt gives another answer, so it is another job.
const Prompt = "p7"

const instructions = `You read invoices. Extract the fields of the schema from the text.
Amounts are in the smallest unit of the currency, dates are YYYY-MM-DD, currencies are ISO 4217.
A field that the text does not have is an empty string; a missing total is 0. Guess nothing.`

// Document is the message.
type Document struct {
	Tenant   string `json:"tenant"`
	Document string `json:"document"`
	Revision int    `json:"revision"`
	Text     string `json:"text"`
}

// Invoice is the result, and the row.
type Invoice struct {
	Number     string `json:"number"`
	Currency   string `json:"currency"`
	TotalCents int64  `json:"total_cents"`
	Supplier   string `json:"supplier"`
	Date       string `json:"date"` // YYYY-MM-DD, or empty
}

//go:embed schema.json
var schemaJSON []byte

// JobKey names the job, such as acme:invoice.extract:9821:v3:p7.
func (d Document) JobKey() job.Key {
	return job.K(d.Tenant, Name, d.Document).Rev(d.Revision).Prompt(Prompt)
}

// Routes are tried unless Settings name others.
var Routes = []provider.Route{
	{Name: "primary", Provider: provider.OpenAI, Model: "gpt-5-mini", Timeout: 90 * time.Second},
}

// New makes the job. save keeps the invoice in the transaction that commits the
// result: InPostgres, or nil for a ledger without tables, when the result is all there is.
func New(s provider.Settings, save Save) job.Def[Document, Invoice] {
	s = s.WithDefaults(Routes)
	extract := job.Call[Document, Invoice]{
		Name: "extract", Config: Prompt,
		Routes:    provider.Routes(s, provider.Ways[Document, Invoice]{OpenAI: viaOpenAI, Background: inBackground, Anthropic: viaAnthropic}),
		Retry:     s.Retry,
		OnUnknown: s.OnUnknown,
		Reconcile: func(ctx context.Context, o job.Open) (Invoice, job.Finding, error) {
			text, found, err := provider.StoredText(ctx, s, o)
			if err != nil || found != job.Happened {
				return Invoice{}, found, err
			}
			inv, err := parse(text, nil)
			return inv, found, err
		},
	}
	return job.Def[Document, Invoice]{
		Name: Name, Uses: job.Uses(extract), Limits: s.Limits, MaxRun: s.MaxRun, MaxRuns: s.MaxRuns,
		Handle: func(ctx context.Context, j *job.Run, d Document) (Invoice, error) {
			if d.Text == "" {
				return Invoice{}, job.Failf("PO354 the document has no text to read")
			}
			inv, err := extract.Run(ctx, j, d)
			if err == nil && save != nil {
				save(j, d, inv)
			}
			return inv, err
		},
	}
}

func viaOpenAI(ctx context.Context, client *openai.Client, a *job.Attempt, d Document) (Invoice, error) {
	c, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
		Model:    a.Model(),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.DeveloperMessage(instructions), openai.UserMessage(d.Text)},
		ResponseFormat: openai.ChatCompletionNewParamsResponseFormatUnion{OfJSONSchema: &shared.ResponseFormatJSONSchemaParam{
			JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "invoice", Strict: openai.Bool(true), Schema: schema()}}},
		Store:    openai.Bool(true), // so that a lost answer can be found
		Metadata: provider.Metadata(a),
	})
	if err != nil {
		return Invoice{}, err
	}
	return parse(provider.OpenAIText(c))
}

func inBackground(ctx context.Context, client *openai.Client, a *job.Attempt, d Document) (Invoice, error) {
	return parse(provider.Respond(ctx, client, a, instructions, d.Text, provider.Schema{Name: "invoice", Form: schema()}))
}

func viaAnthropic(ctx context.Context, client *anthropic.Client, a *job.Attempt, d Document) (Invoice, error) {
	m, err := client.Messages.New(ctx, anthropic.MessageNewParams{
		Model:        anthropic.Model(a.Model()),
		MaxTokens:    2048,
		System:       []anthropic.TextBlockParam{{Text: instructions}},
		Messages:     []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(d.Text))},
		OutputConfig: anthropic.OutputConfigParam{Format: anthropic.JSONOutputFormatParam{Schema: schema()}},
	})
	if err != nil {
		return Invoice{}, err
	}
	return parse(provider.AnthropicText(m))
}

// schema is what the answer must look like.
func schema() map[string]any {
	var s map[string]any
	if err := json.Unmarshal(schemaJSON, &s); err != nil {
		panic(err) // embedded, and read by a test
	}
	return s
}

// parse reads an answer. What it cannot read is a permanent failure: asked again, the
// saved answer would be the same, and it is kept for a person to look at.
func parse(text string, err error) (Invoice, error) {
	if err != nil {
		return Invoice{}, err
	}
	var inv Invoice
	if err := json.Unmarshal([]byte(text), &inv); err != nil {
		return Invoice{}, job.Failf("PO355 the answer does not read as an invoice: %w", err)
	}
	if _, err := time.Parse(time.DateOnly, inv.Date); inv.Date != "" && err != nil {
		return Invoice{}, job.Failf("PO355 the answer's date %q is no YYYY-MM-DD", inv.Date)
	}
	return inv, nil
}
