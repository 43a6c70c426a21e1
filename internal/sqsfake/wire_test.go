package sqsfake_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/paidonce/paidonce/internal/sqsfake"
	"github.com/paidonce/paidonce/internal/sqstest"
)

// TestBubble: without a socket the server lives in a bubble, and its clock with it.
func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sqsfake.New(sqsfake.Options{Running: true})
		defer s.Close()
		q := newQueue(t, client(s, func(o *sqs.Options) { o.HTTPClient = s.HTTPClient() }), s.CreateQueue("q", nil))
		q.send("a")
		q.receive("a")
		start := time.Now()
		q.receive("", wait(20))
		q.receive("a", wait(20))
		if d := time.Since(start); d != 30*time.Second {
			t.Errorf("the message came back after %v, want the visibility timeout, 30 s", d)
		}
	})
}

// scenarios are what the fake and moto answer alike; each gets a queue of its own.
var scenarios = map[string]func(queue){
	"message": func(q queue) {
		_, err := q.c.SendMessage(q.t.Context(), &sqs.SendMessageInput{
			QueueUrl: &q.url, MessageBody: aws.String("häß\n"),
			MessageAttributes: map[string]types.MessageAttributeValue{
				"n": {DataType: aws.String("Number"), StringValue: aws.String("1")},
				"b": {DataType: aws.String("Binary"), BinaryValue: []byte{0, 1, 255}},
			},
			MessageSystemAttributes: map[string]types.MessageSystemAttributeValue{
				"AWSTraceHeader": {DataType: aws.String("String"), StringValue: aws.String("Root=1-5759e988-bd862e3fe1be46a994272793")}},
		})
		ok(q.t, err)
		m := q.receive("häß\n")[0]
		q.says("%s %s %s", *m.MD5OfBody, *m.MD5OfMessageAttributes, m.MessageAttributes["b"].BinaryValue)
		q.says("%s %s", m.Attributes["AWSTraceHeader"], m.Attributes["ApproximateReceiveCount"])
		ok(q.t, q.hide(m, 0))
		bare := q.receive("häß\n", func(in *sqs.ReceiveMessageInput) {
			in.MessageAttributeNames, in.MessageSystemAttributeNames = nil, nil
		})[0]
		q.says("%v %v", bare.Attributes, bare.MessageAttributes)
		ok(q.t, q.delete(bare))
		ok(q.t, q.delete(bare))
		q.receive("")
	},
	"stale": func(q queue) {
		q.send("a")
		first := q.receive("a")[0]
		ok(q.t, q.hide(first, 0))
		second := q.receive("a")[0]
		q.says("%v %v", *first.MessageId == *second.MessageId, *first.ReceiptHandle == *second.ReceiptHandle)
		ok(q.t, q.hide(first, 0))
		q.receive("a")
		ok(q.t, q.delete(first))
		q.says("%s", q.numbers())
		second.ReceiptHandle = aws.String("garbage")
		q.err(q.delete(second))
		q.err(q.hide(second, 1))
	},
	"limits": func(q queue) {
		q.send("a")
		m := q.receive("a")[0]
		q.err(q.hide(m, 43_201))
		q.err(q.hide(m, 43_200))
		_, err := q.tryReceive(most(11))
		q.err(err)
		for _, n := range []int{1 << 20, 1<<20 + 1} {
			_, err := q.c.SendMessage(q.t.Context(), &sqs.SendMessageInput{QueueUrl: &q.url, MessageBody: aws.String(strings.Repeat("x", n))})
			q.err(err)
		}
	},
	"batch": func(q queue) {
		entry := func(id string) types.SendMessageBatchRequestEntry {
			return types.SendMessageBatchRequestEntry{Id: &id, MessageBody: &id}
		}
		send := func(entries ...types.SendMessageBatchRequestEntry) {
			out, err := q.c.SendMessageBatch(q.t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &q.url, Entries: entries})
			q.err(err)
			if err == nil {
				q.says("%d %d", len(out.Successful), len(out.Failed))
			}
		}
		send(entry("a"), entry("b"))
		send(entry("a"), entry("a"))
		send(entry("a b"))
		var eleven []types.SendMessageBatchRequestEntry
		for i := range 11 {
			eleven = append(eleven, entry(fmt.Sprint(i)))
		}
		send(eleven...)
		m := q.receive("a b")
		out, err := q.c.ChangeMessageVisibilityBatch(q.t.Context(), &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &q.url, Entries: []types.ChangeMessageVisibilityBatchRequestEntry{
			{Id: aws.String("0"), ReceiptHandle: m[0].ReceiptHandle, VisibilityTimeout: 0},
			{Id: aws.String("1"), ReceiptHandle: aws.String("garbage"), VisibilityTimeout: 1},
		}})
		ok(q.t, err)
		q.says("%s %s %s %v", *out.Successful[0].Id, *out.Failed[0].Id, *out.Failed[0].Code, out.Failed[0].SenderFault)
		q.receive("a")
	},
	"delay": func(q queue) {
		_, err := q.c.SendMessage(q.t.Context(), &sqs.SendMessageInput{QueueUrl: &q.url, MessageBody: aws.String("a"), DelaySeconds: 60})
		ok(q.t, err)
		q.receive("")
		q.says("%s", q.numbers())
	},
	"fifo": func(q queue) {
		q.sendGroup("g", "a", "b", "a")
		q.says("%s", q.numbers())
		m := q.receive("a", most(1))[0]
		q.receive("")
		q.says("%s", m.Attributes["MessageGroupId"])
		q.sendGroup("h", "c")
		q.receive("c")
		ok(q.t, q.delete(m))
		q.receive("b")
	},
	"unknown": func(q queue) {
		q.url += "x"
		_, err := q.tryReceive()
		q.err(err)
	},
}

