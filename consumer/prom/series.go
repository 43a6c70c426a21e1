package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/paidonce/paidonce/ledger"
)

// registrar makes metrics of one namespace and registers them.
type registrar struct{ reg prometheus.Registerer }

const namespace = "paidonce"

func (r registrar) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	r.reg.MustRegister(v)
	return v
}

func (r registrar) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	r.reg.MustRegister(v)
	return v
}

func (r registrar) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
	r.reg.MustRegister(v)
	return v
}

// The words that stand in labels.
var (
	outcomes   = []string{"acked", "nacked", "dead_lettered", "handed_off", "lost", "unroutable"}
	answers    = []string{"sent", "unsent", "unroutable"}
	causes     = []string{"redelivered", "duplicate_message", "ack_lost"}
	results    = []string{"ok", "lost", "limit", "error"}
	ops        = []string{"claim", "look", "send", "settle", "apply", "complete", "release", "renew"}
	callEnds   = []string{"received", "rejected", "failed", "not_sent", "unknown", "saved"}
	findings   = []string{"cannot_tell", "still_running", "happened", "absent", "failed", "no_reconcile", "error", "too_early", "replay", "fail", "hold"}
	slotStates = []string{"busy", "free"}
)

// zero makes every series that can be foreseen.
func (m *Metrics) zero(jobs []string, models []Model) {
	for _, j := range append([]string{unknownJob}, jobs...) {
		each(outcomes, func(o string) { m.deliveries.WithLabelValues(j, o) })
		each(answers, func(o string) { m.replies.WithLabelValues(j, o) })
		m.unknownJobs.WithLabelValues(j)
	}
	for _, j := range jobs {
		for v := ledger.Run; v <= ledger.Mismatch; v++ {
			m.claims.WithLabelValues(j, v.String())
		}
		each(causes, func(c string) { m.avoided.WithLabelValues(j, c) })
		each(findings, func(f string) { m.looks.WithLabelValues(j, f) })
		m.saved.WithLabelValues(j)
		m.wasted.WithLabelValues(j)
		m.jobSeconds.WithLabelValues(j)
		m.waitSeconds.WithLabelValues(j)
	}
	for _, o := range models {
		each(callEnds, func(e string) { m.calls.WithLabelValues(o.Job, o.Provider, o.Model, e) })
		m.spent.WithLabelValues(o.Job, o.Provider, o.Model)
		m.unpriced.WithLabelValues(o.Job, o.Provider, o.Model)
		m.callSeconds.WithLabelValues(o.Provider, o.Model)
	}
	each(results, func(r string) { m.extensions.WithLabelValues(r) })
	each(ops, func(op string) { m.ledgerSeconds.WithLabelValues(op); m.ledgerErrors.WithLabelValues(op) })
	each(slotStates, func(s string) { m.slots.WithLabelValues(s) })
}

func each(words []string, f func(string)) {
	for _, w := range words {
		f(w)
	}
}
