package sqs

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/paidonce/paidonce/broker"
)

// FuzzMessage: whatever a queue hands out is a delivery, whose count and times are usable, and a note that anybody may
// have written hides no attribute of the sender's.
func FuzzMessage(f *testing.F) {
	f.Add("{}", "", "3", "1700000000000", "job", "ticket.summary", "")
	f.Add("{}", "99914b932bd37a50b983c5e7c90ae93b", "-9223372036854775808", "9223372036854775807", "job", "x", `{"reason":"r","packed":{"job":{"Text":"other"}}}`)
	f.Add("\xff", "x", "99999999999999999999", "NaN", "", "\x00", `{"packed":{"":{"Raw":"AA=="}}}`)
	f.Fuzz(func(t *testing.T, body, sum, receives, sent, name, value, noted string) {
		m := types.Message{MessageId: new("m"), Body: &body, MD5OfBody: &sum, Attributes: map[string]string{
			string(types.MessageSystemAttributeNameApproximateReceiveCount): receives, string(types.MessageSystemAttributeNameSentTimestamp): sent},
			MessageAttributes: map[string]types.MessageAttributeValue{name: {DataType: new("String"), StringValue: &value}}}
		if noted != "" {
			m.MessageAttributes[noteAttribute] = types.MessageAttributeValue{DataType: new("String"), StringValue: &noted}
		}
		b := &Broker{}
		got := b.delivery(b.hold(m, receipts{}))
		if string(got.Body) != body || got.Receives < 1 {
			t.Fatalf("%+v of the body %q, handed out %q times", got, body, receives)
		}
		_, n := unnoted(m.MessageAttributes)
		if _, packed := n.Packed[name]; !packed && name != noteAttribute && got.Attributes[name] != value {
			t.Fatalf("attribute %q is %q, want %q", name, got.Attributes[name], value)
		}
		if intact(m) && sum != "" && len(sum) != 32 {
			t.Fatalf("the checksum %q fits", sum)
		}
		if c := clean(value); !utf8.ValidString(c) || strings.ContainsAny(c, "\uFFFE\uFFFF") {
			t.Fatalf("%q is cleaned to %q", value, c)
		}
		if again := message(types.Message{MessageId: m.MessageId, Body: &body, MessageAttributes: m.MessageAttributes}); !same(again, got.Message) {
			t.Fatalf("%+v, then %+v", got.Message, again)
		}
	})
}

func same(a, b broker.Message) bool {
	if len(a.Attributes) != len(b.Attributes) || a.ID != b.ID || string(a.Body) != string(b.Body) {
		return false
	}
	for name, v := range a.Attributes {
		if w, ok := b.Attributes[name]; !ok || v != w {
			return false
		}
	}
	return true
}
