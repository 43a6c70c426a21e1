package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/handlers/mail"
	"github.com/paidonce/paidonce/handlers/provider"
	"github.com/paidonce/paidonce/handlers/slack"
	"github.com/paidonce/paidonce/handlers/summarize"
	"github.com/paidonce/paidonce/internal/slackstub"
	"github.com/paidonce/paidonce/internal/smtpsink"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// pointTimeout is that of a route or a step, and the settle window.
const pointTimeout = 5 * time.Second

const (
	modelsVariable = "PAIDONCE_PROVIDERS_ANTHROPIC_BASE_URL"
	smtpVariable   = "PAIDONCE_STEPS_EMAIL_SMTP_URL"
	slackVariable  = "PAIDONCE_STEPS_SLACK_BASE_URL"
)

var scenarios = map[string]scenario{
	summarize.Name: {name: summarize.Name, register: registerTicket, keys: func(id string) []string { return []string{ticketKey(id), emailKey(id), slackKey(id)} },
		hosts: map[string]string{modelsVariable: "the model", smtpVariable: "the mail server", slackVariable: "Slack"}},
	orderName: {name: orderName, register: registerOrder, keys: func(id string) []string { return []string{orderKey(id)} },
		hosts: map[string]string{modelsVariable: "the model"}},
}

// registerTicket registers ticket.summary with its steps, as the program does.
func registerTicket(reg *job.Registry, d *deadly) error {
	s, err := mail.NewServer(os.Getenv(smtpVariable), "support@acme.example")
	if err != nil {
		return err
	}
	s.Dial = d.dial
	email := mail.Step(summarize.EmailStep, s, func(e summarize.Email) (mail.Message, error) {
		return mail.Message{To: []string{e.To}, Subject: e.Subject(), Text: e.Text()}, nil
	})
	post := slack.Step(summarize.SlackStep, slack.Workspace{BaseURL: os.Getenv(slackVariable), Token: slackstub.Token}, func(p summarize.Post) (slack.Message, error) {
		return slack.Message{Channel: p.Channel, Text: p.Text()}, nil
	})
	email.Timeout, post.Timeout = pointTimeout, pointTimeout
	job.RegisterStep(reg, email)
	job.RegisterStep(reg, post)
	job.Register(reg, summarize.New(provider.Settings{
		Routes:    []provider.Route{{Name: "only", Provider: provider.Anthropic, Model: "claude-haiku-4-5", Timeout: pointTimeout}},
		Anthropic: provider.Account{BaseURL: os.Getenv(modelsVariable), APIKey: "sk-ant-planted-in-tests"},
	}, summarize.Tell{Email: email, Slack: post}))
	return nil
}

// TestNotifyKilledAtEveryPoint kills workers (SIGKILL) between every two durable points of ticket.summary with notify, on real Postgres and
// RabbitMQ, each with a ticket of its own. Whoever comes after them finds one bill line, one mail, one post and one result of each ticket, or
// a call or a mail that is held with its attempt as evidence, which a person decides; and never two of anything.
func TestNotifyKilledAtEveryPoint(t *testing.T) {
	w := &told{World: NewWorld(t, Options{Routes: map[string]string{summarize.Name: "anthropic 5s"}})}
	var err error
	if w.sink, err = smtpsink.Start(smtpsink.Options{}); err != nil {
		t.Fatal(err)
	}
	if w.stub, err = slackstub.Start(slackstub.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.sink.Close(); w.stub.Close() })
	w.env = append(w.env, smtpVariable+"="+w.sink.URL(), "PAIDONCE_STEPS_EMAIL_FROM=support@acme.example",
		slackVariable+"="+w.stub.URL(), "PAIDONCE_STEPS_SLACK_TOKEN="+slackstub.Token)
	g := &graveyard{World: w.World, sc: scenarios[summarize.Name], body: func(id string) string {
		return strings.TrimSuffix(Ticket(id).Line, "}") + fmt.Sprintf(`,"notify":{"email":"ticket-%s@acme.example","slack":"#support"}}`, id)
	}}
	g.bury()
	w.ids = g.ids
	g.died("receive", "ticket.summary claim, before", "ticket.summary claim, after", "ticket.summary send, before", "ticket.summary send, after",
		"the model is told, after", "the model answers", "ticket.summary complete, before", "ticket.summary complete, after", "ack, before", "ack, after",
		"email claim, after", "email send, after", "the mail server is told the mail's end, before", "the mail server is told the mail's end, after",
		"the mail server answers", "email complete, after", "slack claim, after", "slack send, after", "Slack is told, after", "Slack answers",
		"settle, before", "settle, after", "slack complete, before")
	w.never()
	g.heirs()
	held := g.held()
	tickets, mails := w.resolve()
	t.Logf("%d workers; held %v; %d tickets and %d mails were decided by hand", len(g.ids), held, tickets, mails)
	for _, id := range g.ids {
		if c := w.counts()[id]; c != [3]int{1, 1, 1} {
			t.Errorf("ticket %s, whose worker died at %q: %d lines on the bill, %d mails, %d posts\n%s%s%s", id, g.points[id], c[0], c[1], c[2],
				story(w.Job(ticketKey(id))), story(w.Job(emailKey(id))), story(w.Job(slackKey(id))))
		}
	}
	if len(w.sink.Mails()) != len(g.ids) || len(w.stub.Messages()) != len(g.ids) || tickets == 0 || mails == 0 || tickets+mails < len(held) {
		t.Errorf("%d mails and %d posts of %d tickets; %d calls and %d mails were held", len(w.sink.Mails()), len(w.stub.Messages()), len(g.ids), tickets, mails)
	}
	g.drained()
}

