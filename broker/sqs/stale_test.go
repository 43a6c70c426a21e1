package sqs_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/sqs"
	"github.com/paidonce/paidonce/internal/sqsfake"
)

// changeLost is a visibility change that is done and whose reply does not arrive.
func changeLost(k sqsfake.Kind) sqsfake.Fault {
	return sqsfake.Fault{Action: "ChangeMessageVisibilityBatch", Kind: k, Done: true}
}

// A nack that got no answer may have been done, and somebody else may have the message:
// on a standard queue a repetition would end his hold, so there is none, neither by the
// SDK nor by the adapter nor when the caller asks again.
func TestUnansweredNackIsNotRepeated(t *testing.T) {
	for _, lost := range []sqsfake.Fault{changeLost(sqsfake.Reset), changeLost(sqsfake.Cut), changeLost(sqsfake.Close),
		{Action: "ChangeMessageVisibilityBatch", Kind: sqsfake.Page, Status: 502, Done: true},
		{Action: "ChangeMessageVisibilityBatch", Kind: sqsfake.Page, Status: 504, Done: true}} {
		onStage(t, func(s *stage) {
			a, b := s.open(), s.open()
			s.srv.SendBodies(s.queue, "x")
			d := s.receive(a, 1, time.Second)[0]
			got := make(chan broker.Delivery, 1)
			go func() { got <- s.receive(b, 1, time.Minute)[0] }()
			synctest.Wait()
			s.srv.Script(lost)
			s.is("nack", a.Nack(s.Context(), d, 0), broker.ErrNotHeld)
			s.is("nack again", a.Nack(s.Context(), d, 0), broker.ErrNotHeld)
			held := <-got
			time.Sleep(10 * time.Second)
			if hidden := s.srv.Messages(s.queue)[0].HiddenFor; hidden < time.Until(held.Deadline) {
				t.Errorf("%s: the second hold ends in %v, its holder believes in %v", lost.Kind, hidden, time.Until(held.Deadline))
			}
			if got := s.changes(); len(got) != 1 {
				t.Errorf("%s: changes %v, want one", lost.Kind, got)
			}
			s.ok("ack", b.Ack(s.Context(), held))
			s.depth(0, 0)
		})
	}
}

// The same with a delay: until it is over the message is nobody's, and the nack is repeated.
func TestUnansweredNackIsRepeatedDuringItsDelay(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, "x")
		d := s.receive(b, 1, time.Second)[0]
		s.srv.Script(sqsfake.Fault{Action: "ChangeMessageVisibilityBatch", Kind: sqsfake.Reset, Times: 2})
		s.ok("nack", b.Nack(s.Context(), d, 10*time.Second))
		s.none(b, 9*time.Second)
		s.ackAll(b, s.receive(b, 1, 3*time.Second))
		s.depth(0, 0)
	})
}

// On a FIFO queue an old handle does nothing, so the group does not stay hidden.
func TestUnansweredNackOfAGroupIsRepeated(t *testing.T) {
	onFIFO(t, func(s *stage) {
		b := s.open()
		s.inGroup("g", "g1", "g2")
		d := s.receiveUpTo(b, 10)[0]
		s.srv.Script(sqsfake.Fault{Action: "ChangeMessageVisibilityBatch", Kind: sqsfake.Reset})
		s.ok("nack", b.Nack(s.Context(), d, 0))
		for _, want := range []string{"g1", "g2"} {
			ds := s.receive(b, 1, time.Second)
			if !slices.Equal(bodies(ds), []string{want}) {
				t.Errorf("received %v, want %s", bodies(ds), want)
			}
			s.ackAll(b, ds)
		}
		s.depth(0, 0)
	})
}

