package prom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Broker is how the adapter of a broker fares at one moment, by its own books.
type Broker struct {
	Connected     bool
	Held, Waiting int              // deliveries not settled; messages in this process that nobody has yet
	Slack         time.Duration    // until the broker takes the first of both back; 0: there is none
	Events        map[string]int64 // since the adapter was opened, by words of a fixed set; all of them, always
}

// WatchBroker registers the metrics of an adapter. read is called for each scrape, also at the same time.
func WatchBroker(reg prometheus.Registerer, read func() Broker) {
	reg.MustRegister(brokerCollector{read})
}

type brokerCollector struct{ read func() Broker }

func brokerDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "broker", name), help, labels, nil)
}

var (
	brokerConnected  = brokerDesc("connected", "1 while the broker can be received from, else 0.")
	brokerDeliveries = brokerDesc("deliveries", "Deliveries held, and messages in this process that wait for a handler.", "state")
	brokerSlack      = brokerDesc("slack_seconds", "Until the broker takes the first delivery back; 0: there is none.")
	brokerEvents     = brokerDesc("events_total", "What the adapter of the broker counts; docs/operations.md has the words.", "event")
)

// Describe names the metrics.
func (c brokerCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{brokerConnected, brokerDeliveries, brokerSlack, brokerEvents} {
		out <- d
	}
}

// Collect reads them.
func (c brokerCollector) Collect(out chan<- prometheus.Metric) {
	b := c.read()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	up := 0.0
	if b.Connected {
		up = 1
	}
	gauge(brokerConnected, up)
	gauge(brokerDeliveries, float64(b.Held), "held")
	gauge(brokerDeliveries, float64(b.Waiting), "waiting")
	gauge(brokerSlack, b.Slack.Seconds())
	for event, n := range b.Events {
		out <- prometheus.MustNewConstMetric(brokerEvents, prometheus.CounterValue, float64(n), event)
	}
}
