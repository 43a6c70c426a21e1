package consumer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/job"
)

// Attribute names the job in a message's attributes (an AMQP header, an SQS message
// attribute); the body is then the input alone.
const Attribute = "job"

type message struct {
	job     string // a registered name, or ""
	handler *job.Handler
	in      job.Input
}

// Decode reads a message as a consumer of this configuration does: which handler, which
// input, which key. Its errors are final and say what is wrong with the message.
func (c Config) Decode(m broker.Message) (*job.Handler, job.Input, error) {
	got, err := c.withDefaults().decode(m)
	return got.handler, got.in, err
}

func (c Config) decode(d broker.Message) (message, error) {
	var m message
	if len(d.Body) > c.MaxBody {
		return m, fmt.Errorf("PO407 body of %d bytes is larger than max_body %d", len(d.Body), c.MaxBody)
	}
	name, input, err := envelope(d)
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
	return e.Job, e.Input, nil
}
