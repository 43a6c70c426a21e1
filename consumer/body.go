package consumer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/job"
)

// Pointer says where the body of a message lies, as Amazon's extended clients for SQS
// and SNS leave it in the message.
type Pointer struct {
	Bucket string
	Key    string
}

// resolveTimeout bounds one call of Config.Resolve.
const resolveTimeout = 30 * time.Second

// errUnresolved is a body that may be there at the next hand-out.
type errUnresolved struct {
	error
	in time.Duration
}

// unwrap takes the wrappings of others off a message: that of an SNS topic without raw
// delivery, then the pointer of an extended client, then that of EventBridge. A message
// that names its job by attribute is wrapped by nobody but an extended client, which keeps attributes.
func (c Config) unwrap(ctx context.Context, m broker.Message) (broker.Message, error) {
	named := m.Attributes[Attribute] != ""
	if !named {
		if inner, ok := notification(m); ok {
			m, named = inner, inner.Attributes[Attribute] != ""
		}
	}
	p, ok, err := pointer(m)
	if err != nil {
		return m, err
	}
	if ok {
		if m.Body, err = c.resolve(ctx, p); err != nil {
			return m, err
		}
	}
	if err := c.fits(m.Body); err != nil {
		return m, err
	}
	if named {
		return m, nil
	}
	if detail, ok := event(m.Body); ok {
		m.Body = detail
	}
	return m, nil
}

// notification takes a message out of what SNS makes of it: a JSON object with Type, TopicArn
// and the published Message as a string, and its attributes inside. Those
// of type String become the message's own.
func notification(m broker.Message) (broker.Message, bool) {
	if !bytes.Contains(m.Body, []byte(`"TopicArn"`)) || !utf8.Valid(m.Body) { // a decoder would replace what is no UTF-8
		return m, false
	}
	var n struct {
		Type, TopicArn    string
		Message           *string
		MessageAttributes map[string]struct{ Type, Value string }
	}
	if json.Unmarshal(m.Body, &n) != nil || n.Type != "Notification" || n.TopicArn == "" || n.Message == nil {
		return m, false
	}
	m.Body, m.Attributes = []byte(*n.Message), maps.Clone(m.Attributes)
	for name, a := range n.MessageAttributes {
		if a.Type != "String" {
			continue
		}
		if m.Attributes == nil {
			m.Attributes = map[string]string{}
		}
		m.Attributes[name] = a.Value
	}
	return m, true
}

// event takes the detail out of what EventBridge delivers: a JSON object with id, source,
// detail-type and detail.
func event(body []byte) (detail []byte, ok bool) {
	if !bytes.Contains(body, []byte(`"detail-type"`)) {
		return nil, false
	}
	var e map[string]json.RawMessage
	if json.Unmarshal(body, &e) != nil {
		return nil, false
	}
	for _, field := range []string{"id", "source", "detail-type", "detail"} {
		if len(e[field]) == 0 {
			return nil, false
		}
	}
	return e["detail"], true
}

// The marks of an extended client: the first element of the body's array, which has two,
// and an attribute with the body's size. Each has an older name.
var (
	pointerNames      = []string{"software.amazon.payloadoffloading.PayloadS3Pointer", "com.amazon.sqs.javamessaging.MessageS3Pointer"}
	pointerAttributes = []string{"ExtendedPayloadSize", "SQSLargePayloadSize"}
)

// pointer reports whether an extended client has put the body elsewhere.
func pointer(m broker.Message) (p Pointer, ok bool, err error) {
	marked := false
	for _, a := range pointerAttributes {
		_, is := m.Attributes[a]
		marked = marked || is
	}
	for _, name := range pointerNames {
		marked = marked || bytes.HasPrefix(bytes.TrimSpace(m.Body), []byte("[")) && bytes.Contains(m.Body, []byte(name))
	}
	if !marked {
		return p, false, nil
	}
	var name string
	var at struct{ S3BucketName, S3Key string }
	parts := []any{&name, &at}
	if err := json.Unmarshal(m.Body, &parts); err != nil || len(parts) != 2 || !slices.Contains(pointerNames, name) || at.S3BucketName == "" || at.S3Key == "" {
		return p, false, fmt.Errorf("PO411 body is marked as a pointer to S3 and cannot be read as one; it has %d bytes", len(m.Body))
	}
	return Pointer{Bucket: at.S3BucketName, Key: at.S3Key}, true, nil
}

// resolve asks the user's hook for a body.
func (c Config) resolve(ctx context.Context, p Pointer) ([]byte, error) {
	if c.Resolve == nil {
		return nil, fmt.Errorf("PO410 body lies in S3, bucket %.100q, key %.500q, and this worker has no Resolve that could read it", p.Bucket, p.Key)
	}
	rctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	body, err := c.Resolve(rctx, p)
	if err == nil {
		return body, nil
	}
	class, in := job.ClassOf(err)
	err = fmt.Errorf("PO412 reading the body from bucket %.100q, key %.500q: %w", p.Bucket, p.Key, err)
	if class == job.Permanent {
		return nil, err
	}
	return nil, &errUnresolved{err, in}
}

// unresolved reports whether a message's body may be there later.
func unresolved(err error) (*errUnresolved, bool) { return errors.AsType[*errUnresolved](err) }
