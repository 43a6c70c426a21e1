package sqsfake_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/paidonce/paidonce/internal/sqsfake"
)

func text(v string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &v}
}

// TestSendRefuses: what AWS does not take, and what is just allowed.
func TestSendRefuses(t *testing.T) {
	many := map[string]types.MessageAttributeValue{}
	for i := range 10 {
		many[fmt.Sprint("a", i)] = text("x")
	}
	eleven := map[string]types.MessageAttributeValue{"more": text("x")}
	maps.Copy(eleven, many)
	for name, c := range map[string]struct {
		fifo bool
		in   sqs.SendMessageInput
		code string
	}{
		"ten attributes":        {in: sqs.SendMessageInput{MessageAttributes: many}},
		"eleven attributes":     {in: sqs.SendMessageInput{MessageAttributes: eleven}, code: "InvalidParameterValue"},
		"an empty attribute":    {in: sqs.SendMessageInput{MessageAttributes: map[string]types.MessageAttributeValue{"a": text("")}}, code: "InvalidParameterValue"},
		"a reserved name":       {in: sqs.SendMessageInput{MessageAttributes: map[string]types.MessageAttributeValue{"AWS.x": text("x")}}, code: "InvalidParameterValue"},
		"a made-up type":        {in: sqs.SendMessageInput{MessageAttributes: map[string]types.MessageAttributeValue{"a": {DataType: aws.String("Bool"), StringValue: aws.String("x")}}}, code: "InvalidParameterValue"},
		"ESC in an attribute":   {in: sqs.SendMessageInput{MessageAttributes: map[string]types.MessageAttributeValue{"a": text("\x1b")}}, code: "InvalidMessageContents"},
		"NUL":                   {in: sqs.SendMessageInput{MessageBody: aws.String("a\x00")}, code: "InvalidMessageContents"},
		"tab and newline":       {in: sqs.SendMessageInput{MessageBody: aws.String("\t\r\n😀")}},
		"no body":               {in: sqs.SendMessageInput{MessageBody: aws.String("")}, code: "MissingParameter"},
		"1 MiB":                 {in: sqs.SendMessageInput{MessageBody: aws.String(strings.Repeat("x", 1<<20))}},
		"1 MiB with attributes": {in: sqs.SendMessageInput{MessageBody: aws.String(strings.Repeat("x", 1<<20)), MessageAttributes: map[string]types.MessageAttributeValue{"a": text("x")}}, code: "InvalidParameterValue"},
		"a long delay":          {in: sqs.SendMessageInput{DelaySeconds: 901}, code: "InvalidParameterValue"},
		"a tenant":              {in: sqs.SendMessageInput{MessageGroupId: aws.String("acme")}},
		"a tenant with a space": {in: sqs.SendMessageInput{MessageGroupId: aws.String("ac me")}, code: "InvalidParameterValue"},
		"an empty tenant":       {in: sqs.SendMessageInput{MessageGroupId: aws.String("")}, code: "InvalidParameterValue"},
		"a dedup id":            {in: sqs.SendMessageInput{MessageDeduplicationId: aws.String("x")}, code: "InvalidParameterValue"},
		"no group":              {fifo: true, in: sqs.SendMessageInput{MessageDeduplicationId: aws.String("x")}, code: "MissingParameter"},
		"no dedup id":           {fifo: true, in: sqs.SendMessageInput{MessageGroupId: aws.String("g")}, code: "InvalidParameterValue"},
		"a delay on FIFO":       {fifo: true, in: sqs.SendMessageInput{MessageGroupId: aws.String("g"), MessageDeduplicationId: aws.String("x"), DelaySeconds: 1}, code: "InvalidParameterValue"},
	} {
		t.Run(name, func(t *testing.T) {
			attributes := map[string]string{}
			if c.fifo {
				attributes["FifoQueue"] = "true"
			}
			_, q := fake(t, sqsfake.Options{}, attributes)
			c.in.QueueUrl = &q.url
			if c.in.MessageBody == nil {
				c.in.MessageBody = aws.String("a")
			}
			if _, err := q.c.SendMessage(t.Context(), &c.in); code(err) != c.code {
				t.Errorf("got %v, want code %q", err, c.code)
			}
		})
	}
}

