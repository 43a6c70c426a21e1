package sqs_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/sqs"
	"github.com/paidonce/paidonce/internal/sqsfake"
)

var errStop = errors.New("worker stops")

// stopPolling receives under a context that ends while the poll is open.
func (s *stage) stopPolling(b *sqs.Broker) {
	s.Helper()
	ctx, cancel := context.WithTimeoutCause(s.Context(), 700*time.Millisecond, errStop)
	defer cancel()
	_, err := b.Receive(ctx, 10)
	s.is("receive", err, errStop)
	if n := s.srv.Polls(s.queue); n != 1 {
		s.Fatalf("%d polls are open after the context ended, want the one that goes on", n)
	}
}

// Case 27: A stops while its poll is open. What that brings is B's within two seconds.
func TestStoppedReceiveStrandsNothing(t *testing.T) {
	onStage(t, func(s *stage) {
		a, b := s.open(), s.open()
		s.stopPolling(a)
		s.srv.SendBodies(s.queue, "x")
		d := s.receive(b, 1, 2*time.Second)[0]
		s.ok("ack", b.Ack(s.Context(), d))
		s.depth(0, 0)
		if st := a.State(); st.Released != 1 || st.Held != 0 || st.Parked != 0 || st.Stranded != 0 {
			t.Errorf("state of A: %+v", st)
		}
	})
}

// The same while A closes: Close waits for the poll and gives back what it brings at once.
func TestCloseStrandsNothing(t *testing.T) {
	onStage(t, func(s *stage) {
		a, b := s.open(), s.open()
		s.stopPolling(a)
		closed := make(chan error)
		go func() { closed <- a.Close(s.Context()) }()
		synctest.Wait()
		s.srv.SendBodies(s.queue, "x")
		at := time.Now()
		s.ok("close", <-closed)
		if took := time.Since(at); took > 100*time.Millisecond {
			t.Errorf("close gave back after %v", took)
		}
		s.ok("ack", b.Ack(s.Context(), s.receive(b, 1, 2*time.Second)[0]))
		s.depth(0, 0)
	})
}

// Without a message Close waits as long as the poll does. With less time it cuts the
// poll, as late as it can, and says that this may have hidden something.
func TestCloseWaitsForItsPoll(t *testing.T) {
	onStage(t, func(s *stage) {
		a, b := s.open(), s.open()
		s.stopPolling(a)
		at := time.Now()
		s.close(a)
		if took := time.Since(at); took < 19*time.Second || took > 20*time.Second || a.State().Stranded != 0 {
			t.Errorf("close took %v, want what was left of 20 s; stranded %d", took, a.State().Stranded)
		}
		s.stopPolling(b)
		ctx, cancel := context.WithTimeout(s.Context(), 8*time.Second)
		defer cancel()
		at = time.Now()
		s.ok("close", b.Close(ctx))
		if took := time.Since(at); took != 6*time.Second || b.State().Stranded != 1 {
			t.Errorf("close took %v, want 2 s less than 8 s; stranded %d, want 1", took, b.State().Stranded)
		}
	})
}

// A poll that is open is taken over by the next Receive, and what it brings is no more
// than that wants; the rest waits a moment for another.
func TestNextReceiveTakesOverThePoll(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.stopPolling(b)
		got := make(chan []broker.Delivery)
		go func() {
			ds, err := b.Receive(s.Context(), 2)
			if err != nil {
				t.Error(err)
			}
			got <- ds
		}()
		synctest.Wait()
		if n := s.srv.Count("ReceiveMessage"); n != 1 {
			t.Errorf("%d receives at the server, want the one that was open", n)
		}
		s.srv.SendBodies(s.queue, "a")
		ds := <-got
		if !slices.Equal(bodies(ds), []string{"a"}) {
			t.Errorf("received %v", bodies(ds))
		}
		s.ackAll(b, ds)
	})
	onStage(t, func(s *stage) {
		s.srv.SendBodies(s.queue, numbered(10)...)
		s.srv.Script(sqsfake.Fault{Action: "ReceiveMessage", After: time.Second}) // ten are on their way
		b := s.open()
		s.stopPollingSlowly(b)
		first := s.receive(b, 3, 5*time.Second)
		second := s.receive(b, 4, time.Millisecond)
		time.Sleep(time.Second)
		s.depth(3, 7)
		s.ackAll(b, append(first, second...))
		s.depth(3, 0)
	})
}

