package sqs

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/paidonce/paidonce/broker"
)

// The attributes of a message to Publish that are not sent as message attributes.
const (
	// GroupAttribute is the group of the message: what is in order on a FIFO queue,
	// who is treated fairly on a standard one.
	GroupAttribute = "MessageGroupId"
	// DeduplicationAttribute makes a FIFO queue drop a second message with the same
	// value within five minutes.
	DeduplicationAttribute = "MessageDeduplicationId"
)

const (
	// maxAttributes is how many SQS takes of a sender.
	maxAttributes = 10
	// sendTries is how often an entry is sent that SQS did not take, by its own fault.
	sendTries = 5
)

// Publish stores ms in the queue, up to ten and 1 MiB with each request, one request
// after the other; on a FIFO queue those of a group one by one, so that they stay in order.
//
// On a FIFO queue a message is in the group of its attribute MessageGroupId. Without one
// it is a group of its own: nothing waits for it, and its place among others is not
// promised. Its attribute MessageDeduplicationId makes the queue drop a repetition
// within five minutes; without one every message of every call is stored, those with the
// same body too, since what is done once is for the ledger to say.
//
// Errors: ErrTooLarge, ErrContents (a character, an attribute that SQS does not carry; the
// text says which), both before anything is sent; ErrUnroutable, ErrRefused, ErrClosed, and
// ErrUnavailable, also together with the cause of a ctx that ended; then ms may be stored
// or not.
func (b *Broker) Publish(ctx context.Context, ms ...broker.Message) error {
	if err := b.publish(ctx, ms); err != nil {
		return fmt.Errorf("publish to %s: %w", nameOf(b.cfg.Queue), err)
	}
	return nil
}

func (b *Broker) publish(ctx context.Context, ms []broker.Message) error {
	done, err := b.enter(ctx)
	if err != nil {
		return err
	}
	defer done()
	q, err := b.prepare(ctx)
	if err != nil {
		return sendError(ctx, err)
	}
	var es []types.SendMessageBatchRequestEntry
	for i, m := range ms {
		e, err := outgoing(m, q.fifo)
		if err == nil && size(e) > q.maxBody {
			err = fmt.Errorf("%d bytes with attributes, at most %d: %w", size(e), q.maxBody, broker.ErrTooLarge)
		}
		if err != nil {
			return fmt.Errorf("message %d: %w", i+1, err)
		}
		es = append(es, e)
	}
	for _, part := range parts(es, q) {
		if err := b.sendAll(ctx, q.url, part); err != nil {
			b.vanished(err)
			return sendError(ctx, err)
		}
	}
	return nil
}

// sendError is what a caller sees of an error of sending.
func sendError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("no answer in time: %w: %w", broker.ErrUnavailable, context.Cause(ctx))
	}
	if errors.Is(err, ErrQueue) {
		return err
	}
	return asFailure(err).wrap()
}

// outgoing is m as SQS takes it.
func outgoing(m broker.Message, fifo bool) (types.SendMessageBatchRequestEntry, error) {
	e := types.SendMessageBatchRequestEntry{MessageBody: new(string(m.Body))}
	if len(m.Body) == 0 {
		return e, fmt.Errorf("%w: the body is empty", ErrContents)
	}
	if err := carried("the body", string(m.Body)); err != nil {
		return e, err
	}
	for _, name := range slices.Sorted(maps.Keys(m.Attributes)) {
		value := m.Attributes[name]
		switch name {
		case GroupAttribute:
			e.MessageGroupId = &value
			continue
		case DeduplicationAttribute:
			if fifo {
				e.MessageDeduplicationId = &value
			}
			continue
		}
		if err := checkAttribute(name, value); err != nil {
			return e, err
		}
		if e.MessageAttributes == nil {
			e.MessageAttributes = map[string]types.MessageAttributeValue{}
		}
		e.MessageAttributes[name] = types.MessageAttributeValue{DataType: new("String"), StringValue: &value}
	}
	if n := len(e.MessageAttributes); n > maxAttributes {
		return e, fmt.Errorf("%w: %d attributes, at most %d", ErrContents, n, maxAttributes)
	}
	if fifo {
		e.MessageGroupId = cmp.Or(e.MessageGroupId, new(rand.Text()))
		e.MessageDeduplicationId = cmp.Or(e.MessageDeduplicationId, new(rand.Text()))
	}
	for name, id := range map[string]*string{GroupAttribute: e.MessageGroupId, DeduplicationAttribute: e.MessageDeduplicationId} {
		if id != nil && (*id == "" || len(*id) > 128 || strings.ContainsFunc(*id, func(r rune) bool { return r <= ' ' || r > '~' })) {
			return e, fmt.Errorf("%w: %s %q: want 1 to 128 letters, digits and punctuation", ErrContents, name, *id)
		}
	}
	return e, nil
}

