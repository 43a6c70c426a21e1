package sqs_test

import (
	"slices"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/internal/sqsfake"
)

// Case 25: one receive brings several of a group. They are handed out one after the
// other, each when the one before was acknowledged; other groups do not wait.
func TestGroupIsInOrder(t *testing.T) {
	onFIFO(t, func(s *stage) {
		b := s.open()
		s.inGroup("g", "g1", "g2", "g3")
		s.inGroup("h", "h1", "h2")
		ds := s.receive(b, 2, time.Second)
		if !slices.Equal(bodies(ds), []string{"g1", "h1"}) || ds[0].Facts.Group != "g" {
			t.Fatalf("received %v of groups %q, want the first of each", bodies(ds), ds[0].Facts.Group)
		}
		s.none(b, 5*time.Second)
		for _, want := range []string{"g2", "g3"} {
			s.ok("ack", b.Ack(s.Context(), ds[0]))
			ds[0] = s.receive(b, 1, time.Second)[0]
			if string(ds[0].Body) != want || ds[0].Receives != 1 {
				t.Fatalf("received %q for the %d. time, want %s", ds[0].Body, ds[0].Receives, want)
			}
		}
		s.ackAll(b, ds)
		s.ackAll(b, s.receive(b, 1, time.Second))
		s.depth(0, 0)
	})
}

// Case 22: the second of a group fails. It goes back with all behind it, last one first, so
// that none is run before it; the other group does not notice.
func TestFailureGivesBackTheGroup(t *testing.T) {
	onFIFO(t, func(s *stage) {
		a, b := s.open(), s.open()
		s.inGroup("g", "g1", "g2", "g3", "g4")
		s.inGroup("h", "h1")
		ds := s.receiveUpTo(a, 10)
		s.ok("ack", a.Ack(s.Context(), ds[0]))
		d := s.receive(a, 1, time.Second)[0]
		s.ok("nack", a.Nack(s.Context(), d, 7*time.Second))
		if got := s.changes(); !slices.Equal(got, []string{"g4=0", "g3=0", "g2=7"}) {
			t.Fatalf("visibility changes %v", got)
		}
		s.none(b, 7*time.Second-time.Millisecond)
		for _, want := range []string{"g2", "g3", "g4"} {
			got := s.receive(b, 1, 2*time.Second)
			if !slices.Equal(bodies(got), []string{want}) {
				t.Fatalf("received %v, want %s", bodies(got), want)
			}
			s.ackAll(b, got)
		}
		s.ok("ack of the other group", a.Ack(s.Context(), ds[1]))
		s.depth(0, 0)
	})
}

// Every message of a group that is held is extended with its first one, in one request.
func TestGroupIsExtended(t *testing.T) {
	onFIFO(t, func(s *stage) {
		b := s.open()
		s.inGroup("g", "g1", "g2", "g3")
		d := s.receive(b, 1, time.Second)[0] // asks for one
		s.ok("nack", b.Nack(s.Context(), d, 0))
		s.srv.ForgetCalls()
		d = s.receiveUpTo(b, 10)[0]
		for range 5 {
			deadline, err := b.Extend(s.Context(), d, visibility)
			s.ok("extend", err)
			time.Sleep(time.Until(deadline) * 2 / 3)
		}
		cs := s.srv.Calls("ChangeMessageVisibility*")
		if len(cs) != 5 || cs[0].Entries() != 3 {
			t.Errorf("%d requests, the first with %d entries, want five with three", len(cs), cs[0].Entries())
		}
		for _, want := range []string{"g2", "g3"} {
			s.ok("ack", b.Ack(s.Context(), d))
			d = s.receive(b, 1, time.Second)[0]
			if string(d.Body) != want || time.Until(d.Deadline) < visibility/2 {
				t.Errorf("received %q with %v left", d.Body, time.Until(d.Deadline))
			}
		}
		s.ok("ack", b.Ack(s.Context(), d))
		s.depth(0, 0)
		if st := b.State(); st.Redelivered != 1 || st.Lost != 0 {
			t.Errorf("state: %+v", st)
		}
	})
}

// receiveUpTo is one Receive with n wanted.
func (s *stage) receiveUpTo(b broker.Source, n int) []broker.Delivery {
	s.Helper()
	ds, err := b.Receive(s.Context(), n)
	s.ok("receive", err)
	return ds
}