// TestSendBatch: one entry fails, the others are sent.
func TestSendBatch(t *testing.T) {
	s, q := fake(t, sqsfake.Options{}, nil)
	entry := func(id, body string) types.SendMessageBatchRequestEntry {
		return types.SendMessageBatchRequestEntry{Id: &id, MessageBody: &body}
	}
	send := func(entries ...types.SendMessageBatchRequestEntry) (*sqs.SendMessageBatchOutput, error) {
		return q.c.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &q.url, Entries: entries})
	}
	out, err := send(entry("0", "a"), entry("1", "\x1b"), entry("2", "b"))
	ok(t, err)
	if len(out.Successful) != 2 || len(out.Failed) != 1 || *out.Failed[0].Id != "1" || *out.Failed[0].Code != "InvalidMessageContents" || !out.Failed[0].SenderFault {
		t.Errorf("sent %+v, failed %+v; want entry 1 refused", out.Successful, out.Failed)
	}
	half := strings.Repeat("x", 1<<19+1)
	_, err = send(entry("0", half), entry("1", half))
	refused(t, err, "AWS.SimpleQueueService.BatchRequestTooLong", "")
	_, err = send([]types.SendMessageBatchRequestEntry{}...)
	refused(t, err, "AWS.SimpleQueueService.EmptyBatchRequest", "")
	q.receive("a b")
	depth(t, s, "q", 0, 2, 0)
}

func TestDelay(t *testing.T) {
	s, q := fake(t, sqsfake.Options{}, map[string]string{"DelaySeconds": "10"})
	q.send("late")
	depth(t, s, "q", 0, 0, 1)
	q.receive("")
	s.Advance(10 * time.Second)
	q.receive("late")
}

// TestRecord: what was sent is there, and what was not is nil.
func TestRecord(t *testing.T) {
	s, q := fake(t, sqsfake.Options{}, nil)
	s.SendBodies("q", "a")
	m := q.receive("a", most(1))[0]
	ok(t, q.hide(m, 0))
	if n := s.Count(); n != 2 {
		t.Fatalf("%d calls are on record, want the receive and the change", n)
	}
	r, c := s.Calls("ReceiveMessage")[0], s.Calls("ChangeMessageVisibility")[0]
	if r.Request.VisibilityTimeout != nil || r.Request.WaitTimeSeconds != nil || *r.Request.MaxNumberOfMessages != 1 || r.Messages != 1 || r.Entries() != 0 || r.Status != 200 {
		t.Errorf("the receive is %+v", r)
	}
	if c.N != 2 || c.Queue != "q" || *c.Request.VisibilityTimeout != 0 || c.Each()[0].ReceiptHandle != *m.ReceiptHandle || c.Entries() != 1 || !c.Answered {
		t.Errorf("the visibility change is %+v", c)
	}
	if m := s.Messages("q"); len(m) != 1 || m[0].Body != "a" || m[0].Receives != 1 || m[0].HiddenFor != 0 || m[0].Handle != c.Request.ReceiptHandle {
		t.Errorf("the queue has %+v", m)
	}
	s.ForgetCalls()
	q.receive("a")
	if calls := s.Calls(); len(calls) != 1 || calls[0].N != 3 {
		t.Errorf("after forgetting, the record is %+v, want call 3", calls)
	}
}

