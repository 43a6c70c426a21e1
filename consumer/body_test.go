package consumer_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

const (
	plain = `{"job":"ask","input":{"Tenant":"acme","Doc":"1"}}`
	input = `{"Tenant":"acme","Doc":"1"}`
	s3    = `["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"b","s3Key":"k"}]`
)

var named = map[string]string{consumer.Attribute: "ask"}

// notified is a message as SNS delivers it without raw delivery.
func notified(message, attributes string) string {
	quoted, _ := json.Marshal(message) // a string always can be
	return `{"Type":"Notification","MessageId":"5d","TopicArn":"arn:aws:sns:eu-west-1:1:jobs","Message":` + string(quoted) +
		`,"Timestamp":"2026-11-29T10:00:00.000Z","SignatureVersion":"1","MessageAttributes":` + attributes + `}`
}

func event(detail string) string {
	return `{"version":"0","id":"17793124-05d4","detail-type":"asked","source":"shop","account":"1","time":"2026-11-29T10:00:00Z","region":"eu-west-1","resources":[],"detail":` + detail + `}`
}

// Every wrapping of one message asks for the same job: one call, whatever brought it.
func TestWrappedBodies(t *testing.T) {
	attr := `{"job":{"Type":"String","Value":"ask"},"n":{"Type":"Number","Value":"1"}}`
	for name, m := range map[string]broker.Message{
		"plain":                        {Body: []byte(plain)},
		"attribute":                    {Body: []byte(input), Attributes: named},
		"SNS, envelope":                {Body: []byte(notified(plain, `{}`))},
		"SNS, attribute":               {Body: []byte(notified(input, attr))},
		"SNS, raw":                     {Body: []byte(input), Attributes: named},
		"EventBridge":                  {Body: []byte(event(plain))},
		"EventBridge by SNS":           {Body: []byte(notified(event(plain), `{}`))},
		"S3, envelope":                 {Body: []byte(s3)},
		"S3, attribute":                {Body: []byte(s3), Attributes: map[string]string{consumer.Attribute: "ask", "ExtendedPayloadSize": "300000"}},
		"S3 by SNS":                    {Body: []byte(notified(s3, attr))},
		"S3, the clients before 2.0":   {Body: []byte(`["com.amazon.sqs.javamessaging.MessageS3Pointer",{"s3BucketName":"b","s3Key":"k"}]`)},
		"looks wrapped, named outside": {Body: []byte(`{"Tenant":"acme","Doc":"1","Type":"Notification","TopicArn":"x","Message":"{}","id":1,"source":2,"detail-type":3,"detail":{}}`), Attributes: named},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, memory.Options{}, func(r *rig) {
				r.cfg.Resolve = func(_ context.Context, p consumer.Pointer) ([]byte, error) {
					if p != (consumer.Pointer{Bucket: "b", Key: "k"}) {
						t.Errorf("asked for %+v", p)
					}
					if name == "S3, attribute" || name == "S3 by SNS" {
						return []byte(input), nil
					}
					return []byte(plain), nil
				}
				for range 2 {
					if err := r.q.Publish(t.Context(), m); err != nil {
						t.Fatal(err)
					}
				}
				n := r.start("a")
				time.Sleep(5 * time.Minute)
				r.end(n)
				r.want("1", done1)
				r.queue(memory.Depth{})
				r.avoids(map[string]int{"duplicate_message": 1})
			})
		})
	}
}

// What only looks like a wrapping, or cannot be taken off, is set aside with its reason.
func TestBodiesThatCannotBeUnwrapped(t *testing.T) {
	for name, c := range map[string]struct {
		body   string
		attr   map[string]string
		reason string
	}{
		"SNS without a message":           {`{"Type":"Notification","TopicArn":"x"}`, nil, "PO409"},
		"SNS, a subscription":             {`{"Type":"SubscriptionConfirmation","TopicArn":"x","Message":"m"}`, nil, "PO409"},
		"SNS with an object":              {`{"Type":"Notification","TopicArn":"x","Message":` + plain + `}`, nil, "PO409"},
		"SNS, no JSON inside":             {notified("hello", `{}`), nil, "PO401"},
		"SNS, no UTF-8":                   {notified(plain, `{"x":{"Type":"String","Value":"`+"\xff"+`"}}`), nil, "PO402"},
		"SNS, an attribute of other type": {notified(input, `{"job":{"Type":"Binary","Value":"ask"}}`), nil, "PO409"},
		"EventBridge, other detail":       {event(`{"order":1}`), nil, "PO409"},
		"EventBridge, no object":          {event(`"x"`), nil, "PO401"},
		"EventBridge without a source":    {`{"id":"1","detail-type":"x","detail":` + plain + `}`, nil, "PO409"},
		"S3 without a resolver":           {s3, nil, "PO410 body lies in S3, bucket \"b\", key \"k\""},
		"S3, three elements":              {s3[:len(s3)-1] + `,1]`, nil, "PO411"},
		"S3, null":                        {`["software.amazon.payloadoffloading.PayloadS3Pointer",null]`, nil, "PO411"},
		"S3, not the first":               {`[1,"software.amazon.payloadoffloading.PayloadS3Pointer"]`, nil, "PO411"},
		"S3 by its attribute alone":       {input, map[string]string{consumer.Attribute: "ask", "SQSLargePayloadSize": "1"}, "PO411"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, memory.Options{}, func(r *rig) {
				if err := r.q.Publish(t.Context(), broker.Message{Body: []byte(c.body), Attributes: c.attr}); err != nil {
					t.Fatal(err)
				}
				n := r.start("a")
				time.Sleep(time.Minute)
				r.end(n)
				r.queue(memory.Depth{}, c.reason)
				for j := range r.led.Jobs(t.Context(), ledger.Filter{}) {
					t.Errorf("there is a row of %s", j.Key)
				}
			})
		})
	}
}

// A body that cannot be read now is asked for again; one that never can be is set
// aside; one that is too large is too large.
func TestResolve(t *testing.T) {
	for name, c := range map[string]struct {
		answers []error
		body    string
		reasons []string
	}{
		"later":     {[]error{errors.New("slow down"), job.RetryIn(time.Minute, errors.New("slow down")), nil}, plain, nil},
		"never":     {[]error{job.Fail(errors.New("NoSuchKey"))}, plain, []string{"PO412 reading the body from bucket \"b\", key \"k\": NoSuchKey"}},
		"too large": {[]error{nil}, plain + string(make([]byte, 1<<20)), []string{"PO407"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, memory.Options{}, func(r *rig) {
				var asked atomic.Int64
				r.cfg.Resolve = func(ctx context.Context, _ consumer.Pointer) ([]byte, error) {
					if _, ok := ctx.Deadline(); !ok {
						t.Error("it may hang for ever")
					}
					return []byte(c.body), c.answers[asked.Add(1)-1]
				}
				if err := r.q.Publish(t.Context(), broker.Message{Body: []byte(s3)}); err != nil {
					t.Fatal(err)
				}
				n := r.start("a")
				time.Sleep(time.Minute)
				if name == "later" && asked.Load() != 2 {
					t.Errorf("asked %d times in a minute, want 2", asked.Load())
				}
				time.Sleep(time.Minute)
				r.end(n)
				r.queue(memory.Depth{}, c.reasons...)
				if name == "later" {
					r.want("1", done1)
				}
				if int(asked.Load()) != len(c.answers) {
					t.Errorf("asked %d times, want %d", asked.Load(), len(c.answers))
				}
			})
		})
	}
}
