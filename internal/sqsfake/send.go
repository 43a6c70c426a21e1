package sqsfake

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// maxBatch is the most bytes of a message, and of a batch of them.
const maxBatch = 1 << 20

var (
	// groupID is what a group and a deduplication id may be.
	groupID        = regexp.MustCompile("^[!-~]{1,128}$")
	attributeName  = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,256}$`)
	attributeTypes = regexp.MustCompile(`^(String|Number|Binary)(\..{1,248})?$`)
)

func (s *Server) sendMessage(_ *exchange, r Request) (any, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(r.QueueUrl)
	if err != nil {
		return nil, err
	}
	return q.send(r.Entry)
}

// send takes a message in, or answers what it answered to the same one before.
func (q *queue) send(e Entry) (sent, *Error) {
	if err := q.checkMessage(e); err != nil {
		return sent{}, err
	}
	now := q.s.now()
	m := &message{body: *e.MessageBody, attributes: e.MessageAttributes, dedup: e.MessageDeduplicationId, sent: now, id: messageID()}
	if e.MessageGroupId != nil {
		m.group = *e.MessageGroupId
	}
	if t, ok := e.MessageSystemAttributes["AWSTraceHeader"]; ok {
		m.trace = string(t.value())
	}
	delay := q.seconds("DelaySeconds")
	if e.DelaySeconds != nil {
		delay = time.Duration(*e.DelaySeconds) * time.Second
	}
	m.delayed = now.Add(delay)
	reply := sent{
		MessageId: m.id, MD5OfMessageBody: md5Hex(m.body),
		MD5OfMessageAttributes: attributesMD5(m.attributes), MD5OfMessageSystemAttributes: attributesMD5(e.MessageSystemAttributes),
	}
	if q.fifo {
		if m.dedup == "" {
			sum := sha256.Sum256([]byte(m.body))
			m.dedup = hex.EncodeToString(sum[:])
		}
		key := m.dedup
		if q.attributes["DeduplicationScope"] == "messageGroup" {
			key = m.group + " " + key
		}
		if a, ok := q.dedup[key]; ok && now.Sub(a.at) < window {
			return a.reply, nil
		}
		q.sequence++
		m.sequence = fmt.Sprintf("188%017d", q.sequence*256)
		reply.SequenceNumber = m.sequence
		q.dedup[key] = accepted{reply, now}
	}
	q.messages = append(q.messages, m)
	return reply, nil
}

// messageID is a random UUID.
func messageID() string {
	b := make([]byte, 16)
	rand.Read(b) // never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (q *queue) checkMessage(e Entry) *Error {
	if e.MessageBody == nil || *e.MessageBody == "" {
		return missingParameter.with("The request must contain the parameter MessageBody.")
	}
	if !allowed(*e.MessageBody) {
		return &invalidMessageContents
	}
	if err := q.checkOrder(e); err != nil {
		return err
	}
	if e.DelaySeconds != nil {
		if q.fifo {
			return InvalidParameterValue.with("Value %d for parameter DelaySeconds is invalid. Reason: The request include parameter that is not valid for this queue type.", *e.DelaySeconds)
		}
		if err := between("DelaySeconds", *e.DelaySeconds, 0, 900); err != nil {
			return err
		}
	}
	if err := checkAttributes(e); err != nil {
		return err
	}
	if most := q.number("MaximumMessageSize"); e.size() > most {
		return InvalidParameterValue.with("One or more parameters are invalid. Reason: Message must be shorter than %d bytes.", most)
	}
	return nil
}

// checkOrder checks the group and the deduplication id.
func (q *queue) checkOrder(e Entry) *Error {
	if e.MessageGroupId != nil && !groupID.MatchString(*e.MessageGroupId) {
		return InvalidParameterValue.with("Value %s for parameter MessageGroupId is invalid. Reason: MessageGroupId can only include alphanumeric and punctuation characters. 1 to 128 in length.", *e.MessageGroupId)
	}
	if e.MessageDeduplicationId != "" && !groupID.MatchString(e.MessageDeduplicationId) {
		return InvalidParameterValue.with("Value %s for parameter MessageDeduplicationId is invalid. Reason: MessageDeduplicationId can only include alphanumeric and punctuation characters. 1 to 128 in length.", e.MessageDeduplicationId)
	}
	switch {
	case !q.fifo && e.MessageDeduplicationId != "":
		return InvalidParameterValue.with("Value %s for parameter MessageDeduplicationId is invalid. Reason: The request includes a parameter that is not valid for this queue type.", e.MessageDeduplicationId)
	case q.fifo && e.MessageGroupId == nil:
		return missingParameter.with("The request must contain the parameter MessageGroupId.")
	case q.fifo && e.MessageDeduplicationId == "" && q.attributes["ContentBasedDeduplication"] != "true":
		return InvalidParameterValue.with("The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly")
	}
	return nil
}

func checkAttributes(e Entry) *Error {
	if n := len(e.MessageAttributes); n > 10 {
		return InvalidParameterValue.with("Number of message attributes [%d] exceeds the allowed maximum [10].", n)
	}
	for name, a := range e.MessageAttributes {
		low := strings.ToLower(name)
		switch {
		case !attributeName.MatchString(name), strings.HasPrefix(low, "aws."), strings.HasPrefix(low, "amazon."), strings.HasPrefix(name, "."), strings.HasSuffix(name, "."), strings.Contains(name, ".."):
			return InvalidParameterValue.with("Message (user) attribute name '%s' is invalid.", name)
		case !attributeTypes.MatchString(a.DataType):
			return InvalidParameterValue.with("The message (user) attribute '%s' has an invalid message attribute type, the set of supported type prefixes is Binary, Number, and String.", name)
		case len(a.value()) == 0, strings.HasPrefix(a.DataType, "Binary") != (a.BinaryValue != nil):
			return InvalidParameterValue.with("The message (user) attribute '%s' must contain a non-empty value of type '%s'.", name, a.DataType)
		case a.StringValue != nil && !allowed(*a.StringValue):
			return &invalidMessageContents
		}
	}
	for name, a := range e.MessageSystemAttributes {
		if name != "AWSTraceHeader" || a.DataType != "String" {
			return InvalidParameterValue.with("Message system attribute name '%s' is invalid.", name)
		}
	}
	return nil
}

// size is what counts of a message against the limits: body and attributes.
func (e Entry) size() int {
	n := 0
	if e.MessageBody != nil {
		n = len(*e.MessageBody)
	}
	for name, a := range e.MessageAttributes {
		n += len(name) + len(a.DataType) + len(a.value())
	}
	return n
}

// allowed reports whether a text has only characters that SQS takes.
func allowed(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF
	})
}
