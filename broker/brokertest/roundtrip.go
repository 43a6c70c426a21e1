package brokertest

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/paidonce/paidonce/broker"
)

// roundTripCases: what is published is what is received.
var roundTripCases = []testCase{
	{"round trip", "a handler gets other bytes or other attributes than the sender sent", roundTrip},
	{"ids and receipts", "two hand-outs cannot be told apart, so settling one settles another", idsAndReceipts},
	{"publish several", "a batch is stored in part while Publish says all of it was", publishSeveral},
	{"publish order", "a broker that promises order mixes messages up", publishOrder},
	{"publish to a missing queue", "messages vanish when the queue is not there", publishMissing},
	{"publish too large", "a message the broker cannot take is lost in silence, or blocks those after it", publishTooLarge},
}

// bodies returns a body for each shape the broker takes.
func (e *env) bodies() map[string][]byte {
	mb := 1 << 20
	if e.MaxBody > 0 {
		mb = min(mb, e.MaxBody)
	}
	// Attributes may count in a broker's limit: keep clear of it here.
	bs := map[string][]byte{
		"json":    []byte(`{"tenant":"acme","doc":"9821","rev":3}`),
		"unicode": []byte("Grüße, 世界, 👋🏽, e\u0301"),
		"large":   bytes.Repeat([]byte("0123456789abcdef"), (mb-4096)/16),
	}
	if e.MinBody == 0 {
		bs["empty"] = []byte{}
	}
	if !e.TextOnly {
		b := make([]byte, 512)
		for i := range b {
			b[i] = byte(i)
		}
		bs["binary"] = b
	}
	return bs
}

func roundTrip(e *env) {
	attrs := []map[string]string{
		nil,
		{"trace": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		{"greeting": "Grüße 世界 👋🏽", "x-a.b_c": `quotes " and \ and ; = ,`, "long": strings.Repeat("v", 1000)},
	}
	for name, body := range e.bodies() {
		for _, a := range attrs {
			want := broker.Message{Body: body, Attributes: a}
			e.publish(want)
			d := e.one(e.Source)
			e.same(d.Message, want)
			e.ack(e.Source, d)
			if e.Failed() {
				e.Fatalf("round trip of the %s body with attributes %q", name, a)
			}
		}
	}
	e.drained()
}

func idsAndReceipts(e *env) {
	e.publishText("a", "b", "c")
	ids, receipts := map[string]string{}, map[string]bool{}
	see := func(d broker.Delivery) {
		if receipts[d.Receipt] {
			e.Errorf("receipt %q was given out twice", d.Receipt)
		}
		receipts[d.Receipt] = true
		if body, ok := ids[d.ID]; ok && body != string(d.Body) {
			e.Errorf("id %q names both %q and %q", d.ID, body, d.Body)
		}
		ids[d.ID] = string(d.Body)
	}
	for _, d := range e.collect(e.Source, 3) {
		see(d)
		if err := e.Source.Nack(e.patient(), d, 0); err != nil {
			e.Fatalf("nack: %v", err)
		}
	}
	for _, d := range e.collect(e.Source, 3) {
		see(d)
		e.ack(e.Source, d)
	}
	if len(ids) != 3 {
		e.Errorf("3 messages handed out twice had %d ids, want 3: an id stays with its message", len(ids))
	}
	e.drained()
}

func publishSeveral(e *env) {
	if err := e.Publisher.Publish(e.patient()); err != nil {
		e.Errorf("publish of no message: %v", err)
	}
	want := map[string]bool{}
	var ms []broker.Message
	for i := range 25 {
		body := fmt.Sprintf("message %d", i)
		want[body] = true
		ms = append(ms, broker.Message{Body: []byte(body), Attributes: map[string]string{"n": body}})
	}
	e.publish(ms...)
	e.total(25)
	for _, d := range e.collect(e.Source, 25) {
		if body := string(d.Body); !want[body] || d.Attributes["n"] != body {
			e.Errorf("got %q with attributes %q: unknown, doubled or mixed up", body, d.Attributes)
		}
		delete(want, string(d.Body))
		e.ack(e.Source, d)
	}
	if len(want) > 0 {
		e.Errorf("never handed out: %v", want)
	}
	e.drained()
}

func publishOrder(e *env) {
	const n = 30
	for i := range n {
		e.publishText(fmt.Sprint(i))
	}
	var got []string
	for len(got) < n {
		for _, d := range e.receive(e.Source, 4) {
			got = append(got, string(d.Body))
			e.ack(e.Source, d)
		}
	}
	if e.Ordered {
		for i, body := range got {
			if body != fmt.Sprint(i) {
				e.Fatalf("handed out in the order %v", got)
			}
		}
	}
	e.drained()
}

func publishMissing(e *env) {
	err := e.MissingQueue().Publish(e.patient(), broker.Message{Body: []byte("lost?")})
	e.is("publish to a queue that does not exist", err, broker.ErrUnroutable)
	e.drained()
}

func publishTooLarge(e *env) {
	if e.MaxBody == 0 {
		e.Skip("this broker has no limit")
	}
	e.publishText("held")
	held := e.one(e.Source)
	fill := func(n int) broker.Message { return broker.Message{Body: bytes.Repeat([]byte("x"), n)} }

	e.is("publish of one byte too many", e.Publisher.Publish(e.patient(), fill(e.MaxBody+1)), broker.ErrTooLarge)
	e.depth(0, 1)
	want := fill(e.MaxBody)
	e.publish(want)
	d := e.one(e.Source)
	e.same(d.Message, want)
	e.ack(e.Source, held, d)
	e.drained()
}
