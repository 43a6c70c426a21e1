package app

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
	"github.com/paidonce/paidonce/ledger/sqlite"
)

// Case 68: jobs wait that this configuration has no handler for: of another program, or steps that are not configured any more. doctor says
// which, and what there is.
func TestDoctorNamesMissingHandlers(t *testing.T) {
	for scheme, open := range map[string]func(*world) ledger.Submitter{
		"sqlite": func(w *world) ledger.Submitter {
			if err := sqlite.Migrate(t.Context(), "paidonce.db"); err != nil {
				t.Fatal(err)
			}
			l, err := sqlite.Open(t.Context(), "paidonce.db")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(l.Close)
			return l
		},
		"postgres": func(w *world) ledger.Submitter {
			url := pgtest.URL(t)
			if err := postgres.Migrate(t.Context(), url); err != nil {
				t.Fatal(err)
			}
			w.env = append(w.env, "PAIDONCE_LEDGER_URL="+url)
			l, err := postgres.Open(t.Context(), url, postgres.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(l.Close)
			return l
		},
	} {
		w := plain(t)
		w.models(modelserver.Options{})
		l := open(w)
		for _, key := range []string{"acme:email:1:v1", "acme:email:2:v1", "acme:newsletter.write:1", "acme:ticket.summary:1"} {
			action := strings.Split(key, ":")[1]
			s := ledger.Submission{Key: ledger.Key{Tenant: "acme", Text: key}, Action: action, InputHash: ledger.Hash{1}, Input: []byte("{}")}
			if _, err := l.Submit(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		_, _, d := w.doctorCodes()
		var got []string
		for _, f := range d.Findings {
			if f.Code == "PO634" {
				got = append(got, string(f.Level)+" "+f.Part+" "+f.Text)
			}
		}
		for i, want := range []string{`warning ledger no handler for "email"; registered: agent.task, content.moderate, invoice.extract, ticket.summary. 2 jobs of it wait in the ledger, the oldest for `,
			`warning ledger no handler for "newsletter.write"; registered: agent.task, content.moderate, invoice.extract, ticket.summary. 1 jobs of it wait in the ledger, the oldest for `} {
			if len(got) != 2 || !strings.HasPrefix(got[i], want) {
				t.Errorf("%s: doctor says %q, want %q", scheme, got, want)
			}
		}
		w.env = append(w.env, "PAIDONCE_STEPS_EMAIL_SMTP_URL=smtp://127.0.0.1:1", "PAIDONCE_STEPS_EMAIL_FROM=a@b.example")
		_, _, d = w.doctorCodes()
		if text, _ := json.Marshal(d); strings.Contains(string(text), `no handler for \"email\"`) {
			t.Errorf("%s: with steps.email doctor says %s", scheme, text)
		}
	}
}

// A lifetime that ends before a call of the job may have: no retry and no fallback can follow it.
func TestDoctorWarnsOfBriefLives(t *testing.T) {
	w := plain(t)
	w.models(modelserver.Options{})
	w.env = append(w.env, "PAIDONCE_JOBS_INVOICE_EXTRACT_ROUTES=[{name: only, provider: openai, model: gpt-5-mini, timeout: 20s}]")
	for lifetime, want := range map[string]int{"19s": 1, "20s": 0, "0s": 0} {
		w.env = append(w.env, "PAIDONCE_JOBS_INVOICE_EXTRACT_LIFETIME="+lifetime)
		_, _, d := w.doctorCodes()
		var got []string
		for _, f := range d.Findings {
			if f.Code == "PO635" {
				got = append(got, f.Text)
			}
		}
		if len(got) != want {
			t.Errorf("with a lifetime of %s doctor says %q, want %d findings", lifetime, got, want)
		}
	}
}
