// Package prom turns what a consumer does into Prometheus metrics.
//
// Labels come from bounded sets only: registered jobs, configured models, and the
// words of this program. Never a key, never a tenant. Every series that can be
// foreseen exists from the start, at zero, so that an alert on its rate works
// before the first event.
package prom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// unknownJob is the label of messages that name no registered job, and of jobs whose
// handler is gone.
const unknownJob = "unknown"

// Model is a model that a job may be sent to.
type Model struct{ Job, Provider, Model string }

// Build describes the program, for paidonce_build_info.
type Build struct{ Version, ConfigHash string }

// Metrics are the metrics of one consumer. Make them with New.
type Metrics struct {
	jobs map[string]bool

	deliveries, claims, calls, avoided                  *prometheus.CounterVec
	saved, spent, wasted, unpriced                      *prometheus.CounterVec
	extensions, ledgerErrors, looks                     *prometheus.CounterVec
	callSeconds, jobSeconds, waitSeconds, ledgerSeconds *prometheus.HistogramVec
	unknownJobs, slots                                  *prometheus.GaugeVec
	oldest, margin, draining, outbox                    prometheus.Gauge
}

// Buckets, in seconds. Model calls last from a quarter of a second to half an hour, waits
// begin at 50 ms, statements of the ledger at half a millisecond.
var (
	callBuckets   = []float64{.25, .5, 1, 2, 4, 8, 15, 30, 60, 120, 300, 600, 1200, 1800}
	waitBuckets   = []float64{.05, .1, .25, .5, 1, 2.5, 5, 15, 30, 60, 120, 300, 600, 1800}
	ledgerBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}
)

// New makes the metrics and registers them. It panics when they are registered
// there already, as prometheus.MustRegister does.
func New(reg prometheus.Registerer, jobs []string, models []Model, build Build) *Metrics {
	r := registrar{reg}
	m := &Metrics{
		jobs:       make(map[string]bool, len(jobs)),
		deliveries: r.counter("deliveries_total", "Deliveries dealt with, by what was done with them.", "job", "outcome"),
		claims:     r.counter("claims_total", "Claims, by what the ledger answered.", "job", "verdict"),
		calls:      r.counter("model_calls_total", "Requests to model providers, by outcome; saved: an answer from the ledger was used and nothing was sent.", "job", "provider", "model", "outcome"),
		avoided:    r.counter("calls_avoided_total", "Deliveries answered with a saved result, by how the duplicate came about.", "job", "cause"),
		saved:      r.counter("saved_usd_total", "What the avoided duplicates would have cost, in US dollars, where the price is known.", "job"),
		spent:      r.counter("spent_usd_total", "What model calls cost, in US dollars, where the price is known.", "job", "provider", "model"),
		wasted:     r.counter("wasted_usd_total", "What answers cost that no job needed, in US dollars, where the price is known.", "job"),
		unpriced:   r.counter("unpriced_calls_total", "Answered model calls whose price is not known.", "job", "provider", "model"),
		extensions: r.counter("visibility_extensions_total", "Extensions of deliveries, by result.", "result"),
		ledgerErrors: r.counter("ledger_errors_total", "Verbs of the ledger that answered with an error, refusals included.",
			"op"),
		looks:         r.counter("unknown_looks_total", "Looks at unknown calls and jobs, by what was found or decided.", "job", "finding"),
		callSeconds:   r.histogram("model_call_seconds", "From the send of a model call to its end.", callBuckets, "provider", "model"),
		jobSeconds:    r.histogram("job_seconds", "Duration of runs.", callBuckets, "job"),
		waitSeconds:   r.histogram("job_wait_seconds", "From the delivery to the start of the handler.", waitBuckets, "job"),
		ledgerSeconds: r.histogram("ledger_seconds", "Duration of the ledger's verbs.", ledgerBuckets, "op"),
		unknownJobs:   r.gauge("unknown_jobs", "Jobs with a call whose outcome is not known, in the whole ledger.", "job"),
		slots:         r.gauge("slots", "Slots for handlers, busy and free.", "state"),
		oldest:        r.gauge("unknown_oldest_seconds", "How long the oldest unknown job has been so; 0: there is none.").WithLabelValues(),
		outbox:        r.gauge("outbox_messages", "Messages that results asked for and no broker has yet, in the whole ledger.").WithLabelValues(),
		margin:        r.gauge("lease_margin_seconds", "What was left of the worker's lease when it was renewed last.").WithLabelValues(),
		draining:      r.gauge("draining", "1 while the worker drains, else 0.").WithLabelValues(),
	}
	r.gauge("build_info", "1; the labels say which program with which configuration this is.", "version", "config_hash").
		WithLabelValues(build.Version, build.ConfigHash).Set(1)
	for _, j := range jobs {
		m.jobs[j] = true
	}
	m.zero(jobs, models)
	return m
}

