package rabbitmq

import (
	"context"
	"crypto/tls"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/paidonce/paidonce/broker"
)

func TestDefaults(t *testing.T) {
	s, err := Config{URL: "amqp://host/", Queue: "jobs"}.resolve()
	if err != nil {
		t.Fatal(err)
	}
	if s.DeadLetter != "jobs.dead" || s.Prefetch != 64 || s.AckTimeout != 30*time.Minute || s.beat != 10*time.Second || s.Logger == nil || s.Name == "" {
		t.Errorf("defaults: %+v", s.Config)
	}
	if s.budget() != 24*time.Minute {
		t.Errorf("budget %v, want 24m", s.budget())
	}
	for wanted, want := range map[time.Duration]time.Duration{1: time.Second, time.Second: time.Second, 1001 * time.Millisecond: 5 * time.Second,
		16 * time.Second: 30 * time.Second, time.Hour: time.Hour, 5 * time.Hour: time.Hour} {
		if got := s.rung(wanted); got != want {
			t.Errorf("a delay of %v becomes %v, want %v", wanted, got, want)
		}
	}
}

// Case 87: there is nothing to set by which a delivery would count as acknowledged when it is handed out. (That none does is
// brokertest's "cut while deliveries are held".)
func TestNoAutoAck(t *testing.T) {
	auto := regexp.MustCompile(`(?i)auto|no_?ack`)
	for f := range reflect.TypeFor[Config]().Fields() {
		if auto.MatchString(f.Name) {
			t.Errorf("Config.%s: no setting may acknowledge what was not done", f.Name)
		}
	}
}

// All faults come at once, each with its value.
func TestFaultsOfConfig(t *testing.T) {
	_, err := Config{URL: "amqps//", Prefetch: 70000, AckTimeout: time.Millisecond, Heartbeat: 1500 * time.Millisecond,
		Retry: []time.Duration{time.Microsecond, 60 * 24 * time.Hour}, MaxBody: -1}.resolve()
	if !errors.Is(err, ErrConfig) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"PO141", "url is not an AMQP URL", "queue is empty", "prefetch 70000", "ack_timeout 1ms", "heartbeat 1.5s", "retry delay 1µs", "retry delay 1440h", "max_body -1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	for what, c := range map[string]Config{
		"is the queue itself":          {URL: "amqp://h", Queue: "q", DeadLetter: "q"},
		"begin with amq.":              {URL: "amqp://h", Queue: "amq.x"},
		"at most 255":                  {URL: "amqp://h", Queue: strings.Repeat("q", 250)},
		"retry is empty":               {URL: "amqp://h", Queue: "q", Retry: []time.Duration{}},
		"which is not encrypted":       {URL: "amqp://h", Queue: "q", TLS: &tls.Config{}},
		"url turns the heartbeat off":  {URL: "amqp://h?heartbeat=0", Queue: "q"},
		"url is not an AMQP URL (amqp": {URL: "amqp://h?heartbeat=9999999", Queue: "q"},
	} {
		if _, err := c.resolve(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), what) {
			t.Errorf("want an error with %q, got %v", what, err)
		}
	}
}

func TestHeartbeatOfURLGoesFirst(t *testing.T) {
	s, err := Config{URL: "amqp://h?heartbeat=3", Queue: "q", Heartbeat: time.Minute}.resolve()
	if err != nil || s.beat != 3*time.Second {
		t.Errorf("heartbeat %v and error %v, want 3s", s.beat, err)
	}
}

func TestMaxBodyByVersion(t *testing.T) {
	for version, want := range map[string]int{"3.10.8": 128 << 20, "3.13.0": 128 << 20, "4.0.1": 16 << 20, "4.3.0-rc.1": 16 << 20, "": 128 << 20} {
		if got := (&settings{}).maxBody(version); got != want {
			t.Errorf("version %q: %d, want %d", version, got, want)
		}
	}
	if got := (&settings{Config: Config{MaxBody: 7}}).maxBody("4.1"); got != 7 {
		t.Errorf("MaxBody is not used: %d", got)
	}
}

