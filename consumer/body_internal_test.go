package consumer

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/job"
)

type fuzzed struct{ Tenant, Doc string }

func (f fuzzed) JobKey() job.Key { return job.K(f.Tenant, "fuzz", f.Doc) }

// FuzzDecode: whatever a message holds, it is read or refused with a code, and twice alike.
func FuzzDecode(f *testing.F) {
	for _, body := range []string{
		`{"job":"fuzz","input":{"Tenant":"a","Doc":"1"}}`,
		`{"Type":"Notification","TopicArn":"x","Message":"{\"Tenant\":\"a\",\"Doc\":\"1\"}","MessageAttributes":{"job":{"Type":"String","Value":"fuzz"}}}`,
		`{"id":"1","source":"s","detail-type":"t","detail":{"job":"fuzz","input":{"Tenant":"a","Doc":"1"}}}`,
		`["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"b","s3Key":"k"}]`,
		`{"Type":"Notification","TopicArn":"x","Message":"[\"software.amazon.payloadoffloading.PayloadS3Pointer\",{}]"}`,
		`{"Tenant":"a","Doc":"\ud800"}`, `[[[[`, `{"TopicArn":{"TopicArn":`, "\xff", ``,
	} {
		f.Add([]byte(body), "", "")
		f.Add([]byte(body), "fuzz", "")
		f.Add([]byte(body), "", "ExtendedPayloadSize")
	}
	reg := new(job.Registry)
	job.Register(reg, job.Def[fuzzed, string]{Name: "fuzz",
		Handle: func(context.Context, *job.Run, fuzzed) (string, error) { return "", nil }})
	c := Config{Handlers: reg, MaxBody: 1 << 20, Resolve: func(_ context.Context, p Pointer) ([]byte, error) {
		if p.Bucket == "" || p.Key == "" {
			panic("resolved a pointer to nowhere")
		}
		return []byte(p.Key), nil
	}}
	f.Fuzz(func(t *testing.T, body []byte, name, attribute string) {
		d := broker.Delivery{Message: broker.Message{Body: body, Attributes: map[string]string{Attribute: name}}}
		if attribute != "" {
			d.Attributes[attribute] = "1"
		}
		m, err := c.decode(t.Context(), d.Message)
		again, err2 := c.decode(t.Context(), d.Message)
		if (err == nil) != (err2 == nil) || m.in.Key.String() != again.in.Key.String() || m.in.Hash != again.in.Hash {
			t.Fatalf("read twice: %+v %v, then %+v %v", m.in, err, again.in, err2)
		}
		if err == nil && (m.handler == nil || m.in.Key.String() == "") {
			t.Fatalf("read as %+v", m)
		}
		if _, later := unresolved(err); err != nil && (later || !strings.HasPrefix(err.Error(), "PO4") && !errors.Is(err, context.Canceled)) {
			t.Fatalf("refused with %v", err)
		}
	})
}
