package app

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/rabbitmq"
	"github.com/paidonce/paidonce/broker/sqs"
	"github.com/paidonce/paidonce/consumer/prom"
)

// Whatever an adapter counts is in the metrics, under a word that the documentation explains.
func TestEveryCounterOfAnAdapterIsAMetric(t *testing.T) {
	page, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var s sqs.State
	counters(&s)
	var r rabbitmq.State
	r.Reconnects = map[rabbitmq.Loss]int64{}
	n := counters(&r)
	for _, why := range []rabbitmq.Loss{rabbitmq.LostConnection, rabbitmq.LostChannel, rabbitmq.LostAckTimeout, rabbitmq.LostQueue, rabbitmq.NotConnected} {
		n++
		r.Reconnects[why] = n
	}
	r.Generation = 0 // sessions are counted by why the one before ended
	for name, c := range map[string]struct {
		state any
		shown prom.Broker
	}{"SQS": {s, sqsMetrics(s)}, "RabbitMQ": {r, rabbitMetrics(r)}} {
		var shown []int64
		for event, n := range c.shown.Events {
			shown = append(shown, n)
			if !strings.Contains(string(page), "`"+event+"`") {
				t.Errorf("%s: docs/operations.md does not explain %s", name, event)
			}
		}
		v := reflect.ValueOf(c.state)
		for i := range v.NumField() {
			if n, ok := v.Field(i).Interface().(int64); ok && n != 0 && !slices.Contains(shown, n) {
				t.Errorf("%s: %s is in no metric", name, v.Type().Field(i).Name)
			}
		}
		slices.Sort(shown)
		if len(slices.Compact(shown)) != len(c.shown.Events) {
			t.Errorf("%s: two words show the same counter: %v", name, c.shown.Events)
		}
	}
	for why, n := range r.Reconnects {
		if got := rabbitMetrics(r).Events["session_"+string(why)]; got != n {
			t.Errorf("sessions lost by %s: %d, want %d", why, got, n)
		}
	}
}

// counters sets every counter of a state to a number of its own, and returns the largest.
func counters(state any) (n int64) {
	v := reflect.ValueOf(state).Elem()
	for _, field := range v.Fields() {
		if p, ok := field.Addr().Interface().(*int64); ok {
			n++
			*p = n
		}
	}
	return n
}

// The rest of a state.
func TestHowAnAdapterFares(t *testing.T) {
	b := sqsMetrics(sqs.State{Connected: true, Held: 2, Parked: 1, Slack: time.Second})
	if !b.Connected || b.Held != 2 || b.Waiting != 1 || b.Slack != time.Second {
		t.Errorf("SQS: %+v", b)
	}
	b = rabbitMetrics(rabbitmq.State{Connected: true, Held: 2, Prefetched: 1, AckBudget: time.Minute, OldestHeld: 10 * time.Second})
	if !b.Connected || b.Held != 2 || b.Waiting != 1 || b.Slack != 50*time.Second {
		t.Errorf("RabbitMQ: %+v", b)
	}
	if b = rabbitMetrics(rabbitmq.State{AckBudget: time.Minute}); b.Slack != 0 {
		t.Errorf("RabbitMQ without a delivery: %+v", b)
	}
}