// The arguments are what the broker keeps for ever under a name: a change here is
// a PRECONDITION_FAILED at every user's next start.
func TestTopologyIsFixed(t *testing.T) {
	s, err := Config{URL: "amqp://h", Queue: "jobs", Retry: []time.Duration{time.Minute, time.Second, time.Minute}}.resolve()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, q := range s.topology() {
		names = append(names, q.name)
		if q.args["x-queue-type"] != "quorum" {
			t.Errorf("%s is no quorum queue: %v", q.name, q.args)
		}
		if q.args["x-expires"] != nil { // it deletes a queue with its messages
			t.Errorf("%s expires: %v", q.name, q.args)
		}
		if to := q.args["x-dead-letter-routing-key"]; q.name != s.DeadLetter &&
			(q.args["x-dead-letter-strategy"] != "at-least-once" || q.args["x-overflow"] != "reject-publish" || q.args["x-dead-letter-exchange"] != "" || !slices.Contains(names, to.(string))) {
			t.Errorf("%s can lose messages, or comes before %v: %v", q.name, to, q.args)
		}
	}
	if want := []string{"jobs.dead", "jobs", "jobs.retry.1000", "jobs.retry.60000"}; !slices.Equal(names, want) {
		t.Errorf("queues %v, want %v", names, want)
	}
	qs := s.topology()
	if qs[1].args["x-delivery-limit"] != int64(1000) || qs[1].args["x-message-ttl"] != nil || qs[2].args["x-message-ttl"] != int64(1000) {
		t.Errorf("arguments: %v", qs)
	}
}

func TestReceives(t *testing.T) {
	for _, c := range []struct {
		what string
		d    amqp.Delivery
		want int
	}{
		{"first", amqp.Delivery{}, 1},
		{"classic queue, again", amqp.Delivery{Redelivered: true}, 2},
		{"quorum queue, again", amqp.Delivery{Redelivered: true, Headers: amqp.Table{"x-delivery-count": int64(3)}}, 4},
		{"quorum queue after a restart", amqp.Delivery{Redelivered: true, Headers: amqp.Table{"x-delivery-count": int64(0)}}, 1},
		{"RabbitMQ 4.3", amqp.Delivery{Headers: amqp.Table{"x-delivery-count": int64(1), "x-acquired-count": int64(5)}}, 6},
		{"a copy", amqp.Delivery{Headers: amqp.Table{headerReceives: int64(4)}}, 5},
		{"a copy, again", amqp.Delivery{Headers: amqp.Table{headerReceives: int64(4), "x-delivery-count": int64(2)}}, 7},
		{"somebody else's header", amqp.Delivery{Headers: amqp.Table{headerReceives: "many"}}, 1},
	} {
		o := originalOf(&c.d)
		if got := o.receives(); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

// A copy may have more headers than a message that is published, so that a reason
// always fits beside what its sender could send.
func TestReasonFitsBesideTheLargestHeaders(t *testing.T) {
	m := broker.Message{Attributes: map[string]string{"a": strings.Repeat("x", maxHeaders-100)}}
	p, err := outgoing(m)
	if err != nil {
		t.Fatal(err)
	}
	o := original{headers: listed(p.Headers)}
	if _, err := o.copied(amqp.Table{headerReason: strings.Repeat("y", maxReason), headerReceives: int64(1)}); err != nil {
		t.Error(err)
	}
}

func TestRedactor(t *testing.T) {
	r := &redactor{}
	for _, p := range []string{"a/b c", "", defaultPassword} {
		r.add(p)
	}
	if got := r.text("a/b c a%2Fb%20c a%2Fb+c guest"); got != "*** *** *** guest" {
		t.Errorf("got %q", got)
	}
	cause := context.DeadlineExceeded
	err := r.error(errors.Join(errors.New("said a/b c"), cause))
	if !errors.Is(err, cause) || strings.Contains(err.Error(), "a/b c") {
		t.Errorf("got %v", err)
	}
	if errors.Unwrap(err) != nil {
		t.Error("the chain behind a redacted error can be printed")
	}
	if plain := errors.New("nothing to hide"); r.error(plain) != plain || r.error(nil) != nil {
		t.Error("an error without a secret was changed")
	}
}
