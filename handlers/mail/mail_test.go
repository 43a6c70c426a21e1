package mail_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/handlers/mail"
	"github.com/paidonce/paidonce/internal/mortal"
	"github.com/paidonce/paidonce/internal/smtpsink"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// note is the message of a step.
type note struct {
	Tenant, ID, To, Subject string
}

func (n note) JobKey() job.Key { return job.K(n.Tenant, "email", n.ID).Rev(3) }

const (
	noteBody = `{"Tenant":"acme","ID":"48213","To":"Ann <ann@acme.example>","Subject":"Ticket 48213"}`
	noteKey  = "acme:email:48213:v3"
)

func write(n note) (mail.Message, error) {
	return mail.Message{To: []string{n.To}, Subject: n.Subject, Text: "The customer wants\n.\na refund."}, nil
}

// server is the sink's, as a step knows it.
func server(t *testing.T, w *mortal.World, url string) *mail.Server {
	t.Helper()
	s, err := mail.NewServer(url, "Support <support@acme.example>")
	if err != nil {
		t.Fatal(err)
	}
	if w != nil {
		s.Dial = w.Net.Dial
	}
	return s
}

// rig is one mail and a mail server, in a bubble.
type rig struct {
	*mortal.World
	sink *smtpsink.Sink
}

func bubble(t *testing.T, f func(*rig)) {
	mortal.Bubble(t, func(w *mortal.World) {
		sink, err := smtpsink.Start(smtpsink.Options{Listener: w.Net.Listen("127.0.0.1:25")})
		if err != nil {
			t.Fatal(err)
		}
		w.Register = func(reg *job.Registry) {
			job.RegisterStep(reg, mail.Step("email", server(t, w, "smtp://127.0.0.1:25"), write))
		}
		f(&rig{w, sink})
		if err := sink.Close(); err != nil {
			t.Errorf("closing the sink: %v", err)
		}
	})
}

// end is a whole end state.
type end struct {
	state    ledger.State
	attempts map[string]int // how many in which state and of which class
	mails    int
	runs     int
	err      string // in the job's error
}

func (r *rig) want(want end) ledger.Job {
	r.Helper()
	j, ok := r.Job("acme", noteKey)
	if !ok {
		r.Fatalf("there is no step %s", noteKey)
	}
	got := end{state: j.State, attempts: map[string]int{}, mails: len(r.sink.Mails()), runs: j.Runs}
	for _, a := range j.Attempts {
		got.attempts[string(a.State)+" "+a.Evidence.Class]++
		if a.Evidence.ObjectID == "" && a.Evidence.Class != "" {
			r.Errorf("an attempt in state %s names no mail", a.State)
		}
	}
	if got.state != want.state || !maps.Equal(got.attempts, want.attempts) || got.mails != want.mails || got.runs != want.runs {
		r.Errorf("the end is %+v (%v)\nwant %+v", got, j.Error, want)
	}
	if (want.err == "") != (j.Error == nil) || j.Error != nil && !strings.Contains(j.Error.Text, want.err) {
		r.Errorf("the step's error is %+v, want one with %q", j.Error, want.err)
	}
	r.Drained()
	return j
}

// What a server can do, and what the step comes to.
func TestOutcome(t *testing.T) {
	none, received := map[string]int{}, map[string]int{"received done": 1}
	for _, c := range []struct {
		name   string
		script []smtpsink.Kind
		want   end
	}{
		{"accepted", nil, end{ledger.Done, received, 1, 1, ""}},
		{"no reply to the dot", []smtpsink.Kind{smtpsink.Drop}, end{ledger.Unknown, map[string]int{"sent unsure": 1}, 1, 0, "PO605"}},
		{"silence after the dot", []smtpsink.Kind{smtpsink.Hang}, end{ledger.Unknown, map[string]int{"sent unsure": 1}, 1, 0, "PO605"}},
		{"a reply that says nothing", []smtpsink.Kind{smtpsink.Odd}, end{ledger.Unknown, map[string]int{"sent unsure": 1}, 1, 0, "PO605"}},
		{"refused for now", []smtpsink.Kind{smtpsink.Data4}, end{ledger.Done, map[string]int{"rejected refused": 1, "received done": 1}, 1, 2, ""}},
		{"refused for good", []smtpsink.Kind{smtpsink.Data5}, end{ledger.Failed, map[string]int{"failed failed": 1}, 0, 1, "PO603 mail server 127.0.0.1:25 refused: 554"}},
		{"recipient refused for now", []smtpsink.Kind{smtpsink.Rcpt4, smtpsink.Rcpt4}, end{ledger.Done, received, 1, 3, ""}},
		{"recipient refused for good", []smtpsink.Kind{smtpsink.Rcpt5}, end{ledger.Failed, none, 0, 1, "recipient ann@acme.example: 550"}},
		{"sender refused", []smtpsink.Kind{smtpsink.Sender5}, end{ledger.Failed, none, 0, 1, "sender support@acme.example: 550"}},
		{"turned away", []smtpsink.Kind{smtpsink.Hello4, smtpsink.Hello4}, end{ledger.Done, received, 1, 2, ""}},
		{"cut before its end", []smtpsink.Kind{smtpsink.CutDATA}, end{ledger.Done, received, 1, 2, ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.sink.Script(c.script...)
				r.Send("email", noteBody)
				r.Idle(6 * time.Hour)
				r.want(c.want)
			})
		})
	}
}

