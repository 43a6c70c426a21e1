package prom

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// What an adapter counts is read anew for each scrape.
func TestBroker(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	b := Broker{Events: map[string]int64{"receives": 0, "lost": 0}}
	WatchBroker(reg, func() Broker { return b })
	want(t, reg, "paidonce_broker_connected", "paidonce_broker_connected 0")
	want(t, reg, "paidonce_broker_events_total", `paidonce_broker_events_total{event="lost"} 0
paidonce_broker_events_total{event="receives"} 0`)
	b = Broker{Connected: true, Held: 3, Waiting: 2, Slack: 1500 * time.Millisecond, Events: map[string]int64{"receives": 7, "lost": 1}}
	want(t, reg, "paidonce_broker_connected", "paidonce_broker_connected 1")
	want(t, reg, "paidonce_broker_deliveries", `paidonce_broker_deliveries{state="held"} 3
paidonce_broker_deliveries{state="waiting"} 2`)
	want(t, reg, "paidonce_broker_slack_seconds", "paidonce_broker_slack_seconds 1.5")
	want(t, reg, "paidonce_broker_events_total", `paidonce_broker_events_total{event="lost"} 1
paidonce_broker_events_total{event="receives"} 7`)
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("problems %v, error %v", problems, err)
	}
}