// An answer that lies unread while the process is frozen gives no hold that is over
// already: the server has handed out no later than the wait that it was asked for.
func TestAnswerThatComesLate(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open(func(c *sqs.Config) { c.Wait = time.Second })
		s.srv.SendBodies(s.queue, "x")
		s.srv.Script(sqsfake.Fault{Action: "ReceiveMessage", After: 9 * time.Second})
		d := s.receive(b, 1, 20*time.Second)[0]
		if hidden := s.srv.Messages(s.queue)[0].HiddenFor; time.Until(d.Deadline) > hidden {
			t.Errorf("the deadline is in %v, the message is hidden for %v", time.Until(d.Deadline), hidden)
		}
		s.ok("ack", b.Ack(s.Context(), d))
		s.depth(0, 0)
	})
}

// No deadline is later than the 12 hours less a margin, also without an extension.
func TestVisibilityOfTwelveHours(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open(func(c *sqs.Config) { c.Visibility = 12 * time.Hour })
		s.srv.SendBodies(s.queue, "x")
		d := s.receive(b, 1, time.Second)[0]
		if left := time.Until(d.Deadline); left > 12*time.Hour-time.Minute {
			t.Errorf("%v left", left)
		}
		s.ok("ack", b.Ack(s.Context(), d))
		s.depth(0, 0)
	})
}

// A poll that is repeated after an error asks for what is wanted by then.
func TestRepeatedPollIsSized(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.Script(sqsfake.Fault{Action: "ReceiveMessage", Kind: sqsfake.Refuse, Error: sqsfake.AccessDenied})
		ctx, cancel := context.WithTimeoutCause(s.Context(), time.Second, errStop)
		defer cancel()
		_, err := b.Receive(ctx, 10)
		s.is("receive", err, errStop)
		s.srv.SendBodies(s.queue, numbered(10)...)
		ds := s.receive(b, 1, 10*time.Second)
		s.depth(9, 1)
		s.ackAll(b, ds)
	})
}

// An empty answer ends a logical receive: the next request has another attempt id.
func TestAttemptEndsWithItsAnswer(t *testing.T) {
	onFIFO(t, func(s *stage) {
		b := s.open()
		go func() {
			time.Sleep(100 * time.Millisecond)
			s.srv.Advance(time.Minute) // the server's wait is over, long before ours
			time.Sleep(time.Second)
			s.inGroup("g", "x")
		}()
		s.ackAll(b, s.receive(b, 1, 10*time.Second))
		var ids []string
		for _, c := range s.srv.Calls("ReceiveMessage") {
			ids = append(ids, c.Request.ReceiveRequestAttemptId)
		}
		if len(ids) != 2 || ids[0] == ids[1] {
			t.Errorf("attempt ids %q, want two", ids)
		}
	})
}

// A second Close waits for the first: what was acknowledged is deleted when it returns.
func TestCloseTwice(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, "x")
		d := s.receive(b, 1, time.Second)[0]
		s.srv.Script(sqsfake.Fault{Action: "DeleteMessageBatch", Before: 2 * time.Second})
		go b.Ack(s.Context(), d)
		synctest.Wait()
		go b.Close(s.Context())
		synctest.Wait()
		s.close(b)
		s.depth(0, 0)
		s.close(b)
	})
}

// What is published to a group stays in order, also when SQS stores only a part of a request.
func TestPublishKeepsTheOrderOfAGroup(t *testing.T) {
	onFIFO(t, func(s *stage) {
		b := s.open()
		var ms []broker.Message
		for _, body := range []string{"g1", "h1", "g2", "h2", "g3"} {
			ms = append(ms, broker.Message{Body: []byte(body), Attributes: map[string]string{sqs.GroupAttribute: body[:1]}})
		}
		s.srv.Script(sqsfake.Fault{Action: "SendMessageBatch", Entries: []sqsfake.EntryFault{{Index: 0, Error: sqsfake.InternalError}}})
		s.ok("publish", b.Publish(s.Context(), ms...))
		var got []string
		for _, m := range s.srv.Messages(s.queue) {
			if m.GroupID == "g" {
				got = append(got, m.Body)
			}
		}
		if !slices.Equal(got, []string{"g1", "g2", "g3"}) {
			t.Errorf("stored in the order %v", got)
		}
		s.srv.ForgetCalls()
		s.ok("publish without groups", b.Publish(s.Context(), slices.Repeat([]broker.Message{{Body: []byte("x")}}, 10)...))
		if n := s.srv.Count("SendMessageBatch"); n != 1 {
			t.Errorf("%d requests for ten messages of no group", n)
		}
	})
}

