package sqs_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/sqs"
	"github.com/paidonce/paidonce/internal/sqsfake"
)

// look reviews all dead letters.
func (s *stage) look(b *sqs.Broker, decide func(broker.DeadLetter) broker.Fate) (seen []broker.DeadLetter) {
	s.Helper()
	s.ok("review", b.Review(s.Context(), 100, func(d broker.DeadLetter) broker.Fate {
		seen = append(seen, d)
		return decide(d)
	}))
	return seen
}

func keep(broker.DeadLetter) broker.Fate    { return broker.Keep }
func redrive(broker.DeadLetter) broker.Fate { return broker.Redrive }

// A sender may use all ten attributes that SQS allows; the reason still fits, and the
// message comes back whole. Types and the trace header are kept.
func TestDeadLetterWithTenAttributes(t *testing.T) {
	for _, on := range []func(*testing.T, func(*stage)){onStage, onFIFO} {
		on(t, func(s *stage) {
			b := s.open()
			attributes, want := map[string]sqsfake.Attribute{}, map[string]string{}
			for i := range 9 {
				name := fmt.Sprint("a", i)
				attributes[name], want[name] = sqsfake.Attribute{DataType: "Number", StringValue: aws.String("1")}, "1"
			}
			attributes["z"], want["z"] = sqsfake.Attribute{DataType: "Binary.x", BinaryValue: aws.String("AAH/")}, "\x00\x01\xff"
			e := sqsfake.Entry{MessageBody: aws.String("poison"), MessageAttributes: attributes,
				MessageSystemAttributes: map[string]sqsfake.Attribute{"AWSTraceHeader": {DataType: "String", StringValue: aws.String("Root=1-5759e988-bd862e3fe1be46a994272793")}}}
			if strings.HasSuffix(s.queue, ".fifo") {
				e.MessageGroupId, e.MessageDeduplicationId = aws.String("g"), "1"
			}
			s.srv.Send(s.queue, e)
			for range 2 {
				d := s.receive(b, 1, time.Second)[0]
				if !maps.Equal(d.Attributes, want) || d.Facts.Trace == "" || d.Receives != 1 {
					t.Fatalf("received %+v", d)
				}
				s.ok("dead-letter", b.DeadLetter(s.Context(), d, "PO401 \x1b\x00 \uFFFE is not JSON"))
				s.depth(0, 0)
				for range 2 {
					seen := s.look(b, keep)
					if len(seen) != 1 || !maps.Equal(seen[0].Attributes, want) || !strings.HasPrefix(seen[0].Reason, "PO401 \x1b\x00") ||
						seen[0].Receives != 1 || seen[0].At.IsZero() || string(seen[0].Body) != "poison" {
						t.Fatalf("dead letters: %+v", seen)
					}
				}
				s.look(b, redrive)
				if left := s.look(b, keep); len(left) != 0 {
					t.Fatalf("left after the redrive: %+v", left)
				}
				m := s.srv.Messages(s.queue)[0]
				if m.Attributes["a0"].DataType != "Number" || m.Attributes["z"].DataType != "Binary.x" || len(m.Attributes) != 10 || m.GroupID != aws.ToString(e.MessageGroupId) {
					t.Errorf("redriven as %+v", m)
				}
			}
		})
	}
}

// Case 21: the delete after the copy gets no answer. The caller tries again, and there is
// one copy; a crash in between would leave the original beside it.
func TestDeadLetterCopiesOnce(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, "x")
		d := s.receive(b, 1, time.Second)[0]
		s.srv.Script(sqsfake.Fault{Action: "DeleteMessageBatch", Kind: sqsfake.Refuse, Error: sqsfake.AccessDenied})
		s.is("dead-letter", b.DeadLetter(s.Context(), d, "PO401 x"), sqs.ErrRefused)
		s.depth(0, 1)
		s.ok("dead-letter again", b.DeadLetter(s.Context(), d, "PO401 x"))
		s.depth(0, 0)
		if seen := s.look(b, keep); len(seen) != 1 || b.State().DeadLettered != 1 {
			t.Errorf("dead letters %+v, state %+v", seen, b.State())
		}
	})
}

