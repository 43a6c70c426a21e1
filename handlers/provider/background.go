package provider

import (
	"context"
	"slices"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"github.com/paidonce/paidonce/handlers/openaifind"
	"github.com/paidonce/paidonce/job"
)

// Schema is the form of an answer. Its zero value is text.
type Schema struct {
	Name string
	Form map[string]any // JSON schema
}

// Respond asks OpenAI for a response in background mode and returns its text; its errors are those of OpenAIText. The
// response has a name as soon as it is begun, and goes on whatever becomes of this process, so a lost answer can be
// asked for.
func Respond(ctx context.Context, client *openai.Client, a *job.Attempt, instructions, input string, s Schema) (string, error) {
	params := responses.ResponseNewParams{Model: a.Model(), Instructions: openai.String(instructions), Background: openai.Bool(true), Store: openai.Bool(true),
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(input)}, Metadata: Metadata(a)}
	if s.Form != nil {
		params.Text.Format.OfJSONSchema = &responses.ResponseFormatTextJSONSchemaConfigParam{Name: s.Name, Strict: openai.Bool(true), Schema: s.Form}
	}
	r, err := client.Responses.New(ctx, params)
	if err != nil {
		return "", err
	}
	return responseText(r)
}

// responseText is OpenAIText of a response.
func responseText(r *responses.Response) (string, error) {
	for _, item := range r.Output {
		for _, c := range item.Content {
			if c.Type == "refusal" {
				return "", job.Failf("PO351 the model refused: %s", c.Refusal)
			}
		}
	}
	if r.Status != responses.ResponseStatusCompleted {
		return "", incomplete(r.ID, "status", string(r.Status))
	}
	return r.OutputText(), nil
}

// StoredText looks for the answer of an attempt that was lost, where OpenAI keeps it: a response by its id on a route in
// background mode, a chat completion by its metadata elsewhere. An error beside Happened is of its text.
func StoredText(ctx context.Context, s Settings, o job.Open) (string, job.Finding, error) {
	if !slices.ContainsFunc(s.Routes, func(r Route) bool { return r.Name == o.Route && r.Provider == OpenAI && r.Background }) {
		c, found, err := Stored(ctx, s, o)
		if err != nil || found != job.Happened {
			return "", found, err
		}
		text, err := OpenAIText(c)
		return text, found, err
	}
	r, found, err := openaifind.Response(ctx, s.OpenAI.openai(job.Unguarded()), o)
	if err != nil || found != job.Happened {
		return "", found, err
	}
	text, err := responseText(r)
	return text, found, err
}
