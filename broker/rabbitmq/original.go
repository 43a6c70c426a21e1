package rabbitmq

import (
	"maps"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/paidonce/paidonce/broker"
)

// original is a message as its sender published it and the broker handed it out: what a copy of it takes over. It is kept for as long as
// the delivery is held, where the driver's own would be half as large again, with texts that nobody needs.
type original struct {
	id, kind, app          string
	contentType, encoding  string
	replyTo, correlationID string
	sent                   time.Time
	headers                headers
	body                   []byte
	priority               uint8
	redelivered            bool
}

func originalOf(d *amqp.Delivery) original {
	return original{
		id: d.MessageId, kind: d.Type, app: d.AppId, contentType: d.ContentType, encoding: d.ContentEncoding,
		replyTo: d.ReplyTo, correlationID: d.CorrelationId, sent: d.Timestamp, headers: listed(d.Headers), body: d.Body,
		priority: d.Priority, redelivered: d.Redelivered,
	}
}

// receives counts the hand-outs, this one included.
func (o *original) receives() int { return o.headers.receives(o.redelivered) }

// message is what it carries of its sender.
func (o *original) message() broker.Message {
	m := broker.Message{ID: o.id, Body: o.body, Attributes: o.headers.attributes()}
	for _, a := range [...]struct{ name, text string }{{broker.ReplyTo, o.replyTo}, {broker.CorrelationID, o.correlationID}} {
		if a.text == "" {
			continue
		}
		if m.Attributes == nil {
			m.Attributes = map[string]string{}
		}
		m.Attributes[a.name] = a.text
	}
	return m
}

// copied is a copy with the sender's headers and properties, and own added
// to the headers. Expiration and UserId are not copied: the first would end its
// stay early, the second must be our own login.
func (o *original) copied(own amqp.Table) (amqp.Publishing, error) {
	headers := o.headers.senders()
	maps.Copy(headers, own)
	p := amqp.Publishing{
		Headers: headers, Body: o.body, DeliveryMode: amqp.Persistent,
		MessageId: o.id, CorrelationId: o.correlationID, Type: o.kind, AppId: o.app, ReplyTo: o.replyTo,
		ContentType: o.contentType, ContentEncoding: o.encoding, Timestamp: o.sent, Priority: o.priority,
	}
	return p, checkHeaders(p, maxCopyHeaders)
}
