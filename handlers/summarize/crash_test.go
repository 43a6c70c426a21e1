package summarize

import (
	"context"
	"testing"
	"time"

	"github.com/paidonce/paidonce/handlers/provider"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/job/jobtest"
	"github.com/paidonce/paidonce/ledger"
)

// counted is a step whose effect is a note to the kit.
func counted[In job.Keyed](name string) job.Step[In, string] {
	return job.Step[In, string]{Name: name, Timeout: time.Minute, Do: func(ctx context.Context, a *job.Attempt, _ In) (string, error) {
		if err := a.Sent(ctx); err != nil {
			return "", err
		}
		jobtest.Did(name)
		return "sent", nil
	}}
}

// Whoever dies, and wherever, there is one call, one summary, one mail and one post. TestDeathAtEveryPoint has real servers for the two.
func TestDeathEverywhere(t *testing.T) {
	email, slack := counted[Email](EmailStep), counted[Post](SlackStep)
	def := New(provider.Settings{OpenAI: provider.Account{APIKey: "k"}}, Tell{Email: email, Slack: slack})
	in := Ticket{Tenant: "acme", Ticket: "48213", Revision: 3, Thread: "It broke.", Notify: Notify{Email: "ann@acme.example", Slack: "#support"}}
	opt := jobtest.Options{Answer: "It broke.", Steps: func(reg *job.Registry) {
		job.RegisterStep(reg, email)
		job.RegisterStep(reg, slack)
	}}
	jobtest.CrashEverywhere(t, def, in, func(t testing.TB, end jobtest.End[Summary]) {
		if end.State != ledger.Done || end.Result.Summary != "It broke." || end.Sends["summarise"] != 1 || end.Did[EmailStep] != 1 || end.Did[SlackStep] != 1 {
			t.Errorf("%s: %s with %+v, sent %v, did %v", end.When, end.State, end.Result, end.Sends, end.Did)
		}
	}, opt)
	jobtest.SevenPaths(t, def, in, opt)
	jobtest.NoCollisions(t, func(tenant, ticket string) job.Key { return Ticket{Tenant: tenant, Ticket: ticket}.JobKey() })
	jobtest.NoCollisions(t, func(tenant, ticket string) job.Key { return Email{Note{Tenant: tenant, Ticket: ticket}, "a"}.JobKey() })
}
