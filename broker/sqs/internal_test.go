package sqs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/paidonce/paidonce/broker"
)

// reply is err as the SDK gives it with an HTTP status.
func reply(status int, err error) error {
	return &smithy.OperationError{ServiceID: "SQS", OperationName: "X",
		Err: &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}}, Err: err}}
}

func coded(code, text string) error {
	return &smithy.GenericAPIError{Code: code, Message: text, Fault: smithy.FaultClient}
}

// What each error of SQS and of the way to it means: what is done next, what a caller sees, and whether the request may
// have been done.
func TestFailed(t *testing.T) {
	page := func(status int) error {
		return reply(status, &smithy.GenericAPIError{Code: "UnknownError", Message: "UnknownError"})
	}
	for name, c := range map[string]struct {
		err    error
		class  class
		code   string
		kind   error
		silent bool
	}{
		"no queue, typed":          {reply(400, &types.QueueDoesNotExist{}), missing, "QueueDoesNotExist", broker.ErrUnroutable, false},
		"no queue, by code":        {reply(400, coded("AWS.SimpleQueueService.NonExistentQueue", "")), missing, "NonExistentQueue", broker.ErrUnroutable, false},
		"bad handle, typed":        {reply(404, &types.ReceiptHandleIsInvalid{}), gone, "ReceiptHandleIsInvalid", broker.ErrNotHeld, false},
		"not in flight":            {reply(400, &types.MessageNotInflight{}), gone, "MessageNotInflight", broker.ErrNotHeld, false},
		"too much in flight":       {reply(403, &types.OverLimit{}), temporary, "OverLimit", broker.ErrUnavailable, false},
		"throttled, typed":         {reply(403, &types.RequestThrottled{}), temporary, "RequestThrottled", broker.ErrUnavailable, false},
		"throttled by KMS":         {reply(400, &types.KmsThrottled{}), temporary, "KmsThrottled", broker.ErrUnavailable, false},
		"throttled, by code":       {reply(400, coded("ThrottlingException", "Rate exceeded")), temporary, "ThrottlingException", broker.ErrUnavailable, false},
		"throttled, with a prefix": {reply(400, coded("com.amazonaws.sqs#ThrottlingException", "")), temporary, "ThrottlingException", broker.ErrUnavailable, false},
		"denied":                   {reply(403, coded("AccessDenied", "")), refused, "AccessDenied", ErrRefused, false},
		"denied by KMS":            {reply(400, coded("KMS.AccessDeniedException", "")), refused, "KMS.AccessDeniedException", ErrRefused, false},
		"expired token":            {reply(403, coded("ExpiredTokenException", "")), refused, "ExpiredTokenException", ErrRefused, false},
		"expired handle": {reply(400, coded("InvalidParameterValue", "Value x for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.")),
			gone, "InvalidParameterValue", broker.ErrNotHeld, false},
		"deleted message": {reply(400, coded("InvalidParameterValueException", "Reason: Message does not exist or is not available for visibility timeout change.")),
			gone, "InvalidParameterValue", broker.ErrNotHeld, false},
		"twelve hours": {reply(400, coded("InvalidParameterValue", "Reason: Total VisibilityTimeout for the message is beyond the limit [43200 seconds].")),
			limit, "InvalidParameterValue", broker.ErrLimit, false},
		"too large":         {reply(400, coded("InvalidParameterValue", "Reason: Message must be shorter than 1048576 bytes.")), tooLong, "InvalidParameterValue", broker.ErrTooLarge, false},
		"batch too large":   {reply(400, coded("AWS.SimpleQueueService.BatchRequestTooLong", "")), tooLong, "BatchRequestTooLong", broker.ErrTooLarge, false},
		"characters":        {reply(400, coded("InvalidMessageContents", "")), contents, "InvalidMessageContents", ErrContents, false},
		"another parameter": {reply(400, coded("InvalidParameterValue", "Reason: Must be between 0 and 20.")), invalid, "InvalidParameterValue", ErrRefused, false},
		"nobody knows":      {reply(400, coded("Whatever", "")), invalid, "Whatever", ErrRefused, false},
		"500":               {page(500), temporary, "UnknownError", broker.ErrUnavailable, false},
		"502":               {page(502), temporary, "UnknownError", broker.ErrUnavailable, true},
		"503":               {page(503), temporary, "UnknownError", broker.ErrUnavailable, false},
		"504":               {page(504), temporary, "UnknownError", broker.ErrUnavailable, true},
		"cut body":          {reply(200, &smithy.DeserializationError{Err: io.ErrUnexpectedEOF}), temporary, "", broker.ErrUnavailable, true},
		"page of a proxy":   {reply(403, &smithy.DeserializationError{Err: errors.New("no JSON")}), temporary, "", broker.ErrUnavailable, false},
		"reset":             {&net.OpError{Op: "read", Err: errors.New("reset")}, temporary, "", broker.ErrUnavailable, true},
		"refused to dial":   {fmt.Errorf("send: %w", &net.OpError{Op: "dial", Err: errors.New("refused")}), temporary, "", broker.ErrUnavailable, false},
		"no time left":      {context.DeadlineExceeded, temporary, "", broker.ErrUnavailable, true},
	} {
		f := failed(c.err)
		if f.class != c.class || f.code != c.code || f.silent != c.silent || !errors.Is(f.wrap(), c.kind) || !errors.Is(f.wrap(), c.err) {
			t.Errorf("%s: class %d, code %q, silent %v, error %v; want %d, %q, %v, %v", name, f.class, f.code, f.silent, f.wrap(), c.class, c.code, c.silent, c.kind)
		}
	}
	if failed(nil) != nil || failed(nil).wrap() != nil {
		t.Error("an error of nothing")
	}
}