// Unknown sets the gauges of unknown jobs from what the ledger counted. Jobs that
// it does not name have none.
func (m *Metrics) Unknown(counts []ledger.UnknownCount) {
	byJob := map[string]int{unknownJob: 0}
	for j := range m.jobs {
		byJob[j] = 0
	}
	oldest := time.Duration(0)
	for _, c := range counts {
		byJob[m.job(c.Action)] += c.Count
		oldest = max(oldest, c.Oldest)
	}
	for j, n := range byJob {
		m.unknownJobs.WithLabelValues(j).Set(float64(n))
	}
	m.oldest.Set(oldest.Seconds())
}

// Outbox sets the gauge of messages that results asked for and no broker has yet.
func (m *Metrics) Outbox(n int) { m.outbox.Set(float64(n)) }

// Trace is for consumer.Config.
func (m *Metrics) Trace() consumer.Trace {
	return consumer.Trace{
		Delivered: func(job, outcome string) { m.deliveries.WithLabelValues(m.job(job), outcome).Inc() },
		Claimed: func(job string, v ledger.Verdict) {
			m.claims.WithLabelValues(m.job(job), v.String()).Inc()
		},
		Avoided: m.noteAvoided,
		Called:  m.noteCall,
		Found:   m.book,
		Wasted: func(job string, cost ledger.Nano) {
			m.wasted.WithLabelValues(m.job(job)).Add(dollars(cost))
		},
		Ended: func(job string, _ ledger.State, waited, took time.Duration) {
			m.waitSeconds.WithLabelValues(m.job(job)).Observe(waited.Seconds())
			m.jobSeconds.WithLabelValues(m.job(job)).Observe(took.Seconds())
		},
		Extended: func(result string) { m.extensions.WithLabelValues(result).Inc() },
		Renewed:  func(margin time.Duration) { m.margin.Set(margin.Seconds()) },
		Reconciled: func(job, _, finding string) {
			m.looks.WithLabelValues(m.job(job), finding).Inc()
		},
		Ledger: func(op string, took time.Duration, err error) {
			m.ledgerSeconds.WithLabelValues(op).Observe(took.Seconds())
			if err != nil {
				m.ledgerErrors.WithLabelValues(op).Inc()
			}
		},
		Slots: func(busy, all int) {
			m.slots.WithLabelValues("busy").Set(float64(busy))
			m.slots.WithLabelValues("free").Set(float64(max(all-busy, 0))) // jobs from the ledger may take more
		},
		Draining: func() { m.draining.Set(1) },
	}
}

func (m *Metrics) noteAvoided(job, cause string, cost *ledger.Nano) {
	m.avoided.WithLabelValues(m.job(job), cause).Inc()
	if cost != nil {
		m.saved.WithLabelValues(m.job(job)).Add(dollars(*cost))
	}
}

func (m *Metrics) noteCall(name string, s job.Seen) {
	name = m.job(name)
	m.calls.WithLabelValues(name, s.Provider, s.Model, outcome(s)).Inc()
	if s.Replayed {
		return
	}
	m.callSeconds.WithLabelValues(s.Provider, s.Model).Observe(s.Took.Seconds())
	m.book(name, s)
}

// book counts what an answer cost.
func (m *Metrics) book(name string, s job.Seen) {
	name = m.job(name)
	switch {
	case s.Cost != nil:
		m.spent.WithLabelValues(name, s.Provider, s.Model).Add(dollars(*s.Cost))
		if s.Surplus {
			m.wasted.WithLabelValues(name).Add(dollars(*s.Cost))
		}
	case s.State == ledger.Received:
		m.unpriced.WithLabelValues(name, s.Provider, s.Model).Inc()
	}
}

// outcome is the label of a call's end: the attempt's state, where sent means that the
// outcome is unknown; or saved.
func outcome(s job.Seen) string {
	switch {
	case s.Replayed:
		return "saved"
	case s.State == ledger.Sent:
		return "unknown"
	}
	return string(s.State)
}

// job keeps the label in its set.
func (m *Metrics) job(name string) string {
	if m.jobs[name] {
		return name
	}
	return unknownJob
}

// dollars is for the eyes of Prometheus, whose numbers are floats; accounts are kept in
// the ledger, in whole nano-dollars.
func dollars(n ledger.Nano) float64 { return float64(n) / float64(ledger.USD) }
