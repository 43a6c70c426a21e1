package sqs_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/internal/sqsfake"
)

// Case 24: of ten deletes in one request three fail, by SQS's own fault. Each is counted
// with its code and tried again alone; all ten are acknowledged.
func TestEntriesOfADeleteFail(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, numbered(10)...)
		ds := s.receive(b, 10, time.Second)
		s.srv.Script(sqsfake.Fault{Action: "DeleteMessageBatch", Entries: []sqsfake.EntryFault{
			{Index: 1, Error: sqsfake.InternalError}, {Index: 4, Error: sqsfake.Unavailable}, {Index: 7, Error: sqsfake.InternalError}}})
		s.ackAll(b, ds)
		s.depth(0, 0)
		if n, of := s.srv.Count("DeleteMessageBatch"), s.srv.CountEntries("DeleteMessageBatch"); n > 4 || of != 13 {
			t.Errorf("%d deletes with %d entries, want 13 entries in two requests and at most four", n, of)
		}
		st := b.State()
		if st.AcksSent != 10 || st.AcksFailed != 3 || st.AckCodes["InternalFailure"] != 2 || st.AckCodes["ServiceUnavailable"] != 1 || st.AcksLost != 0 {
			t.Errorf("state: %+v", st)
		}
	})
}

// Cases 17 and 18: SQS takes one handle for invalid. That delivery is not held any more,
// the others of the request are deleted, and receiving goes on.
func TestOneInvalidHandle(t *testing.T) {
	for _, e := range []sqsfake.Error{sqsfake.ReceiptHandleIsInvalid, sqsfake.InvalidParameterValue} {
		onStage(t, func(s *stage) {
			b := s.open()
			s.srv.SendBodies(s.queue, "a", "b", "c")
			ds := s.receive(b, 3, time.Second)
			s.srv.Script(sqsfake.Fault{Action: "DeleteMessageBatch", Entries: []sqsfake.EntryFault{{Index: 1, Error: e}}})
			errs := all(ds, s.acker(b))
			lost := 0
			for _, err := range errs {
				if errors.Is(err, broker.ErrNotHeld) {
					lost++
				} else if err != nil {
					t.Errorf("ack: %v", err)
				}
			}
			if lost != 1 || b.State().AcksLost != 1 {
				t.Errorf("%d acks were lost, state %+v", lost, b.State())
			}
			again := s.receive(b, 1, visibility+time.Second)
			s.ackAll(b, again)
			s.depth(0, 0)
		})
	}
}

// The same message is handed out twice within one flush: two handles, two entries whose
// ids do not clash, and both acks are good.
func TestSameMessageTwiceInOneFlush(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, "x")
		s.srv.Script(sqsfake.Fault{Action: "ReceiveMessage", Twice: true})
		ds := s.receive(b, 2, time.Second)
		if ds[0].ID != ds[1].ID || ds[0].Receipt == ds[1].Receipt {
			t.Fatalf("not the same message twice: %+v", ds)
		}
		s.ackAll(b, ds)
		s.depth(0, 0)
		cs := s.srv.Calls("DeleteMessageBatch")
		if len(cs) != 1 || len(cs[0].Request.Entries) != 2 {
			t.Fatalf("deletes: %d, want one with two entries", len(cs))
		}
	})
}

// Entry ids are indexes, and no handle is in a request twice, whatever callers do.
func TestEntriesAreDistinct(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, numbered(9)...) // ten would not wait for the others
		ds := s.receive(b, 9, time.Second)
		thrice := append(append(ds, ds...), ds...)
		for _, err := range all(thrice, func(d broker.Delivery) error {
			_, err := b.Extend(s.Context(), d, visibility)
			return err
		}) {
			s.ok("extend", err)
		}
		for _, err := range all(thrice, s.acker(b)) {
			s.ok("ack, three callers wait for one", err)
		}
		s.depth(0, 0)
		for _, c := range s.srv.Calls("ChangeMessageVisibilityBatch", "DeleteMessageBatch") {
			handles := map[string]bool{}
			for i, e := range c.Request.Entries {
				if e.Id != strconv.Itoa(i) || handles[e.ReceiptHandle] {
					t.Errorf("%s: entry %d has id %q, or a handle is there twice", c.Action, i, e.Id)
				}
				handles[e.ReceiptHandle] = true
			}
		}
	})
}

