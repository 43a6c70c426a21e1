package rabbitmq_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/rabbitmq"
	"github.com/paidonce/paidonce/internal/rabbittest"
)

func (b *bench) describe(r *rabbitmq.Broker) rabbitmq.Description {
	b.Helper()
	d, err := r.Describe(b.soon())
	if err != nil {
		b.Fatalf("describe: %v", err)
	}
	return d
}

func verify(c *rabbitmq.Config) { c.Declare = false }

// The queues that Declare makes are described as what they are, and looking does nothing
// to them.
func TestDescribe(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.open()
	b.publish(r, "a", "b")
	b.wantDepth(2, 0)
	want := rabbitmq.Description{Version: b.describe(r).Version, AckTimeout: 30 * time.Minute,
		Queue:      rabbitmq.QueueDescription{Name: b.queue, Exists: true, Messages: 2, Type: "quorum", DeliveryLimit: 1000, DeadLetterTo: b.queue + ".dead"},
		DeadLetter: rabbitmq.QueueDescription{Name: b.queue + ".dead", Exists: true, Type: "quorum", DeliveryLimit: 1_000_000}}
	for range 2 {
		if got := b.describe(b.open(verify)); !reflect.DeepEqual(got, want) || want.Version == "" {
			t.Errorf("described as\n%+v, want\n%+v", got, want)
		}
	}
	b.wantDepth(2, 0)
	b.ack(r, b.receive(r, 2)...)
}

// What is not there is not made by looking.
func TestDescribeNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.open(verify)
	for range 2 {
		d := b.describe(r)
		if d.Queue.Exists || d.DeadLetter.Exists || !slices.Equal(d.Missing, rabbitmq.RetryQueues(b.conf)) {
			t.Errorf("described as %+v", d)
		}
	}
	b.is("publish", r.Publish(b.soon(), broker.Message{Body: []byte("x")}), broker.ErrUnroutable)
}

// Queues that somebody else made, in every way that matters to us.
func TestDescribeForeignQueues(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ch := rabbittest.Channel(t, b.url)
	for _, c := range []struct {
		name string
		args amqp.Table
		want rabbitmq.QueueDescription
	}{
		{"classic", nil, rabbitmq.QueueDescription{Type: "classic"}},
		{"classic with limits", amqp.Table{"x-max-length": int64(1000), "x-message-ttl": int64(5000), "x-overflow": "drop-head", "x-dead-letter-exchange": "letters", "x-dead-letter-routing-key": "k", "x-max-priority": int64(5)},
			rabbitmq.QueueDescription{Type: "classic", DeadLetterTo: "letters/k"}},
		{"quorum", amqp.Table{"x-queue-type": "quorum"}, rabbitmq.QueueDescription{Type: "quorum"}},
		{"quorum with a limit", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(20), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "elsewhere", "x-single-active-consumer": true},
			rabbitmq.QueueDescription{Type: "quorum", DeliveryLimit: 20, DeadLetterTo: "elsewhere"}},
		{"stream", amqp.Table{"x-queue-type": "stream"}, rabbitmq.QueueDescription{Type: "stream"}},
	} {
		if _, err := ch.QueueDeclare(c.name, true, false, false, false, c.args); err != nil {
			t.Fatal(err)
		}
		got := b.describe(b.open(verify, func(conf *rabbitmq.Config) { conf.Queue = c.name })).Queue
		if len(got.Differs) == 0 {
			t.Errorf("%s: no difference is told", c.name)
		}
		t.Logf("%s: %q", c.name, got.Differs)
		c.want.Name, c.want.Exists, c.want.Differs = c.name, true, got.Differs
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s is described as\n%+v, want\n%+v", c.name, got, c.want)
		}
	}
	if _, err := ch.QueueDeclare("transient", false, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if got := b.describe(b.open(verify, func(conf *rabbitmq.Config) { conf.Queue = "transient" })).Queue; got.Type != "" || got.Unknown == "" {
		t.Errorf("a queue that is not durable is described as %+v", got)
	}
}
