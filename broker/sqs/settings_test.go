package sqs_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/sqs"
	"github.com/paidonce/paidonce/internal/sqsfake"
	"github.com/paidonce/paidonce/internal/sqstest"
)

// journal is what a Broker logs.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// count is how many lines have all of words.
func (j *journal) count(words ...string) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
lines:
	for line := range strings.Lines(j.text.String()) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue lines
			}
		}
		n++
	}
	return n
}

// journaled has a Broker log into j too.
func (s *stage) journaled(j *journal) func(*sqs.Config) {
	return func(c *sqs.Config) { c.Logger = slog.New(slog.NewTextHandler(io.MultiWriter(s.Output(), j), nil)) }
}

// set changes the queue's settings, as an operator does.
func (s *stage) set(attributes map[string]string) {
	s.Helper()
	url := s.srv.URL() + "/" + sqsfake.Account + "/" + s.queue
	_, err := sqstest.NewClient(*s.config().AWS).SetQueueAttributes(s.Context(), &awssqs.SetQueueAttributesInput{QueueUrl: &url, Attributes: attributes})
	s.ok("set attributes", err)
}

// one receives a message after the wait, and says for how long it believes to hold it.
func (s *stage) one(b *sqs.Broker, wait time.Duration) time.Duration {
	s.Helper()
	s.none(b, wait)
	s.srv.SendBodies(s.queue, "x")
	d := s.receive(b, 1, time.Second)[0]
	held := time.Until(d.Deadline)
	s.ok("ack", b.Ack(s.Context(), d))
	return held
}

// An operator lowers the queue's visibility timeout: a worker that runs notices within a minute
// and a poll, for one request a minute.
func TestVisibilityIsChangedWhileRunning(t *testing.T) {
	onStage(t, func(s *stage) {
		var j journal
		b := s.open(s.journaled(&j))
		s.set(map[string]string{"VisibilityTimeout": "10", "ReceiveMessageWaitTimeSeconds": "5"})
		if held := s.one(b, 81*time.Second); held > 10*time.Second || held < 8*time.Second {
			t.Errorf("held for %v, want what the queue says now", held)
		}
		s.srv.ForgetCalls()
		s.one(b, 10*time.Minute)
		if n, of := s.srv.Count("GetQueueAttributes"), s.srv.Count("ReceiveMessage"); n < 9 || n > 10 || of < 110 {
			t.Errorf("described %d times for %d receives in ten minutes, want once a minute", n, of)
		}
		if n := j.count("visibility timeout was changed", "visibility=10s", "before=30s"); n != 1 {
			t.Errorf("logged %d times", n)
		}
	})
	onStage(t, func(s *stage) { // what is configured holds whatever the queue says
		b := s.open(func(c *sqs.Config) { c.Visibility = time.Minute })
		s.set(map[string]string{"VisibilityTimeout": "10"})
		if held := s.one(b, 81*time.Second); held < 58*time.Second {
			t.Errorf("held for %v, want a minute", held)
		}
	})
}

// SQS does not say how the queue is set up, for an hour: receiving goes on as before, and the log has
// it once.
func TestQueueIsNotDescribedAgain(t *testing.T) {
	for _, f := range []sqsfake.Fault{{Kind: sqsfake.Refuse, Error: sqsfake.AccessDenied}, {Kind: sqsfake.Page}, {Kind: sqsfake.Hold}} {
		onStage(t, func(s *stage) {
			var j journal
			b := s.open(s.journaled(&j))
			f.Action, f.Times = "GetQueueAttributes", -1
			s.srv.Script(f)
			if held := s.one(b, time.Hour); held < 28*time.Second {
				t.Errorf("%s: held for %v", f.Kind, held)
			}
			if n := s.srv.Count("ReceiveMessage"); n < 160 {
				t.Errorf("%s: %d receives in an hour, want one every 20 s but for 5 s a minute", f.Kind, n)
			}
			st := b.State()
			if !st.Connected || st.LastError != "" || j.count("not described again", "PO") != 1 {
				t.Errorf("%s: logged %d times, state %+v", f.Kind, j.count("not described again"), st)
			}
			s.srv.ClearFaults()
			s.srv.Release()
			s.set(map[string]string{"VisibilityTimeout": "10"})
			if held := s.one(b, 81*time.Second); held > 10*time.Second {
				t.Errorf("%s: held for %v after it was described again", f.Kind, held)
			}
		})
	}
}

// A queue whose visibility timeout is set to 0 hands its messages out again at once: nothing is
// received until that is mended, and what is held is acknowledged.
func TestQueueBecomesUnusable(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.SendBodies(s.queue, "x")
		d := s.receive(b, 1, time.Second)[0]
		_, err := b.Extend(s.Context(), d, time.Hour)
		s.ok("extend", err)
		s.set(map[string]string{"VisibilityTimeout": "0"})
		s.none(b, 90*time.Second)
		s.srv.ForgetCalls()
		s.none(b, 10*time.Minute)
		if n, of := s.srv.Count("ReceiveMessage"), s.srv.Count("GetQueueAttributes"); n != 0 || of < 15 || of > 40 {
			t.Errorf("%d receives and %d looks in ten minutes, want none and two or three a minute", n, of)
		}
		if st := b.State(); st.Connected || !strings.Contains(st.LastError, "PO154") {
			t.Errorf("state: %+v", st)
		}
		s.ok("ack", b.Ack(s.Context(), d))
		s.set(map[string]string{"VisibilityTimeout": "20"})
		if held := s.one(b, 46*time.Second); held > 20*time.Second || !b.State().Connected {
			t.Errorf("held for %v, state %+v", held, b.State())
		}
	})
}

// Dead letters go where the redrive policy of now sends them.
func TestRedrivePolicyIsChangedWhileRunning(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.open()
		s.srv.CreateQueue("other", nil)
		s.set(map[string]string{"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":"7"}`, sqsfake.ARN("other"))})
		s.none(b, 81*time.Second)
		s.srv.ForgetCalls()
		for range 3 {
			s.srv.SendBodies(s.queue, "x")
			s.ok("dead-letter", b.DeadLetter(s.Context(), s.receive(b, 1, time.Second)[0], "PO401 x"))
			s.none(b, 81*time.Second)
		}
		if was, is := s.srv.Depth("jobs-dead").Visible, s.srv.Depth("other").Visible; was != 0 || is != 3 {
			t.Errorf("%d dead letters in the old queue and %d in the new one", was, is)
		}
		if n := s.srv.Count("GetQueueUrl"); n != 1 {
			t.Errorf("looked for it %d times", n)
		}
		seen := 0
		s.look(b, func(broker.DeadLetter) broker.Fate { seen++; return broker.Drop })
		if seen != 3 {
			t.Errorf("reviewed %d", seen)
		}
	})
}
