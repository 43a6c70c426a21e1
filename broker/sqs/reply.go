package sqs

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/paidonce/paidonce/broker"
)

// knownReplies bounds how many names of reply queues are remembered with their URLs.
const knownReplies = 1000

// maxURL is the longest URL of a queue that is taken, in bytes: a name has 80, an account 12.
const maxURL = 512

// Reply implements broker.Replier. to is the name of a queue of this account, or a queue's URL at the server that the
// messages come from: credentials go nowhere else. The answer to a FIFO queue is a group of its own unless its
// attribute MessageGroupId says otherwise.
func (b *Broker) Reply(ctx context.Context, to string, m broker.Message) error {
	if err := b.reply(ctx, to, m); err != nil {
		return fmt.Errorf("reply to %.100s: %w", nameOf(to), err)
	}
	return nil
}

func (b *Broker) reply(ctx context.Context, to string, m broker.Message) error {
	done, err := b.enter(ctx)
	if err != nil {
		return err
	}
	defer done()
	q, err := b.prepare(ctx)
	if err != nil {
		return sendError(ctx, err)
	}
	at, err := b.replyQueue(ctx, q, to)
	if err != nil {
		return sendError(ctx, err)
	}
	e, err := outgoing(m, strings.HasSuffix(at, fifoSuffix))
	if err == nil && size(e) > maxMessage {
		err = fmt.Errorf("%d bytes with attributes, at most %d: %w", size(e), maxMessage, broker.ErrTooLarge)
	}
	if err != nil {
		return err
	}
	if err := b.sendAll(ctx, at, []types.SendMessageBatchRequestEntry{e}); err != nil {
		b.forgetReply(to)
		return sendError(ctx, err)
	}
	return nil
}

// replyQueue is the URL of a queue that an answer may go to. Errors are *failure.
func (b *Broker) replyQueue(ctx context.Context, q *queue, to string) (string, error) {
	b.mu.Lock()
	at := b.replies[to]
	b.mu.Unlock()
	if at != "" {
		return at, nil
	}
	refuse := func(why string) error {
		return &failure{class: missing, err: fmt.Errorf("no answer goes there: %s", why)}
	}
	if to == "" {
		return "", refuse("it has no name")
	}
	if isURL(to) {
		own, err := url.Parse(q.url)
		if err != nil {
			return "", refuse("the queue's own URL cannot be read")
		}
		u, err := url.Parse(to)
		if err != nil || u.Scheme != own.Scheme || u.Host != own.Host {
			return "", refuse("it is at another server than the queue")
		}
		// SQS reads the path alone, and there are many ways to write one: to would not be known for the queue's own.
		if plain := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: path.Clean(u.Path)}).String(); to != plain || len(to) > maxURL {
			return "", refuse("it is not written as SQS writes it")
		}
	}
	at, err := b.urlOf(ctx, to, "")
	if err != nil {
		return "", err
	}
	if sameQueue(at, q.url) || q.dead != "" && sameQueue(at, q.dead) {
		return "", refuse("it is the queue of the messages, or of their dead letters")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.replies == nil || len(b.replies) >= knownReplies {
		b.replies = map[string]string{}
	}
	b.replies[to] = at
	return at, nil
}

// sameQueue compares two URLs by account and name: one server may be known by several hosts.
func sameQueue(a, b string) bool {
	return accountAndName(a) == accountAndName(b)
}

func accountAndName(at string) string {
	parts := strings.Split(at, "/")
	return strings.Join(parts[max(len(parts)-2, 0):], "/")
}

// forgetReply has the queue looked up again: it may have been made anew.
func (b *Broker) forgetReply(to string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.replies, to)
}

// enter begins a call that Close waits for; its caller ends it with done.
func (b *Broker) enter(ctx context.Context) (done func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil || b.closed {
		return nil, cmp.Or(context.Cause(ctx), error(broker.ErrClosed))
	}
	b.busy++
	return b.done, nil
}