// says adds to what is compared.
func (q queue) says(format string, args ...any) {
	*q.said = append(*q.said, fmt.Sprintf(format, args...))
}

func (q queue) err(err error) { q.says("%s", code(err)) }

func (q queue) numbers() string {
	q.t.Helper()
	out, err := q.c.GetQueueAttributes(q.t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &q.url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
	ok(q.t, err)
	return out.Attributes["ApproximateNumberOfMessages"] + " " + out.Attributes["ApproximateNumberOfMessagesNotVisible"] + " " + out.Attributes["ApproximateNumberOfMessagesDelayed"]
}

// TestParity: where moto is known to do as AWS does, the fake does as moto does, and
// moto through the fake as moto.
func TestParity(t *testing.T) {
	moto := sqstest.Start(t)
	s := sqsfake.Start(t, sqsfake.Options{})
	proxy := sqsfake.Start(t, sqsfake.Options{Upstream: moto.Endpoint()})
	for name, scenario := range scenarios {
		attributes := map[string]string{}
		if name == "fifo" {
			attributes = fifo
		}
		var results []string
		for _, c := range []*sqs.Client{moto.Client(), client(s), client(proxy)} {
			t.Run(name, func(t *testing.T) {
				queueName := fmt.Sprintf("parity-%s-%d", name, len(results))
				if attributes["FifoQueue"] == "true" {
					queueName += ".fifo"
				}
				out, err := c.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &queueName, Attributes: attributes})
				ok(t, err)
				q := newQueue(t, c, *out.QueueUrl)
				scenario(q)
				results = append(results, strings.Join(*q.said, "\n"))
				_, err = c.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: out.QueueUrl})
				ok(t, err)
			})
		}
		if len(results) == 3 && (results[0] != results[1] || results[0] != results[2]) {
			t.Errorf("%s: moto says\n%s\nthe fake\n%s\nand moto through the proxy\n%s", name, results[0], results[1], results[2])
		}
	}
}

// TestProxyFaults: a reply that is lost behind the proxy had its effect.
func TestProxyFaults(t *testing.T) {
	moto := sqstest.Start(t)
	proxy := sqsfake.Start(t, sqsfake.Options{Upstream: moto.Endpoint()})
	q := newQueue(t, client(proxy), moto.Queue(t, sqstest.Spec{}).URL)
	q.send("a")
	m := q.receive("a")[0]
	for _, c := range []struct {
		fault sqsfake.Fault
		left  int
	}{
		{sqsfake.Fault{Kind: sqsfake.Page, Status: 503}, 1},
		{sqsfake.Fault{Kind: sqsfake.Reset}, 1},
		{sqsfake.Fault{Kind: sqsfake.Reset, Done: true}, 0},
	} {
		c.fault.Action = "DeleteMessage"
		proxy.Script(c.fault)
		if err := q.delete(m); err == nil {
			t.Errorf("%+v: deleted without an error", c.fault)
		}
		if got := moto.Depth(t, q.url); got != (sqstest.Depth{InFlight: c.left}) {
			t.Errorf("%+v: depth is %+v, want %d in flight", c.fault, got, c.left)
		}
	}
}
