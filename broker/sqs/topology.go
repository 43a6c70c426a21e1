package sqs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

const (
	// maxMessage is what SQS takes in one request, and by default in one message.
	maxMessage = 1 << 20
	// oldMaxMessage was that before August 2025, and is still in emulators.
	oldMaxMessage = 256 << 10
	// receiveLimit is the maxReceiveCount of a redrive policy that Declare makes: what
	// ends a message is the ledger's budget, and receives are used up by much that is
	// no attempt.
	receiveLimit = 1000
	// deadRetention is that of a dead-letter queue that Declare makes: the longest.
	deadRetention = 14 * 24 * time.Hour
	// describeEvery is how often a receive asks for the queue's settings again. A change takes
	// SQS itself up to a minute.
	describeEvery = time.Minute
)

// queue is what SQS said of the queue.
type queue struct {
	url        string
	fifo       bool
	visibility time.Duration
	wait       time.Duration // of a receive, by the queue's own setting; 0: none
	maxBody    int
	attributes map[string]string
	redrive    redrive
	dead       string // URL of the dead-letter queue; "": there is none
}

// redrive is a queue's redrive policy. Some servers write the count as a string.
type redrive struct {
	Target string      `json:"deadLetterTargetArn"`
	Max    json.Number `json:"maxReceiveCount"`
}

// prepare returns the queue, and asks SQS for it when it is not known. Errors are
// *failure, ErrQueue, or the cause of ctx.
func (b *Broker) prepare(ctx context.Context) (*queue, error) {
	if q := b.known(); q != nil {
		return q, nil
	}
	select {
	case b.preparing <- struct{}{}:
		defer func() { <-b.preparing }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if q := b.known(); q != nil {
		return q, nil
	}
	ctx, cancel := call(ctx)
	defer cancel()
	q, err := b.lookUp(ctx)
	if err != nil {
		return nil, err
	}
	b.learn(q)
	return q, nil
}

func (b *Broker) known() *queue {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.queue
}

// learn takes what SQS said of the queue into the books.
func (b *Broker) learn(q *queue) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.visibility
	b.queue, b.described, b.undescribed, b.visibility = q, time.Now(), false, cmp.Or(b.cfg.Visibility, q.visibility)
	if before != 0 && before != b.visibility {
		b.cfg.Logger.Info("the queue's visibility timeout was changed; what is received from now on is held for as long",
			"queue", nameOf(q.url), "visibility", b.visibility, "before", before)
	}
}

// current is prepare for a receive: what it brings is held by the queue's own settings, and
// whoever owns it may change them at any time. While SQS does not say, what it said last
// counts.
func (b *Broker) current(ctx context.Context) (*queue, error) {
	q, err := b.prepare(ctx)
	if err != nil || !b.outdated() {
		return q, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, tryLimit, errSilent)
	defer cancel()
	now, err := b.examine(ctx, q.url)
	switch {
	case errors.Is(err, ErrQueue):
		b.mu.Lock()
		b.described = time.Time{} // the next receive looks again
		b.mu.Unlock()
		return nil, err
	case err != nil:
		b.notDescribed(err)
		return q, nil
	}
	if now.redrive.Target == q.redrive.Target {
		now.dead = q.dead // else it is looked for when it is wanted
	}
	b.learn(now)
	return now, nil
}

// outdated has one caller ask SQS for the queue again, once in describeEvery.
func (b *Broker) outdated() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.described) < describeEvery {
		return false
	}
	b.described = time.Now()
	return true
}

// notDescribed says so once, until it works again.
func (b *Broker) notDescribed(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.undescribed || b.polling.Err() != nil {
		return
	}
	b.undescribed = true
	b.cfg.Logger.Warn("queue not described again; a change of its visibility timeout is not noticed",
		"queue", nameOf(b.cfg.Queue), "error", asFailure(err).wrap())
}

// vanished has the queue asked for anew, and made anew where that is allowed, when err
// says that it is not there.
func (b *Broker) vanished(err error) {
	if f, ok := errors.AsType[*failure](err); ok && f.class == missing {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.queue = nil
	}
}

// lookUp asks for the queue and its dead-letter queue, and makes what is missing where
// that is allowed.
func (b *Broker) lookUp(ctx context.Context) (*queue, error) {
	url, err := b.declare(ctx, b.cfg.Queue, map[string]string{})
	if err != nil {
		return nil, err
	}
	q, err := b.examine(ctx, url)
	if err != nil {
		return nil, err
	}
	return q, b.attachDead(ctx, q)
}

// attachDead finds the dead-letter queue for q. That there is none, or that AWS refuses it, is a warning: messages
// are worked off without, and it is looked for again when one must be set aside.
func (b *Broker) attachDead(ctx context.Context, q *queue) error {
	var err error
	q.dead, err = b.deadQueue(ctx, q)
	switch f, failed := errors.AsType[*failure](err); {
	case failed && f.kind() == ErrRefused:
		b.cfg.Logger.Warn("dead-letter queue cannot be set up or used; receiving goes on, and what should be set aside comes back",
			"queue", nameOf(q.url), "error", fmt.Errorf("%w: %w", ErrRefused, err), "fix", "give this worker the permissions that PO152 lists, for the dead-letter queue too")
		return nil
	case err == nil && q.dead == "":
		b.cfg.Logger.Warn("queue has no dead-letter queue: a message that no worker can run stays in it and is received again and again",
			"queue", nameOf(q.url), "fix", "set a redrive policy, broker.dead_letter or broker.declare")
	}
	return err
}

