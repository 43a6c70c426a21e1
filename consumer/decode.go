package consumer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// Attribute names the job in a message's attributes (an AMQP header, an SQS message
// attribute); the body is then the input alone. Without it the body, or the message in an SNS
// notification, or the detail of an EventBridge event, is {"job": …, "input": {…}}.
const Attribute = "job"

type message struct {
	job     string // a registered name, or ""
	handler *job.Handler
	in      job.Input
	// attributes are those of the message itself, whatever it was wrapped in.
	attributes map[string]string
}

// Decode reads a message as a consumer of this configuration does: which handler, which
// input, which key. Its errors say what is wrong with the message, and are final but for PO412:
// a Resolve may read the body another time.
func (c Config) Decode(ctx context.Context, m broker.Message) (*job.Handler, job.Input, error) {
	got, err := c.withDefaults().decode(ctx, m)
	return got.handler, got.in, err
}

func (c Config) decode(ctx context.Context, d broker.Message) (message, error) {
	var m message
	if err := c.fits(d.Body); err != nil {
		return m, err
	}
	inner, err := c.unwrap(ctx, d)
	if err != nil {
		return m, err
	}
	m.attributes = inner.Attributes // with the address of who wants to be told, of what is wrong as well
	name, input, err := envelope(inner)
	if err != nil {
		return m, err
	}
	h, ok := c.Handlers.Lookup(name)
	if !ok {
		return m, fmt.Errorf("PO408 no handler for job %.100q; registered: %v", name, c.Handlers.Names())
	}
	m.job, m.handler = name, h
	m.in, err = h.Decode(input)
	return m, err
}

func (c Config) fits(body []byte) error {
	if len(body) > c.MaxBody {
		return fmt.Errorf("PO407 body of %d bytes is larger than max_body %d", len(body), c.MaxBody)
	}
	return nil
}

// origin is what is known of a message beside its content, as ledgers keep it: from its broker, and in its own
// attributes as W3C trace context names them.
func origin(f broker.Facts, attributes map[string]string, reply address) *ledger.Origin {
	o := ledger.Origin{Group: f.Group, Sent: f.Sent, First: f.First, AWSTrace: f.Trace, ReplyTo: reply.to, Correlation: reply.correlation,
		Trace: attributes["traceparent"], TraceState: attributes["tracestate"]}
	return ifKnown(o.Clean())
}

// ifKnown is an origin as work keeps it: nil where nothing is known.
func ifKnown(o ledger.Origin) *ledger.Origin {
	if o.IsZero() {
		return nil
	}
	return new(o)
}

// knownOrigin is what is known of the message beside its content.
func (w *work) knownOrigin() ledger.Origin {
	if w.origin == nil {
		return ledger.Origin{}
	}
	return *w.origin
}

// envelope finds the job's name and input, by attribute or in the body.
func envelope(d broker.Message) (name string, input []byte, err error) {
	if name := d.Attributes[Attribute]; name != "" {
		return name, d.Body, nil
	}
	if !utf8.Valid(d.Body) {
		return "", nil, fmt.Errorf("PO402 body is not UTF-8")
	}
	var e struct {
		Job   string          `json:"job"`
		Input json.RawMessage `json:"input"`
	}
	if t := bytes.TrimSpace(d.Body); len(t) == 0 || t[0] != '{' {
		return "", nil, fmt.Errorf("PO401 body is no JSON object and there is no attribute %q", Attribute)
	}
	if err := json.Unmarshal(d.Body, &e); err != nil {
		return "", nil, fmt.Errorf("PO401 body is not JSON: %w", err)
	}
	if e.Job == "" || len(e.Input) == 0 {
		return "", nil, fmt.Errorf(`PO409 body names no job: want the attribute %q, or {"job": …, "input": {…}}`, Attribute)
	}
	return e.Job, within(d.Body, e.Input), nil
}

// within is the part of a body that package json made a copy of, so that it is not kept twice.
func within(body, part []byte) []byte {
	at := bytes.Index(body, part)
	if at < 0 {
		return part
	}
	return body[at : at+len(part) : at+len(part)]
}
