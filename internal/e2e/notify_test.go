package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/handlers/summarize"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/internal/slackstub"
	"github.com/paidonce/paidonce/internal/smtpsink"
	"github.com/paidonce/paidonce/ledger"
)

// told is a World with a mail server and Slack, and tickets with notify.
type told struct {
	*World
	sink *smtpsink.Sink
	stub *slackstub.Stub
	ids  []string
}

func newTold(t *testing.T, n int, o Options) *told {
	w := &told{World: NewWorld(t, o)}
	var err error
	if w.sink, err = smtpsink.Start(smtpsink.Options{Latency: 100 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if w.stub, err = slackstub.Start(slackstub.Options{Latency: 100 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.sink.Close(); w.stub.Close() })
	w.env = append(w.env, "PAIDONCE_STEPS_EMAIL_SMTP_URL="+w.sink.URL(), "PAIDONCE_STEPS_EMAIL_FROM=support@acme.example",
		"PAIDONCE_STEPS_SLACK_BASE_URL="+w.stub.URL(), "PAIDONCE_STEPS_SLACK_TOKEN="+slackstub.Token)
	var docs []Doc
	for i := range n {
		id := fmt.Sprint(i)
		d := Ticket(id)
		d.Line = strings.TrimSuffix(d.Line, "}") + fmt.Sprintf(`,"notify":{"email":"ticket-%s@acme.example","slack":"#support"}}`, id)
		docs, w.ids = append(docs, d), append(w.ids, id)
	}
	w.Submit(2, docs...)
	return w
}

func ticketKey(id string) string { return Ticket(id).Key }
func emailKey(id string) string  { return "acme:email:" + id + ":v1" }
func slackKey(id string) string  { return "acme:slack:" + id + ":v1" }

// counts are lines on the bill, mails and posts, by ticket.
func (w *told) counts() map[string][3]int {
	n := map[string][3]int{}
	bill := w.Models.BillByKey()
	for _, id := range w.ids {
		c := [3]int{len(bill[ticketKey(id)])}
		for _, m := range w.sink.Mails() {
			if m.To[0] == "ticket-"+id+"@acme.example" {
				c[1]++
			}
		}
		for _, m := range w.stub.Messages() {
			if m.Payload["key"] == slackKey(id) {
				c[2]++
			}
		}
		n[id] = c
	}
	return n
}

// never wants no two of anything.
func (w *told) never() {
	w.t.Helper()
	for id, c := range w.counts() {
		if c[0] > 1 || c[1] > 1 || c[2] > 1 {
			w.t.Errorf("ticket %s: %d lines on the bill, %d mails, %d posts", id, c[0], c[1], c[2])
		}
	}
}

// resolve decides about what is held as its provider's bill and the mail server's log say, at the command line, until
// nothing is.
func (w *told) resolve() (tickets, mails int) {
	w.t.Helper()
	w.Eventually(func() (bool, string) {
		jobs, counts := w.Jobs(), w.counts()
		open := ""
		for _, id := range w.ids {
			switch job, mail, post := jobs[ticketKey(id)].State, jobs[emailKey(id)].State, jobs[slackKey(id)].State; {
			case job == ledger.Unknown:
				tickets++
				w.say(ticketKey(id), counts[id][0] == 1, `{"summary":"By hand."}`)
				open = "ticket " + id
			case mail == ledger.Unknown:
				mails++
				w.say(emailKey(id), counts[id][1] == 1, `{"message_id":"in the log"}`)
				open = "mail " + id
			case job != ledger.Done || mail != ledger.Done || post != ledger.Done:
				open = fmt.Sprintf("ticket %s is %q, its mail %q, its post %q", id, job, mail, post)
			}
		}
		return open == "", open
	})
	return tickets, mails
}

func (w *told) say(key string, there bool, body string) {
	if there {
		w.Must(body, "jobs", "resolve", key, "--reason", "it is there", "--result", "-")
		return
	}
	w.Must("", "jobs", "resolve", key, "--reason", "it is not there", "--absent")
}

// Workers that send mail and post to Slack die at random moments, on real Postgres and RabbitMQ. In the end every ticket has one bill line, one mail,
// one post and one result, and there were never two of anything; what was held says so, with its attempt, until a person decided. Slack is asked
// by the workers themselves.
func TestNotifyKilledAtRandom(t *testing.T) {
	t.Parallel()
	n := max(20, int(4*storm.Seconds()))
	w := newTold(t, n, Options{
		Models:  modelserver.Options{Latency: 100 * time.Millisecond},
		Routes:  map[string]string{summarize.Name: "anthropic 5s"}, // nobody can be asked about it later
		Workers: 4,
	})
	r := rand.New(rand.NewPCG(*seed, *seed))
	procs := []*Proc{w.Start("a0"), w.Start("b0")}
	kills := 0
	for end := time.Now().Add(*storm); time.Now().Before(end); kills++ {
		time.Sleep(100*time.Millisecond + time.Duration(r.Int64N(int64(900*time.Millisecond))))
		i := r.IntN(len(procs))
		procs[i].Kill()
		procs[i] = w.Start(fmt.Sprintf("%c%d", 'a'+i, kills+1))
		w.never()
	}
	tickets, mails := w.resolve()
	t.Logf("seed %d: %d kills; %d of %d calls and %d mails were held", *seed, kills, tickets, n, mails)
	for id, c := range w.counts() {
		if c != [3]int{1, 1, 1} {
			t.Errorf("ticket %s: %d lines on the bill, %d mails, %d posts\n%s%s%s", id, c[0], c[1], c[2], story(w.Job(ticketKey(id))), story(w.Job(emailKey(id))), story(w.Job(slackKey(id))))
		}
	}
	if len(w.sink.Mails()) != n || len(w.stub.Messages()) != n || tickets+mails == 0 {
		t.Errorf("%d mails and %d posts of %d tickets; %d calls and %d mails were held", len(w.sink.Mails()), len(w.stub.Messages()), n, tickets, mails)
	}
	w.UntilQuiet()
	w.Leave(procs...)
	for _, p := range w.procs {
		if log := p.log.String(); strings.Contains(log, slackstub.Token) || strings.Contains(log, "panic") {
			t.Errorf("worker %s logs a secret or a panic", p.name)
		}
	}
}
