package jobtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/job/jobtest"
	"github.com/paidonce/paidonce/ledger"
)

// Translate is the message of a handler of yours.
type Translate struct{ Tenant, Document, Text string }

// JobKey names the job.
func (m Translate) JobKey() job.Key { return job.K(m.Tenant, "translate", m.Document) }

// Translation is its result.
type Translation struct{ Text string }

// Receipt is the message of a step of yours.
type Receipt struct{ Tenant, Document string }

// JobKey names the step.
func (m Receipt) JobKey() job.Key { return job.K(m.Tenant, "receipt", m.Document) }

// The handler: one paid call, and a mail that follows the result. sendMail is whatever sends your mail.
func newTranslate(sendMail func(ctx context.Context, about string) error) (job.Def[Translate, Translation], job.Step[Receipt, bool]) {
	translate := job.Call[Translate, Translation]{Name: "translate", Routes: []job.Route[Translate, Translation]{{
		Name: "primary", Provider: "openai", Model: "gpt-5-mini", Timeout: 90 * time.Second, Do: askOpenAI}}}
	receipt := job.Step[Receipt, bool]{Name: "receipt", Timeout: time.Minute,
		Do: func(ctx context.Context, a *job.Attempt, m Receipt) (bool, error) {
			if err := a.Sent(ctx); err != nil {
				return false, err
			}
			return true, sendMail(ctx, m.Document)
		}}
	return job.Def[Translate, Translation]{Name: "translate", Uses: job.Uses(translate), Steps: job.Steps(receipt),
		Handle: func(ctx context.Context, j *job.Run, m Translate) (Translation, error) {
			out, err := translate.Run(ctx, j, m)
			if err != nil {
				return out, err
			}
			return out, receipt.After(j, Receipt{m.Tenant, m.Document})
		}}, receipt
}

// askOpenAI would use the vendor's SDK, with a.HTTP() as its HTTP client.
func askOpenAI(ctx context.Context, a *job.Attempt, m Translate) (Translation, error) {
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%q}]}`, a.Model(), m.Text)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://api.openai.com/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return Translation{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := a.HTTP().Do(req)
	if err != nil {
		return Translation{}, err
	}
	defer resp.Body.Close()
	var answer struct {
		Choices []struct{ Message struct{ Content string } }
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return Translation{}, fmt.Errorf("OpenAI says %d %s: %w", resp.StatusCode, text, err)
	}
	if err := json.Unmarshal(text, &answer); err != nil || len(answer.Choices) == 0 {
		return Translation{}, job.Failf("the answer does not read: %w", err)
	}
	return Translation{answer.Choices[0].Message.Content}, nil
}

// Everything there is to write for it. In your package this is TestTranslate.
func TestExample(t *testing.T) {
	translate, receipt := newTranslate(func(_ context.Context, about string) error {
		jobtest.Did("mail about " + about) // instead of mail
		return nil
	})
	in := Translate{Tenant: "acme", Document: "9821", Text: "Bonjour"}
	opt := jobtest.Options{Answer: "Hello", Steps: func(reg *job.Registry) { job.RegisterStep(reg, receipt) }}

	jobtest.CrashEverywhere(t, translate, in, func(t testing.TB, end jobtest.End[Translation]) {
		if end.State != ledger.Done || end.Result.Text != "Hello" || end.Did["mail about 9821"] != 1 || end.Sends["translate"] != 1 {
			t.Errorf("%s: %s with %+v, sent %v, did %v", end.When, end.State, end.Result, end.Sends, end.Did)
		}
	}, opt)
	jobtest.SevenPaths(t, translate, in, opt)
	jobtest.NoCollisions(t, func(tenant, document string) job.Key {
		return Translate{Tenant: tenant, Document: document}.JobKey()
	})
}

// One fault, and what came of it.
func TestExampleLateAnswer(t *testing.T) {
	translate, receipt := newTranslate(func(context.Context, string) error { return nil })
	opt := jobtest.Options{Answer: "Hello", Steps: func(reg *job.Registry) { job.RegisterStep(reg, receipt) }}
	end := jobtest.Run(t, translate, Translate{Tenant: "acme", Document: "9821", Text: "Bonjour"}, opt, jobtest.LateAnswer())
	if !end.Held || end.State != ledger.Done || end.Sends["translate"] != 1 {
		t.Errorf("held %t, %s, sent %v", end.Held, end.State, end.Sends)
	}
}

// Points and faults say in words what they are.
func ExampleCrashAt() {
	fmt.Println(jobtest.CrashAt(jobtest.After(jobtest.Wire).Of("extract")))
	fmt.Println(jobtest.Pause(jobtest.Before(jobtest.Complete)).Resume(10 * time.Second))
	fmt.Println(jobtest.LoseLease(jobtest.After(jobtest.Claim).In("email")))
	// Output:
	// the worker dies after the provider answered call extract, before settle
	// the worker is frozen after the handler of the job returned, before the commit, and wakes as a zombie
	// the worker loses its lease after email is claimed, before its handler runs
}
