package sqs_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/sqs"
	"github.com/paidonce/paidonce/internal/sqsfake"
)

// stage is a queue of the scripted fake in a bubble, where an hour costs nothing.
type stage struct {
	*testing.T
	srv   *sqsfake.Server
	queue string
}

// visibility is that of a stage's queue.
const visibility = 30 * time.Second

// onStage runs f with an empty queue "jobs" and its dead-letter queue.
func onStage(t *testing.T, f func(*stage)) { staged(t, false, sqsfake.Options{}, f) }

// onFIFO is onStage with a FIFO queue.
func onFIFO(t *testing.T, f func(*stage)) { staged(t, true, sqsfake.Options{}, f) }

func staged(t *testing.T, fifo bool, opt sqsfake.Options, f func(*stage)) {
	synctest.Test(t, func(t *testing.T) {
		opt.Running = true
		s := &stage{T: t, srv: sqsfake.New(opt), queue: "jobs"}
		t.Cleanup(s.srv.Close)
		dead, attributes := "jobs-dead", map[string]string{}
		if fifo {
			s.queue, dead, attributes["FifoQueue"] = "jobs.fifo", "jobs-dead.fifo", "true"
		}
		s.srv.CreateQueue(dead, attributes)
		attributes["VisibilityTimeout"] = strconv.Itoa(int(visibility.Seconds()))
		attributes["RedrivePolicy"] = fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":"1000"}`, sqsfake.ARN(dead))
		s.srv.CreateQueue(s.queue, attributes)
		f(s)
	})
}

func (s *stage) config() sqs.Config {
	return sqs.Config{Queue: s.queue, Logger: logger(s.T), AWS: &aws.Config{
		Region: sqsfake.Region, BaseEndpoint: aws.String(s.srv.URL()), HTTPClient: s.srv.HTTPClient(),
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")}}
}

// open opens a Broker that is closed with the test.
func (s *stage) open(change ...func(*sqs.Config)) *sqs.Broker {
	s.Helper()
	conf := s.config()
	for _, c := range change {
		c(&conf)
	}
	b, err := sqs.Open(s.Context(), conf)
	if err != nil {
		s.Fatalf("open: %v", err)
	}
	s.Cleanup(func() { b.Close(context.Background()) }) // what a test expects of it is in the test
	return b
}

// receive takes n deliveries, all held at the same time, and checks that they came
// within the time.
func (s *stage) receive(b *sqs.Broker, n int, within time.Duration) []broker.Delivery {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), within)
	defer cancel()
	var ds []broker.Delivery
	for len(ds) < n {
		more, err := b.Receive(ctx, n-len(ds))
		if err != nil {
			s.Fatalf("receive %d within %v: got %d, then %v", n, within, len(ds), err)
		}
		ds = append(ds, more...)
	}
	return ds
}

// none checks that nothing can be received for d.
func (s *stage) none(b *sqs.Broker, d time.Duration) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), d)
	defer cancel()
	if ds, err := b.Receive(ctx, 10); !errors.Is(err, context.DeadlineExceeded) {
		s.Fatalf("received %v and error %v, want nothing for %v", bodies(ds), err, d)
	}
}

func (s *stage) ok(what string, err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", what, err)
	}
}

func (s *stage) is(what string, err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Fatalf("%s: got error %v, want %v", what, err, want)
	}
}

// depth checks what the queue holds.
func (s *stage) depth(visible, inFlight int) {
	s.Helper()
	if d := s.srv.Depth(s.queue); d.Visible != visible || d.InFlight != inFlight || d.Delayed != 0 {
		s.Fatalf("queue has %+v, want %d visible and %d in flight", d, visible, inFlight)
	}
}

func (s *stage) close(b *sqs.Broker) {
	s.Helper()
	s.ok("close", b.Close(s.Context()))
}

// inGroup sends bodies to one group of a FIFO queue.
func (s *stage) inGroup(group string, bodies ...string) {
	for _, body := range bodies {
		s.srv.Send(s.queue, sqsfake.Entry{MessageBody: &body, MessageGroupId: &group, MessageDeduplicationId: group + body})
	}
}

func bodies(ds []broker.Delivery) (all []string) {
	for _, d := range ds {
		all = append(all, string(d.Body))
	}
	return all
}

// all runs f for each of ds at the same time.
func all(ds []broker.Delivery, f func(broker.Delivery) error) []error {
	errs := make([]error, len(ds))
	done := make(chan struct{})
	for i, d := range ds {
		go func() {
			errs[i] = f(d)
			done <- struct{}{}
		}()
	}
	for range ds {
		<-done
	}
	return errs
}

// acker is Ack with the test's context.
func (s *stage) acker(b *sqs.Broker) func(broker.Delivery) error {
	return func(d broker.Delivery) error { return b.Ack(s.Context(), d) }
}

func (s *stage) ackAll(b *sqs.Broker, ds []broker.Delivery) {
	s.Helper()
	s.ok("ack", errors.Join(all(ds, s.acker(b))...))
}

// changes are the visibility changes sent so far: body and seconds of each entry.
func (s *stage) changes() (sent []string) {
	by := map[string]string{}
	for _, m := range s.srv.Messages(s.queue) {
		by[m.Handle] = m.Body
	}
	for _, c := range s.srv.Calls("ChangeMessageVisibility*") {
		for _, e := range c.Each() {
			sent = append(sent, by[e.ReceiptHandle]+"="+strconv.Itoa(*e.VisibilityTimeout))
		}
	}
	return sent
}

func numbered(n int) (all []string) {
	for i := range n {
		all = append(all, strconv.Itoa(i))
	}
	return all
}