// stopPollingSlowly is stopPolling where the answer is under way.
func (s *stage) stopPollingSlowly(b *sqs.Broker) {
	ctx, cancel := context.WithTimeoutCause(s.Context(), 700*time.Millisecond, errStop)
	defer cancel()
	_, err := b.Receive(ctx, 10)
	s.is("receive", err, errStop)
}

// A receive asks for what is free and no more. A second poll opens when the first was
// full, not before.
func TestReceivesAreSized(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, numbered(35)...)
		var ds []broker.Delivery
		for len(ds) < 35 {
			ds = append(ds, s.receive(b, min(20, 35-len(ds)), time.Second)...)
		}
		for _, c := range s.srv.Calls("ReceiveMessage") {
			if n := *c.Request.MaxNumberOfMessages; n > 10 {
				t.Errorf("asked for %d", n)
			}
		}
		if n := s.srv.Count("ReceiveMessage"); n != 4 {
			t.Errorf("%d receives for 35 messages, want 4", n)
		}
		s.ackAll(b, ds)
		s.srv.ForgetCalls()
		s.none(b, time.Second)
		if n := s.srv.Polls(s.queue); n != 1 {
			t.Errorf("%d polls on an empty queue, want one for 10 wanted", n)
		}
		s.depth(0, 0)
	})
}

// A lost reply hides its messages until the visibility timeout; on FIFO the same
// attempt id gets them at once.
func TestLostReceiveReply(t *testing.T) {
	for _, kind := range []sqsfake.Kind{sqsfake.Reset, sqsfake.Close, sqsfake.Cut} {
		lost := sqsfake.Fault{Action: "ReceiveMessage", Kind: kind, Done: true}
		onStage(t, func(s *stage) {
			b := s.open()
			s.srv.SendBodies(s.queue, "x")
			s.srv.Script(lost)
			d := s.receive(b, 1, visibility+5*time.Second)[0]
			if d.Receives != 2 {
				t.Errorf("receives %d, want 2", d.Receives)
			}
			s.ok("ack", b.Ack(s.Context(), d))
			s.depth(0, 0)
			if st := b.State(); !st.Connected || st.LastError == "" || st.Lost != 0 || st.Redelivered != 1 {
				t.Errorf("state: %+v", st)
			}
		})
		onFIFO(t, func(s *stage) {
			b := s.open()
			s.inGroup("g", "x", "y")
			s.srv.Script(lost)
			ds := s.receive(b, 1, time.Second)
			s.ackAll(b, ds)
			ds = s.receive(b, 1, time.Second)
			s.ackAll(b, ds)
			s.depth(0, 0)
			var ids []string
			for _, c := range s.srv.Calls("ReceiveMessage") {
				ids = append(ids, c.Request.ReceiveRequestAttemptId)
			}
			if len(ids) != 3 || ids[0] == "" || ids[0] != ids[1] || ids[0] == ids[2] {
				t.Errorf("attempt ids %q, want the first again and then another", ids)
			}
		})
	}
}

// Every logical receive of a FIFO queue has an attempt id of its own.
func TestAttemptIDsAreFresh(t *testing.T) {
	onFIFO(t, func(s *stage) {
		b := s.open()
		seen := map[string]bool{}
		for _, body := range numbered(5) {
			s.inGroup(body, body)
			s.ackAll(b, s.receive(b, 1, time.Second))
		}
		for _, c := range s.srv.Calls("ReceiveMessage") {
			seen[c.Request.ReceiveRequestAttemptId] = true
		}
		if n := s.srv.Count("ReceiveMessage"); len(seen) != n || seen[""] {
			t.Errorf("%d attempt ids for %d receives", len(seen), n)
		}
	})
}

