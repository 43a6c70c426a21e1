package sqsfake

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// lifetime is how long a receipt handle may hide its message in all, counted from
// the receive, and how long it is good for anything.
const lifetime = 12 * time.Hour

// window is how long deduplication ids and receive attempt ids are remembered.
const window = 5 * time.Minute

// queue is one queue. Everything in it is guarded by the server's mu.
type queue struct {
	s          *Server
	name       string
	fifo       bool
	attributes map[string]string // those that were set, and defaults
	created    time.Time
	modified   time.Time
	purged     time.Time
	sequence   int64

	messages []*message // in order of arrival
	handles  map[string]*holding
	dedup    map[string]accepted // by deduplication id
	attempts map[string]attempt  // by receive attempt id
	waiters  []*waiter           // open polls, oldest first
}

// message is one message, until it is deleted or moved.
type message struct {
	id, body     string
	attributes   map[string]Attribute
	group, dedup string
	sequence     string
	trace        string // AWSTraceHeader
	source       string // ARN of the queue that it was dead-lettered from
	sent         time.Time
	first        time.Time // receive
	receives     int
	delayed      time.Time // until then it cannot be received
	hidden       time.Time // until then somebody holds it
	current      *holding  // newest receive
	gone         bool      // deleted, moved or expired
}

// holding is one receive of a message.
type holding struct {
	m       *message
	handle  string
	at      time.Time // when the request came in
	changed bool      // a visibility change came with its handle
}

// accepted is what the sender of a message was told.
type accepted struct {
	reply sent
	at    time.Time
}

// attempt is a receive that can be asked for again.
type attempt struct {
	holdings []*holding
	at       time.Time
}

func (m *message) visibleAt() time.Time {
	if m.hidden.After(m.delayed) {
		return m.hidden
	}
	return m.delayed
}

// number is an attribute that is a number.
func (q *queue) number(attribute string) int {
	n, err := strconv.Atoi(q.attributes[attribute])
	if err != nil {
		panic(fmt.Sprintf("sqsfake: attribute %s of %s is %q", attribute, q.name, q.attributes[attribute]))
	}
	return n
}

func (q *queue) seconds(attribute string) time.Duration {
	return time.Duration(q.number(attribute)) * time.Second
}

// redrive is the attribute RedrivePolicy.
type redrive struct {
	Target string `json:"deadLetterTargetArn"`
	Max    int    `json:"maxReceiveCount"`
}

// parseRedrive reads the attribute; maxReceiveCount may be a string.
func parseRedrive(text string) (redrive, error) {
	var raw struct {
		Target string          `json:"deadLetterTargetArn"`
		Max    json.RawMessage `json:"maxReceiveCount"`
	}
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return redrive{}, err
	}
	var s string
	if json.Unmarshal(raw.Max, &s) != nil {
		s = string(raw.Max)
	}
	n, err := strconv.Atoi(s)
	return redrive{raw.Target, n}, err
}

// dead returns the dead-letter queue and after how many receives it is used; nil
// without one, or when it was deleted.
func (q *queue) dead() (*queue, int) {
	policy := q.attributes["RedrivePolicy"]
	if policy == "" {
		return nil, 0
	}
	r, err := parseRedrive(policy)
	if err != nil {
		panic("sqsfake: " + err.Error()) // it was checked when it was set
	}
	return q.s.byARN(r.Target), r.Max
}

func (s *Server) byARN(arn string) *queue {
	for _, q := range s.queues {
		if ARN(q.name) == arn {
			return q
		}
	}
	return nil
}

func (q *queue) depth(now time.Time) (d Depth) {
	q.expire(now)
	for _, m := range q.messages {
		switch {
		case m.delayed.After(now):
			d.Delayed++
		case m.hidden.After(now):
			d.InFlight++
		default:
			d.Visible++
		}
	}
	return d
}

// expire drops what has been kept for the queue's retention.
func (q *queue) expire(now time.Time) {
	keep := q.seconds("MessageRetentionPeriod")
	for _, m := range slices.Clone(q.messages) {
		if now.Sub(m.sent) >= keep {
			q.remove(m)
		}
	}
}

func (q *queue) remove(m *message) {
	m.gone = true
	q.messages = slices.DeleteFunc(q.messages, func(x *message) bool { return x == m })
}

// hand gives a message to a receiver.
func (q *queue) hand(m *message, at, now time.Time, visibility time.Duration) *holding {
	m.receives++
	if m.first.IsZero() {
		m.first = now
	}
	m.hidden = now.Add(visibility)
	h := &holding{m: m, at: at, handle: base64.StdEncoding.EncodeToString([]byte(q.name + " " + m.id + " " + rand.Text()))}
	m.current, q.handles[h.handle] = h, h
	return h
}

// toDead moves a message to a dead-letter queue: it is the same message there, and
// its count goes on.
func (q *queue) toDead(m *message, dead *queue) {
	q.remove(m)
	moved := *m
	moved.gone, moved.current, moved.hidden, moved.source = false, nil, time.Time{}, ARN(q.name)
	dead.messages = append(dead.messages, &moved)
}

// holding finds what a handle stands for.
func (q *queue) holding(handle string) (*holding, *Error) {
	if handle == "" {
		return nil, missingParameter.with("The request must contain the parameter ReceiptHandle.")
	}
	h := q.handles[handle]
	if h == nil {
		return nil, &ReceiptHandleIsInvalid
	}
	return h, nil
}

// lapsed reports whether the holding of a FIFO queue's message is over.
func (h *holding) lapsed(now time.Time) bool {
	return h.m.current != h || !h.m.hidden.After(now)
}

// delete ends a message for good.
func (q *queue) delete(e Entry) *Error {
	h, err := q.holding(e.ReceiptHandle)
	if err != nil {
		return err
	}
	now := q.s.now()
	switch {
	case h.m.gone:
		return nil
	case now.Sub(h.at) > lifetime, q.fifo && h.lapsed(now):
		return InvalidParameterValue.with(handleExpiredMsg, e.ReceiptHandle)
	case q.s.opt.KeepStale && h.m.current != h && h.m.hidden.After(now):
		return nil
	}
	q.remove(h.m)
	return nil
}

// change sets from now on how long a message is hidden. On a standard queue any
// handle does, also one whose time is over and one whose message somebody else holds.
func (q *queue) change(e Entry) *Error {
	h, err := q.holding(e.ReceiptHandle)
	if err != nil {
		return err
	}
	if e.VisibilityTimeout == nil {
		return missingParameter.with("The request must contain the parameter VisibilityTimeout.")
	}
	n := *e.VisibilityTimeout
	if err := between("VisibilityTimeout", n, 0, 43_200); err != nil {
		return err
	}
	now := q.s.now()
	if h.m.gone || q.fifo && h.lapsed(now) {
		return InvalidParameterValue.with(handleGoneMsg, e.ReceiptHandle)
	}
	d := time.Duration(n) * time.Second
	// Some time has always passed since the receive, even when this clock stands still.
	if d == lifetime || now.Sub(h.at)+d > lifetime {
		return InvalidParameterValue.with("Value %d for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout for the message is beyond the limit [43200 seconds].", n)
	}
	h.m.hidden = now.Add(d)
	h.m.current.changed = true
	return nil
}

func between(name string, n, from, to int) *Error {
	if n < from || n > to {
		return InvalidParameterValue.with("Value %d for parameter %s is invalid. Reason: Must be between %d and %d, if provided.", n, name, from, to)
	}
	return nil
}
