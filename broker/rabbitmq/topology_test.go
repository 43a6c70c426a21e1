package rabbitmq_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/rabbitmq"
	"github.com/paidonce/paidonce/internal/rabbittest"
)

// A queue that exists with other properties is told at the start, with both values,
// and is left as it is.
func TestMismatchIsFinalAtStart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ch := rabbittest.Channel(t, b.url)
	if _, err := ch.QueueDeclare(b.queue, true, false, false, false, amqp.Table{"x-queue-type": "classic"}); err != nil {
		t.Fatal(err)
	}
	_, err := rabbitmq.Open(b.soon(), b.conf)
	b.is("open", err, rabbitmq.ErrMismatch)
	for _, want := range []string{"PO142", b.queue, "received", "but current is"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %s: %v", want, err)
		}
	}
	if _, err := ch.QueueDeclarePassive(b.queue, true, false, false, false, nil); err != nil {
		t.Errorf("the queue that was there: %v", err)
	}
}

// The same when the broker is not there at the start: the first declare decides.
func TestMismatchIsFinalWhenTheBrokerComesLater(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if _, err := rabbittest.Channel(t, b.url).QueueDeclare(b.queue, true, false, false, false, amqp.Table{"x-queue-type": "classic"}); err != nil {
		t.Fatal(err)
	}
	proxy, through := b.proxied()
	proxy.Refuse(true)
	r := b.open(through)
	proxy.Refuse(false)
	ds, err := r.Receive(b.soon(), 1)
	b.is("receive", err, rabbitmq.ErrMismatch)
	b.is("publish", r.Publish(b.soon(), broker.Message{}), rabbitmq.ErrMismatch)
	if len(ds) > 0 {
		t.Error("deliveries beside an error")
	}
	b.close(r)
}

// Once the queues were right, a mismatch is somebody's change under way: it is tried
// again until it is right again.
func TestLaterMismatchIsRetried(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	proxy, through := b.proxied()
	r := b.open(through)
	b.worksAgain(r, "before")
	proxy.Refuse(true)
	proxy.Reset()
	ch := rabbittest.Channel(t, b.url)
	replace := func(args amqp.Table) {
		t.Helper()
		if _, err := ch.QueueDelete(b.queue, false, false, false); err != nil {
			t.Fatal(err)
		}
		if args != nil {
			if _, err := ch.QueueDeclare(b.queue, true, false, false, false, args); err != nil {
				t.Fatal(err)
			}
		}
	}
	replace(amqp.Table{"x-queue-type": "classic"})
	proxy.Refuse(false)
	b.eventually("the mismatch is shown", func() bool { return strings.Contains(r.State().LastError, "PO142") })
	replace(nil)
	b.worksAgain(r, "right again")
}

// When the queues belong to somebody else, the consumer waits until all are there,
// says which are not, and creates none. Theirs may be of another type.
func TestVerifyWaitsForForeignQueues(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.open(func(c *rabbitmq.Config) { c.Declare = false })
	got := make(chan error, 1)
	go func() {
		ds, err := r.Receive(b.soon(), 1)
		if err == nil {
			err = r.Ack(b.soon(), ds[0])
		}
		got <- err
	}()
	b.eventually("the missing queues are named", func() bool {
		s := r.State()
		return !s.Connected && strings.Contains(s.LastError, b.queue+".dead") && strings.Contains(s.LastError, b.queue+".retry.50")
	})
	ch := rabbittest.Channel(t, b.url)
	for _, q := range append(rabbitmq.RetryQueues(b.conf), b.queue+".dead", b.queue) {
		if _, err := ch.QueueDeclarePassive(q, true, false, false, false, nil); err == nil {
			t.Fatalf("%s was created", q)
		}
		ch = rabbittest.Channel(t, b.url) // the error closed the other one
		if _, err := ch.QueueDeclare(q, true, false, false, false, amqp.Table{"x-queue-type": "classic"}); err != nil {
			t.Fatal(err)
		}
	}
	b.publish(r, "on a classic queue")
	if err := <-got; err != nil {
		t.Errorf("receive: %v", err)
	}
	b.publish(r, "counts no more than twice")
	d := b.one(r)
	if err := r.Nack(b.soon(), d, 0); err != nil {
		t.Fatal(err)
	}
	if d = b.one(r); d.Receives != 2 {
		t.Errorf("Receives %d, want 2", d.Receives)
	}
	b.ack(r, d)
}

// Close ends everything that waits, wherever the connection is just then.
func TestCloseWhileNotConnected(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	proxy, through := b.proxied()
	proxy.Stall() // the handshake hangs
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	conf := b.conf
	through(&conf)
	if _, err := rabbitmq.Open(ctx, conf); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("open of a broker that does not answer, until its context ends: %v", err)
	}
	proxy.Resume()
	r := b.open(through)
	proxy.Stall()
	proxy.Reset()
	waiting := make(chan error, 2)
	go func() { _, err := r.Receive(b.Context(), 1); waiting <- err }()
	go func() { waiting <- r.Publish(b.Context(), broker.Message{}) }()
	b.eventually("the loss is known", func() bool { return !r.State().Connected })
	b.within("close while not connected", func() { r.Close(b.ending(time.Second)) })
	for range 2 {
		b.within("a call that waited", func() {
			if err := <-waiting; !errors.Is(err, broker.ErrClosed) && !errors.Is(err, broker.ErrUnavailable) {
				t.Errorf("a call that waited: %v", err)
			}
		})
	}
	if err := r.Close(t.Context()); err != nil {
		t.Errorf("a second close: %v", err)
	}
}