// A 200 that does not mention an entry says nothing about it: the delete is repeated, a
// release is not.
func TestEntryWithoutAnAnswer(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, "a", "b")
		ds := s.receive(b, 2, time.Second)
		s.srv.Script(sqsfake.Fault{Action: "DeleteMessageBatch", Kind: sqsfake.Mute}, sqsfake.Fault{Action: "ChangeMessageVisibilityBatch", Kind: sqsfake.Mute})
		s.ok("ack", b.Ack(s.Context(), ds[0]))
		if err := b.Nack(s.Context(), ds[1], 0); !errors.Is(err, broker.ErrNotHeld) {
			t.Errorf("nack: %v", err)
		}
		if d, c := s.srv.Count("DeleteMessageBatch"), s.srv.Count("ChangeMessageVisibilityBatch"); d != 2 || c != 1 {
			t.Errorf("%d deletes and %d changes", d, c)
		}
		s.depth(0, 1) // until its time is over
	})
}

// A machine that slept: the monotonic clock has not gone on, the wall clock has. And one
// whose wall clock was set back.
func TestDeadlineByEitherClock(t *testing.T) {
	now := time.Now()
	deadline := now.Add(20 * time.Second)
	slept, set := sqs.Monotonic(now.Add(time.Hour), -time.Hour), sqs.Monotonic(now.Add(-time.Hour), 2*time.Hour)
	if slept.Sub(now) != 0 || set.Sub(now) != time.Hour || !set.Round(0).Before(now.Round(0)) {
		t.Fatalf("the clocks agree: %v, %v, %v", now, slept, set)
	}
	if !sqs.Passed(deadline, slept) || !sqs.Passed(deadline, set) {
		t.Error("one clock was not asked")
	}
	if sqs.Passed(deadline, now) || sqs.Passed(deadline, deadline.Add(-1)) || !sqs.Passed(deadline, deadline) {
		t.Error("over too early or too late")
	}
}

// The earliest deadline of a batch ends its request: on its way for longer it could arrive when that
// one is somebody else's. The others are tried again at once.
func TestEarliestDeadlineEndsTheRequest(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, "early", "late")
		ds := s.receive(b, 2, time.Second)
		_, err := b.Extend(s.Context(), ds[1], time.Hour)
		s.ok("extend", err)
		time.Sleep(time.Until(ds[0].Deadline) - 2*time.Second)
		s.srv.Script(sqsfake.Fault{Action: "ChangeMessageVisibilityBatch", Kind: sqsfake.Hold})
		at := time.Now()
		errs := all(ds, func(d broker.Delivery) error {
			_, err := b.Extend(s.Context(), d, time.Hour)
			if string(d.Body) == "late" {
				if took := time.Since(at); took < 2*time.Second || took > 3*time.Second {
					t.Errorf("the later one is extended after %v, want soon after the deadline of the other, 2 s", took)
				}
			}
			return err
		})
		s.is("extend the early one", errs[0], broker.ErrNotHeld)
		s.ok("extend the later one", errs[1])
		if cs := s.srv.Calls("ChangeMessageVisibilityBatch"); len(cs) != 3 || cs[1].Entries() != 2 || cs[2].Entries() != 1 {
			t.Errorf("%d changes, want the first, one for both and one for the later", len(cs))
		}
		s.srv.Release()
	})
}