// A mail as it arrives: who, whom, its name by the step's key, and the text as it was, lines with a dot included.
func TestMail(t *testing.T) {
	bubble(t, func(r *rig) {
		r.Send("email", noteBody)
		r.Idle(time.Minute)
		j := r.want(end{ledger.Done, map[string]int{"received done": 1}, 1, 1, ""})
		id := server(t, nil, "smtp://127.0.0.1").MessageID(ledger.Key{Tenant: "acme", Text: noteKey})
		if want := fmt.Sprintf(`{"message_id":%q,"reply":"2.0.0 OK: queued"}`, id); string(j.Result.Body) != want {
			t.Errorf("the result is %s, want %s", j.Result.Body, want)
		}
		if a := j.Attempts[0]; a.Evidence.ObjectID != id || a.Evidence.Cost == nil || *a.Evidence.Cost != 0 || a.Provider != "smtp" {
			t.Errorf("the attempt is on record as %+v", a)
		}
		m := r.sink.Mails()[0]
		head, body, _ := strings.Cut(m.Text, "\r\n\r\n")
		if m.From != "support@acme.example" || len(m.To) != 1 || m.To[0] != "ann@acme.example" || body != "The customer wants\r\n.\r\na refund.\r\n" {
			t.Errorf("the mail is from %q to %q:\n%q", m.From, m.To, body)
		}
		for _, h := range []string{"Message-ID: <" + id + ">", "From: \"Support\" <support@acme.example>", "To: \"Ann\" <ann@acme.example>", "Subject: Ticket 48213", "Date: "} {
			if !strings.Contains(head+"\r\n", h) {
				t.Errorf("there is no %q in\n%s", h, head)
			}
		}
	})
}

// Nobody listens: the step is tried for half a day, and nothing is on record as sent.
func TestNoServer(t *testing.T) {
	bubble(t, func(r *rig) {
		r.Net.Listen("127.0.0.1:25").Close()
		r.Send("email", noteBody)
		r.Idle(8 * time.Hour)
		if j, _ := r.Job("acme", noteKey); j.State != ledger.Ready {
			t.Errorf("after 8 h the step is %s (%v)", j.State, j.Error)
		}
		r.Idle(24 * time.Hour)
		r.want(end{ledger.Failed, map[string]int{}, 0, mail.MaxRuns, "PO604 nothing was sent by mail server 127.0.0.1:25"})
	})
}

// A gate that says no comes when the whole mail but its last dot is out: the connection ends without it.
func TestGateRefuses(t *testing.T) {
	bubble(t, func(r *rig) {
		r.Send("email", noteBody)
		n := r.Start("a", func(_ *mortal.Node, verb string) bool {
			if verb == "send" {
				_, err := r.Ledger.Resolve(r.Context(), ledger.Resolution{Key: ledger.Key{Tenant: "acme", Text: noteKey}, Action: ledger.Cancel, By: ledger.ByPerson, Who: "ann", Reason: "not to be sent"})
				if err != nil {
					t.Error(err)
				}
			}
			return false
		})
		time.Sleep(time.Hour)
		r.End(n)
		r.want(end{ledger.Cancelled, map[string]int{}, 0, 1, "PO315"})
		if r.sink.Cut() != 1 {
			t.Errorf("%d mails broke off, want 1", r.sink.Cut())
		}
	})
}

// The worker dies at every point: before or after each thing that it asks of the ledger. There is one mail in the end, or the
// step is held, with what to look for on record wherever the worker lived long enough to say it; never two mails.
func TestDeathAtEveryPoint(t *testing.T) {
	var points atomic.Int64
	bubble(t, func(r *rig) {
		r.Send("email", noteBody)
		n := r.Start("a", mortal.Death(-1, false, &points))
		time.Sleep(time.Minute)
		r.End(n)
	})
	if points.Load() < 4 {
		t.Fatalf("a run asks %d things of the ledger", points.Load())
	}
	held, cut := 0, 0
	for at := 1; at <= int(points.Load()); at++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d after %t", at, after), func(t *testing.T) {
				bubble(t, func(r *rig) {
					if dieAt(r, at, after) {
						held++
					}
					cut += r.sink.Cut()
				})
			})
		}
	}
	t.Logf("%d points: %d steps were held, %d mails broke off", points.Load(), held, cut)
	if held < 2 || cut < 2 {
		t.Errorf("%d steps were held and %d mails broke off: deaths around the dot were not among them", held, cut)
	}
}

