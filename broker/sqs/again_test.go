package sqs_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/sqs"
	"github.com/paidonce/paidonce/internal/sqsfake"
)

// However many are wanted, an empty queue has one poll.
func TestOnePollOnAnEmptyQueue(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		ctx, cancel := context.WithTimeoutCause(s.Context(), time.Second, errStop)
		defer cancel()
		_, err := b.Receive(ctx, 64)
		s.is("receive", err, errStop)
		if n := s.srv.Polls(s.queue); n != 1 {
			t.Errorf("%d polls", n)
		}
	})
}

// Sixteen workers with nothing to do ask SQS once in 20 s each, and once a minute how the queue is set up.
func TestIdlePollersDoNotSpin(t *testing.T) {
	onStage(t, func(s *stage) {
		var bs []*sqs.Broker
		for range 16 {
			bs = append(bs, s.open())
		}
		s.srv.ForgetCalls()
		ctx, cancel := context.WithTimeoutCause(s.Context(), time.Hour, errStop)
		defer cancel()
		ended := make(chan error, len(bs))
		for _, b := range bs {
			go func() {
				_, err := b.Receive(ctx, 10)
				ended <- err
			}()
		}
		for range bs {
			s.is("receive", <-ended, errStop)
		}
		calls := map[string]int{}
		for _, c := range s.srv.Calls() {
			calls[c.Action]++
		}
		receives, looks := calls["ReceiveMessage"], calls["GetQueueAttributes"]
		if receives > 16*182 || receives < 16*179 || looks > 16*60 || looks < 16*59 || len(calls) != 2 {
			t.Errorf("calls of 16 workers in an hour: %v, want 180 receives, 60 looks and no other of each", calls)
		}
	})
}

// What is in the log of a queue that brings nothing begins with a code.
func TestLogHasTheCode(t *testing.T) {
	for code, f := range map[string]sqsfake.Fault{
		"PO103": {Kind: sqsfake.Page},
		"PO105": {Kind: sqsfake.Refuse, Error: sqsfake.QueueDoesNotExist},
		"PO152": {Kind: sqsfake.Refuse, Error: sqsfake.KMSAccessDenied},
	} {
		onStage(t, func(s *stage) {
			var j journal
			b := s.open(s.journaled(&j))
			f.Action = "ReceiveMessage"
			s.srv.Script(f)
			s.none(b, 10*time.Second)
			if n := j.count("WARN", "nothing received", "queue=jobs", `error="`+code+" ", "next_in="); n != 1 || !strings.HasPrefix(b.State().LastError, code) {
				t.Errorf("logged %d times with %s, state %q", n, code, b.State().LastError)
			}
		})
	}
}

// SQS remembers an attempt for five minutes: in a longer outage another one begins in time.
func TestAttemptInALongOutage(t *testing.T) {
	onFIFO(t, func(s *stage) {
		b := s.open()
		s.srv.Script(sqsfake.Fault{Action: "ReceiveMessage", Kind: sqsfake.Close, Times: -1})
		s.none(b, 15*time.Minute)
		first, last := map[string]time.Time{}, map[string]time.Time{}
		for _, c := range s.srv.Calls("ReceiveMessage") {
			id := c.Request.ReceiveRequestAttemptId
			if first[id].IsZero() {
				first[id] = c.At
			}
			last[id] = c.At
		}
		for id := range first {
			if d := last[id].Sub(first[id]); d >= 5*time.Minute {
				t.Errorf("an attempt was repeated for %v", d)
			}
		}
		if len(first) < 3 || len(first) > 5 {
			t.Errorf("%d attempts in a quarter of an hour", len(first))
		}
	})
}

// A queue that is deleted while it is received from is looked for again, and made where that
// is allowed.
func TestReceiveFromAQueueThatVanished(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open(func(c *sqs.Config) { c.Queue, c.Declare = "made", true })
		s.srv.ForgetCalls()
		s.srv.Script(sqsfake.Fault{Action: "ReceiveMessage", Kind: sqsfake.Refuse, Error: sqsfake.QueueDoesNotExist},
			sqsfake.Fault{Action: "GetQueueUrl", Kind: sqsfake.Refuse, Error: sqsfake.QueueDoesNotExist})
		s.srv.SendBodies("made", "x")
		s.ackAll(b, s.receive(b, 1, 10*time.Second))
		if n := s.srv.Count("CreateQueue"); n != 1 {
			t.Errorf("made %d times", n)
		}
	})
}