// After its deadline nothing is sent for a delivery but the delete: the handle would act
// on the hold of whoever has the message by then.
func TestNoChangeAfterTheDeadline(t *testing.T) {
	onStage(t, func(s *stage) {
		a, b := s.open(), s.open()
		s.srv.SendBodies(s.queue, "x")
		d := s.receive(a, 1, time.Second)[0]
		time.Sleep(visibility)
		held := s.receive(b, 1, time.Second)[0]
		_, err := a.Extend(s.Context(), d, time.Hour)
		s.is("late extend", err, broker.ErrNotHeld)
		s.is("late nack", a.Nack(s.Context(), d, 0), broker.ErrNotHeld)
		s.is("late dead-letter", a.DeadLetter(s.Context(), d, "PO401 late"), broker.ErrNotHeld)
		s.close(a)
		if n := s.srv.Count("ChangeMessageVisibility*", "DeleteMessage*", "SendMessage*"); n != 0 {
			t.Errorf("%d calls for a delivery that is not ours any more", n)
		}
		if hidden := s.srv.Messages(s.queue)[0].HiddenFor; hidden < time.Until(held.Deadline) {
			t.Errorf("the second hold ends in %v, its holder believes in %v", hidden, time.Until(held.Deadline))
		}
		s.ok("ack", b.Ack(s.Context(), held))
		s.depth(0, 0)
		if st := a.State(); st.Lost != 1 {
			t.Errorf("state of A: %+v", st)
		}
	})
}

// Case 7: an extension that meets 503 for as long as it has time is not sent later.
func TestHeldUpChangeIsDropped(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, "x")
		d := s.receive(b, 1, time.Second)[0]
		s.srv.Script(sqsfake.Fault{Action: "ChangeMessageVisibilityBatch", Kind: sqsfake.Page, Times: -1})
		_, err := b.Extend(s.Context(), d, time.Hour)
		s.is("extend", err, broker.ErrNotHeld)
		if time.Now().Before(d.Deadline) {
			t.Error("given up before the deadline")
		}
		time.Sleep(time.Hour)
		for _, c := range s.srv.Calls("ChangeMessageVisibilityBatch") {
			if c.At.After(d.Deadline) {
				t.Errorf("sent %v after the deadline", c.At.Sub(d.Deadline))
			}
		}
		if n := s.srv.Count("ChangeMessageVisibilityBatch"); n < 5 {
			t.Errorf("only %d tries", n)
		}
	})
}

// Nor do the SDK's own repetitions go on past it, when the answers are slow.
func TestSlowChangeIsNotRepeatedLate(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, "x")
		d := s.receive(b, 1, time.Second)[0]
		s.srv.Script(sqsfake.Fault{Action: "ChangeMessageVisibilityBatch", Kind: sqsfake.Page, After: 4 * time.Second, Times: -1})
		time.Sleep(time.Until(d.Deadline) - time.Second)
		_, err := b.Extend(s.Context(), d, time.Hour)
		s.is("extend", err, broker.ErrNotHeld)
		time.Sleep(time.Minute)
		if n := s.srv.Count("ChangeMessageVisibilityBatch"); n != 1 {
			t.Errorf("%d changes sent, want the one before the deadline", n)
		}
	})
}

// SQS says that there is no such message any more: the delivery is lost, not in doubt.
func TestExtendOfADeletedMessage(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, "x")
		s.srv.Script(sqsfake.Fault{Action: "ReceiveMessage", Twice: true})
		ds := s.receive(b, 2, time.Second)
		s.ok("ack", b.Ack(s.Context(), ds[0]))
		_, err := b.Extend(s.Context(), ds[1], time.Hour)
		s.is("extend", err, broker.ErrNotHeld)
		if st := b.State(); st.Lost != 1 || st.ExtensionsFailed != 1 {
			t.Errorf("state: %+v", st)
		}
	})
}