// held waits until every job is done or held, and wants the evidence of those: one open attempt, and the point at which it can have been sent.
func (g *graveyard) held() (keys []string) {
	g.t.Helper()
	g.Eventually(func() (bool, string) {
		keys = keys[:0]
		jobs := g.Jobs()
		for _, id := range g.ids {
			ks := g.sc.keys(id)
			for _, k := range ks {
				switch s := jobs[k].State; {
				case s == ledger.Unknown && !strings.Contains(k, ":slack:"):
					keys = append(keys, k)
					if k == ks[0] { // what follows it has to wait
						goto next
					}
				case s != ledger.Done:
					return false, fmt.Sprintf("%s is %q", k, s)
				}
			}
		next:
		}
		return true, ""
	})
	for _, k := range keys {
		j := g.Job(k)
		open := slices.DeleteFunc(slices.Clone(j.Attempts), func(a ledger.AttemptRow) bool { return a.State != ledger.Sent })
		if j.OpenCalls != 1 || len(open) != 1 || open[0].SentAt.IsZero() || len(j.History) < 3 {
			g.t.Errorf("%s is held without its evidence:\n%s", k, story(j))
		}
	}
	return keys
}

const orderName = "order"

// order is the message of a job of the test's own, with rows of its own.
type order struct{ Tenant, ID string }

func (o order) JobKey() job.Key { return job.K(o.Tenant, orderName, o.ID) }

func orderKey(id string) string { return order{"acme", id}.JobKey().String() }

// registerOrder registers a job of two paid calls: the first one's answer gets a row by RunTx, and the result another one by OnCommit.
func registerOrder(reg *job.Registry, d *deadly) error {
	call := func(name string) job.Call[order, string] {
		return job.Call[order, string]{Name: name, Routes: []job.Route[order, string]{{Name: "only", Provider: "anthropic", Model: "claude-haiku-4-5", Timeout: pointTimeout,
			Do: func(ctx context.Context, a *job.Attempt, in order) (string, error) {
				c := anthropic.NewClient(option.WithBaseURL(os.Getenv(modelsVariable)), option.WithAPIKey("sk-ant-planted-in-tests"), option.WithHTTPClient(a.HTTP()))
				m, err := c.Messages.New(ctx, anthropic.MessageNewParams{Model: "claude-haiku-4-5", MaxTokens: 500,
					Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("[key:" + billed(in.ID, name) + "] Is it there?"))}})
				if err != nil {
					return "", err
				}
				return m.Content[0].Text, nil
			}}}}
	}
	first, second := call("first"), call("second")
	row := func(ctx context.Context, tx pgx.Tx, id, what string) error {
		return d.around("a row of the "+what, func() error {
			_, err := tx.Exec(ctx, "insert into order_row values ($1, $2)", id, what)
			return err
		})
	}
	job.Register(reg, job.Def[order, string]{Name: orderName, Uses: job.Uses(first, second), Handle: func(ctx context.Context, j *job.Run, in order) (string, error) {
		_, err := postgres.RunTx(ctx, j, first, in, func(ctx context.Context, tx pgx.Tx, answer string) error {
			if answer == "" {
				return errors.New("the answer is empty")
			}
			return row(ctx, tx, in.ID, "answer")
		})
		if err != nil {
			return "", err
		}
		postgres.OnCommit(j, func(ctx context.Context, tx pgx.Tx) error { return row(ctx, tx, in.ID, "result") })
		return second.Run(ctx, j, in)
	}})
	return nil
}