// Case 19: an overrun on a FIFO queue. The ack says so without asking, what waited behind
// is given up with it, and the other acks are unharmed.
func TestOverrunOfAGroup(t *testing.T) {
	onFIFO(t, func(s *stage) {
		a, b := s.open(), s.open()
		s.inGroup("g", "g1", "g2")
		s.inGroup("h", "h1")
		ds := s.receiveUpTo(a, 10)
		_, err := a.Extend(s.Context(), ds[1], time.Hour)
		s.ok("extend the other group", err)
		time.Sleep(visibility)
		s.is("late ack", a.Ack(s.Context(), ds[0]), broker.ErrNotHeld)
		if n := s.srv.Count("DeleteMessage*"); n != 0 {
			t.Errorf("%d deletes", n)
		}
		s.ok("ack of the other group", a.Ack(s.Context(), ds[1]))
		for _, want := range []string{"g1", "g2"} {
			got := s.receive(b, 1, 2*time.Second)
			if !slices.Equal(bodies(got), []string{want}) {
				t.Errorf("received %v, want %s", bodies(got), want)
			}
			s.ackAll(b, got)
		}
		s.depth(0, 0)
		if st := a.State(); st.Held != 0 || st.Parked != 0 || st.Lost != 1 {
			t.Errorf("state of A: %+v", st)
		}
	})
}

// SQS says that the handle of the first has expired: the ones behind it go back at once.
func TestExpiredHandleOfAGroup(t *testing.T) {
	expired := sqsfake.InvalidParameterValue
	expired.Message = "Value x for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
	onFIFO(t, func(s *stage) {
		b := s.open()
		s.inGroup("g", "g1", "g2", "g3")
		d := s.receiveUpTo(b, 10)[0]
		s.srv.Script(sqsfake.Fault{Action: "DeleteMessageBatch", Entries: []sqsfake.EntryFault{{Error: expired}}})
		s.is("ack", b.Ack(s.Context(), d), broker.ErrNotHeld)
		time.Sleep(time.Second)
		if got := s.changes(); !slices.Equal(got, []string{"g3=0", "g2=0"}) {
			t.Errorf("visibility changes %v", got)
		}
		if st := b.State(); st.Held != 0 || st.Parked != 0 {
			t.Errorf("state: %+v", st)
		}
	})
}

// What lapsed while it waited behind a slow first one is dropped without a word to SQS, with
// all behind it.
func TestParkedThatLapsed(t *testing.T) {
	onFIFO(t, func(s *stage) {
		b := s.open()
		s.inGroup("g", "g1", "g2", "g3")
		d := s.receiveUpTo(b, 10)[0]
		s.srv.Script(sqsfake.Fault{Action: "ChangeMessageVisibilityBatch",
			Entries: []sqsfake.EntryFault{{Index: 1, Error: sqsfake.InternalError}, {Index: 2, Error: sqsfake.InternalError}}},
			sqsfake.Fault{Action: "ChangeMessageVisibilityBatch", Times: -1, Entries: []sqsfake.EntryFault{{Index: -1, Error: sqsfake.InternalError}}})
		_, err := b.Extend(s.Context(), d, time.Hour)
		s.ok("extend", err)
		time.Sleep(visibility)
		s.srv.ClearFaults()
		s.srv.ForgetCalls()
		s.ok("ack", b.Ack(s.Context(), d))
		synced := s.srv.Count("ChangeMessageVisibility*")
		if st := b.State(); st.Parked != 0 || synced != 0 {
			t.Errorf("%d changes and state %+v", synced, st)
		}
		s.ackAll(b, s.receive(b, 1, 2*time.Second))
		s.ackAll(b, s.receive(b, 1, 2*time.Second))
		s.depth(0, 0)
	})
}

// Close gives a held group back, last one first.
func TestCloseGivesBackAGroup(t *testing.T) {
	onFIFO(t, func(s *stage) {
		b := s.open()
		s.inGroup("g", "g1", "g2", "g3")
		s.receiveUpTo(b, 10)
		s.close(b)
		if got := s.changes(); !slices.Equal(got, []string{"g3=0", "g2=0", "g1=0"}) {
			t.Errorf("visibility changes %v", got)
		}
		s.depth(3, 0)
	})
}

// A bad checksum in a group: what came before it is run, it and what is behind it go back.
func TestBadChecksumInAGroup(t *testing.T) {
	onFIFO(t, func(s *stage) {
		b := s.open()
		s.inGroup("g", "g1", "g2", "g3")
		s.srv.Script(sqsfake.Fault{Action: "ReceiveMessage", BadMD5: []int{1}})
		var got []string
		for _, d := range s.receiveUpTo(b, 10) {
			got = append(got, string(d.Body))
			s.ok("ack", b.Ack(s.Context(), d))
		}
		for len(got) < 3 {
			ds := s.receive(b, 1, 3*time.Second)
			got = append(got, bodies(ds)...)
			s.ackAll(b, ds)
		}
		if !slices.Equal(got, []string{"g1", "g2", "g3"}) {
			t.Errorf("in the order %v", got)
		}
		s.depth(0, 0)
	})
}

