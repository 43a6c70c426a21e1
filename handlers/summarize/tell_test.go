package summarize

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/handlers/mail"
	"github.com/paidonce/paidonce/handlers/provider"
	"github.com/paidonce/paidonce/handlers/slack"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/internal/mortal"
	"github.com/paidonce/paidonce/internal/slackstub"
	"github.com/paidonce/paidonce/internal/smtpsink"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

const (
	told      = `{"tenant":"acme","ticket":"48213","revision":3,"thread":"It broke.","notify":{"email":"Ann <ann@acme.example>","slack":"#support"}}`
	ticketKey = "acme:ticket.summary:48213:v3:p7"
	emailKey  = "acme:email:48213:v3"
	slackKey  = "acme:slack:48213:v3"
)

// rig is one ticket with notify, and everybody whom it meets, in a bubble.
type rig struct {
	*mortal.World
	models *modelserver.Server
	sink   *smtpsink.Sink
	stub   *slackstub.Stub
}

func bubble(t *testing.T, f func(*rig)) {
	mortal.Bubble(t, func(w *mortal.World) {
		r := &rig{World: w}
		var err error
		if r.models, err = modelserver.Start(modelserver.Options{Listener: w.Net.Listen("models.test:80"), Generate: func(modelserver.Request) string { return "It broke." }}); err != nil {
			t.Fatal(err)
		}
		if r.sink, err = smtpsink.Start(smtpsink.Options{Listener: w.Net.Listen("127.0.0.1:25")}); err != nil {
			t.Fatal(err)
		}
		if r.stub, err = slackstub.Start(slackstub.Options{Listener: w.Net.Listen("slack.test:80")}); err != nil {
			t.Fatal(err)
		}
		w.Register = func(reg *job.Registry) { job.Register(reg, New(r.settings(), r.tell(reg))) }
		f(r)
		r.models.Close()
		r.sink.Close()
		r.stub.Close()
	})
}

func (r *rig) settings() provider.Settings {
	return provider.Settings{
		Routes:    []provider.Route{{Name: "only", Provider: provider.Anthropic, Model: "claude-haiku-4-5", Timeout: 90 * time.Second}},
		Anthropic: provider.Account{BaseURL: r.models.URL(), APIKey: "k"},
	}
}

// tell registers the steps.
func (r *rig) tell(reg *job.Registry) Tell {
	s, err := mail.NewServer("smtp://127.0.0.1:25", "support@acme.example")
	if err != nil {
		r.Fatal(err)
	}
	s.Dial = r.Net.Dial
	email := mail.Step(EmailStep, s, func(e Email) (mail.Message, error) {
		return mail.Message{To: []string{e.To}, Subject: e.Subject(), Text: e.Text()}, nil
	})
	post := slack.Step(SlackStep, slack.Workspace{BaseURL: r.stub.URL(), Token: slackstub.Token, Client: r.Client()}, func(p Post) (slack.Message, error) {
		return slack.Message{Channel: p.Channel, Text: p.Text()}, nil
	})
	job.RegisterStep(reg, email)
	job.RegisterStep(reg, post)
	return Tell{Email: email, Slack: post}
}

// once wants no two of anything.
func (r *rig) once() {
	r.Helper()
	if b, m, p := len(r.models.Bill()), len(r.sink.Mails()), len(r.stub.Messages()); b > 1 || m > 1 || p > 1 {
		r.Errorf("%d lines on the bill, %d mails, %d posts", b, m, p)
	}
}

// done wants one of everything, and a result.
func (r *rig) done() {
	r.Helper()
	if b, m, p := len(r.models.Bill()), len(r.sink.Mails()), len(r.stub.Messages()); b != 1 || m != 1 || p != 1 {
		r.Errorf("%d lines on the bill, %d mails, %d posts", b, m, p)
	}
	for _, key := range []string{ticketKey, emailKey, slackKey} {
		if j, ok := r.Job("acme", key); !ok || j.State != ledger.Done || j.OpenCalls != 0 || j.Result == nil {
			r.Errorf("%s is %s (%v)", key, j.State, j.Error)
		}
	}
	if j, _ := r.Job("acme", ticketKey); j.Result != nil && string(j.Result.Body) != `{"summary":"It broke."}` {
		r.Errorf("the result is %s", j.Result.Body)
	}
	r.Drained()
}

// The worker dies at every point, from the claim of the job to the end of its steps. There is one bill line, one mail, one post and one
// result in the end; a call or a mail whose outcome is unknown is held, until a person says what the bill or the mail server's log
// says. Slack is asked.
func TestDeathAtEveryPoint(t *testing.T) {
	var points atomic.Int64
	bubble(t, func(r *rig) {
		r.Send(Name, told)
		n := r.Start("a", mortal.Death(-1, false, &points))
		time.Sleep(10 * time.Minute)
		r.End(n)
		r.done()
	})
	if points.Load() < 14 { // claim, send, settle, complete of the job; with a look of each of its two steps
		t.Fatalf("a run asks %d things of the ledger", points.Load())
	}
	held := map[string]int{}
	for at := 1; at <= int(points.Load()); at++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d after %t", at, after), func(t *testing.T) {
				bubble(t, func(r *rig) {
					for _, key := range dieAt(r, at, after) {
						held[key]++
					}
				})
			})
		}
	}
	t.Logf("%d points: held %v", points.Load(), held)
	if held[ticketKey] < 2 || held[emailKey] < 2 || held[slackKey] != 0 {
		t.Errorf("held %v: deaths around the send were not among them, or Slack was not asked", held)
	}
}

