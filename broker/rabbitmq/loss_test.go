package rabbitmq_test

import (
	"context"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/rabbitmq"
	"github.com/paidonce/paidonce/internal/rabbittest"
)

// Losses of connections, channels and queues. Numbers are those of the list of
// cases that users of other systems met.

// lossOf waits until a session was lost for this reason.
func (b *bench) lossOf(r *rabbitmq.Broker, why rabbitmq.Loss) {
	b.Helper()
	b.eventually("a loss of "+string(why), func() bool { return r.State().Reconnects[why] > 0 })
}

// cutBoth has the broker close both connections, and waits for new ones.
func (b *bench) cutBoth(r *rabbitmq.Broker) {
	b.Helper()
	before := r.State().Reconnects[rabbitmq.LostConnection]
	b.srv.CloseConnections(b, b.url)
	b.eventually("both connections are new", func() bool {
		s := r.State()
		return s.Reconnects[rabbitmq.LostConnection] == before+2 && s.Connected
	})
}

// worksAgain publishes a message and gets it.
func (b *bench) worksAgain(r *rabbitmq.Broker, body string) {
	b.Helper()
	b.publish(r, body)
	d := b.one(r)
	if string(d.Body) != body {
		b.Fatalf("got %q, want %q", d.Body, body)
	}
	b.ack(r, d)
	b.wantDepth(0, 0)
}

// Case 71: the first connection is reset between the dial and the first declare.
func TestResetAtStartIsRetried(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	proxy, through := b.proxied()
	dropped := proxy.DropReplyTo([]byte("x-delivery-limit")) // in the first declare
	r := b.open(through)
	<-dropped
	b.worksAgain(r, "after the reset")
	if s := r.State(); !s.Connected || s.Reconnects[rabbitmq.NotConnected] != 1 || s.LastError == "" {
		t.Errorf("state after one reset: %+v", s)
	}
}

// A worker that starts before its broker is ready as soon as the broker is.
func TestBrokerThatComesLater(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	proxy, through := b.proxied()
	proxy.Refuse(true)
	r := b.open(through)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	b.is("publish to a broker that is not there", r.Publish(ctx, broker.Message{}), broker.ErrUnavailable)
	if s := r.State(); s.Connected || s.LastError == "" {
		t.Errorf("state without a broker: %+v", s)
	}
	proxy.Refuse(false)
	b.worksAgain(r, "here now")
}

// Case 74: one Config serves several reconnects and several brokers.
func TestOneConfigManyConnections(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.open(func(c *rabbitmq.Config) { c.URL = b.login("reconnecter", "s3cret/Pa:ss@w%rd") })
	for _, body := range []string{"one", "two", "three"} {
		b.worksAgain(r, body)
		b.cutBoth(r)
	}
	if n := r.State().Reconnects[rabbitmq.NotConnected]; n != 0 {
		t.Errorf("%d attempts to connect did not succeed", n)
	}
}

// Case 77: queues are deleted while the worker is cut off.
func TestQueuesDeletedWhileAway(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	proxy, through := b.proxied()
	r := b.open(through)
	b.worksAgain(r, "before")
	proxy.Refuse(true)
	proxy.Reset()
	ch := rabbittest.Channel(t, b.url)
	for _, q := range append(rabbitmq.RetryQueues(b.conf), b.queue, b.queue+".dead") {
		if _, err := ch.QueueDelete(q, false, false, false); err != nil {
			t.Fatal(err)
		}
	}
	proxy.Refuse(false)
	b.eventually("connected", func() bool { return r.State().Connected })
	b.publish(r, "again")
	d := b.one(r)
	if err := r.Nack(b.soon(), d, time.Millisecond); err != nil {
		t.Fatalf("nack over a retry queue that was deleted: %v", err)
	}
	b.ack(r, b.one(r))
	b.wantDepth(0, 0)
}

// Case 78: the broker closes one channel, or deletes the queue, and the rest goes on.
func TestChannelClosedByBroker(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.open()
	b.publish(r, "held")
	d := b.one(r)
	if n := b.srv.CloseChannels(t, b.url, b.queue); n != 1 {
		t.Fatalf("%d channels consume, want 1", n)
	}
	b.lossOf(r, rabbitmq.LostChannel)
	b.is("ack on a channel that is gone", r.Ack(b.soon(), d), broker.ErrNotHeld)
	again := b.one(r)
	if again.Receives != 2 {
		t.Errorf("redelivered with Receives %d, want 2", again.Receives)
	}
	b.ack(r, again)
	b.worksAgain(r, "after")
	if s := r.State(); s.Generation != 2 || s.TakenBack != 1 || s.Reconnects[rabbitmq.LostConnection] != 0 {
		t.Errorf("want a second session on the same connection: %+v", s)
	}
}

func TestChannelCrashesInBroker(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.open()
	b.publish(r, "held")
	d := b.one(r)
	b.srv.CrashChannels(t, b.url, b.queue)
	b.lossOf(r, rabbitmq.LostConnection)
	b.is("ack on a connection that is gone", r.Ack(b.soon(), d), broker.ErrNotHeld)
	b.ack(r, b.one(r))
	b.wantDepth(0, 0)
}

