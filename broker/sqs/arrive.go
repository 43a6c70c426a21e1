package sqs

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/paidonce/paidonce/broker"
)

// arrive takes the messages of one answer into the books. b.mu is held.
func (b *Broker) arrive(r receipts) {
	b.drop(time.Now())
	var corrupt []*hold          // last one first
	spoiled := map[string]bool{} // groups of corrupt
	for _, m := range r.messages {
		h := b.hold(m, r)
		b.stats.Messages++
		if count(m) > 1 {
			b.stats.Redelivered++
		}
		name := m.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)]
		switch bad := !intact(m); {
		case bad:
			b.stats.Corrupt++
			b.cfg.Logger.Warn("message does not match its checksum; given back", "message_id", h.id)
			fallthrough
		case b.cfg.fifo && spoiled[name]: // it must not overtake the one that goes back
			spoiled[name] = true
			corrupt = slices.Insert(corrupt, 0, h)
		case b.cfg.fifo:
			b.join(name, h)
		default:
			b.holds[h.receipt] = h
			b.kept = append(b.kept, h)
		}
	}
	b.giveBack(corrupt, time.Second) // not at once: it may be corrupt again
}

// join puts h at the end of its group. b.mu is held.
func (b *Broker) join(name string, h *hold) {
	b.prune(b.groups[name], h)
	g := b.groups[name]
	if g == nil {
		g = &group{name: name}
		b.groups[name] = g
	}
	h.group = g
	g.holds = append(g.holds, h)
	b.holds[h.receipt] = h
	if len(g.holds) == 1 {
		b.kept = append(b.kept, h)
	}
}

// prune takes out what h shows to be lost: what lapsed, and an earlier hand-out of the
// same message. b.mu is held.
func (b *Broker) prune(g *group, h *hold) {
	if g == nil {
		return
	}
	now := time.Now()
	for i, other := range g.holds {
		if other.id == h.id || i == 0 && other.lapsed(now) {
			b.lose(other)
			return
		}
	}
}

// hold makes the books' entry for a message. b.mu is held.
func (b *Broker) hold(m types.Message, r receipts) *hold {
	b.serial++
	end := r.asked.Add(maxHold - holdMargin)
	// The visibility timeout began before the answer did.
	deadline := r.handed.Add(b.visibility - min(time.Second, b.visibility/5))
	if deadline.After(end) {
		deadline = end
	}
	return &hold{
		serial: b.serial, receipt: fmt.Sprintf("%s-%d", b.id, b.serial), handle: deref(m.ReceiptHandle), id: deref(m.MessageId), msg: m,
		arrived: time.Now(), turn: make(chan struct{}, 1), deadline: deadline, end: end,
	}
}

// delivery is what a caller sees of h.
func (b *Broker) delivery(h *hold) broker.Delivery {
	a := h.msg.Attributes
	return broker.Delivery{
		Message: message(h.msg), Receipt: h.receipt, Receives: count(h.msg), Deadline: h.deadline,
		Facts: broker.Facts{
			Group: a[string(types.MessageSystemAttributeNameMessageGroupId)],
			Sent:  stamp(a[string(types.MessageSystemAttributeNameSentTimestamp)]),
			First: stamp(a[string(types.MessageSystemAttributeNameApproximateFirstReceiveTimestamp)]),
			Trace: a[string(types.MessageSystemAttributeNameAWSTraceHeader)],
		},
	}
}

// message is what a sender sent. Binary attributes become strings of their bytes.
func message(m types.Message) broker.Message {
	out := broker.Message{ID: deref(m.MessageId), Body: []byte(deref(m.Body))}
	own, _ := unnoted(m.MessageAttributes)
	if len(own) == 0 {
		return out
	}
	out.Attributes = make(map[string]string, len(own))
	for name, v := range own {
		if v.StringValue != nil {
			out.Attributes[name] = *v.StringValue
		} else {
			out.Attributes[name] = string(v.BinaryValue)
		}
	}
	return out
}

// intact compares the body with the checksum that SQS sent along. A server that sends
// none is believed.
func intact(m types.Message) bool {
	if deref(m.MD5OfBody) == "" {
		return true
	}
	sum := md5.Sum([]byte(deref(m.Body)))
	return hex.EncodeToString(sum[:]) == *m.MD5OfBody
}

// count is how often m was handed out.
func count(m types.Message) int {
	n, err := strconv.Atoi(m.Attributes[string(types.MessageSystemAttributeNameApproximateReceiveCount)])
	if err != nil || n < 1 {
		return 1 // it is being handed out, whatever the server says
	}
	return n
}

// stamp reads a time in milliseconds; zero when there is none.
func stamp(ms string) time.Time {
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(n)
}