// dieAt lets the first of two workers die, and returns what was held.
func dieAt(r *rig, at int, after bool) (held []string) {
	var asked atomic.Int64
	r.Send(Name, told)
	a := r.Start("a", mortal.Death(at, after, &asked))
	time.Sleep(2 * time.Hour)
	if !a.Gone() {
		r.Fatal("the first worker is alive")
	}
	a.Buried()
	b := r.Start("b", nil)
	time.Sleep(3 * time.Hour)
	r.once()
	for _, key := range []string{ticketKey, emailKey, slackKey} {
		if j, ok := r.Job("acme", key); ok && j.State == ledger.Unknown {
			held = append(held, key)
			r.resolve(j, key)
			time.Sleep(time.Hour)
			r.once()
		}
	}
	r.End(b)
	r.done()
	return held
}

// resolve says what the provider's bill and the mail server's log say of an open attempt.
func (r *rig) resolve(j ledger.Job, key string) {
	r.Helper()
	there, body := len(r.models.Bill()) == 1, `{"summary":"It broke."}`
	if key == emailKey {
		there, body = len(r.sink.Mails()) == 1, `{"message_id":"x"}`
	}
	for _, a := range j.Attempts {
		if a.State != ledger.Sent {
			continue
		}
		e := ledger.Evidence{State: ledger.NotSent, By: ledger.ByPerson, Who: "ann", Reason: "nothing there"}
		if there {
			e.State, e.Reason, e.Response = ledger.Received, "it is there", &ledger.Response{Codec: "json", Body: []byte(body)}
		}
		if _, err := r.Ledger.Settle(r.Context(), ledger.AttemptID{Tenant: "acme", Job: j.ID, ID: a.ID}, e); err != nil {
			r.Fatal(err)
		}
	}
}

// ticketP8 is a ticket of a worker with another prompt.
type ticketP8 struct{ Ticket }

func (t ticketP8) JobKey() job.Key {
	return job.K(t.Tenant, Name, t.Ticket.Ticket).Rev(t.Revision).Prompt("p8")
}

// Two jobs of one revision with different prompts are two calls, and one mail and one post: those of whoever was first.
func TestTwoPrompts(t *testing.T) {
	bubble(t, func(r *rig) {
		r.Register = func(reg *job.Registry) {
			tell := r.tell(reg)
			def := New(r.settings(), tell)
			job.Register(reg, def)
			other := job.Call[Ticket, Summary]{Name: "summarise", Config: "p8",
				Routes: provider.Routes(r.settings(), provider.Ways[Ticket, Summary]{OpenAI: viaOpenAI, Anthropic: viaAnthropic})}
			job.Register(reg, job.Def[ticketP8, Summary]{Name: "ticket.summary.p8", Uses: job.Uses(other), Steps: tell.steps(),
				Handle: func(ctx context.Context, j *job.Run, in ticketP8) (Summary, error) {
					out, err := other.Run(ctx, j, in.Ticket)
					if err != nil {
						return out, err
					}
					out.Summary = "By another prompt."
					return out, tell.after(j, in.Ticket, out)
				}})
		}
		r.Send(Name, told)
		r.Idle(10 * time.Minute)
		r.done()
		r.Send("ticket.summary.p8", told)
		r.Idle(time.Hour)
		if b, m, p := len(r.models.Bill()), len(r.sink.Mails()), len(r.stub.Messages()); b != 2 || m != 1 || p != 1 {
			t.Errorf("%d lines on the bill, %d mails, %d posts; want 2, 1, 1", b, m, p)
		}
		j, ok := r.Job("acme", "acme:ticket.summary:48213:v3:p8")
		if !ok || j.State != ledger.Done || string(j.Result.Body) != `{"summary":"By another prompt."}` || len(j.Steps) != 2 {
			t.Errorf("the second job is %s (%v) with %d steps", j.State, j.Error, len(j.Steps))
		}
		if text := r.sink.Mails()[0].Text; !strings.Contains(text, "It broke.") {
			t.Errorf("the mail is\n%s", text)
		}
	})
}

// Whom nobody can tell is not told after the money is spent, but refused before.
func TestNotToldNotPaid(t *testing.T) {
	bubble(t, func(r *rig) {
		r.Register = func(reg *job.Registry) { job.Register(reg, New(r.settings(), Tell{})) }
		r.Send(Name, told)
		r.Idle(time.Hour)
		if j, _ := r.Job("acme", ticketKey); j.State != ledger.Failed || !strings.Contains(j.Error.Text, "PO616") || len(j.Attempts) != 0 || len(r.models.Bill()) != 0 {
			t.Errorf("the job is %s (%v) with %d attempts; %d lines on the bill", j.State, j.Error, len(j.Attempts), len(r.models.Bill()))
		}
		r.Drained()
	})
}