// The books are cleared while a message is being set aside whose deadline has passed: the copy is whole.
func TestBooksAreClearedDuringADeadLetter(t *testing.T) {
	onStage(t, func(s *stage) {
		s.srv.CreateQueue("alone", nil)
		s.queue = "alone"
		b := s.open(func(c *sqs.Config) { c.Queue, c.DeadLetter = "alone", "later" })
		s.srv.SendBodies(s.queue, "x")
		d := s.receive(b, 1, time.Second)[0]
		_, err := b.Extend(s.Context(), d, 65*time.Second)
		s.ok("extend", err)
		s.srv.CreateQueue("later", nil)
		time.Sleep(61 * time.Second)
		s.srv.Script(sqsfake.Fault{Action: "GetQueueUrl", Before: 4500 * time.Millisecond, Kind: sqsfake.Page, Times: 2}) // tries of the SDK
		set := make(chan error, 1)
		go func() { set <- b.DeadLetter(s.Context(), d, "PO401 x") }()
		time.Sleep(5 * time.Second)
		s.srv.SendBodies(s.queue, "y")
		s.ackAll(b, s.receive(b, 1, time.Second)) // it arrives when the deadline of the other is over
		if err := <-set; err != nil && !errors.Is(err, broker.ErrNotHeld) {
			t.Errorf("dead-letter: %v", err)
		}
		if all := s.srv.Messages("later"); len(all) != 1 || all[0].Body != "x" {
			t.Errorf("dead letters: %+v", all)
		}
	})
}

// A publisher that never receives finds out too that its queue was deleted, and has it
// made again where that is allowed.
func TestPublishToAQueueThatVanished(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open(func(c *sqs.Config) { c.Queue, c.Declare = "made", true })
		s.srv.Script(sqsfake.Fault{Action: "SendMessageBatch", Kind: sqsfake.Refuse, Error: sqsfake.QueueDoesNotExist},
			sqsfake.Fault{Action: "GetQueueUrl", Kind: sqsfake.Refuse, Error: sqsfake.QueueDoesNotExist,
				Match: func(c sqsfake.Call) bool { return c.Queue == "made" }})
		m := broker.Message{Body: []byte("x")}
		s.is("publish", b.Publish(s.Context(), m), broker.ErrUnroutable)
		s.ok("publish again", b.Publish(s.Context(), m))
		made := 0
		for _, c := range s.srv.Calls("CreateQueue") {
			if c.Queue == "made" {
				made++
			}
		}
		if n := s.srv.Depth("made").Visible; n != 1 || made != 2 {
			t.Errorf("%d messages, made %d times", n, made)
		}
	})
}

// SQS says that a delivery is not held any more: no change follows, but the delete does, for
// twelve hours.
func TestLostDeliveryIsLeftAlone(t *testing.T) {
	gone := sqsfake.InvalidParameterValue
	gone.Message = "Value x for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not available for visibility timeout change."
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, "x", "y")
		ds := s.receive(b, 2, time.Second)
		s.srv.Script(sqsfake.Fault{Action: "ChangeMessageVisibilityBatch", Entries: []sqsfake.EntryFault{{Error: gone}}})
		_, err := b.Extend(s.Context(), ds[0], visibility)
		s.is("extend", err, broker.ErrNotHeld)
		_, err = b.Extend(s.Context(), ds[0], visibility)
		s.is("extend again", err, broker.ErrNotHeld)
		s.is("nack", b.Nack(s.Context(), ds[0], 0), broker.ErrNotHeld)
		s.is("dead-letter", b.DeadLetter(s.Context(), ds[0], "PO401 x"), broker.ErrNotHeld)
		if c, n := s.srv.Count("ChangeMessageVisibilityBatch"), s.srv.Count("SendMessageBatch"); c != 1 || n != 0 {
			t.Errorf("%d changes and %d copies", c, n)
		}
		for range 3 { // what arrives meanwhile clears the books of what is of no use
			time.Sleep(2 * time.Hour)
			s.srv.SendBodies(s.queue, "z")
			s.ackAll(b, s.receive(b, 1, time.Minute))
		}
		for _, d := range ds {
			s.is("late ack", b.Ack(s.Context(), d), broker.ErrNotHeld)
		}
		if st := b.State(); st.LateAcks != 2 || st.Lost != 2 {
			t.Errorf("state: %+v", st)
		}
	})
}
