package rabbitmq

import (
	"maps"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// header is a value of the kinds that a sender may give a header.
func header(kind uint8, text string, n int64) any {
	switch kind % 8 {
	case 0:
		return text
	case 1:
		return n
	case 2:
		return []byte(text)
	case 3:
		return time.Unix(n, 0)
	case 4:
		return amqp.Table{text: n}
	case 5:
		return []any{text, n, nil}
	case 6:
		return nil
	}
	return float64(n)
}

// FuzzDelivery: whatever headers a message has, it is read, its hand-outs are counted from one on, and a copy of it is the
// same message without anything that a broker would take for its own.
func FuzzDelivery(f *testing.F) {
	f.Add([]byte("{}"), "job", uint8(0), "ticket.summary", int64(0), false, "")
	f.Add([]byte("{}"), headerReceives, uint8(1), "", int64(9223372036854775807), true, "q")
	f.Add([]byte("{}"), headerReceives, uint8(1), "", int64(-9223372036854775808), false, "q")
	f.Add([]byte("{}"), "x-delivery-count", uint8(1), "", int64(-5), true, "q")
	f.Add([]byte("\xff"), "x-death", uint8(5), "\x00", int64(1), false, strings.Repeat("r", 300))
	f.Fuzz(func(t *testing.T, body []byte, name string, kind uint8, text string, n int64, again bool, reply string) {
		d := amqp.Delivery{MessageId: "m", Body: body, Redelivered: again, ReplyTo: reply, Headers: amqp.Table{name: header(kind, text, n), "own": "kept"}}
		before := maps.Clone(d.Headers)
		o := originalOf(&d)
		if got := o.receives(); got < 1 {
			t.Fatalf("%v: handed out %d times", d.Headers, got)
		}
		m := o.message()
		if name != "own" && m.Attributes["own"] != "kept" {
			t.Fatalf("attributes %v", m.Attributes)
		}
		p, err := o.copied(amqp.Table{headerReceives: int64(1)})
		if err != nil {
			return // larger than a frame takes, or of a kind that has no form
		}
		for h := range p.Headers {
			if brokers(h) && h != headerReceives {
				t.Fatalf("the copy has the broker's header %q", h)
			}
		}
		o = originalOf(&amqp.Delivery{MessageId: p.MessageId, Body: p.Body, ReplyTo: p.ReplyTo, Headers: p.Headers})
		if c := o.message(); string(c.Body) != string(m.Body) || !maps.Equal(c.Attributes, m.Attributes) {
			t.Fatalf("the copy reads %+v, want %+v", c, m)
		}
		if len(d.Headers) != len(before) {
			t.Fatal("the delivery's own headers were changed")
		}
	})
}