// The same of an entry: a code that nobody knows is judged by whose fault it is.
func TestFailedEntry(t *testing.T) {
	for _, c := range []struct {
		code   string
		sender bool
		want   class
	}{{"InternalError", false, temporary}, {"AWS.SimpleQueueService.InternalFailure", false, temporary}, {"Whatever", false, temporary}, {"Whatever", true, invalid},
		{"ReceiptHandleIsInvalid", true, gone}, {"AccessDenied", true, refused}, {"ThrottlingException", true, temporary}} {
		f := failedEntry(types.BatchResultErrorEntry{Code: &c.code, Message: new("text"), SenderFault: c.sender})
		if f.class != c.want || f.silent || f.code != canonical(c.code) {
			t.Errorf("%s by the sender %v: class %d, code %q, silent %v, want class %d", c.code, c.sender, f.class, f.code, f.silent, c.want)
		}
	}
}

// account is an SQS with one queue, whose dead-letter queue is gone.
type account struct {
	api
	policy string
	calls  []string
}

func (a *account) note(what string, name *string) { a.calls = append(a.calls, what+" "+deref(name)) }

func (a *account) GetQueueUrl(_ context.Context, in *sqs.GetQueueUrlInput, _ ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error) {
	if *in.QueueName == "jobs" {
		return &sqs.GetQueueUrlOutput{QueueUrl: new("https://sqs/1/jobs")}, nil
	}
	a.note("look in "+deref(in.QueueOwnerAWSAccountId)+" for", in.QueueName)
	return nil, &types.QueueDoesNotExist{}
}

func (a *account) CreateQueue(_ context.Context, in *sqs.CreateQueueInput, _ ...func(*sqs.Options)) (*sqs.CreateQueueOutput, error) {
	a.note("make", in.QueueName)
	return &sqs.CreateQueueOutput{QueueUrl: new("https://sqs/1/" + *in.QueueName)}, nil
}

func (a *account) SetQueueAttributes(_ context.Context, in *sqs.SetQueueAttributesInput, _ ...func(*sqs.Options)) (*sqs.SetQueueAttributesOutput, error) {
	a.note("set", in.QueueUrl)
	return &sqs.SetQueueAttributesOutput{}, nil
}

