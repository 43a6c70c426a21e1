package handlers_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/handlers/invoice"
	"github.com/paidonce/paidonce/handlers/moderate"
	"github.com/paidonce/paidonce/handlers/provider"
	"github.com/paidonce/paidonce/handlers/summarize"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/memory"
)

// inBackground registers the handlers that can use OpenAI's background mode with one route in it.
func inBackground(t *testing.T, generate func(modelserver.Request) string) *bench {
	t.Helper()
	ms, err := modelserver.Start(modelserver.Options{Generate: generate, Latency: 50 * time.Millisecond, KeyOf: func(modelserver.Request) string { return "the job" }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ms.Close(); err != nil {
			t.Errorf("closing the model server: %v", err)
		}
	})
	b := &bench{t: t, models: ms, ledger: memory.New()}
	s := provider.Settings{OpenAI: provider.Account{BaseURL: ms.URL() + "/v1/", APIKey: "k"},
		Routes: []provider.Route{{Name: "only", Provider: provider.OpenAI, Model: "a-model", Timeout: 2 * time.Second, Background: true}}}
	job.Register(&b.reg, summarize.New(s, summarize.Tell{}))
	job.Register(&b.reg, invoice.New(s, nil))
	job.Register(&b.reg, moderate.New(s))
	if b.worker, err = b.ledger.Join(t.Context(), ledger.Worker{ID: "w", TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	return b
}

var backgroundJobs = []struct{ name, body, text, result string }{
	{"ticket.summary", `{"tenant":"acme","ticket":"1","thread":"It was charged twice."}`, "Charged twice.", `{"summary":"Charged twice."}`},
	{"invoice.extract", `{"tenant":"acme","document":"1","text":"Invoice R-17"}`,
		`{"number":"R-17","currency":"EUR","total_cents":1190,"supplier":"Lamp Ltd","date":"2026-03-01"}`,
		`{"number":"R-17","currency":"EUR","total_cents":1190,"supplier":"Lamp Ltd","date":"2026-03-01"}`},
	{"content.moderate", `{"tenant":"acme","content":"1","text":"Hello"}`, `{"flagged":false,"categories":[]}`, `{"flagged":false,"categories":[]}`},
}

// A route in background mode gives what the ordinary one gives, and the response is named while it runs.
func TestInBackground(t *testing.T) {
	for _, c := range backgroundJobs {
		b := inBackground(t, func(modelserver.Request) string { return c.text })
		out, err := b.run(c.name, c.body)
		if err != nil || out != c.result {
			t.Errorf("%s: %s, %v; want %s", c.name, out, err, c.result)
			continue
		}
		j, bill := b.job(c.name, c.body), b.models.Bill()
		if len(bill) != 1 || bill[0].Route != "/v1/responses" || j.Attempts[0].Evidence.ObjectID != bill[0].ObjectID || j.State != ledger.Done {
			t.Errorf("%s is %s with the attempts %+v, and the bill is %+v", c.name, j.State, j.Attempts, bill)
		}
	}
}

// An answer that came too late for its request is found by its id, and the next run is given it.
func TestLostInBackground(t *testing.T) {
	for _, c := range backgroundJobs {
		b := inBackground(t, func(modelserver.Request) string { return c.text })
		b.models.Script("the job", modelserver.Fault{After: 3 * time.Second})
		if out, err := b.run(c.name, c.body); !errors.Is(err, job.ErrHeld) {
			t.Errorf("%s: %s, %v; want that it is held", c.name, out, err)
			continue
		}
		a := b.job(c.name, c.body).Attempts[0]
		h, _ := b.reg.Lookup(c.name)
		call, _ := h.Call(a.Call.Name)
		open := job.Open{Key: ledger.Key{Tenant: "acme"}, Attempt: a.ID, ClientRequestID: a.ClientRequestID, ObjectID: a.Evidence.ObjectID, Route: "only", Provider: "openai", SentAt: a.SentAt}
		found, err := call.Reconcile(t.Context(), open)
		for end := time.Now().Add(20 * time.Second); err == nil && found.Finding == job.StillRunning && time.Now().Before(end); {
			time.Sleep(50 * time.Millisecond)
			found, err = call.Reconcile(t.Context(), open)
		}
		if err != nil || found.Finding != job.Happened || found.Response == nil || !strings.Contains(string(found.Response.Body), strings.Trim(quoted(c.text), `"`)) && string(found.Response.Body) != c.result {
			t.Errorf("%s: found %+v, %v", c.name, found, err)
		}
		if n := len(b.models.Bill()); n != 1 {
			t.Errorf("%s: %d lines on the bill", c.name, n)
		}
	}
}

func quoted(text string) string {
	b, _ := json.Marshal(text) // a string always encodes
	return string(b)
}
