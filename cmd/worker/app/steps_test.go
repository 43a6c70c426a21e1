package app

import (
	"strings"
	"testing"

	"github.com/paidonce/paidonce/ledger"
)

const mailKey = "acme:email:48213:v3"

func asked(key string) ledger.StepAsk {
	return ledger.StepAsk{Key: ledger.Key{Tenant: "acme", Text: key}, Action: "email", InputHash: ledger.Hash{2}, Input: []byte(`{"to":"kim"}`)}
}

// stepped makes a job that is done and has asked for steps.
func (w *world) stepped(key string, steps ...ledger.StepAsk) {
	w.t.Helper()
	lease := w.claimed(ledger.Key{Tenant: "acme", Text: key})
	if err := w.ledger.Complete(w.t.Context(), lease, ledger.Result{ID: ledger.NewID(), Body: []byte(`{"summary":"s"}`), Steps: steps}); err != nil {
		w.t.Fatal(err)
	}
}

// mailed claims the step and makes its call.
func (w *world) mailed(e ledger.Evidence) (ledger.Lease, ledger.ID) {
	w.t.Helper()
	ctx := w.t.Context()
	a := asked(mailKey)
	id, err := w.ledger.Join(ctx, ledger.Worker{ID: "worker-7f3", TTL: 1e12})
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := w.ledger.Claim(ctx, ledger.Request{Key: a.Key, Action: a.Action, InputHash: a.InputHash, Input: a.Input,
		Carrier: ledger.CarriedByLedger, Worker: id, Token: ledger.NewID(), MaxRun: 1e12})
	if err != nil || c.Verdict != ledger.Run {
		w.t.Fatalf("claim: %v, %v", c.Verdict, err)
	}
	at := ledger.Attempt{ID: ledger.NewID(), Call: ledger.CallRef{Name: "do"}, Route: "email", Provider: "email", Timeout: 1e9}
	at.ClientRequestID = at.ID.String()
	if err := w.ledger.Send(ctx, c.Lease, at); err != nil {
		w.t.Fatal(err)
	}
	if e.State != "" {
		if _, err := w.ledger.Settle(ctx, ledger.AttemptID{Tenant: "acme", Job: c.Lease.Job, ID: at.ID}, e); err != nil {
			w.t.Fatal(err)
		}
	}
	return c.Lease, at.ID
}

// A job shows its steps, and a step the jobs that asked for it.
func TestStepsAreShown(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	other := asked(mailKey)
	other.InputHash[0]++
	w.stepped(ticketKey, asked(mailKey), asked("acme:slack:48213:v3"))
	w.stepped("acme:ticket.summary:48213:v3:p8", other)
	lease, sent := w.mailed(ledger.Evidence{State: ledger.Received, Class: "done", ObjectID: "<48213@acme>", Cost: new(ledger.Nano(0)), CostSource: "computed",
		Response: &ledger.Response{Codec: "json", Body: []byte(`{}`)}, By: ledger.BySender})
	if err := w.ledger.Complete(t.Context(), lease, ledger.Result{ID: ledger.NewID(), Body: []byte(`"queued"`), Used: []ledger.ID{sent}}); err != nil {
		t.Fatal(err)
	}
	golden(t, "steps.json", steady(w.must("", "jobs", "show", ticketKey, "--json")))
	golden(t, "steps.txt", steady(w.must("", "jobs", "show", ticketKey)))
	golden(t, "step.json", steady(w.must("", "jobs", "show", mailKey, "--json")))
	golden(t, "step.txt", steady(w.must("", "jobs", "show", mailKey)))
	if text := w.must("", "jobs", "show", "acme:ticket.summary:48213:v3:p8"); !strings.Contains(text, mailKey+"  done, object <48213@acme>, asked for first with another input\n") {
		t.Errorf("another job shows\n%s", text)
	}
	if text := w.must("", "jobs", "list", "--job", "email", "--state", "ready"); strings.Count(text, "\n") != 2 || !strings.Contains(text, "acme:slack:48213:v3  ready") {
		t.Errorf("the list is\n%s", text)
	}
}

// The verbs of jobs take a step's key, and leave its job alone.
func TestVerbsTakeSteps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  ledger.Outcome // of its run, with the call open; zero: it does not run
		args []string
		says string
		want string
	}{
		"cancel":         {ledger.Outcome{}, []string{"jobs", "cancel", mailKey, "--reason", "x"}, "The job is cancelled", "cancelled"},
		"resolve absent": {ledger.Outcome{Who: "w"}, []string{"jobs", "resolve", mailKey, "--absent", "--reason", "x"}, "(call do, email, sent", "ready"},
		"resolve fail":   {ledger.Outcome{Who: "w"}, []string{"jobs", "resolve", mailKey, "--fail", "--reason", "x"}, "The job is failed", "failed"},
		"retry":          {ledger.Outcome{Who: "w", Fail: true, Error: ledger.JobError{Class: "permanent"}}, []string{"jobs", "retry", mailKey, "--reason", "x"}, mailKey, "ready"},
		"rerun":          {ledger.Outcome{Who: "w", Fail: true, Error: ledger.JobError{Class: "permanent"}}, []string{"jobs", "rerun", mailKey, "--token", "t", "--reason", "x"}, "as generation 2", "ready"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorldHere(t)
			w.stepped(ticketKey, asked(mailKey))
			if c.end.Who != "" {
				var e ledger.Evidence
				if c.end.Fail {
					e = ledger.Evidence{State: ledger.FailedAttempt, Class: "failed", By: ledger.BySender}
				}
				lease, _ := w.mailed(e)
				if _, err := w.ledger.Release(t.Context(), lease, c.end); err != nil {
					t.Fatal(err)
				}
			}
			if out := w.must("", c.args...); !strings.Contains(out, c.says) {
				t.Errorf("it says\n%s", out)
			}
			if s := w.state(mailKey); s != c.want {
				t.Errorf("the step is %s, want %s", s, c.want)
			}
			if text := w.must("", "jobs", "show", ticketKey); w.state(ticketKey) != "done" || !strings.Contains(text, mailKey+"  "+c.want+"\n") {
				t.Errorf("its job shows\n%s", text)
			}
		})
	}
}
