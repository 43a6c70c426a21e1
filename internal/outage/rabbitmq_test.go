package outage_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/brokertest"
	"github.com/paidonce/paidonce/broker/rabbitmq"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/internal/rabbittest"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// RabbitMQ is killed in the middle of a load and comes back. What was handed out comes
// again and finds its job running or done.
func TestRabbitMQKilled(t *testing.T) {
	r := newRig(t, modelserver.Options{Latency: 300 * time.Millisecond})
	docs := names(120)
	n := r.start("w1", r.ledger(r.direct, postgres.Options{}))
	time.Sleep(rabbittest.SettleTime) // the queues must have reached the disk
	r.publish(docs...)
	r.awaitBilled(40)
	r.rabbit.Kill9(t)
	r.rabbit.Restart(t)
	if done := r.count("select count(*) from paidonce.job where state = 'done'"); done >= len(docs) {
		t.Fatal("the load was over before the kill")
	}
	r.awaitDone(len(docs))
	r.awaitEmpty()
	if s := n.broker.(*rabbitmq.Broker).State(); s.Generation < 2 || s.TakenBack == 0 {
		t.Errorf("the adapter noticed nothing: %+v", s)
	}
	n.drain()
	r.wantDone(docs, 1)
}

// The broker closes every connection, five times in a load.
func TestConnectionsClosed(t *testing.T) {
	r := newRig(t, modelserver.Options{Latency: 300 * time.Millisecond})
	docs := names(150)
	n := r.start("w1", r.ledger(r.direct, postgres.Options{}))
	r.publish(docs...)
	for i := range 5 {
		r.awaitBilled(20 * (i + 1))
		r.rabbit.CloseConnections(t, r.rabbit.conf.URL)
	}
	r.awaitDone(len(docs))
	r.awaitEmpty()
	n.drain()
	r.wantDone(docs, 1)
}

// Acks are lost on the way: the messages come back, to the same worker or to another, and
// get the saved result.
func TestLostAcks(t *testing.T) {
	r := newRig(t, modelserver.Options{})
	var mu sync.Mutex
	lost := map[string]bool{}
	r.wrap = func(s broker.Source) broker.Source {
		return brokertest.LostAck{Source: s, When: func(d broker.Delivery) bool {
			mu.Lock()
			defer mu.Unlock()
			again := lost[string(d.Body)]
			lost[string(d.Body)] = true
			return !again
		}}
	}
	docs := names(10)
	n := r.start("w1", r.ledger(r.direct, postgres.Options{}))
	r.publish(docs[:5]...)
	r.awaitDone(5)
	r.eventually("five acks are lost", func() bool { return r.noted(r.settled, "acked") == 5 })
	r.rabbit.CloseChannels(t, r.rabbit.conf.URL, r.rabbit.conf.Queue)
	r.eventually("the same worker answers them", func() bool { return r.noted(r.avoided, "ack_lost") == 5 })
	r.publish(docs[5:]...)
	r.awaitDone(10)
	r.eventually("five more acks are lost", func() bool { return r.noted(r.settled, "acked") == 15 })
	n.drain() // gives back what it holds
	n = r.start("w2", r.ledger(r.direct, postgres.Options{}))
	r.eventually("another worker answers them", func() bool { return r.noted(r.avoided, "redelivered") == 5 })
	r.publish(docs...) // new messages of finished jobs
	r.eventually("duplicates are answered", func() bool { return r.noted(r.avoided, "duplicate_message") == 10 })
	r.awaitEmpty()
	n.drain()
	r.wantDone(docs, 1)
	if len(r.avoided) != 3 || r.avoided["ack_lost"] != 5 || r.avoided["redelivered"] != 5 || r.avoided["duplicate_message"] != 10 {
		t.Errorf("avoided %v", r.avoided)
	}
}

// A job outlasts the broker's ack timeout almost three times over. The ledger takes it over, also
// one whose input lies in chunks, and nothing is parked. The channel is never closed for it.
func TestAckTimeout(t *testing.T) {
	r := newRig(t, modelserver.Options{})
	r.rabbit.AckTimeout(t, 4*time.Second)
	r.rabbit.conf.AckTimeout = 4 * time.Second
	r.cfg.Lease = 3 * time.Second
	for _, d := range []string{"small", "large"} {
		r.models.Script(key(d).Text, modelserver.Fault{After: 11 * time.Second})
	}
	n := r.start("w1", r.ledger(r.direct, postgres.Options{}))
	r.publish("small")
	r.send(message(doc{Tenant: "acme", Doc: "large", Text: strings.Repeat("x", ledger.InlineInput+1)}))
	r.awaitBilled(2)
	r.eventually("the ledger carries the small one", func() bool {
		return r.count("select count(*) from paidonce.job where key = $1 and carrier = 'ledger' and state = 'running'", key("small").Text) == 1
	})
	r.awaitDone(2)
	r.awaitEmpty()
	if s := n.broker.(*rabbitmq.Broker).State(); s.Generation != 1 || s.TakenBack != 0 || s.Overdue != 0 || s.Copies != 0 {
		t.Errorf("the adapter: %+v; want one session, nothing taken back or parked", s)
	}
	n.drain()
	r.wantDone([]string{"small", "large"}, 1)
	if n := r.count("select count(*) from paidonce.job where key = $1 and carrier = 'ledger' and input_kept and runs = 1", key("large").Text); n != 1 {
		t.Error("the large one is not carried by the ledger, or ran twice")
	}
}