func TestQueueDeletedWhileConsuming(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.open()
	b.publish(r, "held")
	d := b.one(r)
	waits := make(chan error, 1)
	go func() {
		d, err := r.Receive(b.soon(), 1)
		if err == nil {
			err = r.Ack(b.soon(), d[0])
		}
		waits <- err
	}()
	b.eventually("consuming", func() bool { return b.srv.Consumers(t, b.url, b.queue) == 1 })
	if _, err := rabbittest.Channel(t, b.url).QueueDelete(b.queue, false, false, false); err != nil {
		t.Fatal(err)
	}
	b.lossOf(r, rabbitmq.LostQueue)
	b.is("ack of a delivery of a deleted queue", r.Ack(b.soon(), d), broker.ErrNotHeld)
	b.eventually("the queue was declared again", func() bool {
		return r.Publish(b.soon(), broker.Message{Body: []byte("new")}) == nil
	})
	if err := <-waits; err != nil {
		t.Errorf("the receive that waited: %v", err)
	}
	b.wantDepth(0, 0)
}

// RabbitMQ 4.3 ends the subscription, not the channel, when a delivery is held for
// too long. Here the broker is made to say so.
func TestCancelWhileQueueExistsIsAckTimeout(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.open()
	b.publish(r, "held for too long")
	d := b.one(r)
	b.srv.CancelConsumers(t, b.url, b.queue)
	b.lossOf(r, rabbitmq.LostAckTimeout)
	b.is("ack of what was taken back", r.Ack(b.soon(), d), broker.ErrNotHeld)
	b.ack(r, b.one(r))
	b.worksAgain(r, "after")
}

// A retry queue that somebody deleted is noticed by the return; the delivery stays
// held, and the queue is there for the next try.
func TestRetryQueueDeleted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.open()
	b.publish(r, "a")
	d := b.one(r)
	if _, err := rabbittest.Channel(t, b.url).QueueDelete(rabbitmq.RetryQueues(b.conf)[0], false, false, false); err != nil {
		t.Fatal(err)
	}
	b.is("nack over a queue that is not there", r.Nack(b.soon(), d, time.Millisecond), broker.ErrUnroutable)
	b.wantDepth(0, 1)
	b.eventually("the queue was declared again", func() bool { return r.Nack(b.soon(), d, time.Millisecond) == nil })
	again := b.one(r)
	if again.Receives != 2 {
		t.Errorf("came back with Receives %d, want 2", again.Receives)
	}
	b.ack(r, again)
	b.wantDepth(0, 0)
	if s := r.State(); s.Returned < 1 || s.Copies != 1 {
		t.Errorf("state: %+v", s)
	}
}

// Case 81: losses count as hand-outs for whatever was prefetched, touched or not.
func TestManyLossesOfUntouchedMessage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.open()
	b.publish(r, "untouched")
	for range 25 {
		c, err := amqp.Dial(b.url)
		if err != nil {
			t.Fatal(err)
		}
		ch, err := c.Channel()
		if err != nil {
			t.Fatal(err)
		}
		ds, err := ch.Consume(b.queue, "", false, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		<-ds
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	d := b.one(r)
	if d.Receives != 26 {
		t.Errorf("after 25 losses Receives is %d, want 26", d.Receives)
	}
	b.ack(r, d)
	b.wantDepth(0, 0)
	b.wantDead(r, nil)
}

// Case 84: the ack of an old job must not hit what the same tag names now.
func TestOldTagHitsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.open()
	b.publish(r, "first", "second", "never received")
	old := b.receive(r, 2)
	b.eventually("the third is prefetched", func() bool { return r.State().Prefetched == 1 })
	b.srv.CloseConnections(t, b.url)
	b.eventually("the loss is known", func() bool { return r.State().TakenBack == 3 })
	now := b.receive(r, 3)
	for _, d := range now {
		if d.Receives != 2 {
			t.Errorf("%q has Receives %d after the loss, want 2", d.Body, d.Receives)
		}
	}
	for _, d := range old {
		b.is("late ack", r.Ack(b.soon(), d), broker.ErrNotHeld)
		b.is("late nack", r.Nack(b.soon(), d, 0), broker.ErrNotHeld)
	}
	b.wantDepth(0, 3)
	b.ack(r, now...)
	b.wantDepth(0, 0)
}

// Two processes that began alike have receipts of their own.
func TestReceiptOfAnotherBroker(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	one, two := b.open(func(c *rabbitmq.Config) { c.Prefetch = 1 }), b.open(func(c *rabbitmq.Config) { c.Prefetch = 1 })
	b.publish(one, "a", "b")
	d1, d2 := b.one(one), b.one(two)
	b.is("ack of what another one holds", two.Ack(b.soon(), d1), broker.ErrNotHeld)
	b.is("ack of what another one holds", one.Ack(b.soon(), d2), broker.ErrNotHeld)
	b.wantDepth(0, 2)
	b.ack(one, d1)
	b.ack(two, d2)
	b.wantDepth(0, 0)
}

// Case 85: a burst of acks right before a stop. The consumer is not subscribed any
// more by then, so nothing but the flush is between the acks and the close.
func TestLastAcksArrive(t *testing.T) {
	t.Parallel()
	const n = 500
	b := newBench(t)
	r := b.open(func(c *rabbitmq.Config) { c.Prefetch = n })
	var ms []broker.Message
	for range n {
		ms = append(ms, broker.Message{Body: []byte("x")})
	}
	if err := r.Publish(b.soon(), ms...); err != nil {
		t.Fatal(err)
	}
	held := b.receive(r, n)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.Receive(ctx, 1); err == nil {
		t.Fatal("received more than was published")
	}
	b.eventually("not subscribed", func() bool { return !r.Subscribed() })
	b.ack(r, held...)
	b.close(r)
	b.wantDepth(0, 0)
}
