package outage_test

import (
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/sqs"
	"github.com/paidonce/paidonce/internal/modelserver"
	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/internal/sqsfake"
	"github.com/paidonce/paidonce/ledger/postgres"
)

const (
	receives = "ReceiveMessage"
	deletes  = "DeleteMessageBatch"
	changes  = "ChangeMessageVisibilityBatch"
)

// The replies to receives, deletes and extensions are lost, some of each, and some of their
// requests. What was received into the void comes again after its visibility timeout; a
// delete that happened is not repeated in vain; nothing is paid twice.
func TestSQSRepliesLost(t *testing.T) {
	t.Parallel()
	q := newSQSQueue(t)
	r := rigOn(t, pgtest.URL(t), q, modelserver.Options{Latency: 3 * time.Second}) // extensions are due
	docs := names(120)
	for _, action := range []string{receives, deletes, changes} {
		q.proxy.Script(sqsfake.Fault{Action: action}, sqsfake.Fault{Action: action, Kind: sqsfake.Reset, Done: true, Times: 2},
			sqsfake.Fault{Action: action}, sqsfake.Fault{Action: action, Kind: sqsfake.Reset})
	}
	n := r.start("w1", r.ledger(r.direct, postgres.Options{}))
	r.publish(docs...)
	r.awaitDone(len(docs))
	r.awaitEmpty()
	n.drain()
	r.wantDone(docs, 1)
	for _, action := range []string{receives, deletes, changes} {
		met := 0
		for _, c := range q.proxy.Calls(action) {
			if c.Fault != "" {
				met++
			}
		}
		if met != 3 {
			t.Errorf("%d of %s were lost, want 3", met, action)
		}
	}
	if r.noted(r.avoided, "duplicate_message") != 0 {
		t.Errorf("avoided %v: every message was sent once", r.avoided)
	}
}

// SQS answers 503 to everything for two visibility timeouts, in the middle of a load. What
// was under way is finished, and answered from the ledger when its message comes again.
func TestSQSUnavailable(t *testing.T) {
	t.Parallel()
	q := newSQSQueue(t)
	r := rigOn(t, pgtest.URL(t), q, modelserver.Options{Latency: 500 * time.Millisecond})
	docs := names(150)
	n := r.start("w1", r.ledger(r.direct, postgres.Options{}))
	r.publish(docs...)
	r.awaitBilled(50)
	q.proxy.Script(sqsfake.Fault{Kind: sqsfake.Refuse, Error: sqsfake.Unavailable, Times: -1})
	billed := len(r.models.Bill())
	time.Sleep(2 * visibility)
	q.proxy.ClearFaults()
	if s := n.broker.(*sqs.Broker).State(); s.AckCodes["ServiceUnavailable"] == 0 {
		t.Errorf("no delete was refused: %+v", s)
	}
	if billed >= len(docs) {
		t.Fatal("the load was over before the fault")
	}
	r.awaitDone(len(docs))
	r.awaitEmpty()
	n.drain()
	r.wantDone(docs, 1)
}
