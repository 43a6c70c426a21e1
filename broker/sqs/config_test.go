package sqs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/sqs"
	"github.com/paidonce/paidonce/internal/sqsfake"
)

// All faults come at once, each with its value.
func TestFaultsOfConfig(t *testing.T) {
	_, err := sqs.Open(t.Context(), sqs.Config{DeadLetter: "d.fifo", Visibility: 1500 * time.Millisecond, Wait: time.Minute, Endpoint: "localhost"})
	if !errors.Is(err, sqs.ErrConfig) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"PO151", "queue is empty", `dead_letter "d.fifo"`, "visibility 1.5s", "wait 1m0s", `endpoint "localhost"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	for want, c := range map[string]sqs.Config{
		"is the queue itself": {Queue: "q", DeadLetter: "q"},
		"visibility 13h":      {Queue: "q", Visibility: 13 * time.Hour},
		"no region":           {Queue: "q", AWS: &aws.Config{}},
	} {
		if _, err := sqs.Open(t.Context(), c); !errors.Is(err, sqs.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

// Declare makes what is missing and leaves what is there; without it the adapter waits.
func TestDeclare(t *testing.T) {
	for queue, dead := range map[string]string{"new": "new-dead", "new.fifo": "new-dead.fifo"} {
		onStage(t, func(s *stage) {
			s.queue = queue
			waiting := s.open()
			s.is("publish", waiting.Publish(s.Context(), broker.Message{Body: []byte("x")}), broker.ErrUnroutable)
			_, err := waiting.Describe(s.Context())
			s.is("describe", err, broker.ErrUnroutable)
			if st := waiting.State(); st.Connected || !strings.Contains(st.LastError, "NonExistentQueue") && !strings.Contains(st.LastError, "does not exist") {
				t.Errorf("state: %+v", st)
			}
			b := s.open(func(c *sqs.Config) { c.Declare = true })
			d, err := b.Describe(s.Context())
			s.ok("describe", err)
			fifo := strings.HasSuffix(queue, ".fifo")
			want := sqs.Description{URL: d.URL, ARN: sqsfake.ARN(queue), FIFO: fifo, Visibility: 30 * time.Second, Retention: 4 * 24 * time.Hour, MaxMessage: 1 << 20,
				RedriveTarget: sqsfake.ARN(dead), MaxReceives: 1000,
				Dead: sqs.DeadQueue{Configured: true, Exists: true, URL: d.Dead.URL, ARN: sqsfake.ARN(dead), FIFO: fifo, Retention: 14 * 24 * time.Hour, MaxMessage: 1 << 20}}
			if d != want || !strings.HasSuffix(d.URL, "/"+queue) || !strings.HasSuffix(d.Dead.URL, "/"+dead) {
				t.Errorf("got  %+v\nwant %+v", d, want)
			}
			s.ok("publish", waiting.Publish(s.Context(), broker.Message{Body: []byte("x")}))
			s.srv.ForgetCalls()
			s.open(func(c *sqs.Config) { c.Declare = true })
			if n := s.srv.Count("CreateQueue", "SetQueueAttributes"); n != 0 {
				t.Errorf("%d changes to queues that are there", n)
			}
		})
	}
}

// A queue whose own settings cannot work is refused with its code.
func TestUnusableQueue(t *testing.T) {
	onStage(t, func(s *stage) {
		s.srv.CreateQueue("zero", map[string]string{"VisibilityTimeout": "0"})
		conf := s.config()
		conf.Queue = "zero"
		_, err := sqs.Open(s.Context(), conf)
		s.is("open", err, sqs.ErrQueue)
		s.open(func(c *sqs.Config) { c.Queue, c.Visibility = "zero", time.Minute })
	})
}

// A short visibility timeout leaves a deadline that can be kept. (Case 11.)
func TestShortVisibility(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open(func(c *sqs.Config) { c.Visibility = time.Second })
		s.srv.SendBodies(s.queue, "x")
		d := s.receive(b, 1, time.Second)[0]
		for range 30 {
			if left := time.Until(d.Deadline); left < 500*time.Millisecond {
				t.Fatalf("%v left", left)
			}
			time.Sleep(time.Until(d.Deadline) / 3)
			var err error
			d.Deadline, err = b.Extend(s.Context(), d, time.Second)
			s.ok("extend", err)
		}
		s.ok("ack", b.Ack(s.Context(), d))
		s.depth(0, 0)
		if st := b.State(); st.Lost != 0 || st.Redelivered != 0 {
			t.Errorf("state: %+v", st)
		}
	})
}

// A server that never answers: Open ends with its context, and says both what happened and why. With more time it
// leaves the queue for later.
func TestOpenEndsWithItsContext(t *testing.T) {
	onStage(t, func(s *stage) {
		s.srv.Script(sqsfake.Fault{Action: "GetQueueUrl", Kind: sqsfake.Hold, Times: -1})
		for _, limit := range []time.Duration{time.Second, 7 * time.Second} {
			ctx, cancel := context.WithTimeoutCause(s.Context(), limit, errStop)
			defer cancel()
			at := time.Now()
			_, err := sqs.Open(ctx, s.config())
			s.is("open", err, errStop)
			s.is("open", err, broker.ErrUnavailable)
			if took := time.Since(at); took != limit {
				t.Errorf("open took %v, want %v", took, limit)
			}
		}
		ctx, cancel := context.WithTimeout(s.Context(), 25*time.Second)
		defer cancel()
		b, err := sqs.Open(ctx, s.config())
		s.ok("open with time for every try", err)
		if st := b.State(); st.Connected || !strings.HasPrefix(st.LastError, "PO103") {
			t.Errorf("state: %+v", st)
		}
		s.srv.ClearFaults()
		s.srv.Release()
		s.close(b)
	})
}