func dieAt(r *rig, at int, after bool) (held bool) {
	var asked atomic.Int64
	r.Send("email", noteBody)
	a := r.Start("a", mortal.Death(at, after, &asked))
	time.Sleep(2 * time.Hour)
	if !a.Gone() {
		r.Fatal("the first worker is alive")
	}
	a.Buried()
	b := r.Start("b", nil)
	time.Sleep(3 * time.Hour)
	j, _ := r.Job("acme", noteKey)
	mails := len(r.sink.Mails())
	if held = j.State == ledger.Unknown; held {
		if mails > 1 || j.OpenCalls != 1 {
			r.Errorf("the step is held with %d open calls, and there are %d mails", j.OpenCalls, mails)
		}
		resolve(r, j, mails == 1)
		time.Sleep(time.Hour)
	}
	r.End(b)
	if j, _ = r.Job("acme", noteKey); j.State != ledger.Done || len(r.sink.Mails()) != 1 {
		r.Errorf("the step is %s (%v), and there are %d mails", j.State, j.Error, len(r.sink.Mails()))
	}
	r.Drained()
	return held
}

// resolve says what the server's log says of the open attempt.
func resolve(r *rig, j ledger.Job, there bool) {
	r.Helper()
	for _, a := range j.Attempts {
		if a.State != ledger.Sent {
			continue
		}
		e := ledger.Evidence{State: ledger.NotSent, By: ledger.ByPerson, Who: "ann", Reason: "not in the server's log"}
		if there {
			e.State, e.Reason, e.Response = ledger.Received, "in the server's log", &ledger.Response{Codec: "json", Body: []byte(`{"message_id":"x"}`)}
		}
		if _, err := r.Ledger.Settle(r.Context(), ledger.AttemptID{Tenant: "acme", Job: j.ID, ID: a.ID}, e); err != nil {
			r.Fatal(err)
		}
	}
}

// What could end a header's line, or is no mail at all, is refused before anybody is connected to.
func TestHostile(t *testing.T) {
	for name, c := range map[string]struct {
		m    mail.Message
		want string
	}{
		"subject":          {mail.Message{To: []string{"ann@acme.example"}, Subject: "Hello\r\nBcc: eve@evil.example"}, "subject"},
		"subject, CR":      {mail.Message{To: []string{"ann@acme.example"}, Subject: "Hello\rBcc: eve@evil.example"}, "subject"},
		"address":          {mail.Message{To: []string{"ann@acme.example\r\nBcc: eve@evil.example"}}, "line ends"},
		"second address":   {mail.Message{To: []string{"ann@acme.example", "bob@acme.example\nX: y"}}, "line ends"},
		"name, encoded":    {mail.Message{To: []string{"=?utf-8?q?Ann=0D=0ABcc=3A_eve?= <ann@acme.example>"}}, "hides"},
		"quoted local":     {mail.Message{To: []string{"\"ann\r\n bob\"@acme.example"}}, "line ends"},
		"parameters":       {mail.Message{To: []string{"<ann@acme.example> NOTIFY=NEVER"}}, "no address"},
		"several in one":   {mail.Message{To: []string{"ann@acme.example, eve@evil.example"}}, "no address"},
		"nobody":           {mail.Message{Subject: "Hello"}, "no recipient"},
		"empty":            {mail.Message{To: []string{""}}, "no address"},
		"zero byte":        {mail.Message{To: []string{"ann@acme.example"}, Subject: "a\x00b"}, "subject"},
		"local part, bare": {mail.Message{To: []string{"ann"}}, "no address"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.Register = func(reg *job.Registry) {
					job.RegisterStep(reg, mail.Step("email", server(t, r.World, "smtp://127.0.0.1:25"), func(note) (mail.Message, error) { return c.m, nil }))
				}
				r.Send("email", noteBody)
				r.Idle(time.Hour)
				j := r.want(end{ledger.Failed, map[string]int{}, 0, 1, "PO602"})
				if j.Error == nil || !strings.Contains(j.Error.Text, c.want) || r.sink.Conns() != 0 {
					t.Errorf("error %v after %d connections, want one with %q", j.Error, r.sink.Conns(), c.want)
				}
			})
		})
	}
}

// An error of the function that writes the mail has the class that handlers' errors have.
func TestWriteFails(t *testing.T) {
	bubble(t, func(r *rig) {
		tries := 0
		r.Register = func(reg *job.Registry) {
			job.RegisterStep(reg, mail.Step("email", server(t, r.World, "smtp://127.0.0.1:25"), func(n note) (mail.Message, error) {
				if tries++; tries < 3 {
					return mail.Message{}, errors.New("the template is locked")
				}
				return write(n)
			}))
		}
		r.Send("email", noteBody)
		r.Idle(time.Hour)
		r.want(end{ledger.Done, map[string]int{"received done": 1}, 1, 3, ""})
	})
}
