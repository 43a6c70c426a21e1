package sqsfake_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/paidonce/paidonce/internal/sqsfake"
)

// client is the real SDK, with one try per call.
func client(s *sqsfake.Server, more ...func(*sqs.Options)) *sqs.Client {
	return sqs.New(sqs.Options{
		Region: sqsfake.Region, BaseEndpoint: aws.String(s.URL()), Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	}, more...)
}

// queue is one queue of one server, as its tests speak to it.
type queue struct {
	t    *testing.T
	c    *sqs.Client
	url  string
	said *[]string // what a scenario compares
}

func newQueue(t *testing.T, c *sqs.Client, url string) queue { return queue{t, c, url, &[]string{}} }

// fake starts a server with the queue "q", or "q.fifo".
func fake(t *testing.T, opt sqsfake.Options, attributes map[string]string) (*sqsfake.Server, queue) {
	t.Helper()
	s := sqsfake.Start(t, opt)
	name := "q"
	if attributes["FifoQueue"] == "true" {
		name = "q.fifo"
	}
	return s, newQueue(t, client(s), s.CreateQueue(name, attributes))
}

var fifo = map[string]string{"FifoQueue": "true", "ContentBasedDeduplication": "true"}

func (q queue) send(bodies ...string) {
	q.t.Helper()
	for _, b := range bodies {
		if _, err := q.c.SendMessage(q.t.Context(), &sqs.SendMessageInput{QueueUrl: &q.url, MessageBody: &b}); err != nil {
			q.t.Fatalf("send %q: %v", b, err)
		}
	}
}

// sendGroup sends to a FIFO queue.
func (q queue) sendGroup(group string, bodies ...string) {
	q.t.Helper()
	for _, b := range bodies {
		_, err := q.c.SendMessage(q.t.Context(), &sqs.SendMessageInput{QueueUrl: &q.url, MessageBody: &b, MessageGroupId: &group, MessageDeduplicationId: &b})
		if err != nil {
			q.t.Fatalf("send %q: %v", b, err)
		}
	}
}

func (q queue) tryReceive(change ...func(*sqs.ReceiveMessageInput)) ([]types.Message, error) {
	in := &sqs.ReceiveMessageInput{
		QueueUrl: &q.url, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	}
	for _, f := range change {
		f(in)
	}
	out, err := q.c.ReceiveMessage(q.t.Context(), in)
	if err != nil {
		return nil, err
	}
	return out.Messages, nil
}

// receive receives up to ten messages and checks their bodies.
func (q queue) receive(want string, change ...func(*sqs.ReceiveMessageInput)) []types.Message {
	q.t.Helper()
	messages, err := q.tryReceive(change...)
	if err != nil {
		q.t.Fatalf("receive: %v", err)
	}
	if got := bodies(messages); got != want {
		q.t.Fatalf("received %q, want %q", got, want)
	}
	return messages
}

func bodies(messages []types.Message) string {
	var all []string
	for _, m := range messages {
		all = append(all, *m.Body)
	}
	return strings.Join(all, " ")
}

func most(n int32) func(*sqs.ReceiveMessageInput) {
	return func(in *sqs.ReceiveMessageInput) { in.MaxNumberOfMessages = n }
}

func (q queue) delete(m types.Message) error {
	_, err := q.c.DeleteMessage(q.t.Context(), &sqs.DeleteMessageInput{QueueUrl: &q.url, ReceiptHandle: m.ReceiptHandle})
	return err
}

func (q queue) hide(m types.Message, seconds int32) error {
	_, err := q.c.ChangeMessageVisibility(q.t.Context(), &sqs.ChangeMessageVisibilityInput{QueueUrl: &q.url, ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: seconds})
	return err
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused checks the code that the SDK shows, and a part of the text.
func refused(t *testing.T, err error, want, text string) {
	t.Helper()
	if code(err) != want || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want code %s and %q", err, want, text)
	}
}

// code is an error's as the SDK shows it; "" without one.
func code(err error) string {
	if e, is := errors.AsType[smithy.APIError](err); is {
		return e.ErrorCode()
	}
	return ""
}

func depth(t *testing.T, s *sqsfake.Server, queue string, visible, inFlight, delayed int) {
	t.Helper()
	if got, want := s.Depth(queue), (sqsfake.Depth{Visible: visible, InFlight: inFlight, Delayed: delayed}); got != want {
		t.Errorf("depth of %s is %+v, want %+v", queue, got, want)
	}
}