// billed is the name of a call of an order on the bill.
func billed(id, call string) string { return orderKey(id) + "/" + call }

// TestRowsKilledAtEveryPoint kills workers between every two durable points of a job whose rows are committed with an answer (RunTx) and with
// its result (OnCommit): they are there together with it or not at all, and in the end once.
func TestRowsKilledAtEveryPoint(t *testing.T) {
	w := NewWorld(t, Options{})
	g := &graveyard{World: w, sc: scenarios[orderName], body: func(id string) string { return fmt.Sprintf(`{"Tenant":"acme","ID":%q}`, id) }}
	g.sql("create table order_row (id text, what text)")
	g.bury()
	g.died("order claim, after", "order send, after", "the model answers", "settle, after", "order apply, before", "a row of the answer, before", "a row of the answer, after",
		"order apply, after", "order complete, before", "a row of the result, before", "a row of the result, after", "order complete, after", "ack, before")
	g.together()
	g.heirs()
	byHand := 0
	g.Eventually(func() (bool, string) {
		jobs := g.Jobs()
		for _, id := range g.ids {
			switch s := jobs[orderKey(id)].State; s {
			case ledger.Done:
			case ledger.Unknown:
				byHand++
				g.decide(g.Job(orderKey(id)), id)
				return false, "order " + id + " is held"
			default:
				return false, fmt.Sprintf("order %s is %q", id, s)
			}
		}
		return true, ""
	})
	t.Logf("%d workers; %d calls were held", len(g.ids), byHand)
	if byHand < 4 {
		t.Errorf("%d calls were held: deaths around two sends were not among them", byHand)
	}
	g.together()
	bill := w.Models.BillByKey()
	for _, id := range g.ids {
		if n, m := len(bill[billed(id, "first")]), len(bill[billed(id, "second")]); n != 1 || m != 1 {
			t.Errorf("order %s, whose worker died at %q: %d and %d lines on the bill\n%s", id, g.points[id], n, m, story(g.Job(orderKey(id))))
		}
	}
	g.sql(fmt.Sprintf("do $$ begin assert (select count(*) = 2 * %d and count(distinct (id, what)) = count(*) from order_row); end $$", len(g.ids)))
	g.drained()
}

// together wants the rows of answers and results exactly where these are on record.
func (g *graveyard) together() {
	g.t.Helper()
	g.sql(`do $$ begin
		assert (select count(*) = count(distinct (id, what)) from order_row), 'a row is there twice';
		assert not exists (select id from order_row where what = 'answer' except
			select split_part(j.key, ':', 3) from paidonce.job j join paidonce.attempt a on a.tenant = j.tenant and a.job = j.id where a.applied_at is not null), 'rows of answers without their mark';
		assert not exists (select split_part(j.key, ':', 3) from paidonce.job j join paidonce.attempt a on a.tenant = j.tenant and a.job = j.id where a.applied_at is not null except
			select id from order_row where what = 'answer'), 'marked answers without their rows';
		assert not exists (select id from order_row where what = 'result' except select split_part(key, ':', 3) from paidonce.job where state = 'done'), 'rows without their result';
		assert not exists (select split_part(key, ':', 3) from paidonce.job where state = 'done' except select id from order_row where what = 'result'), 'results without their rows';
	end $$`)
}

// decide says of the open call what the bill says.
func (g *graveyard) decide(j ledger.Job, id string) {
	g.t.Helper()
	bill := g.Models.BillByKey()
	for _, a := range j.Attempts {
		if a.State != ledger.Sent {
			continue
		}
		e := ledger.Evidence{State: ledger.NotSent, By: ledger.ByPerson, Who: "ann", Reason: "it is not on the bill"}
		if len(bill[billed(id, a.Call.Name)]) == 1 {
			e.State, e.Reason, e.Response = ledger.Received, "it is on the bill", &ledger.Response{Codec: "json", Body: []byte(`"By hand."`)}
		}
		if _, err := g.Ledger.Settle(g.t.Context(), ledger.AttemptID{Tenant: "acme", Job: j.ID, ID: a.ID}, e); err != nil {
			g.t.Fatal(err)
		}
	}
}
