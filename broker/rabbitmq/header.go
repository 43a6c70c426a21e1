package rabbitmq

import (
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/paidonce/paidonce/broker"
)

// Headers of our own, on copies only. Numbers are int64: the driver writes an int
// in 32 bits.
const (
	ownPrefix      = "x-paidonce-"
	headerReceives = ownPrefix + "receives" // hand-outs before this copy
	headerReason   = ownPrefix + "reason"   // why it is a dead letter
	headerDeadAt   = ownPrefix + "dead-at"  // when it became one, Unix milliseconds
)

// Headers must fit into one frame with the properties (128 KiB unless the broker is
// configured otherwise), or the connection goes. A copy has more of them.
const (
	maxHeaders     = 96 << 10
	maxCopyHeaders = 124 << 10
)

// maxProperty is the longest text of a property, in bytes. What is longer stays a header.
const maxProperty = 255

// brokers says which headers are the broker's own. A copy must not carry them:
// 3.x reads a client's x-death as the message's history and silently drops what
// looks like a cycle, and CC sends a second copy to whoever it names.
func brokers(name string) bool {
	switch name {
	case "x-death", "x-delivery-count", "x-acquired-count", "x-delivery-time", "CC", "BCC", "x-delay":
		return true
	}
	return strings.HasPrefix(name, "x-first-death-") || strings.HasPrefix(name, "x-last-death-") ||
		strings.HasPrefix(name, "x-opt-") || strings.HasPrefix(name, ownPrefix)
}

// headers are those of a message. What is held keeps a list of them: a table of two takes four times as much.
type headers []entry

type entry struct {
	name  string
	value any
}

func listed(t amqp.Table) headers {
	hs := make(headers, 0, len(t))
	for name, v := range t {
		hs = append(hs, entry{name, v})
	}
	return hs
}

// senders are the sender's own headers, with their types.
func (hs headers) senders() amqp.Table {
	t := make(amqp.Table, len(hs))
	for _, h := range hs {
		if !brokers(h.name) {
			t[h.name] = h.value
		}
	}
	return t
}

// number is the header's value if it is an int64.
func (hs headers) number(name string) (int64, bool) {
	for _, h := range hs {
		if h.name == name {
			n, ok := h.value.(int64)
			return n, ok
		}
	}
	return 0, false
}

// attributes are the sender's headers as text. Nested tables and lists, which no
// attribute can be, are left out.
func (hs headers) attributes() map[string]string {
	var as map[string]string
	for _, h := range hs {
		if brokers(h.name) {
			continue
		}
		var text string
		switch v := h.value.(type) {
		case amqp.Table, []any:
			continue
		case nil:
		case string:
			text = v
		case []byte:
			text = string(v)
		case time.Time:
			text = v.UTC().Format(time.RFC3339)
		default:
			text = fmt.Sprint(v)
		}
		if as == nil {
			as = make(map[string]string, len(hs))
		}
		as[h.name] = text
	}
	return as
}

// mostReceives is the largest count that is believed: anybody may write the header of our copies.
const mostReceives = 1 << 30

// receives counts the hand-outs of a message, this one included: what our copies counted,
// plus what the broker counts since the last copy.
func (hs headers) receives(redelivered bool) int {
	before, _ := hs.number(headerReceives)
	n, ok := hs.number("x-acquired-count")
	if !ok {
		n, ok = hs.number("x-delivery-count")
	}
	if !ok && redelivered {
		n = 1 // a classic queue knows no more than that
	}
	return int(min(max(before, 0), mostReceives) + min(max(n, 0), mostReceives) + 1)
}

// outgoing makes what is sent for m. Attributes with a name that the broker gives
// a meaning are left out.
func outgoing(m broker.Message) (amqp.Publishing, error) {
	p := amqp.Publishing{MessageId: m.ID, Body: m.Body, DeliveryMode: amqp.Persistent, Timestamp: time.Now()}
	if p.MessageId == "" {
		p.MessageId = newID()
	}
	for name, v := range m.Attributes {
		switch {
		case brokers(name):
			continue
		case name == broker.ReplyTo && len(v) <= maxProperty:
			p.ReplyTo = v
			continue
		case name == broker.CorrelationID && len(v) <= maxProperty:
			p.CorrelationId = v
			continue
		}
		if p.Headers == nil {
			p.Headers = amqp.Table{}
		}
		p.Headers[name] = v
	}
	return p, checkHeaders(p, maxHeaders)
}

// checkHeaders refuses what would break the connection instead of the call.
func checkHeaders(p amqp.Publishing, limit int) error {
	if len(p.MessageId) > 255 {
		return fmt.Errorf("message id of %d bytes, at most 255: %w", len(p.MessageId), broker.ErrTooLarge)
	}
	if err := p.Headers.Validate(); err != nil {
		return fmt.Errorf("headers: %w", err)
	}
	size := 0
	for name, v := range p.Headers {
		if len(name) > 255 {
			return fmt.Errorf("attribute name of %d bytes, at most 255: %w", len(name), broker.ErrTooLarge)
		}
		size += len(name) + 16 + sizeOf(v)
	}
	if size > limit {
		return fmt.Errorf("attributes of %d bytes, at most %d: %w", size, limit, broker.ErrTooLarge)
	}
	return nil
}

// sizeOf is about the size of a header's value on the wire.
func sizeOf(v any) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case []byte:
		return len(v)
	case amqp.Table:
		n := 0
		for name, e := range v {
			n += len(name) + 16 + sizeOf(e)
		}
		return n
	case []any:
		n := 0
		for _, e := range v {
			n += 16 + sizeOf(e)
		}
		return n
	}
	return 16
}