func TestVisibility(t *testing.T) {
	s, q := fake(t, sqsfake.Options{}, nil)
	q.send("a")
	first := q.receive("a")[0]
	q.receive("")
	depth(t, s, "q", 0, 1, 0)
	s.Advance(29 * time.Second)
	ok(t, q.hide(first, 10))
	s.Advance(9 * time.Second)
	q.receive("")
	s.Advance(time.Second)
	second := q.receive("a")[0]
	if *second.ReceiptHandle == *first.ReceiptHandle || *second.MessageId != *first.MessageId || second.Attributes["ApproximateReceiveCount"] != "2" {
		t.Errorf("the second delivery is %+v, want another handle, the same id and count 2", second)
	}
	ok(t, q.hide(first, 0)) // the stale handle frees it under the second holder
	third := q.receive("a")[0]
	s.Advance(time.Minute)
	ok(t, q.hide(first, 30)) // and hides it again, though nobody holds it
	depth(t, s, "q", 0, 1, 0)
	q.receive("")
	ok(t, q.delete(third))
	ok(t, q.delete(third))
	refused(t, q.hide(third, 10), "InvalidParameterValue", "Message does not exist")
	third.ReceiptHandle = aws.String("garbage")
	refused(t, q.delete(third), "ReceiptHandleIsInvalid", "")
	refused(t, q.hide(third, 10), "ReceiptHandleIsInvalid", "")
	depth(t, s, "q", 0, 0, 0)
}

func TestTwelveHours(t *testing.T) {
	s, q := fake(t, sqsfake.Options{}, nil)
	q.send("a")
	s.Advance(11 * time.Hour) // the limit counts from the receive, not from the send
	m := q.receive("a")[0]
	refused(t, q.hide(m, 43_200), "InvalidParameterValue", "beyond the limit [43200 seconds]")
	refused(t, q.hide(m, 43_201), "InvalidParameterValue", "")
	ok(t, q.hide(m, 43_199))
	s.Advance(11 * time.Hour)
	ok(t, q.hide(m, 3_600))
	refused(t, q.hide(m, 3_601), "InvalidParameterValue", "beyond the limit")
	s.Advance(90 * time.Minute)
	refused(t, q.delete(m), "InvalidParameterValue", "The receipt handle has expired")
	depth(t, s, "q", 1, 0, 0)
}

func TestStaleDelete(t *testing.T) {
	for _, keep := range []bool{false, true} {
		s, q := fake(t, sqsfake.Options{KeepStale: keep}, nil)
		q.send("a")
		first := q.receive("a")[0]
		s.Advance(30 * time.Second)
		q.receive("a")
		ok(t, q.delete(first))
		left := 0
		if keep {
			left = 1
		}
		depth(t, s, "q", 0, left, 0)
		if s.Advance(time.Minute); keep {
			ok(t, q.delete(first)) // nobody holds it now
			depth(t, s, "q", 0, 0, 0)
		}
	}
}

func TestFIFO(t *testing.T) {
	s, q := fake(t, sqsfake.Options{}, fifo)
	q.sendGroup("g1", "a1")
	q.sendGroup("g2", "b1")
	q.sendGroup("g1", "a2", "a3")
	q.sendGroup("g1", "a1") // the same again within five minutes
	depth(t, s, "q.fifo", 4, 0, 0)
	two := q.receive("a1 a2", most(2)) // groups stay together
	b := q.receive("b1")[0]            // a3 waits behind those in flight
	ok(t, q.hide(two[1], 60))
	s.Advance(30 * time.Second)
	back := q.receive("a1 b1") // blocking is by order: a2 is hidden, and so a3 after it
	refused(t, q.delete(b), "InvalidParameterValue", "The receipt handle has expired")
	refused(t, q.hide(b, 5), "InvalidParameterValue", "")
	ok(t, q.delete(back[0]))
	ok(t, q.delete(two[1])) // within its extended window
	last := q.receive("a3")[0]
	s.Advance(30 * time.Second)
	refused(t, q.delete(last), "InvalidParameterValue", "The receipt handle has expired")
	depth(t, s, "q.fifo", 2, 0, 0)
	s.Advance(5 * time.Minute)
	q.sendGroup("g1", "a1")
	depth(t, s, "q.fifo", 3, 0, 0)
}

func TestReceiveAttempt(t *testing.T) {
	s, q := fake(t, sqsfake.Options{}, fifo)
	again := func(id string) func(*sqs.ReceiveMessageInput) {
		return func(in *sqs.ReceiveMessageInput) { in.ReceiveRequestAttemptId = &id }
	}
	q.sendGroup("g", "a", "b")
	first := q.receive("a b", again("one"))
	s.Advance(20 * time.Second)
	second := q.receive("a b", again("one"))
	if *first[0].ReceiptHandle != *second[0].ReceiptHandle || second[0].Attributes["ApproximateReceiveCount"] != "1" {
		t.Errorf("the replay is %+v, want the same handle and count", second[0])
	}
	s.Advance(20 * time.Second)
	q.receive("", again("two"))
	ok(t, q.hide(first[1], 20))
	q.receive("", again("one")) // void once a message was changed
	ok(t, q.delete(first[0]))
	s.Advance(20 * time.Second)
	q.receive("b", again("three"))
	s.Advance(5 * time.Minute)
	if m := q.receive("b", again("three"))[0]; m.Attributes["ApproximateReceiveCount"] != "3" {
		t.Errorf("after five minutes an attempt is a new one; count is %s", m.Attributes["ApproximateReceiveCount"])
	}
}