// A server that never answers costs one poll its wait and ten seconds, no more.
func TestServerThatNeverAnswers(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.Script(sqsfake.Fault{Action: "ReceiveMessage", Kind: sqsfake.Hold})
		s.none(b, 29*time.Second)
		s.srv.SendBodies(s.queue, "x")
		d := s.receive(b, 1, 2*time.Second)[0]
		s.srv.Script(sqsfake.Fault{Action: "DeleteMessageBatch", Kind: sqsfake.Hold, Times: 2})
		at := time.Now()
		s.ok("ack", b.Ack(s.Context(), d))
		if took := time.Since(at); took < 10*time.Second || took > 12*time.Second {
			t.Errorf("ack after two tries of 5 s without an answer took %v", took)
		}
		s.srv.Release()
		s.depth(0, 0)
	})
}

// The queue's own wait counts unless one is set, so that whoever owns the queue says how long
// a worker may take to leave.
func TestQueueSaysHowLongToWait(t *testing.T) {
	for want, c := range map[string]struct {
		own  string // of the queue
		wait time.Duration
	}{"2": {"2", 0}, "5": {"2", 5 * time.Second}, "20": {"0", 0}} {
		onStage(t, func(s *stage) {
			s.srv.CreateQueue("waits", map[string]string{"ReceiveMessageWaitTimeSeconds": c.own})
			b := s.open(func(conf *sqs.Config) { conf.Queue, conf.Wait = "waits", c.wait })
			s.srv.SendBodies("waits", "x")
			s.ok("ack", b.Ack(s.Context(), s.receive(b, 1, time.Second)[0]))
			var body map[string]json.RawMessage
			if err := json.Unmarshal(s.srv.Calls("ReceiveMessage")[0].Body, &body); err != nil {
				t.Fatal(err)
			}
			if string(body["WaitTimeSeconds"]) != want {
				t.Errorf("a queue that waits %s s, configured %v: sent WaitTimeSeconds %s, want %s", c.own, c.wait, body["WaitTimeSeconds"], want)
			}
		})
	}
}

// VisibilityTimeout goes out only when it is set, WaitTimeSeconds always.
func TestVisibilityIsSentWhenSet(t *testing.T) {
	for want, change := range map[string]func(*sqs.Config){
		"": func(*sqs.Config) {}, "120": func(c *sqs.Config) { c.Visibility = 2 * time.Minute },
	} {
		onStage(t, func(s *stage) {
			b := s.open(change)
			s.srv.SendBodies(s.queue, "x")
			d := s.receive(b, 1, time.Second)[0]
			var body map[string]json.RawMessage
			if err := json.Unmarshal(s.srv.Calls("ReceiveMessage")[0].Body, &body); err != nil {
				t.Fatal(err)
			}
			if string(body["VisibilityTimeout"]) != want || string(body["WaitTimeSeconds"]) != "20" {
				t.Errorf("sent VisibilityTimeout %q and WaitTimeSeconds %q, want %q and 20", body["VisibilityTimeout"], body["WaitTimeSeconds"], want)
			}
			hidden := s.srv.Messages(s.queue)[0].HiddenFor
			if left := time.Until(d.Deadline); left > hidden || left < hidden-time.Second {
				t.Errorf("deadline in %v, the message is hidden for %v", left, hidden)
			}
			s.ok("ack", b.Ack(s.Context(), d))
		})
	}
}