// Without a dead-letter queue the message stays, and the error says why; once there is
// one it is used.
func TestNoDeadLetterQueue(t *testing.T) {
	onStage(t, func(s *stage) {
		s.srv.CreateQueue("alone", nil)
		b := s.open(func(c *sqs.Config) { c.Queue = "alone" })
		s.queue = "alone"
		s.srv.SendBodies(s.queue, "x")
		d := s.receive(b, 1, time.Second)[0]
		s.is("dead-letter", b.DeadLetter(s.Context(), d, "PO401 x"), broker.ErrUnroutable)
		s.is("review", b.Review(s.Context(), 1, keep), broker.ErrUnroutable)
		s.depth(0, 1)

		c := s.open(func(c *sqs.Config) { c.Queue, c.DeadLetter = "alone", "later" })
		s.ok("nack", b.Nack(s.Context(), d, 0))
		d = s.receive(c, 1, time.Second)[0]
		s.is("dead-letter", c.DeadLetter(s.Context(), d, "PO401 x"), broker.ErrUnroutable)
		s.srv.CreateQueue("later", nil)
		s.ok("dead-letter", c.DeadLetter(s.Context(), d, "PO401 x"))
		s.depth(0, 0)
		if n := s.srv.Depth("later").Visible; n != 1 {
			t.Errorf("%d dead letters", n)
		}
	})
}

// What SQS moved itself, after too many receives, can be reviewed too. Each fate does
// what it says, and a redrive that is cut between store and removal loses nothing.
func TestFates(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		for _, body := range []string{"drop", "keep", "redrive"} {
			s.srv.Send("jobs-dead", sqsfake.Entry{MessageBody: &body})
		}
		fate := map[string]broker.Fate{"drop": broker.Drop, "keep": broker.Keep, "redrive": broker.Redrive}
		decide := func(d broker.DeadLetter) broker.Fate { return fate[string(d.Body)] }
		s.srv.Script(sqsfake.Fault{Action: "DeleteMessageBatch", Kind: sqsfake.Refuse, Error: sqsfake.AccessDenied,
			Match: func(c sqsfake.Call) bool { return c.Queue == "jobs-dead" }})
		s.is("review with a delete that is refused", b.Review(s.Context(), 100, decide), sqs.ErrRefused)
		s.look(b, decide)
		if got := s.srv.Messages("jobs-dead"); len(got) != 1 || got[0].Body != "keep" || got[0].HiddenFor != 0 {
			t.Errorf("dead letters: %+v", got)
		}
		ds := s.receive(b, 1, time.Second)
		if !slices.Equal(bodies(ds), []string{"redrive"}) {
			t.Errorf("redriven: %v", bodies(ds))
		}
		s.ackAll(b, ds)
		s.depth(0, 0)
		first := 0
		s.ok("review of one", b.Review(s.Context(), 1, func(broker.DeadLetter) broker.Fate { first++; return broker.Keep }))
		if first != 1 {
			t.Errorf("a review of one decided %d times", first)
		}
	})
}

