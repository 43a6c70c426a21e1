package rabbitmq_test

import (
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/rabbitmq"
	"github.com/paidonce/paidonce/internal/rabbittest"
)

// redrive puts the dead letters back for which pick is true.
func (b *bench) redrive(r *rabbitmq.Broker, pick func(broker.DeadLetter) bool) error {
	return r.Review(b.soon(), 10, func(d broker.DeadLetter) broker.Fate {
		if pick(d) {
			return broker.Redrive
		}
		return broker.Keep
	})
}

// One that the broker set aside itself, at the delivery limit, can be redriven and
// delayed as one that a person set aside (brokertest has that).
func TestDeliveryLimitDeadLetters(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.open()
	b.publish(r, "poison")
	ch := rabbittest.Channel(t, b.url)
	ds, err := ch.Consume(b.queue, "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	limit := time.After(net)
	for n := 0; n <= 1000; n++ {
		select {
		case d := <-ds:
			if err := d.Nack(false, true); err != nil {
				t.Fatal(err)
			}
		case <-limit:
			t.Fatalf("only %d deliveries", n)
		}
	}
	if err := ch.Close(); err != nil {
		t.Fatal(err)
	}
	b.wantDepth(0, 0)
	b.eventually("a dead letter", func() bool {
		dead := b.dead(r)
		return len(dead) == 1 && dead[0].Reason == "delivery_limit" && dead[0].At.IsZero() && dead[0].Receives == 0
	})
	if err := b.redrive(r, func(broker.DeadLetter) bool { return true }); err != nil {
		t.Fatalf("redrive: %v", err)
	}
	b.wantDead(r, nil)
	d := b.one(r)
	if d.Receives != 1 || len(d.Attributes) != 0 {
		t.Errorf("redriven with Receives %d and attributes %v", d.Receives, d.Attributes)
	}
	if err := r.Nack(b.soon(), d, time.Millisecond); err != nil {
		t.Fatalf("nack: %v", err)
	}
	b.ack(r, b.one(r))
	b.wantDepth(0, 0)
}

// Case 83: a redrive that is cut in the middle loses nothing, and picks only what
// it is told to. Listing uses nothing up.
func TestRedriveIsCut(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	proxy, through := b.proxied()
	direct, r := b.open(), b.open(through)
	reasons := map[string]string{}
	for _, body := range []string{"a", "b", "c", "d", "stays"} {
		b.publish(direct, body)
		if err := direct.DeadLetter(b.soon(), b.one(direct), "PO401 "+body); err != nil {
			t.Fatal(err)
		}
		reasons[body] = "PO401 " + body
	}
	b.wantDead(direct, reasons)
	b.wantDead(direct, reasons)
	picked := 0
	err := b.redrive(r, func(d broker.DeadLetter) bool {
		if picked++; picked == 3 {
			proxy.Reset()
		}
		return string(d.Body) != "stays"
	})
	if !errors.Is(err, broker.ErrUnavailable) || picked != 3 {
		t.Fatalf("redrive over a connection that was cut: %d picked and error %v", picked, err)
	}
	// The two before the cut are moved, or (their ack was lost) in both places.
	b.eventually("the rest can be redriven", func() bool {
		return b.redrive(direct, func(d broker.DeadLetter) bool { return string(d.Body) != "stays" }) == nil
	})
	got := map[string]int{}
	for len(got) < 4 {
		d := b.one(direct)
		got[string(d.Body)]++
		b.ack(direct, d)
	}
	if got["stays"] != 0 {
		t.Errorf("redriven although not picked: %v", got)
	}
	b.wantDead(direct, map[string]string{"stays": "PO401 stays"})
}

// Messages of other senders keep what AMQP can say, over a delay and into the dead
// letters: types of headers, properties. The broker's own headers do not show.
func TestForeignMessageKeepsItsShape(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.open()
	ch := rabbittest.Channel(t, b.url)
	sent := amqp.Publishing{
		Headers: amqp.Table{"n": int64(1 << 40), "s": "text", "yes": true, "raw": []byte{1, 2}, "list": []any{int32(1)},
			"x-death": []any{amqp.Table{"queue": b.queue, "reason": "expired"}}, "x-first-death-queue": "q"},
		ContentType: "application/json", ContentEncoding: "identity", CorrelationId: "c", Type: "t", AppId: "app", ReplyTo: "reply",
		MessageId: "id-1", UserId: "guest", Expiration: "600000", Priority: 3, Timestamp: time.Unix(1700000000, 0).UTC(), DeliveryMode: 2, Body: []byte("{}"),
	}
	dc, err := ch.PublishWithDeferredConfirm("", b.queue, true, false, sent)
	if err != nil || !dc.Wait() {
		t.Fatalf("publish: %v", err)
	}
	d := b.one(r)
	want := map[string]string{"n": "1099511627776", "s": "text", "yes": "true", "raw": "\x01\x02", "reply_to": "reply", "correlation_id": "c"}
	if len(d.Attributes) != len(want) || d.ID != "id-1" {
		t.Errorf("attributes %q and id %q", d.Attributes, d.ID)
	}
	for name, v := range want {
		if d.Attributes[name] != v {
			t.Errorf("attribute %s is %q, want %q", name, d.Attributes[name], v)
		}
	}
	if err := r.Nack(b.soon(), d, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := r.DeadLetter(b.soon(), b.one(r), "PO401 x"); err != nil {
		t.Fatal(err)
	}
	raw, ok, err := ch.Get(b.queue+".dead", true)
	if err != nil || !ok {
		t.Fatalf("get the dead letter: %v, %v", ok, err)
	}
	h := raw.Headers
	if h["n"] != int64(1<<40) || h["yes"] != true || h["x-paidonce-receives"] != int64(2) || h["x-paidonce-reason"] != "PO401 x" || h["x-death"] != nil || h["x-first-death-queue"] != nil {
		t.Errorf("headers of the dead letter: %v", h)
	}
	if raw.ContentType != sent.ContentType || raw.ContentEncoding != sent.ContentEncoding || raw.CorrelationId != "c" || raw.Type != "t" || raw.AppId != "app" ||
		raw.ReplyTo != "reply" || raw.MessageId != "id-1" || raw.Priority != 3 || !raw.Timestamp.Equal(sent.Timestamp) || raw.UserId != "" || raw.Expiration != "" {
		t.Errorf("properties of the dead letter: %+v", raw)
	}
	b.wantDepth(0, 0)
}

// Attributes with names that the broker acts on are not sent, and what would
// break the connection is refused instead.
func TestAttributesThatWouldDoHarm(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.open()
	err := r.Publish(b.soon(), broker.Message{Body: []byte("x"), Attributes: map[string]string{"CC": "elsewhere", "x-death": "no", "x-paidonce-receives": "9", "mine": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	d := b.one(r)
	if len(d.Attributes) != 1 || d.Attributes["mine"] != "1" || d.Receives != 1 {
		t.Errorf("got attributes %v and Receives %d", d.Attributes, d.Receives)
	}
	b.ack(r, d)
	long := string(make([]byte, 300))
	for what, m := range map[string]broker.Message{
		"id": {ID: long}, "name": {Attributes: map[string]string{long: "v"}}, "headers": {Attributes: map[string]string{"a": string(make([]byte, 100<<10))}},
	} {
		b.is("publish with a long "+what, r.Publish(b.soon(), m), broker.ErrTooLarge)
	}
	b.worksAgain(r, "on the same connection")
	if s := r.State(); len(s.Reconnects) != 0 {
		t.Errorf("a connection was lost: %+v", s)
	}
}