// One message of three whose checksum is wrong costs itself alone.
func TestBadChecksumCostsOneMessage(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, "a", "b", "c")
		s.srv.Script(sqsfake.Fault{Action: "ReceiveMessage", BadMD5: []int{1}})
		ds := s.receive(b, 2, time.Millisecond)
		if !slices.Equal(bodies(ds), []string{"a", "c"}) {
			t.Errorf("received %v, want a and c", bodies(ds))
		}
		s.ackAll(b, ds)
		d := s.receive(b, 1, 2*time.Second)[0]
		if string(d.Body) != "b" || d.Receives != 2 {
			t.Errorf("received %q for the %d. time", d.Body, d.Receives)
		}
		s.ok("ack", b.Ack(s.Context(), d))
		s.depth(0, 0)
		if st := b.State(); st.Corrupt != 1 {
			t.Errorf("state: %+v", st)
		}
	})
}

// Whatever SQS says instead of an answer, receiving goes on; what only somebody else
// can mend is asked for slowly, and shows.
func TestReceiveSurvives(t *testing.T) {
	for _, e := range []sqsfake.Error{sqsfake.OverLimit, sqsfake.RequestThrottled, sqsfake.Throttling, sqsfake.KMSThrottled,
		sqsfake.InternalError, sqsfake.Unavailable, sqsfake.AccessDenied, sqsfake.KMSAccessDenied, sqsfake.ExpiredToken, sqsfake.QueueDoesNotExist} {
		onStage(t, func(s *stage) {
			b := s.open()
			s.srv.SendBodies(s.queue, "held", "x")
			held := s.receive(b, 1, time.Second)
			s.srv.Script(sqsfake.Fault{Action: "ReceiveMessage", Kind: sqsfake.Refuse, Error: e, Times: -1})
			s.srv.ForgetCalls()
			s.none(b, 60*time.Second-time.Millisecond)
			if n := s.srv.Count("ReceiveMessage"); n < 3 || n > 16 {
				t.Errorf("%s: %d receives in a minute", e.Code, n)
			}
			if st := b.State(); st.Connected || st.LastError == "" {
				t.Errorf("%s: state %+v, want not connected and why", e.Code, st)
			}
			_ = held
			s.srv.ClearFaults()
			ds := s.receive(b, 2, 60*time.Second) // the held one too, its time is over
			s.ackAll(b, ds)
			s.depth(0, 0)
			if !b.State().Connected {
				t.Errorf("%s: not connected afterwards", e.Code)
			}
		})
	}
}

// While nothing can be received because too much is in flight, acks go on.
func TestOverLimitLetsAcksThrough(t *testing.T) {
	staged(t, false, sqsfake.Options{InFlight: 2}, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, "a", "b", "c")
		ds := s.receive(b, 2, time.Second)
		s.srv.Script(sqsfake.Fault{Action: "ReceiveMessage", Kind: sqsfake.Refuse, Error: sqsfake.OverLimit, Times: 3})
		s.none(b, 500*time.Millisecond)
		s.ackAll(b, ds)
		s.ackAll(b, s.receive(b, 1, 5*time.Second))
		s.depth(0, 0)
	})
}

// Receives that fail use up no retry of the deletes: those have a client of their own.
func TestFailingReceivesSpareTheAcks(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, "x")
		d := s.receive(b, 1, time.Second)[0]
		s.srv.Script(sqsfake.Fault{Action: "ReceiveMessage", Kind: sqsfake.Close, Times: -1})
		for range 60 {
			deadline, err := b.Extend(s.Context(), d, visibility)
			s.ok("extend", err)
			s.none(b, time.Until(deadline)/2)
		}
		if n := s.srv.Count("ReceiveMessage"); n < 30 {
			t.Fatalf("only %d receives", n)
		}
		s.srv.ForgetCalls()
		s.srv.Script(sqsfake.Fault{Action: "DeleteMessageBatch", Kind: sqsfake.Page, Times: 2})
		at := time.Now()
		s.ok("ack", b.Ack(s.Context(), d))
		if n := s.srv.Count("DeleteMessageBatch"); n != 3 || b.State().AcksFailed != 0 {
			t.Errorf("%d deletes in %v and %d failed for the adapter, want 3 tries of the SDK", n, time.Since(at), b.State().AcksFailed)
		}
		s.srv.ClearFaults()
		s.depth(0, 0)
	})
}
