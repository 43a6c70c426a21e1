package consumer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	sqsbroker "github.com/paidonce/paidonce/broker/sqs"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/internal/sqsfake"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// atSQS is a rig whose workers read a queue of the scripted fake through the adapter.
type atSQS struct {
	*rig
	srv         *sqsfake.Server
	queue, dead string

	mu    sync.Mutex
	heard map[string]int // what the Trace of every worker was told, such as "Extended ok"
}

const hidden = 30 * time.Second // visibility timeout of the queue

// onSQS is bubble with a queue "jobs", or "jobs.fifo".
func onSQS(t *testing.T, fifo bool, maxReceives int, f func(*atSQS)) {
	t.Helper()
	bubble(t, memory.Options{}, func(r *rig) {
		s := &atSQS{rig: r, srv: sqsfake.New(sqsfake.Options{Running: true}), queue: "jobs", dead: "jobs-dead", heard: map[string]int{}}
		r.Cleanup(s.srv.Close)
		attributes := map[string]string{}
		if fifo {
			s.queue, s.dead, attributes["FifoQueue"] = "jobs.fifo", "jobs-dead.fifo", "true"
		}
		s.srv.CreateQueue(s.dead, attributes)
		attributes["VisibilityTimeout"] = strconv.Itoa(int(hidden.Seconds()))
		attributes["RedrivePolicy"] = fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`, sqsfake.ARN(s.dead), maxReceives)
		s.srv.CreateQueue(s.queue, attributes)
		f(s)
	})
}

// at makes a worker read the queue, and its Trace talk to heard.
func (s *atSQS) at(c *consumer.Config) {
	s.Helper()
	b, err := sqsbroker.Open(s.Context(), sqsbroker.Config{Queue: s.queue, Logger: c.Log, AWS: &aws.Config{
		Region: sqsfake.Region, BaseEndpoint: new(s.srv.URL()), HTTPClient: s.srv.HTTPClient(),
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")}})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { b.Close(context.Background()) })
	c.Source = severedSource{b, c.Source.(severedSource).cut}
	hooks := reflect.ValueOf(&c.Trace).Elem()
	for i := range hooks.NumField() {
		name, hook := hooks.Type().Field(i).Name, hooks.Field(i)
		old := hook.Interface()
		hook.Set(reflect.MakeFunc(hook.Type(), func(args []reflect.Value) []reflect.Value {
			s.hear(name, args)
			if f := reflect.ValueOf(old); !f.IsNil() {
				f.Call(args)
			}
			return nil
		}))
	}
}

func (s *atSQS) hear(name string, args []reflect.Value) {
	for _, a := range args {
		if a.Kind() == reflect.String && a.String() != "ask" {
			name += " " + a.String()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard[name]++
}

// times is how often the Traces were told that.
func (s *atSQS) times(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard[what]
}

// send puts a message for a document into the queue; group is that of a FIFO queue.
func (s *atSQS) send(doc, group string) {
	s.Helper()
	body, err := json.Marshal(ask{Tenant: "acme", Doc: doc})
	if err != nil {
		s.Fatal(err)
	}
	e := sqsfake.Entry{MessageBody: new(string(body)), MessageAttributes: map[string]sqsfake.Attribute{
		consumer.Attribute: {DataType: "String", StringValue: new("ask")},
		"traceparent":      {DataType: "String", StringValue: new("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")}},
		MessageSystemAttributes: map[string]sqsfake.Attribute{"AWSTraceHeader": {DataType: "String", StringValue: new("Root=1-5759e988")}}}
	if group != "" {
		e.MessageGroupId, e.MessageDeduplicationId = &group, doc
	}
	s.srv.Send(s.queue, e)
}

// left is the whole end state of the broker.
func (s *atSQS) left(dead int) {
	s.Helper()
	if q, d := s.srv.Depth(s.queue), s.srv.Depth(s.dead); q != (sqsfake.Depth{}) || d != (sqsfake.Depth{Visible: dead}) {
		s.Errorf("the queue holds %+v and the dead-letter queue %+v, want nothing and %d", q, d, dead)
	}
}

// spanned is a source in which every operation has a span around it, as tracing
// libraries do: a context of its own, which ends with the operation.
type spanned struct{ broker.Source }

func span(ctx context.Context, do func(context.Context) error) error {
	ctx, end := context.WithCancel(context.WithValue(ctx, spanned{}, "span"))
	defer end()
	return do(ctx)
}

func (s spanned) Receive(ctx context.Context, n int) (ds []broker.Delivery, err error) {
	err = span(ctx, func(ctx context.Context) error { ds, err = s.Source.Receive(ctx, n); return err })
	return ds, err
}

func (s spanned) Ack(ctx context.Context, d broker.Delivery) error {
	return span(ctx, func(ctx context.Context) error { return s.Source.Ack(ctx, d) })
}

func (s spanned) Extend(ctx context.Context, d broker.Delivery, by time.Duration) (until time.Time, err error) {
	err = span(ctx, func(ctx context.Context) error { until, err = s.Source.Extend(ctx, d, by); return err })
	return until, err
}

// Case 10: tracing is on everywhere, in the messages, in every hook and around the source.
// A job of three visibility timeouts is extended all the same and called once.
func TestTracingKeepsTheExtensions(t *testing.T) {
	onSQS(t, false, 3, func(s *atSQS) {
		s.prov.script = func(string, int) (time.Duration, error) { return 3 * hidden, nil }
		s.send("1", "")
		traced := func(c *consumer.Config) { s.at(c); c.Source = spanned{c.Source} }
		a, b := s.start("a", traced), s.start("b", traced)
		time.Sleep(10 * time.Minute)
		s.end(a, b)
		s.want("1", done1)
		s.left(0)
		if j := s.job("1"); j.Receives != 1 || j.Origin.AWSTrace != "Root=1-5759e988" || j.Origin.Trace[:3] != "00-" {
			t.Errorf("%d receives, origin %+v", j.Receives, j.Origin)
		}
		if s.times("Extended ok") < 6 || s.times("Delivered acked") != 1 || s.times("Ended done") != 1 {
			t.Errorf("the hooks heard %v", s.heard)
		}
		for what := range s.heard {
			if strings.HasPrefix(what, "Extended") && what != "Extended ok" || strings.HasPrefix(what, "Delivered") && what != "Delivered acked" {
				t.Errorf("the hooks heard %s", what)
			}
		}
	})
}

// Case 19: the hold of a FIFO message lapses while its job runs, because no extension gets
// through. The result is saved, its redelivery is answered from the ledger without a call,
// what is behind it in its group waits for that, and the ack of another group, given at the
// same moment, is unharmed.
func TestOverrunOnFIFO(t *testing.T) {
	onSQS(t, true, 1000, func(s *atSQS) {
		const long = 90 * time.Second
		s.prov.script = func(doc string, _ int) (time.Duration, error) {
			return map[string]time.Duration{"first": long, "behind": time.Second, "other": long - 5*time.Second}[doc], nil
		}
		var ran []string
		s.before = func(_ context.Context, _ *job.Run, in ask) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			ran = append(ran, in.Doc)
			return nil
		}
		s.after = func(ctx context.Context, _ *job.Run, _ ask) error { return ctx.Err() } // the lease is kept
		s.send("first", "g")
		s.send("behind", "g")
		a := s.start("a", s.at)
		time.Sleep(time.Second)
		var deaf []string // handles whose visibility cannot be changed
		for _, m := range s.srv.Messages(s.queue) {
			deaf = append(deaf, m.Handle)
		}
		s.srv.Script(sqsfake.Fault{Action: "ChangeMessageVisibilityBatch", Kind: sqsfake.Page, Times: -1, Match: func(c sqsfake.Call) bool {
			return slices.ContainsFunc(c.Each(), func(e sqsfake.Entry) bool { return slices.Contains(deaf, e.ReceiptHandle) })
		}})
		time.Sleep(4 * time.Second)
		s.send("other", "h")
		b := s.start("b", s.at)
		time.Sleep(10 * time.Minute)
		s.end(a, b)
		for _, doc := range []string{"first", "behind", "other"} {
			s.want(doc, done1)
		}
		s.left(0)
		s.avoids(map[string]int{"redelivered": 1})
		if !slices.Equal(ran, []string{"first", "other", "behind"}) {
			t.Errorf("the jobs ran in the order %v", ran)
		}
		if s.times("Delivered lost") != 1 || s.times("Delivered acked") != 3 {
			t.Errorf("the hooks heard %v", s.heard)
		}
		if n := s.srv.CountEntries("DeleteMessage*"); n != 3 {
			t.Errorf("%d deletes of three messages", n)
		}
		for _, c := range s.srv.Calls("DeleteMessage*") {
			if c.Failed > 0 || c.Status != 200 {
				t.Errorf("a delete did not succeed: %+v", c)
			}
		}
	})
}

// Case 23: a worker dies with two messages in hand that may be handed out once. The next
// receive, of a worker that has nothing to do, moves them to the dead-letter queue and
// brings no delivery. The sweeper closes their rows: the one with a call on record becomes
// unknown and ends by policy, the other runs from its stored input.
func TestMovedByTheBroker(t *testing.T) {
	onSQS(t, false, 1, func(s *atSQS) {
		s.call.OnUnknown = job.FailUnknown()
		s.prov.script = func(string, int) (time.Duration, error) { return time.Minute, nil }
		s.before = func(ctx context.Context, _ *job.Run, in ask) error {
			if in.Doc == "early" && s.runs.Load() <= 2 {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		s.send("open", "")
		s.send("early", "")
		a := s.start("a", s.at)
		time.Sleep(10 * time.Second)
		a.kill()
		claims := s.times("Claimed")
		b := s.start("b", s.at)
		time.Sleep(3 * hidden)
		s.left(2)
		if claims != 2 || s.times("Claimed") != 2 {
			t.Errorf("%d claims, then %d: a message reached a worker again", claims, s.times("Claimed"))
		}
		s.want("open", want{state: ledger.Unknown, runs: 1, open: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Sent}})
		time.Sleep(2 * time.Hour)
		s.end(b)
		s.want("open", want{state: ledger.Failed, runs: 1, bill: 1, attempts: []ledger.AttemptState{ledger.UnknownAttempt}, errClass: "held"})
		s.want("early", want{state: ledger.Done, runs: 2, bill: 1, attempts: []ledger.AttemptState{ledger.Received}})
		s.left(2)
	})
}