// A page that says no is an answer: the nack was not done, and is repeated.
func TestRefusedNackIsRepeated(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, "x")
		d := s.receive(b, 1, time.Second)[0]
		s.srv.Script(sqsfake.Fault{Action: "ChangeMessageVisibilityBatch", Kind: sqsfake.Page, Times: 3})
		s.ok("nack", b.Nack(s.Context(), d, 0))
		s.depth(1, 0)
	})
}

// A delivery that is being settled is settled in one way, and extended no more.
func TestOneSettlementAtATime(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, "x")
		d := s.receive(b, 1, time.Second)[0]
		s.srv.Script(sqsfake.Fault{Action: "DeleteMessageBatch", Before: 2 * time.Second})
		acked := make(chan error)
		go func() { acked <- b.Ack(s.Context(), d) }()
		synctest.Wait()
		_, err := b.Extend(s.Context(), d, time.Hour)
		s.is("extend", err, broker.ErrNotHeld)
		s.is("nack", b.Nack(s.Context(), d, 0), broker.ErrNotHeld)
		s.is("dead-letter", b.DeadLetter(s.Context(), d, "PO401 x"), broker.ErrNotHeld)
		s.ok("ack", <-acked)
		s.depth(0, 0)
		if n := s.srv.Count("ChangeMessageVisibility*", "SendMessage*"); n != 0 {
			t.Errorf("%d other calls", n)
		}
	})
}

// While the delete of the first does not get through, the whole group is kept.
func TestUndeletedGroupIsKept(t *testing.T) {
	onFIFO(t, func(s *stage) {
		b := s.open()
		s.inGroup("g", "g1", "g2", "g3")
		d := s.receiveUpTo(b, 10)[0]
		s.srv.Script(sqsfake.Fault{Action: "DeleteMessageBatch", Kind: sqsfake.Refuse, Error: sqsfake.Throttling, Times: -1})
		acked := make(chan error)
		go func() { acked <- b.Ack(s.Context(), d) }()
		time.Sleep(3 * visibility)
		s.srv.ClearFaults()
		s.ok("ack", <-acked)
		for _, want := range []string{"g2", "g3"} {
			got := s.receive(b, 1, time.Second)
			if !slices.Equal(bodies(got), []string{want}) || got[0].Receives != 1 {
				t.Errorf("received %v for the %d. time, want %s for the first", bodies(got), got[0].Receives, want)
			}
			s.ackAll(b, got)
		}
		s.depth(0, 0)
	})
}

// SQS sets the first of a group aside while its handler hangs: the next one does not wait
// behind it.
func TestGroupAfterItsFirstWasSetAside(t *testing.T) {
	onFIFO(t, func(s *stage) {
		s.srv.CreateQueue("few.fifo", map[string]string{"FifoQueue": "true", "VisibilityTimeout": "30",
			"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":"1"}`, sqsfake.ARN("jobs-dead.fifo"))})
		s.queue = "few.fifo"
		b := s.open(func(c *sqs.Config) { c.Queue = "few.fifo" })
		s.inGroup("g", "g1", "g2")
		s.receiveUpTo(b, 1)
		got := s.receive(b, 1, visibility+2*time.Second)
		if !slices.Equal(bodies(got), []string{"g2"}) {
			t.Errorf("received %v, want g2", bodies(got))
		}
		s.ackAll(b, got)
		s.depth(0, 0)
	})
}

// An ack that is refused while Close waits for it: the delivery is given back like the others.
func TestCloseGivesBackWhatWasNotAcknowledged(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, "x")
		d := s.receive(b, 1, time.Second)[0]
		s.srv.Script(sqsfake.Fault{Action: "DeleteMessageBatch", Before: 2 * time.Second, Kind: sqsfake.Refuse, Error: sqsfake.AccessDenied})
		acked := make(chan error, 1)
		go func() { acked <- b.Ack(s.Context(), d) }()
		synctest.Wait()
		s.close(b)
		s.is("ack", <-acked, sqs.ErrRefused)
		s.depth(1, 0)
	})
}

// A nack for longer than SQS holds a message is as good as one until then.
func TestNackBeyondTheLimit(t *testing.T) {
	beyond := sqsfake.InvalidParameterValue
	beyond.Message = "Value 900 for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout for the message is beyond the limit [43200 seconds]."
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, "x")
		d := s.receive(b, 1, time.Second)[0]
		s.srv.Script(sqsfake.Fault{Action: "ChangeMessageVisibilityBatch", Entries: []sqsfake.EntryFault{{Error: beyond}}})
		s.ok("nack", b.Nack(s.Context(), d, 15*time.Minute))
		s.is("nack again", b.Nack(s.Context(), d, 0), broker.ErrNotHeld)
		s.ackAll(b, s.receive(b, 1, visibility+time.Second))
		s.depth(0, 0)
	})
}