// A minute of 503 on deletes and changes loses nothing where the visibility timeout is
// longer: the acks get through after it, though their callers have gone.
func TestMinuteOfUnavailability(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, "done", "long")
		ds := s.receive(b, 2, time.Second)
		for _, d := range ds {
			_, err := b.Extend(s.Context(), d, 2*time.Minute)
			s.ok("extend", err)
		}
		for _, action := range []string{"DeleteMessageBatch", "ChangeMessageVisibilityBatch"} {
			s.srv.Script(sqsfake.Fault{Action: action, Kind: sqsfake.Page, Times: -1})
		}
		go func() {
			time.Sleep(time.Minute)
			s.srv.ClearFaults()
		}()
		extended := make(chan error)
		go func() {
			_, err := b.Extend(s.Context(), ds[1], 2*time.Minute)
			extended <- err
		}()
		ctx, cancel := context.WithTimeoutCause(s.Context(), 10*time.Second, errStop)
		defer cancel()
		err := b.Ack(ctx, ds[0])
		s.is("ack", err, errStop)
		s.is("ack", err, broker.ErrUnavailable)
		s.ok("ack again, which waits for the first", b.Ack(s.Context(), ds[0]))
		s.ok("extend", <-extended)
		s.ok("ack", b.Ack(s.Context(), ds[1]))
		s.depth(0, 0)
		if st := b.State(); st.AcksSent != 2 || st.AcksLost != 0 || st.Lost != 0 || st.AcksFailed == 0 || st.Redelivered != 0 {
			t.Errorf("state: %+v", st)
		}
	})
}

// While a delete does not get through, the message is kept hidden.
func TestUndeletedIsKeptHidden(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, "x")
		d := s.receive(b, 1, time.Second)[0]
		s.srv.Script(sqsfake.Fault{Action: "DeleteMessageBatch", Kind: sqsfake.Refuse, Error: sqsfake.Throttling, Times: -1})
		acked := make(chan error)
		go func() { acked <- b.Ack(s.Context(), d) }()
		time.Sleep(3 * visibility)
		s.depth(0, 1)
		s.srv.ClearFaults()
		s.ok("ack", <-acked)
		s.depth(0, 0)
		if r := b.State().Redelivered; r != 0 {
			t.Errorf("%d redeliveries", r)
		}
	})
}

// The ways to say slower, and the other troubles of a moment, are waited out by acks,
// extensions and nacks alike.
func TestSettlingSurvives(t *testing.T) {
	for _, e := range []sqsfake.Error{sqsfake.OverLimit, sqsfake.RequestThrottled, sqsfake.Throttling, sqsfake.KMSThrottled, sqsfake.InternalError} {
		onStage(t, func(s *stage) {
			b := s.open()
			s.srv.SendBodies(s.queue, "a", "b")
			ds := s.receive(b, 2, time.Second)
			fail := func(action string) {
				s.srv.Script(sqsfake.Fault{Action: action, Kind: sqsfake.Refuse, Error: e, Times: 4})
			}
			fail("ChangeMessageVisibilityBatch")
			_, err := b.Extend(s.Context(), ds[0], visibility)
			s.ok(e.Code+": extend", err)
			fail("ChangeMessageVisibilityBatch")
			s.ok(e.Code+": nack", b.Nack(s.Context(), ds[1], 0))
			fail("DeleteMessageBatch")
			s.ok(e.Code+": ack", b.Ack(s.Context(), ds[0]))
			s.depth(1, 0)
			if len(s.srv.Calls("ChangeMessageVisibilityBatch")) != 10 {
				t.Errorf("%s: %d changes, want five tries each", e.Code, len(s.srv.Calls("ChangeMessageVisibilityBatch")))
			}
		})
	}
}