func TestQueues(t *testing.T) {
	s, q := fake(t, sqsfake.Options{}, map[string]string{"VisibilityTimeout": "7"})
	ctx := t.Context()
	create := func(name string, attributes map[string]string) error {
		_, err := q.c.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
		return err
	}
	ok(t, create("q", map[string]string{"VisibilityTimeout": "7"}))
	refused(t, create("q", map[string]string{"VisibilityTimeout": "8"}), "QueueAlreadyExists", "")
	refused(t, create("no good", nil), "InvalidParameterValue", "")
	refused(t, create("f.fifo", nil), "InvalidParameterValue", "")
	refused(t, create("n", map[string]string{"VisibilityTimeout": "43201"}), "InvalidAttributeValue", "")
	refused(t, create("n", map[string]string{"Visibility": "1"}), "InvalidAttributeName", "")
	set := func(policy string) error {
		_, err := q.c.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{QueueUrl: &q.url, Attributes: map[string]string{"RedrivePolicy": policy}})
		return err
	}
	policy := func(queue string) string {
		return `{"deadLetterTargetArn":"` + sqsfake.ARN(queue) + `","maxReceiveCount":3}`
	}
	refused(t, set(policy("dead")), "InvalidParameterValue", "does not exist")
	s.CreateQueue("f.fifo", fifo)
	refused(t, set(policy("f.fifo")), "InvalidParameterValue", "same type")
	dead := s.CreateQueue("dead", nil)
	ok(t, set(policy("dead")))
	got, err := q.c.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &q.url, AttributeNames: []types.QueueAttributeName{"QueueArn", "RedrivePolicy", "VisibilityTimeout"}})
	ok(t, err)
	if a := got.Attributes; len(a) != 3 || a["QueueArn"] != sqsfake.ARN("q") || a["RedrivePolicy"] != policy("dead") || a["VisibilityTimeout"] != "7" {
		t.Errorf("attributes are %v", a)
	}
	sources, err := q.c.ListDeadLetterSourceQueues(ctx, &sqs.ListDeadLetterSourceQueuesInput{QueueUrl: &dead})
	ok(t, err)
	if !slices.Equal(sources.QueueUrls, []string{q.url}) {
		t.Errorf("sources of the dead-letter queue are %v", sources.QueueUrls)
	}
	ok(t, set("")) // takes the policy away
	_, err = q.c.StartMessageMoveTask(ctx, &sqs.StartMessageMoveTaskInput{SourceArn: aws.String(sqsfake.ARN("dead"))})
	refused(t, err, "InvalidParameterValue", "Dead Letter Queue")
	url, err := q.c.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("q")})
	ok(t, err)
	list, err := q.c.ListQueues(ctx, &sqs.ListQueuesInput{QueueNamePrefix: aws.String("q")})
	ok(t, err)
	if *url.QueueUrl != q.url || !slices.Equal(list.QueueUrls, []string{q.url}) {
		t.Errorf("the queue is %s, and the list %v; want %s", *url.QueueUrl, list.QueueUrls, q.url)
	}
}

func TestPurgeAndDelete(t *testing.T) {
	s, q := fake(t, sqsfake.Options{}, nil)
	purge := func() error {
		_, err := q.c.PurgeQueue(t.Context(), &sqs.PurgeQueueInput{QueueUrl: &q.url})
		return err
	}
	q.send("a", "b")
	q.receive("a", most(1))
	ok(t, purge())
	depth(t, s, "q", 0, 0, 0)
	refused(t, purge(), "AWS.SimpleQueueService.PurgeQueueInProgress", "")
	s.Advance(time.Minute)
	ok(t, purge())
	q.send("old")
	s.Advance(4 * 24 * time.Hour) // the default retention
	q.receive("")
	depth(t, s, "q", 0, 0, 0)
	_, err := q.c.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: &q.url})
	ok(t, err)
	_, err = q.tryReceive()
	refused(t, err, "AWS.SimpleQueueService.NonExistentQueue", "")
	_, err = q.c.ListMessageMoveTasks(t.Context(), &sqs.ListMessageMoveTasksInput{SourceArn: aws.String("x")})
	refused(t, err, "UnknownOperationException", "")
}