// On a standard queue the group is a label: nothing waits for anything.
func TestGroupOnAStandardQueue(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		for _, body := range []string{"a", "b"} {
			s.ok("publish", b.Publish(s.Context(), broker.Message{Body: []byte(body), Attributes: map[string]string{"MessageGroupId": "acme"}}))
		}
		ds := s.receive(b, 2, time.Second)
		for _, d := range ds {
			if d.Facts.Group != "acme" || len(d.Attributes) != 0 || d.Facts.Sent.IsZero() || d.Facts.First.IsZero() {
				t.Errorf("facts %+v, attributes %v", d.Facts, d.Attributes)
			}
		}
		s.ackAll(b, ds)
		s.depth(0, 0)
	})
}

// A hand-out that lapsed does not stand in the way of the next one of its message.
func TestGroupComesBackAfterItsFirstLapsed(t *testing.T) {
	onFIFO(t, func(s *stage) {
		b := s.open()
		s.inGroup("g", "g1", "g2")
		old := s.receiveUpTo(b, 10)[0]
		for _, want := range []string{"g1", "g2"} {
			d := s.receive(b, 1, visibility+time.Second)[0]
			if string(d.Body) != want || d.Receives != 2 {
				t.Errorf("received %q for the %d. time, want %s for the second", d.Body, d.Receives, want)
			}
			s.is("late ack", b.Ack(s.Context(), old), broker.ErrNotHeld)
			s.ok("ack", b.Ack(s.Context(), d))
		}
		s.depth(0, 0)
	})
}

// SQS hands a held message out again, before its deadline as this process sees it: the
// newer hand-out is the one that counts, and what waited behind the older one follows it.
func TestNewerHandOutOfAGroup(t *testing.T) {
	onFIFO(t, func(s *stage) {
		b := s.open()
		s.inGroup("g", "g1", "g2", "g3")
		old := s.receiveUpTo(b, 10)[0]
		s.srv.Advance(visibility) // for the server the time is over
		got := s.receiveUpTo(b, 10)
		if !slices.Equal(bodies(got), []string{"g1"}) || got[0].Receives != 2 {
			t.Fatalf("received %v for the %d. time", bodies(got), got[0].Receives)
		}
		_, err := b.Extend(s.Context(), old, time.Hour)
		s.is("extend the old one", err, broker.ErrNotHeld)
		s.is("ack the old one", b.Ack(s.Context(), old), broker.ErrNotHeld)
		s.ackAll(b, got)
		for _, want := range []string{"g2", "g3"} {
			got := s.receive(b, 1, time.Second)
			if !slices.Equal(bodies(got), []string{want}) {
				t.Fatalf("received %v, want %s", bodies(got), want)
			}
			s.ackAll(b, got)
		}
		s.depth(0, 0)
		if st := b.State(); st.Held != 0 || st.Parked != 0 || st.Lost != 1 {
			t.Errorf("state: %+v", st)
		}
	})
}

// A group that no Receive waits for goes back whole, last one first.
func TestUnwantedGroupGoesBack(t *testing.T) {
	onFIFO(t, func(s *stage) {
		a := s.open()
		s.inGroup("g", "g1", "g2", "g3")
		s.srv.Script(sqsfake.Fault{Action: "ReceiveMessage", After: time.Second}) // they are on their way
		s.stopPollingSlowly(a)
		time.Sleep(time.Second)
		s.depth(3, 0)
		if got := s.changes(); !slices.Equal(got, []string{"g3=0", "g2=0", "g1=0"}) {
			t.Errorf("visibility changes %v", got)
		}
		if st := a.State(); st.Parked != 0 || st.Held != 0 {
			t.Errorf("state: %+v", st)
		}
	})
}

// The first of a group is corrupt: all of it goes back, last one first.
func TestCorruptHeadOfAGroup(t *testing.T) {
	onFIFO(t, func(s *stage) {
		b := s.open()
		s.inGroup("g", "g1", "g2", "g3")
		s.srv.Script(sqsfake.Fault{Action: "ReceiveMessage", BadMD5: []int{0}})
		s.none(b, 500*time.Millisecond)
		if got := s.changes(); !slices.Equal(got, []string{"g3=1", "g2=1", "g1=1"}) {
			t.Errorf("visibility changes %v", got)
		}
		for _, want := range []string{"g1", "g2", "g3"} {
			ds := s.receive(b, 1, 2*time.Second)
			if !slices.Equal(bodies(ds), []string{want}) {
				t.Errorf("received %v, want %s", bodies(ds), want)
			}
			s.ackAll(b, ds)
		}
		s.depth(0, 0)
	})
}