// The broker's own word for what it moved.
func TestReasonOfTheBroker(t *testing.T) {
	onStage(t, func(s *stage) {
		s.srv.CreateQueue("few", map[string]string{"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":"1"}`, sqsfake.ARN("jobs-dead"))})
		b := s.open(func(c *sqs.Config) { c.Queue = "few" })
		s.queue = "few"
		s.srv.SendBodies("few", "x")
		s.ok("nack", b.Nack(s.Context(), s.receive(b, 1, time.Second)[0], 0))
		s.none(b, time.Second)
		if seen := s.look(b, keep); len(seen) != 1 || seen[0].Reason != "maxReceiveCount" || seen[0].Receives != 0 {
			t.Errorf("dead letters: %+v", seen)
		}
	})
}

// AWS refuses whatever has to do with the dead-letter queue: messages are worked off all the same, the log has
// it once, with its code, and who sets something aside is told why it stays. What is granted later is used.
func TestRefusedDeadLetterQueue(t *testing.T) {
	ofDead := func(c sqsfake.Call) bool { return c.Queue == "jobs-dead" || c.Queue == "made-dead" }
	for _, c := range []struct {
		queue   string
		fault   sqsfake.Fault
		warning bool
		dead    error // of setting something aside meanwhile
	}{
		{"jobs", sqsfake.Fault{Action: "GetQueueUrl", Match: ofDead}, true, sqs.ErrRefused},
		{"jobs", sqsfake.Fault{Action: "SendMessageBatch", Match: ofDead}, false, sqs.ErrRefused},
		{"made", sqsfake.Fault{Action: "CreateQueue", Match: ofDead}, true, sqs.ErrRefused},
		{"made", sqsfake.Fault{Action: "SetQueueAttributes"}, true, nil},
	} {
		onStage(t, func(s *stage) {
			var j journal
			s.queue = c.queue
			c.fault.Kind, c.fault.Error, c.fault.Times = sqsfake.Refuse, sqsfake.AccessDenied, -1
			s.srv.Script(c.fault)
			b := s.open(s.journaled(&j), func(conf *sqs.Config) { conf.Declare = c.queue == "made" })
			s.srv.SendBodies(s.queue, "good", "bad")
			ds := s.receive(b, 2, time.Second)
			s.ok("ack", b.Ack(s.Context(), ds[0]))
			s.is(c.fault.Action+": dead-letter", b.DeadLetter(s.Context(), ds[1], "PO401 x"), c.dead)
			if c.dead != nil {
				s.depth(0, 1)
				if c.fault.Action != "SendMessageBatch" {
					s.is(c.fault.Action+": review", b.Review(s.Context(), 1, keep), c.dead)
				}
				s.srv.ClearFaults()
				s.ok("dead-letter", b.DeadLetter(s.Context(), ds[1], "PO401 x"))
			}
			s.depth(0, 0)
			if seen := s.look(b, keep); len(seen) != 1 || !b.State().Connected || b.State().LastError != "" {
				t.Errorf("%s: dead letters %+v, state %+v", c.fault.Action, seen, b.State())
			}
			if n := j.count("WARN", "dead-letter queue cannot be set up", "PO152"); (n == 1) != c.warning || j.count("has no dead-letter queue") != 0 {
				t.Errorf("%s: %d warnings", c.fault.Action, n)
			}
		})
	}
}

// On a FIFO queue a copy whose answers are all lost is not stored twice when the caller tries again, nor when
// another worker does: the copy's deduplication id is that of its message.
func TestDeadLetterOfAGroupIsStoredOnce(t *testing.T) {
	onFIFO(t, func(s *stage) {
		a, b := s.open(), s.open()
		s.inGroup("g", "x")
		d := s.receive(a, 1, time.Second)[0]
		lost := sqsfake.Fault{Action: "SendMessageBatch", Kind: sqsfake.Reset, Done: true, Times: 3}
		s.srv.Script(lost)
		s.is("dead-letter", a.DeadLetter(s.Context(), d, "PO401 x"), broker.ErrUnavailable)
		s.srv.Script(lost)
		s.is("dead-letter again", a.DeadLetter(s.Context(), d, "PO401 x"), broker.ErrUnavailable)
		s.ok("dead-letter by another", b.DeadLetter(s.Context(), s.receive(b, 1, visibility+time.Second)[0], "PO401 x"))
		s.depth(0, 0)
		if all := s.srv.Messages("jobs-dead.fifo"); len(all) != 1 {
			t.Errorf("%d copies", len(all))
		}
	})
}