// What AWS refuses outright is said at once, with its code.
func TestRefusedAck(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, "x")
		d := s.receive(b, 1, time.Second)[0]
		s.srv.Script(sqsfake.Fault{Action: "DeleteMessageBatch", Kind: sqsfake.Refuse, Error: sqsfake.AccessDenied})
		err := b.Ack(s.Context(), d)
		if err == nil || !strings.Contains(err.Error(), "PO152") || !strings.Contains(err.Error(), "AccessDenied") {
			t.Errorf("got %v", err)
		}
		s.ok("ack when it is allowed", b.Ack(s.Context(), d))
		s.depth(0, 0)
	})
}

// Case 8: no hold is longer than 12 hours from the receive. What is left is given; then
// ErrLimit, while the delivery can still be acknowledged.
func TestTwelveHours(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, "x")
		d := s.receive(b, 1, time.Second)[0]
		end := time.Now().Add(12*time.Hour - time.Minute)
		for {
			deadline, err := b.Extend(s.Context(), d, time.Hour)
			if deadline.After(end) {
				t.Fatalf("deadline %v after the end", deadline.Sub(end))
			}
			if errors.Is(err, broker.ErrLimit) {
				break
			}
			s.ok("extend", err)
			d.Deadline = deadline
			time.Sleep(time.Until(deadline) * 2 / 3)
		}
		if left := time.Until(end); left < time.Second || left > time.Hour {
			t.Errorf("refused with %v left", left)
		}
		s.ok("ack", b.Ack(s.Context(), d))
		s.depth(0, 0)
	})
}

// A server that counts the 12 hours otherwise refuses: ErrLimit too, and the delivery
// is held until its deadline.
func TestLimitOfTheServer(t *testing.T) {
	beyond := sqsfake.InvalidParameterValue
	beyond.Message = "Value 43200 for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout for the message is beyond the limit [43200 seconds]."
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, "x")
		d := s.receive(b, 1, time.Second)[0]
		s.srv.Script(sqsfake.Fault{Action: "ChangeMessageVisibilityBatch", Entries: []sqsfake.EntryFault{{Error: beyond}}})
		for range 2 { // the second is not sent
			deadline, err := b.Extend(s.Context(), d, time.Hour)
			s.is("extend", err, broker.ErrLimit)
			if !deadline.Equal(d.Deadline) {
				t.Errorf("deadline %v, want unchanged", deadline)
			}
		}
		if n := s.srv.Count("ChangeMessageVisibilityBatch"); n != 1 {
			t.Errorf("%d changes sent", n)
		}
		s.ok("ack", b.Ack(s.Context(), d))
		s.depth(0, 0)
	})
}

// A caller that is cancelled leaves its entry in the batch, and harms no other.
func TestCancelledCallerHarmsNobody(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, "a", "b")
		ds := s.receive(b, 2, time.Second)
		s.srv.Script(sqsfake.Fault{Action: "DeleteMessageBatch", After: time.Second})
		ctx, cancel := context.WithCancelCause(s.Context())
		errs := make(chan error)
		go func() { errs <- b.Ack(ctx, ds[0]) }()
		other := make(chan error)
		go func() { other <- b.Ack(s.Context(), ds[1]) }()
		time.Sleep(500 * time.Millisecond)
		cancel(errStop)
		s.is("cancelled ack", <-errs, errStop)
		s.ok("the other's ack", <-other)
		synctest.Wait()
		s.depth(0, 0)
		if n := s.srv.Count("DeleteMessageBatch"); n != 1 {
			t.Errorf("%d deletes, want one for both", n)
		}
	})
}

// Close waits for what was acknowledged a moment before, also when the answer is slow.
func TestCloseFlushes(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, numbered(25)...)
		ds := s.receive(b, 25, time.Second)
		s.srv.Script(sqsfake.Fault{Action: "DeleteMessageBatch", Before: 3 * time.Second, Times: 2},
			sqsfake.Fault{Action: "DeleteMessageBatch", Kind: sqsfake.Reset, Done: true})
		ctx, cancel := context.WithCancel(s.Context())
		for _, d := range ds[:24] {
			go b.Ack(ctx, d)
		}
		synctest.Wait()
		cancel() // they have gone, what they asked for has not
		s.close(b)
		s.depth(1, 0)
		s.is("ack", b.Ack(s.Context(), ds[24]), broker.ErrClosed)
	})
}
