package outage_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/consumer/prom"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// bad are messages that no run can make good, with the code of the reason.
func bad() map[string]broker.Message {
	named := func(body string) broker.Message {
		return broker.Message{Body: []byte(body), Attributes: map[string]string{consumer.Attribute: action}}
	}
	plain := func(body string) broker.Message { return broker.Message{Body: []byte(body)} }
	deep := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	return map[string]broker.Message{
		"PO401 no JSON":        plain("Dear worker, please read d1."),
		"PO401 empty":          plain(""),
		"PO401 half":           plain(`{"job":"` + action + `","input":{"tenant":"ac`),
		"PO401 deep":           plain(`{"job":"` + action + `","input":{"tenant":"acme","doc":"d","extra":` + deep + `}}`),
		"PO408 unknown job":    plain(`{"job":"doc.burn","input":{"tenant":"acme","doc":"d"}}`),
		"PO409 no job":         plain(`{"tenant":"acme","doc":"d"}`),
		"PO402 not UTF-8":      plain("{\"job\":\"" + action + "\",\"input\":{\"tenant\":\"acme\",\"doc\":\"\xff\xfe\"}}"),
		"PO4 named, no JSON":   named("tenant=acme"),
		"PO4 named, not UTF-8": named("{\"tenant\":\"acme\",\"doc\":\"\xff\xfe\"}"),
		"PO4 named, deep":      named(`{"tenant":"acme","doc":"d","extra":` + deep + `}`),
		"PO4 no tenant":        named(`{"doc":"d1","text":"t"}`),
		"PO4 zero byte":        named(`{"tenant":"acme","doc":"d` + `\u0000","text":"t"}`),
		"PO407 large":          named(`{"tenant":"acme","doc":"d","text":"` + strings.Repeat("x", 2<<20) + `"}`),
		"PO406 mismatch":       named(`{"tenant":"acme","doc":"first","text":"another text"}`),
	}
}

func TestBadInput(t *testing.T) {
	r := newRig(t, modelserver.Options{})
	metrics := prometheus.NewRegistry()
	r.cfg.Trace = prom.New(metrics, []string{action}, nil, prom.Build{}).Trace()
	n := r.start("w1", r.ledger(r.direct, postgres.Options{}))
	r.publish("first")
	r.awaitDone(1)
	all := bad()
	for _, m := range all {
		r.send(m)
	}
	r.publish("last")
	r.awaitDone(2)
	r.eventually("all bad ones are set aside", func() bool { return r.noted(r.settled, "dead_lettered") == len(all) })
	n.drain()

	r.wantPaidOnce([]string{"first", "last"})
	r.wantRow("first", 1) // not touched by the other input
	r.wantRow("last", 1)
	if n := r.count("select count(*) from paidonce.job"); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
	r.wantQueues(0, len(all))
	r.wantReasons(all)
	if got := deadLettered(t, metrics); got[action]+got["unknown"] != float64(len(all)) || got[action] == 0 || got["unknown"] == 0 || len(got) != 2 {
		t.Errorf("dead letters in the metrics %v, want %d in all", got, len(all))
	}
}

// wantReasons reads the dead queue as a person would.
func (r *rig) wantReasons(all map[string]broker.Message) {
	r.Helper()
	dead, reasons := 0, map[string]string{}
	err := r.pub.Review(r.Context(), 2*len(all), func(d broker.DeadLetter) broker.Fate {
		dead++
		reasons[string(d.Body)] = d.Reason
		return broker.Keep
	})
	if err != nil {
		r.Fatal(err)
	}
	for name, m := range all {
		code, _, _ := strings.Cut(name, " ")
		if reason := reasons[string(m.Body)]; !strings.HasPrefix(reason, code) {
			r.Errorf("%s was set aside with the reason %q", name, reason)
		} else {
			r.Logf("%s: %.150s", name, reason)
		}
	}
	if dead != len(all) {
		r.Errorf("%d dead letters, want %d", dead, len(all))
	}
}

// deadLettered is the metric of dead letters by job.
func deadLettered(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if !strings.HasSuffix(f.GetName(), "_deliveries_total") {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["outcome"] == "dead_lettered" {
				got[labels["job"]] += m.GetCounter().GetValue()
			}
		}
	}
	return got
}
