package sqs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/paidonce/paidonce/broker"
)

// noteAttribute is the one message attribute of ours: why a message was set aside. SQS
// takes ten in all, so everything is in it, as JSON.
const noteAttribute = "paidonce-dead"

// note is its value. Packed holds an attribute of the sender's when that had ten.
type note struct {
	Reason   string            `json:"reason"`
	Receives int               `json:"receives"`
	At       int64             `json:"at"` // Unix milliseconds
	Packed   map[string]packed `json:"packed,omitempty"`
}

type packed struct {
	Type string  `json:"type"`
	Text *string `json:"text,omitempty"`
	Raw  []byte  `json:"raw,omitempty"`
}

// DeadLetter sends a copy with the reason to the dead-letter queue and then deletes the
// original. A reason that would make the message too large is cut. Called again
// after an error it makes no second copy.
//
// Errors: as Ack; ErrUnroutable when there is no dead-letter queue; ErrTooLarge when the
// message leaves no room for the reason's code.
func (b *Broker) DeadLetter(ctx context.Context, d broker.Delivery, reason string) error {
	return b.settle(ctx, "dead-letter", d, func(h *hold, s *settlement) error {
		if !h.copied {
			if err := b.copyAside(h, reason); err != nil {
				return err
			}
			h.copied = true
		}
		err := b.delete(h, s)
		if err == nil {
			b.mu.Lock()
			b.stats.DeadLettered++
			b.mu.Unlock()
		}
		return err
	})
}

func (b *Broker) copyAside(h *hold, reason string) error {
	q, err := b.prepare(b.life)
	if err != nil {
		return sendError(b.life, err)
	}
	dead := q.dead
	if dead == "" {
		if dead, err = b.findDead(b.life, q); err != nil {
			return err
		}
	}
	e, err := aside(h.msg, note{Reason: clean(reason), Receives: count(h.msg), At: time.Now().UnixMilli()}, q.maxBody)
	if err != nil {
		return err
	}
	if b.cfg.fifo {
		// A repetition, by whomever, is one copy.
		e.MessageDeduplicationId = new(h.id + deadSuffix)
	}
	if err := b.sendAll(b.life, dead, []types.SendMessageBatchRequestEntry{e}); err != nil {
		return fmt.Errorf("dead-letter queue %s: %w", nameOf(dead), sendError(b.life, err))
	}
	return nil
}

// aside is m with a note, for the dead-letter queue.
func aside(m types.Message, n note, limit int) (types.SendMessageBatchRequestEntry, error) {
	e := again(m)
	if e.MessageAttributes == nil {
		e.MessageAttributes = map[string]types.MessageAttributeValue{}
	}
	if len(e.MessageAttributes) == maxAttributes {
		name := slices.Max(slices.Collect(maps.Keys(e.MessageAttributes)))
		v := e.MessageAttributes[name]
		delete(e.MessageAttributes, name)
		n.Packed = map[string]packed{name: {deref(v.DataType), v.StringValue, v.BinaryValue}}
	}
	for {
		text, err := json.Marshal(n)
		if err != nil {
			return e, err
		}
		e.MessageAttributes[noteAttribute] = types.MessageAttributeValue{DataType: new("String"), StringValue: new(string(text))}
		over := size(e) - limit
		if over <= 0 {
			return e, nil
		}
		const code = 5 // bytes: PO and three digits
		if len(n.Reason) <= code {
			return e, fmt.Errorf("%d bytes with the reason, at most %d: %w", size(e), limit, broker.ErrTooLarge)
		}
		n.Reason = strings.ToValidUTF8(n.Reason[:max(code, len(n.Reason)-over)], "")
	}
}

// again is a message as its sender sent it, to be sent once more: without our note, with
// its group and its trace.
func again(m types.Message) types.SendMessageBatchRequestEntry {
	e := types.SendMessageBatchRequestEntry{MessageBody: m.Body}
	e.MessageAttributes, _ = unnoted(m.MessageAttributes)
	if g := m.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)]; g != "" {
		e.MessageGroupId = &g
	}
	if t := m.Attributes[string(types.MessageSystemAttributeNameAWSTraceHeader)]; t != "" {
		e.MessageSystemAttributes = map[string]types.MessageSystemAttributeValue{
			string(types.MessageSystemAttributeNameForSendsAWSTraceHeader): {DataType: new("String"), StringValue: &t}}
	}
	return e
}

// unnoted tells the sender's attributes from our note, which may be anybody's too: one
// that cannot be read is the sender's.
func unnoted(all map[string]types.MessageAttributeValue) (map[string]types.MessageAttributeValue, note) {
	var n note
	own := maps.Clone(all)
	v, ok := all[noteAttribute]
	if !ok || json.Unmarshal([]byte(deref(v.StringValue)), &n) != nil {
		return own, note{}
	}
	delete(own, noteAttribute)
	for name, p := range n.Packed {
		own[name] = types.MessageAttributeValue{DataType: new(cmp.Or(p.Type, "String")), StringValue: p.Text, BinaryValue: p.Raw}
	}
	return own, n
}

// clean takes out what SQS refuses and JSON does not escape.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == 0xFFFE || r == 0xFFFF {
			return 0xFFFD
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
