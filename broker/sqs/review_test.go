package sqs_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/sqs"
	"github.com/paidonce/paidonce/internal/sqsfake"
)

// setAside puts bodies into the dead-letter queue.
func (s *stage) setAside(bodies ...string) {
	for _, body := range bodies {
		s.srv.Send("jobs-dead", sqsfake.Entry{MessageBody: &body})
	}
}

// hidden are the dead letters that cannot be received now.
func (s *stage) hidden() (bodies []string) {
	for _, m := range s.srv.Messages("jobs-dead") {
		if m.HiddenFor > 0 {
			bodies = append(bodies, m.Body)
		}
	}
	return bodies
}

// Of the changes that show kept dead letters again, those that SQS did not take are tried again, each
// by itself.
func TestReviewShowsEachAgain(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.setAside("a", "b", "c")
		s.srv.Script(sqsfake.Fault{Action: "ChangeMessageVisibilityBatch", Entries: []sqsfake.EntryFault{
			{Index: 0, Error: sqsfake.InternalError}, {Index: 2, Error: sqsfake.RequestThrottled}}})
		if seen := s.look(b, keep); len(seen) != 3 {
			t.Errorf("saw %d", len(seen))
		}
		if left := s.hidden(); len(left) != 0 {
			t.Errorf("still hidden: %v", left)
		}
		cs := s.srv.Calls("ChangeMessageVisibilityBatch")
		if len(cs) != 2 || len(cs[0].Request.Entries) != 3 || len(cs[1].Request.Entries) != 2 {
			t.Errorf("%d changes, want one with three entries and one with the two that failed", len(cs))
		}
	})
}

// What cannot be shown again is said, the others are shown; of what somebody removed meanwhile there is
// nothing to say.
func TestReviewThatCannotShowAgain(t *testing.T) {
	gone := sqsfake.InvalidParameterValue
	gone.Message = "Value x for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not available for visibility timeout change."
	onStage(t, func(s *stage) {
		b := s.open()
		s.setAside(numbered(12)...)
		s.srv.Script(sqsfake.Fault{Action: "ChangeMessageVisibilityBatch", Entries: []sqsfake.EntryFault{{Index: 1, Error: sqsfake.AccessDenied}}})
		s.is("review", b.Review(s.Context(), 100, keep), sqs.ErrRefused)
		if left := s.hidden(); !slices.Equal(left, []string{"10"}) {
			t.Errorf("hidden: %v, want the one that was refused", left)
		}
		s.srv.Script(sqsfake.Fault{Action: "ChangeMessageVisibilityBatch", Entries: []sqsfake.EntryFault{{Index: 1, Error: gone}}})
		s.ok("review with one that was removed", b.Review(s.Context(), 100, keep))
		s.srv.Script(sqsfake.Fault{Action: "ChangeMessageVisibilityBatch", Times: -1, Entries: []sqsfake.EntryFault{{Index: -1, Error: sqsfake.InternalError}}})
		time.Sleep(6 * time.Minute)
		s.srv.ForgetCalls()
		s.is("review", b.Review(s.Context(), 1, keep), broker.ErrUnavailable)
		if n := s.srv.Count("ChangeMessageVisibilityBatch"); n != 5 {
			t.Errorf("%d tries", n)
		}
	})
}

// The answer is lost: the dead letter may be in another review's hands, whose hold a second change to 0
// would end. So there is none, neither by the SDK; on a FIFO queue there is.
func TestReviewDoesNotShowTwice(t *testing.T) {
	for on, want := range map[string]int{"standard": 1, "fifo": 2} {
		staged(t, on == "fifo", sqsfake.Options{}, func(s *stage) {
			b := s.open()
			if on == "fifo" {
				body, group := "a", "g"
				s.srv.Send("jobs-dead.fifo", sqsfake.Entry{MessageBody: &body, MessageGroupId: &group, MessageDeduplicationId: "1"})
			} else {
				s.setAside("a")
			}
			s.srv.Script(sqsfake.Fault{Action: "ChangeMessageVisibilityBatch", Kind: sqsfake.Reset, Done: true})
			err := b.Review(s.Context(), 100, keep)
			if on == "standard" {
				s.is("review", err, broker.ErrUnavailable)
			}
			if n := s.srv.Count("ChangeMessageVisibilityBatch"); n != want {
				t.Errorf("%s: %d changes, want %d", on, n, want)
			}
		})
	}
}

// A context that ends while a dead letter is decided about ends the review after that one: what was
// decided is done, and what was received with it can be seen again.
func TestReviewThatIsCancelled(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.setAside("a", "b", "c")
		ctx, cancel := context.WithCancelCause(s.Context())
		seen := 0
		err := b.Review(ctx, 100, func(broker.DeadLetter) broker.Fate { seen++; cancel(errStop); return broker.Drop })
		s.is("review", err, errStop)
		if n, left := len(s.srv.Messages("jobs-dead")), s.hidden(); seen != 1 || n != 2 || len(left) != 0 {
			t.Errorf("saw %d, %d are left, of them hidden %v", seen, n, left)
		}
	})
}

// A dead letter that does not match its checksum is not decided about: it stays, and can be seen again.
func TestReviewOfACorruptBody(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.setAside("a", "b")
		s.srv.Script(sqsfake.Fault{Action: "ReceiveMessage", BadMD5: []int{0}})
		drop := func(broker.DeadLetter) broker.Fate { return broker.Drop }
		if seen := s.look(b, drop); len(seen) != 1 || string(seen[0].Body) != "b" {
			t.Errorf("decided about %+v", seen)
		}
		if all, left := s.srv.Messages("jobs-dead"), s.hidden(); len(all) != 1 || all[0].Body != "a" || len(left) != 0 {
			t.Errorf("left %+v, of them hidden %v", all, left)
		}
		if seen := s.look(b, drop); len(seen) != 1 || string(seen[0].Body) != "a" {
			t.Errorf("decided about %+v", seen)
		}
	})
}