func (a *account) GetQueueAttributes(_ context.Context, in *sqs.GetQueueAttributesInput, _ ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	out := &sqs.GetQueueAttributesOutput{Attributes: map[string]string{"VisibilityTimeout": "30", "QueueArn": "arn:aws:sqs:us-east-1:1:" + nameOf(*in.QueueUrl)}}
	if nameOf(*in.QueueUrl) == "jobs" && a.policy != "" {
		out.Attributes["RedrivePolicy"] = a.policy
	}
	return out, nil
}

// A dead-letter queue that the redrive policy names and that is gone is made again under that name where it is our own
// account's, and left alone where it is another's. Without a policy the default name is made.
func TestMissingDeadLetterQueue(t *testing.T) {
	const ours, theirs = `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:1:aside","maxReceiveCount":5}`, `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:2:aside","maxReceiveCount":5}`
	for _, c := range []struct {
		policy string
		conf   Config
		calls  []string
		dead   string
	}{
		{ours, Config{Declare: true}, []string{"look in  for aside", "make aside"}, "https://sqs/1/aside"},
		{ours, Config{}, []string{"look in  for aside"}, ""},
		{theirs, Config{Declare: true}, []string{"look in 2 for aside"}, ""},
		{theirs, Config{Declare: true, DeadLetter: "mine"}, []string{"look in  for mine", "make mine"}, "https://sqs/1/mine"},
		{"", Config{Declare: true}, []string{"look in  for jobs-dead", "make jobs-dead", "set https://sqs/1/jobs"}, "https://sqs/1/jobs-dead"},
		{"", Config{}, nil, ""},
	} {
		c.conf.Queue, c.conf.Logger = "jobs", slog.New(slog.DiscardHandler)
		cfg, err := c.conf.resolve()
		if err != nil {
			t.Fatal(err)
		}
		a := &account{policy: c.policy}
		b := newBroker(cfg, &clients{settle: a})
		q, err := b.prepare(t.Context())
		if err != nil || q.dead != c.dead || !slices.Equal(a.calls, c.calls) {
			t.Errorf("policy %s, %+v: calls %q, dead-letter queue %q, error %v; want %q and %q", c.policy, c.conf, a.calls, q.dead, err, c.calls, c.dead)
		}
		b.end()
	}
}

func (a *account) ChangeMessageVisibilityBatch(_ context.Context, in *sqs.ChangeMessageVisibilityBatchInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	a.note("change", in.Entries[0].ReceiptHandle)
	return &sqs.ChangeMessageVisibilityBatchOutput{Successful: []types.ChangeMessageVisibilityBatchResultEntry{{Id: in.Entries[0].Id}}}, nil
}

// A change that waited in its batch while the machine slept is not sent: by the wall clock its deadline is over. Nor is one
// whose deadline is over by the other clock.
func TestChangeAfterASleepIsNotSent(t *testing.T) {
	cfg, err := Config{Queue: "jobs"}.resolve()
	if err != nil {
		t.Fatal(err)
	}
	a := &account{}
	b := newBroker(cfg, &clients{settle: a})
	defer b.end()
	b.learn(&queue{url: "https://sqs/1/jobs", visibility: time.Minute})
	now := time.Now()
	for handle, deadline := range map[string]time.Time{
		"slept": Monotonic(now.Add(-time.Minute), 2*time.Minute), "set back": Monotonic(now.Add(time.Minute), -2*time.Minute), "in time": now.Add(time.Minute),
	} {
		o := newChange(&hold{handle: handle, deadline: deadline}, time.Minute)
		b.changes.run([]*op{o})
		<-o.done
		if sent := slices.Contains(a.calls, "change "+handle); sent != (handle == "in time") || errors.Is(o.fail.wrap(), broker.ErrNotHeld) == sent {
			t.Errorf("%s: sent %v, error %v", handle, sent, o.fail.wrap())
		}
	}
}
