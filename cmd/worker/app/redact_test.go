package app

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

const customer = "someone@corp.example"

// TestRedact: what ticket.summary hides is in nothing that people see of a job, a dead letter or the log, and
// stays in the ledger.
func TestRedact(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	w.models(modelserver.Options{Generate: func(modelserver.Request) string { return "Write to\n" + customer + "." }})
	w.setAside(w.queue, letter("1", "x"), "PO406 as "+customer+" said")
	bad := letter("2", "x")
	bad.Body = []byte(customer)
	w.setAside(w.queue, bad, "delivery_limit")
	w.submitted()
	const refusedKey = "acme:ticket.summary:9:v1:p7"
	w.must(`{"tenant":"acme","ticket":"9","revision":1,"thread":"x","notify":{"email":"`+customer+` or so"}}`, "submit", "--job", "ticket.summary")
	r := w.start()
	w.until(ticketKey, "done")
	w.until(refusedKey, "failed")
	r.stop()

	for what, shown := range map[string]string{
		"the error":            w.must("", "jobs", "show", refusedKey),
		"the error, in JSON":   w.must("", "jobs", "show", refusedKey, "--json"),
		"the answer":           w.must("", "jobs", "show", ticketKey, "--answer", "1"),
		"dead letters":         w.must("", "dlq", "list"),
		"dead letters in JSON": w.must("", "dlq", "list", "--json"),
		"the log":              r.log.String(),
	} {
		if strings.Contains(shown, customer) || !strings.Contains(shown, "(address)") {
			t.Errorf("%s, redacted, is shown as\n%s", what, shown)
		}
	}
	if got := w.must("", "dlq", "list"); strings.Count(got, "(address)") != 2 {
		t.Errorf("dead letters are shown as\n%s\nwant the reason of one and the fault of the other redacted", got)
	}
	if got := w.must("", "jobs", "show", ticketKey, "--answer", "1"); !strings.Contains(got, `Write to\n(address)`) {
		t.Errorf("the answer is shown as\n%s", got)
	}
	if got := w.must("", "jobs", "show", ticketKey); !strings.Contains(got, customer) {
		t.Errorf("the result is what the job is for, and is shown as\n%s", got)
	}
	j, err := w.ledger.Job(t.Context(), ledger.Key{Tenant: "acme", Text: refusedKey})
	if err != nil || j.Error == nil || !strings.Contains(j.Error.Text, customer) {
		t.Errorf("the ledger has %+v, %v; want the error whole", j.Error, err)
	}
}

// TestRedactedJob is the whole of what is shown of a job whose handler has a Redact, in text and in JSON.
func TestRedactedJob(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	j := ledger.Job{Key: ledger.Key{Tenant: "acme", Text: "acme:secretive.do:1"}, Action: "secretive.do", State: ledger.Failed, CreatedAt: at,
		Result:   &ledger.Result{Body: []byte(`{"note":"secret result"}`)},
		Error:    &ledger.JobError{Class: "permanent", Text: "PO372 refused: secret prompt"},
		History:  []ledger.Event{{At: at, To: ledger.Running, Actor: "w"}, {At: at, From: ledger.Running, To: ledger.Failed, Actor: "w", Reason: "release: secret prompt"}},
		Attempts: []ledger.AttemptRow{{Attempt: ledger.Attempt{Call: ledger.CallRef{Name: "ask"}}, N: 1, HasAnswer: true}}}
	for name, redact := range map[string]func(job.Part, []byte) []byte{
		"masks": func(p job.Part, b []byte) []byte {
			return bytes.ReplaceAll(b, []byte("secret"), []byte("no "+string(p)))
		},
		"nil":   func(job.Part, []byte) []byte { return nil },
		"panic": func(_ job.Part, b []byte) []byte { panic(string(b)) },
	} {
		var reg job.Registry
		job.Register(&reg, job.Def[secretive, string]{Name: j.Action, Redact: redact, Handle: func(context.Context, *job.Run, secretive) (string, error) { return "", nil }})
		h, ok := reg.Lookup(j.Action)
		if !ok {
			t.Fatal("it is not registered")
		}
		var text, doc bytes.Buffer
		d := document(h, j)
		if err := printJob(&text, d); err != nil {
			t.Fatal(err)
		}
		if err := show(&call{Process: Process{Stdout: &doc}}, asJSON{JSON: true}, d, nil); err != nil {
			t.Fatal(err)
		}
		if all := text.String() + doc.String(); strings.Contains(all, "secret ") {
			t.Errorf("%s: the secret is shown", name)
		}
		golden(t, "redacted_"+name+".txt", text.String()+"\n"+doc.String())
	}
	if string(j.Result.Body) != `{"note":"secret result"}` || j.Error.Text != "PO372 refused: secret prompt" || j.History[1].Reason != "release: secret prompt" {
		t.Errorf("showing changed what was read: %+v", j)
	}
	if d := document(nil, j); string(d.Result) != string(j.Result.Body) || *d.Error != *j.Error || d.History[1].Reason != j.History[1].Reason {
		t.Errorf("without a handler the job is shown as %+v", d)
	}
}

type secretive struct{ ID string }

func (s secretive) JobKey() job.Key { return job.K("acme", "secretive.do", s.ID) }
