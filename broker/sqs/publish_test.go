package sqs_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/sqs"
	"github.com/paidonce/paidonce/internal/sqsfake"
)

// Requests have at most ten messages and 1 MiB.
func TestPublishInRequests(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		ms := slices.Repeat([]broker.Message{{Body: []byte("x")}}, 12)
		ms = append(ms, slices.Repeat([]broker.Message{{Body: bytes.Repeat([]byte("y"), 400<<10)}}, 3)...)
		s.ok("publish", b.Publish(s.Context(), ms...))
		var sizes []int
		for _, c := range s.srv.Calls("SendMessageBatch") {
			sizes = append(sizes, c.Entries())
		}
		if !slices.Equal(sizes, []int{10, 4, 1}) {
			t.Errorf("requests of %v messages", sizes)
		}
		s.depth(15, 0)
	})
}

// Entries that SQS could not store are sent again, alone; a refused one is an error
// that says which message and why.
func TestEntriesOfAPublishFail(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.Script(sqsfake.Fault{Action: "SendMessageBatch", Entries: []sqsfake.EntryFault{{Index: 1, Error: sqsfake.InternalError}}})
		s.ok("publish", b.Publish(s.Context(), broker.Message{Body: []byte("a")}, broker.Message{Body: []byte("b")}, broker.Message{Body: []byte("c")}))
		if n := s.srv.CountEntries("SendMessageBatch"); n != 4 {
			t.Errorf("%d entries sent, want 4", n)
		}
		s.depth(3, 0)
		s.srv.Script(sqsfake.Fault{Action: "SendMessageBatch", Entries: []sqsfake.EntryFault{{Index: -1, Error: sqsfake.AccessDenied}}})
		s.is("refused publish", b.Publish(s.Context(), broker.Message{Body: []byte("d")}), sqs.ErrRefused)
		s.depth(3, 0)
	})
}

// What SQS cannot carry is refused before anything is sent, with what and where.
func TestPublishRefuses(t *testing.T) {
	many := map[string]string{}
	for i := range 11 {
		many[fmt.Sprint("a", i)] = "x"
	}
	one := func(name, value string) map[string]string { return map[string]string{name: value} }
	for want, m := range map[string]broker.Message{
		"the body is empty": {},
		"the body has a byte or character at position 3":        {Body: []byte("abc\x1b")},
		"the body has a byte or character at position 1":        {Body: []byte("a\xff")},
		"the body has a byte or character at position 2":        {Body: []byte("ab\uFFFF")},
		"attribute k has a byte or character at position 0":     {Body: []byte("x"), Attributes: one("k", "\x00")},
		"attribute k is empty":                                  {Body: []byte("x"), Attributes: one("k", "")},
		`attribute name "a b"`:                                  {Body: []byte("x"), Attributes: one("a b", "v")},
		"AWS keeps such names":                                  {Body: []byte("x"), Attributes: one("AWS.x", "v")},
		"11 attributes, at most 10":                             {Body: []byte("x"), Attributes: many},
		`MessageGroupId "a b": want 1 to 128`:                   {Body: []byte("x"), Attributes: one("MessageGroupId", "a b")},
		`MessageDeduplicationId "`:                              {Body: []byte("x"), Attributes: one("MessageDeduplicationId", strings.Repeat("d", 129))},
		"1048577 bytes with attributes, at most 1048576: PO104": {Body: bytes.Repeat([]byte("x"), 1<<20-7), Attributes: one("k", "v")},
	} {
		onFIFO(t, func(s *stage) {
			b := s.open()
			err := b.Publish(s.Context(), broker.Message{Body: []byte("fine")}, m)
			if err == nil || !strings.Contains(err.Error(), "message 2: ") || !strings.Contains(err.Error(), want) ||
				!strings.Contains(err.Error(), "PO153") && !strings.Contains(err.Error(), "PO104") {
				t.Errorf("got %v, want an error with %q", err, want)
			}
			s.depth(0, 0)
		})
	}
	onStage(t, func(s *stage) { // what is allowed comes through
		b := s.open()
		body := "\t\n\r \u0085 \uFFFD \U0010FFFF \x7f"
		s.ok("publish", b.Publish(s.Context(), broker.Message{Body: []byte(body)}))
		if d := s.receive(b, 1, time.Second)[0]; string(d.Body) != body {
			t.Errorf("got %q", d.Body)
		}
	})
}

// Case 48: equal bodies are different messages, also on FIFO. A group and a deduplication
// id that are given are used; without a group nothing waits for another message.
func TestPublishToFIFO(t *testing.T) {
	onFIFO(t, func(s *stage) {
		b := s.open()
		same := broker.Message{Body: []byte("same")}
		s.ok("publish", b.Publish(s.Context(), same, same))
		s.ok("publish", b.Publish(s.Context(), same))
		ds := s.receive(b, 3, time.Second) // all at once
		s.ackAll(b, ds)
		given := broker.Message{Body: []byte("x"), Attributes: map[string]string{sqs.GroupAttribute: "g", sqs.DeduplicationAttribute: "d", "mine": "1"}}
		s.ok("publish", b.Publish(s.Context(), given))
		s.ok("publish", b.Publish(s.Context(), given))
		s.depth(1, 0)
		d := s.receive(b, 1, time.Second)[0]
		if d.Facts.Group != "g" || len(d.Attributes) != 1 || d.Attributes["mine"] != "1" {
			t.Errorf("facts %+v, attributes %v", d.Facts, d.Attributes)
		}
		s.ok("ack", b.Ack(s.Context(), d))
		s.depth(0, 0)
	})
}

// A FIFO publish whose reply is lost is stored once.
func TestLostPublishReplyOnFIFO(t *testing.T) {
	onFIFO(t, func(s *stage) {
		b := s.open()
		s.srv.Script(sqsfake.Fault{Action: "SendMessageBatch", Kind: sqsfake.Reset, Done: true})
		s.ok("publish", b.Publish(s.Context(), broker.Message{Body: []byte("x")}))
		s.depth(1, 0)
	})
}

// A publish that cannot be confirmed says so with the cause.
func TestPublishEndsWithItsContext(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.Script(sqsfake.Fault{Action: "SendMessageBatch", Before: time.Minute})
		ctx, cancel := context.WithTimeoutCause(s.Context(), time.Second, errStop)
		defer cancel()
		err := b.Publish(ctx, broker.Message{Body: []byte("x")})
		s.is("publish", err, errStop)
		s.is("publish", err, broker.ErrUnavailable)
	})
}