// checkAttribute refuses what SQS would refuse with the whole batch.
func checkAttribute(name, value string) error {
	lower := strings.ToLower(name)
	switch {
	case name == "" || len(name) > 256 || strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.')
	}) || strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") || strings.Contains(name, ".."):
		return fmt.Errorf("%w: attribute name %q: want up to 256 letters, digits, and _ - . in between", ErrContents, name)
	case strings.HasPrefix(lower, "aws.") || strings.HasPrefix(lower, "amazon."):
		return fmt.Errorf("%w: attribute name %q: AWS keeps such names for itself", ErrContents, name)
	case value == "":
		return fmt.Errorf("%w: attribute %s is empty", ErrContents, name)
	}
	return carried("attribute "+name, value)
}

// carried refuses characters that SQS does not carry: it says where, never what.
func carried(what, s string) error {
	for i, r := range s {
		if !allowed(r) || r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD") {
			return fmt.Errorf("%w: %s has a byte or character at position %d that SQS refuses (such as NUL, ESC, or no UTF-8): encode it, in base64 or as JSON escapes", ErrContents, what, i)
		}
	}
	return nil
}

func allowed(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' || r >= ' ' && r <= 0xD7FF || r >= 0xE000 && r <= 0xFFFD || r >= 0x10000
}

// size is what SQS counts of a message: body, and of each attribute its name, type and
// value.
func size(e types.SendMessageBatchRequestEntry) int {
	n := len(deref(e.MessageBody))
	for name, v := range e.MessageAttributes {
		n += len(name) + len(deref(v.DataType)) + len(deref(v.StringValue)) + len(v.BinaryValue)
	}
	return n
}

// parts cuts entries into requests. The largest message of a queue says which limit the
// server has for a whole request. On a FIFO queue a request has one message of a group: SQS may
// store any part of a request, and what is sent again must not come behind its successors.
func parts(es []types.SendMessageBatchRequestEntry, q *queue) [][]types.SendMessageBatchRequestEntry {
	limit := maxMessage
	if q.maxBody < maxMessage {
		limit = max(q.maxBody, oldMaxMessage)
	}
	var out [][]types.SendMessageBatchRequestEntry
	sum := 0
	for _, e := range es {
		last := len(out) - 1
		if last < 0 || len(out[last]) == batchSize || sum+size(e) > limit || q.fifo && hasGroup(out[last], *e.MessageGroupId) {
			out, sum = append(out, nil), 0
			last++
		}
		out[last] = append(out[last], e)
		sum += size(e)
	}
	return out
}

func hasGroup(es []types.SendMessageBatchRequestEntry, group string) bool {
	return slices.ContainsFunc(es, func(e types.SendMessageBatchRequestEntry) bool { return *e.MessageGroupId == group })
}

// sendAll sends entries to a queue until every one is stored. The SDK repeats a
// request that got no answer; what is repeated here are entries that SQS could not store.
func (b *Broker) sendAll(ctx context.Context, url string, es []types.SendMessageBatchRequestEntry) error {
	pause := shortest
	for try := 1; ; try++ {
		left, err := b.send(ctx, url, es)
		if err == nil {
			return nil
		}
		if f := asFailure(err); f.class != temporary || try == sendTries || len(left) == 0 {
			return err
		}
		es = left
		if !sleep(ctx, pause) {
			return err
		}
		pause *= 2
	}
}

// sleep reports whether d passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// send makes one request. It returns the entries that are worth another, with an error.
func (b *Broker) send(ctx context.Context, url string, es []types.SendMessageBatchRequestEntry) ([]types.SendMessageBatchRequestEntry, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, settleTries*sendLimit, errSilent)
	defer cancel()
	ok := make([]*string, 0, len(es))
	for i := range es {
		es[i].Id = entryID(i)
	}
	out, err := b.clients.send.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: es})
	if err != nil {
		return nil, failed(err) // the SDK has tried again already
	}
	for _, s := range out.Successful {
		ok = append(ok, s.Id)
	}
	var left []types.SendMessageBatchRequestEntry
	var worst *failure
	for i, f := range outcomes(len(es), ok, out.Failed) {
		if f == nil {
			continue
		}
		left = append(left, es[i])
		if worst == nil || worst.class == temporary {
			worst = f
		}
	}
	if worst == nil {
		return nil, nil
	}
	return left, worst
}
