package prom

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

func metrics(t *testing.T) (*Metrics, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	return New(reg, []string{"ticket.summary", "invoice.extract"}, []Model{{"ticket.summary", "openai", "gpt-5-mini"}}, Build{"v1", "abc"}), reg
}

func want(t *testing.T, reg *prometheus.Registry, name, text string) {
	t.Helper()
	var lines []string // without help, which is for people
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			lines = append(lines, fmt.Sprintf("# HELP %s %s", name, f.GetHelp()), fmt.Sprintf("# TYPE %s %s", name, strings.ToLower(f.GetType().String())))
		}
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(strings.Join(append(lines, text), "\n")+"\n"), name); err != nil {
		t.Error(err)
	}
}

func TestLint(t *testing.T) {
	_, reg := metrics(t)
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// contract are the names and labels that dashboards and alerts rely on.
var contract = map[string]string{
	"paidonce_deliveries_total":            "job,outcome",
	"paidonce_claims_total":                "job,verdict",
	"paidonce_model_calls_total":           "job,model,outcome,provider",
	"paidonce_model_call_seconds":          "model,provider",
	"paidonce_calls_avoided_total":         "cause,job",
	"paidonce_saved_usd_total":             "job",
	"paidonce_spent_usd_total":             "job,model,provider",
	"paidonce_wasted_usd_total":            "job",
	"paidonce_unknown_jobs":                "job",
	"paidonce_unknown_oldest_seconds":      "",
	"paidonce_outbox_messages":             "",
	"paidonce_visibility_extensions_total": "result",
	"paidonce_lease_margin_seconds":        "",
	"paidonce_job_seconds":                 "job",
	"paidonce_job_wait_seconds":            "job",
	"paidonce_ledger_seconds":              "op",
	"paidonce_slots":                       "state",
	"paidonce_draining":                    "",
	"paidonce_build_info":                  "config_hash,version",
}

func TestContract(t *testing.T) {
	_, reg := metrics(t)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]string{}
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName()) // sorted by name
		}
		have[f.GetName()] = strings.Join(labels, ",")
	}
	for name, labels := range contract {
		if got, ok := have[name]; !ok {
			t.Errorf("%s does not exist from the start", name)
		} else if got != labels {
			t.Errorf("%s has the labels %q, want %q", name, got, labels)
		}
	}
}

