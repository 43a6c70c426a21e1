package app

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/internal/slackstub"
	"github.com/paidonce/paidonce/internal/smtpsink"
)

const (
	toldTicket = `{"tenant":"acme","ticket":"48213","revision":3,"thread":"[key:acme:told] It broke.","notify":{"email":"Ann <ann@acme.example>","slack":"default"}}`
	toldKey    = "acme:ticket.summary:48213:v3:p7"
	slackKey   = "acme:slack:48213:v3"
)

// told starts a mail server and Slack, and configures the world's workers for them.
func (w *world) told() (*smtpsink.Sink, *slackstub.Stub) {
	w.t.Helper()
	sink, err := smtpsink.Start(smtpsink.Options{User: "worker", Password: "pw-planted"})
	if err != nil {
		w.t.Fatal(err)
	}
	stub, err := slackstub.Start(slackstub.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { sink.Close(); stub.Close() })
	w.env = append(w.env, "PAIDONCE_STEPS_EMAIL_SMTP_URL=smtp://worker:pw-planted@"+sink.Addr(), "PAIDONCE_STEPS_EMAIL_FROM=Support <support@acme.example>",
		"PAIDONCE_STEPS_SLACK_BASE_URL="+stub.URL(), "PAIDONCE_STEPS_SLACK_TOKEN="+slackstub.Token, "PAIDONCE_STEPS_SLACK_CHANNEL=#support")
	return sink, stub
}

// A ticket with notify: one bill line, one mail, one post, and the steps under the job. A reply that Slack loses is looked up.
func TestNotify(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	ms := w.models(modelserver.Options{Generate: func(modelserver.Request) string { return "The invoice was charged twice." }})
	sink, stub := w.told()
	r := w.start()
	w.must(toldTicket+"\n"+toldTicket, "submit", "--job", "ticket.summary")
	w.until(mailKey, "done")
	w.until(slackKey, "done")
	r.stop()
	mails, posts := sink.Mails(), stub.Messages()
	if len(mails) != 1 || len(posts) != 1 || len(ms.Bill()) != 1 || w.state(toldKey) != "done" {
		t.Fatalf("%d mails, %d posts, %d lines on the bill; the job is %s", len(mails), len(posts), len(ms.Bill()), w.state(toldKey))
	}
	if m := mails[0]; m.To[0] != "ann@acme.example" || !strings.Contains(m.Text, "The invoice was charged twice.") || !strings.Contains(m.Text, "Subject: Ticket 48213, revision 3: summary") {
		t.Errorf("the mail is %+v", m)
	}
	if p := posts[0]; p.Channel != slackstub.Channels["support"] || !strings.Contains(p.Text, "The invoice was charged twice.") || p.Payload["key"] != slackKey {
		t.Errorf("the post is %+v", p)
	}
	var doc struct {
		Steps []struct {
			Key, State string
			Remote     string `json:"remote_id"`
		}
		Cost string `json:"cost_usd"`
	}
	if err := json.Unmarshal([]byte(w.must("", "jobs", "show", toldKey, "--json")), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Steps) != 2 || doc.Steps[0].Key != mailKey || doc.Steps[0].State != "done" || !strings.HasPrefix(doc.Steps[0].Remote, "paidonce.") ||
		doc.Steps[1].Key != slackKey || doc.Steps[1].Remote != posts[0].Channel+"/"+posts[0].TS {
		t.Errorf("the steps are shown as %+v", doc.Steps)
	}
}

// A mail that may have been sent holds the step and not the job; a person who looked it up ends it.
func TestHeldMail(t *testing.T) {
	w := newWorld(t)
	w.models(modelserver.Options{})
	sink, _ := w.told()
	sink.Script(smtpsink.Drop)
	r := w.start()
	w.must(strings.Replace(toldTicket, `,"slack":"default"`, "", 1), "submit", "--job", "ticket.summary")
	w.until(mailKey, "unknown")
	if s := w.state(toldKey); s != "done" {
		t.Errorf("the job is %s", s)
	}
	out := w.must("", "jobs", "show", mailKey, "--json")
	id := sink.Mails()[0].Text
	_, id, _ = strings.Cut(id, "Message-ID: <")
	id, _, _ = strings.Cut(id, ">")
	if !strings.Contains(out, `"object_id": "`+id+`"`) && !strings.Contains(out, `"object_id":"`+id+`"`) {
		t.Errorf("the held step does not show the Message-ID %s:\n%s", id, out)
	}
	w.file("receipt.json", `{"message_id":"`+id+`"}`)
	w.must("", "jobs", "resolve", mailKey, "--result", "receipt.json", "--reason", "it is in Ann's mailbox")
	w.until(mailKey, "done")
	r.stop()
	if len(sink.Mails()) != 1 {
		t.Errorf("%d mails", len(sink.Mails()))
	}
}

// A ticket that asks for what is not configured fails before anything is paid, and runs once it is configured.
func TestNotConfigured(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	ms := w.models(modelserver.Options{})
	r := w.start()
	w.must(toldTicket, "submit", "--job", "ticket.summary")
	w.until(toldKey, "failed")
	r.stop()
	if out := w.must("", "jobs", "show", toldKey); !strings.Contains(out, "PO616") || len(ms.Bill()) != 0 {
		t.Errorf("%d lines on the bill of a job that shows\n%s", len(ms.Bill()), out)
	}
	sink, stub := w.told()
	w.must("", "jobs", "retry", toldKey, "--reason", "steps are configured")
	r = w.start()
	w.until(mailKey, "done")
	w.until(slackKey, "done")
	r.stop()
	if len(ms.Bill()) != 1 || len(sink.Mails()) != 1 || len(stub.Messages()) != 1 {
		t.Errorf("%d lines on the bill, %d mails, %d posts", len(ms.Bill()), len(sink.Mails()), len(stub.Messages()))
	}
}

// doctor reaches whom steps go to, sends them nothing, and shows no secret.
func TestDoctorReachesSteps(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	w.models(modelserver.Options{})
	out := w.do("", "doctor").stdout
	if !strings.Contains(out, "none is configured") || strings.Contains(out, "PO615") {
		t.Errorf("without steps:\n%s", out)
	}
	sink, stub := w.told()
	out = w.do("", "doctor").stdout
	if strings.Contains(out, "PO615") || !strings.Contains(out, "mail by "+sink.Addr()+", Slack at "+stub.URL()) || len(sink.Mails())+stub.Posts() != 0 || sink.Conns() != 1 {
		t.Errorf("with steps (%d connections):\n%s", sink.Conns(), out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	w.env = append(w.env, "PAIDONCE_STEPS_EMAIL_SMTP_URL=smtp://worker:pw-planted@"+l.Addr().String(), "PAIDONCE_STEPS_SLACK_TOKEN=xoxb-planted")
	o := w.do("", "doctor")
	if strings.Count(o.stdout, "error PO615 steps: ") != 2 || !strings.Contains(o.stdout, "refused") || !strings.Contains(o.stdout, "invalid_auth") || o.code != exitFindings {
		t.Errorf("exit %d:\n%s", o.code, o.stdout)
	}
	if strings.Contains(o.stdout+o.stderr, "planted") {
		t.Errorf("doctor shows a secret:\n%s%s", o.stdout, o.stderr)
	}
}