// examine describes the queue and refuses one that cannot be used.
func (b *Broker) examine(ctx context.Context, url string) (*queue, error) {
	q, err := b.describe(ctx, url)
	if err != nil {
		return nil, err
	}
	switch {
	case q.fifo != b.cfg.fifo:
		return nil, fmt.Errorf("%w: %s is FIFO: %v, and its name says %v", ErrQueue, url, q.fifo, b.cfg.fifo)
	case q.visibility == 0 && b.cfg.Visibility == 0:
		return nil, fmt.Errorf("%w: %s has a visibility timeout of 0 s, so a message is handed out again at once: set one, or consumer.visibility", ErrQueue, url)
	}
	return q, nil
}

// deadName is the dead-letter queue that is configured, by Config or redrive policy: its
// name or URL, and the account that owns it, "" for our own.
func (b *Broker) deadName(q *queue) (name, owner string) {
	if b.cfg.DeadLetter != "" || q.redrive.Target == "" {
		return b.cfg.DeadLetter, ""
	}
	name, owner = arnParts(q.redrive.Target)
	if _, own := arnParts(q.attributes[string(types.QueueAttributeNameQueueArn)]); own == owner {
		owner = "" // ours, and ours to make
	}
	return name, owner
}

// deadQueue finds where dead letters go, and makes it where that is allowed. "" says
// nowhere.
func (b *Broker) deadQueue(ctx context.Context, q *queue) (string, error) {
	name, owner := b.deadName(q)
	if name == "" && b.cfg.Declare {
		name = deadName(nameOf(q.url))
	}
	if name == "" {
		return "", nil
	}
	var dead string
	var err error
	if owner == "" {
		dead, err = b.declare(ctx, name, map[string]string{
			string(types.QueueAttributeNameMessageRetentionPeriod): strconv.Itoa(int(deadRetention.Seconds()))})
	} else {
		dead, err = b.urlOf(ctx, name, owner)
	}
	if f, ok := errors.AsType[*failure](err); ok && f.class == missing {
		return "", nil
	}
	if err != nil || !b.cfg.Declare || q.redrive.Target != "" {
		return dead, err
	}
	return dead, b.setRedrive(ctx, q, dead)
}

// setRedrive lets the queue send to dead what was received too often.
func (b *Broker) setRedrive(ctx context.Context, q *queue, dead string) error {
	d, err := b.describe(ctx, dead)
	if err != nil {
		return err
	}
	q.redrive = redrive{d.attributes[string(types.QueueAttributeNameQueueArn)], json.Number(strconv.Itoa(receiveLimit))}
	policy, err := json.Marshal(q.redrive)
	if err != nil {
		return err
	}
	_, err = b.clients.settle.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{QueueUrl: &q.url,
		Attributes: map[string]string{string(types.QueueAttributeNameRedrivePolicy): string(policy)}})
	if err != nil {
		return fmt.Errorf("set the redrive policy of %s: %w", nameOf(q.url), failed(err))
	}
	return nil
}

// urlOf finds a queue by name or URL. owner is the account of another's queue, or "".
func (b *Broker) urlOf(ctx context.Context, queue, owner string) (string, error) {
	if isURL(queue) {
		return queue, nil
	}
	in := &sqs.GetQueueUrlInput{QueueName: &queue}
	if owner != "" {
		in.QueueOwnerAWSAccountId = &owner
	}
	out, err := b.clients.settle.GetQueueUrl(ctx, in)
	if err != nil {
		return "", failed(err)
	}
	return deref(out.QueueUrl), nil
}

// declare finds a queue, and makes it where it is missing and that is allowed.
func (b *Broker) declare(ctx context.Context, queue string, attributes map[string]string) (string, error) {
	url, err := b.urlOf(ctx, queue, "")
	if err == nil || asFailure(err).class != missing || !b.cfg.Declare {
		return url, err
	}
	if b.cfg.fifo {
		attributes[string(types.QueueAttributeNameFifoQueue)] = "true"
	}
	made, err := b.clients.settle.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &queue, Attributes: attributes})
	if err != nil {
		return "", failed(err)
	}
	b.cfg.Logger.Info("queue made", "queue", queue)
	return deref(made.QueueUrl), nil
}

// describe reads the attributes of a queue.
func (b *Broker) describe(ctx context.Context, url string) (*queue, error) {
	out, err := b.clients.settle.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &url,
		AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
	if err != nil {
		return nil, failed(err)
	}
	a := out.Attributes
	q := &queue{url: url, attributes: a, fifo: a[string(types.QueueAttributeNameFifoQueue)] == "true", maxBody: maxMessage,
		visibility: seconds(a, types.QueueAttributeNameVisibilityTimeout), wait: seconds(a, types.QueueAttributeNameReceiveMessageWaitTimeSeconds)}
	if n, err := strconv.Atoi(a[string(types.QueueAttributeNameMaximumMessageSize)]); err == nil && n > 0 {
		q.maxBody = n
	}
	if p := a[string(types.QueueAttributeNameRedrivePolicy)]; p != "" {
		if err := json.Unmarshal([]byte(p), &q.redrive); err != nil {
			return nil, fmt.Errorf("%w: %s: redrive policy %q: %w", ErrQueue, url, p, err)
		}
	}
	return q, nil
}

// seconds reads an attribute that is a number of seconds; 0 when it is not there.
func seconds(attributes map[string]string, name types.QueueAttributeName) time.Duration {
	n, err := strconv.Atoi(attributes[string(name)])
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Second
}

// arnParts are the name and the account in the ARN of a queue.
func arnParts(arn string) (name, account string) {
	parts := strings.Split(arn, ":")
	if len(parts) < 6 {
		return "", ""
	}
	return parts[5], parts[4]
}

// asFailure reads any error of this package as one of SQS.
func asFailure(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	return &failure{class: temporary, err: err}
}