func TestDeadLetters(t *testing.T) {
	s := sqsfake.Start(t, sqsfake.Options{})
	dead := newQueue(t, client(s), s.CreateQueue("dead", nil))
	q := newQueue(t, client(s), s.CreateQueue("q", map[string]string{"RedrivePolicy": `{"deadLetterTargetArn":"` + sqsfake.ARN("dead") + `","maxReceiveCount":"2"}`}))
	q.send("a")
	q.receive("a")
	s.Advance(30 * time.Second)
	id := *q.receive("a")[0].MessageId
	s.Advance(time.Hour)
	depth(t, s, "q", 1, 0, 0) // an idle queue keeps its poison
	q.receive("")
	depth(t, s, "dead", 1, 0, 0)
	m := dead.receive("a")[0]
	if *m.MessageId != id || m.Attributes["ApproximateReceiveCount"] != "3" || m.Attributes["DeadLetterQueueSourceArn"] != sqsfake.ARN("q") {
		t.Errorf("the dead letter is %+v, want the same id, count 3 and its source", m)
	}
	ok(t, dead.hide(m, 0))
	_, err := q.c.StartMessageMoveTask(t.Context(), &sqs.StartMessageMoveTaskInput{SourceArn: aws.String(sqsfake.ARN("dead"))})
	ok(t, err)
	if m := q.receive("a")[0]; *m.MessageId == id || m.Attributes["ApproximateReceiveCount"] != "1" {
		t.Errorf("the redriven message is %+v, want a new id and count 1", m)
	}
	depth(t, s, "dead", 0, 0, 0)
}

func wait(seconds int32) func(*sqs.ReceiveMessageInput) {
	return func(in *sqs.ReceiveMessageInput) { in.WaitTimeSeconds = seconds }
}

// polls waits until n polls are open.
func polls(t *testing.T, s *sqsfake.Server, n int) {
	t.Helper()
	ok(t, s.WaitFor(t.Context(), func() bool { return s.Polls("q") == n }))
}

func TestLongPoll(t *testing.T) {
	s, q := fake(t, sqsfake.Options{}, nil)
	got := make(chan string)
	poll := func() {
		messages, err := q.tryReceive(wait(20), most(1))
		if err != nil {
			t.Error(err)
		}
		got <- bodies(messages)
	}
	go poll()
	polls(t, s, 1)
	q.send("a")
	if b := <-got; b != "a" {
		t.Errorf("the poll got %q, want a", b)
	}
	go poll()
	polls(t, s, 1)
	s.Advance(21 * time.Second)
	if b := <-got; b != "" {
		t.Errorf("the poll got %q, want nothing: its time is over", b)
	}
	go poll()
	polls(t, s, 1)
	s.Advance(9 * time.Second) // the first message is visible again
	if b := <-got; b != "a" {
		t.Errorf("the poll got %q, want a, again", b)
	}
}

// TestCancelledPoll: a poll whose client has left takes the next message with it.
func TestCancelledPoll(t *testing.T) {
	s, q := fake(t, sqsfake.Options{}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := q.c.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &q.url, WaitTimeSeconds: 20})
		left <- err
	}()
	polls(t, s, 1)
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the poll ended with %v, want cancelled", err)
	}
	q.send("a", "b")
	q.receive("b")
	depth(t, s, "q", 0, 2, 0)
	s.Advance(30 * time.Second)
	if m := q.receive("a b")[0]; m.Attributes["ApproximateReceiveCount"] != "2" {
		t.Errorf("count is %s, want 2", m.Attributes["ApproximateReceiveCount"])
	}
}

func TestOverLimit(t *testing.T) {
	s, q := fake(t, sqsfake.Options{InFlight: 2}, nil)
	q.send("a", "b", "c")
	two := q.receive("a b")
	_, err := q.tryReceive()
	refused(t, err, "OverLimit", "")
	if _, typed := errors.AsType[*types.OverLimit](err); !typed {
		t.Errorf("%v is no OverLimit", err)
	}
	ok(t, q.delete(two[0]))
	q.receive("c")
	depth(t, s, "q", 0, 2, 0)
}