func TestTrace(t *testing.T) {
	m, reg := metrics(t)
	tr := m.Trace()
	cost := ledger.Nano(1_500_000)
	tr.Delivered("ticket.summary", "acked")
	tr.Delivered("never registered", "dead_lettered")
	tr.Claimed("ticket.summary", ledger.Saved)
	tr.Avoided("ticket.summary", "ack_lost", &cost)
	tr.Avoided("ticket.summary", "redelivered", nil)
	seen := job.Seen{Provider: "openai", Model: "gpt-5-mini", State: ledger.Received, Took: 3 * time.Second, Cost: &cost}
	tr.Called("ticket.summary", seen)
	seen.Cost = nil
	tr.Called("ticket.summary", seen)
	seen.State = ledger.Sent
	tr.Called("ticket.summary", seen)
	found := job.Seen{Provider: "openai", Model: "gpt-5-mini", State: ledger.Received, Cost: new(ledger.Nano(500_000))}
	tr.Found("ticket.summary", found)
	found.Surplus = true
	tr.Found("ticket.summary", found)
	tr.Called("ticket.summary", found)
	tr.Wasted("ticket.summary", 250_000)
	tr.Called("ticket.summary", job.Seen{Provider: "openai", Model: "gpt-5-mini", State: ledger.Received, Replayed: true})
	tr.Ended("ticket.summary", ledger.Done, 70*time.Millisecond, 3*time.Second)
	tr.Extended("limit")
	tr.Renewed(41 * time.Second)
	tr.Reconciled("ticket.summary", "openai", "happened")
	tr.Ledger("send", time.Millisecond, nil)
	tr.Ledger("send", time.Millisecond, errors.New("gone"))
	tr.Slots(3, 64)
	tr.Draining()
	m.Unknown([]ledger.UnknownCount{{Action: "ticket.summary", Count: 2, Oldest: time.Minute}, {Action: "gone", Count: 1, Oldest: time.Hour}})

	for name, v := range map[string]struct{ got, want float64 }{
		"acked":             {testutil.ToFloat64(m.deliveries.WithLabelValues("ticket.summary", "acked")), 1},
		"unknown job":       {testutil.ToFloat64(m.deliveries.WithLabelValues("unknown", "dead_lettered")), 1},
		"verdict":           {testutil.ToFloat64(m.claims.WithLabelValues("ticket.summary", "saved")), 1},
		"received":          {testutil.ToFloat64(m.calls.WithLabelValues("ticket.summary", "openai", "gpt-5-mini", "received")), 3},
		"unknown call":      {testutil.ToFloat64(m.calls.WithLabelValues("ticket.summary", "openai", "gpt-5-mini", "unknown")), 1},
		"saved answer":      {testutil.ToFloat64(m.calls.WithLabelValues("ticket.summary", "openai", "gpt-5-mini", "saved")), 1},
		"spent":             {testutil.ToFloat64(m.spent.WithLabelValues("ticket.summary", "openai", "gpt-5-mini")), 0.003},
		"wasted":            {testutil.ToFloat64(m.wasted.WithLabelValues("ticket.summary")), 0.00125},
		"unpriced":          {testutil.ToFloat64(m.unpriced.WithLabelValues("ticket.summary", "openai", "gpt-5-mini")), 1},
		"saved":             {testutil.ToFloat64(m.saved.WithLabelValues("ticket.summary")), 0.0015},
		"extension":         {testutil.ToFloat64(m.extensions.WithLabelValues("limit")), 1},
		"margin":            {testutil.ToFloat64(m.margin), 41},
		"look":              {testutil.ToFloat64(m.looks.WithLabelValues("ticket.summary", "happened")), 1},
		"ledger error":      {testutil.ToFloat64(m.ledgerErrors.WithLabelValues("send")), 1},
		"busy":              {testutil.ToFloat64(m.slots.WithLabelValues("busy")), 3},
		"free":              {testutil.ToFloat64(m.slots.WithLabelValues("free")), 61},
		"draining":          {testutil.ToFloat64(m.draining), 1},
		"unknown":           {testutil.ToFloat64(m.unknownJobs.WithLabelValues("ticket.summary")), 2},
		"unknown elsewhere": {testutil.ToFloat64(m.unknownJobs.WithLabelValues("unknown")), 1},
		"oldest":            {testutil.ToFloat64(m.oldest), 3600},
	} {
		if v.got != v.want {
			t.Errorf("%s: %v, want %v", name, v.got, v.want)
		}
	}
	want(t, reg, "paidonce_calls_avoided_total", `paidonce_calls_avoided_total{cause="ack_lost",job="invoice.extract"} 0
paidonce_calls_avoided_total{cause="ack_lost",job="ticket.summary"} 1
paidonce_calls_avoided_total{cause="duplicate_message",job="invoice.extract"} 0
paidonce_calls_avoided_total{cause="duplicate_message",job="ticket.summary"} 0
paidonce_calls_avoided_total{cause="redelivered",job="invoice.extract"} 0
paidonce_calls_avoided_total{cause="redelivered",job="ticket.summary"} 1`)
	want(t, reg, "paidonce_build_info", `paidonce_build_info{config_hash="abc",version="v1"} 1`)
}

// Gauges of jobs that are unknown no longer go back to zero.
func TestUnknownGoesBack(t *testing.T) {
	m, _ := metrics(t)
	m.Unknown([]ledger.UnknownCount{{Action: "ticket.summary", Count: 2, Oldest: time.Minute}})
	m.Unknown(nil)
	if n, s := testutil.ToFloat64(m.unknownJobs.WithLabelValues("ticket.summary")), testutil.ToFloat64(m.oldest); n != 0 || s != 0 {
		t.Errorf("%v unknown jobs, the oldest %v s, want none", n, s)
	}
}

// A message cannot make a series: names that are not registered share one.
func TestBoundedLabels(t *testing.T) {
	m, reg := metrics(t)
	tr := m.Trace()
	before := count(t, reg)
	for i := range 100 {
		name := fmt.Sprintf("job-%d", i)
		tr.Delivered(name, "dead_lettered")
		m.Unknown([]ledger.UnknownCount{{Action: name, Count: 1}})
	}
	if after := count(t, reg); after != before {
		t.Errorf("%d series became %d", before, after)
	}
}

func count(t *testing.T, reg *prometheus.Registry) int {
	t.Helper()
	n, err := testutil.GatherAndCount(reg)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
