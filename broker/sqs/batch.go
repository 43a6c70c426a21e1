package sqs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

const (
	// batchLinger is how long an entry waits for company.
	batchLinger = 15 * time.Millisecond
	// ackPatience is how long a delete is tried.
	ackPatience = 5 * time.Minute
)

// op is one entry of a batch: a delete, or a visibility change.
type op struct {
	h     *hold
	by    time.Duration // change: the new visibility, from the request on
	until time.Time     // no try begins later
	tries int
	sent  time.Time     // of the try that decided
	fail  *failure      // good when done is closed
	done  chan struct{} // closed at the end of the last try
}

func newDelete(h *hold) *op {
	return &op{h: h, until: time.Now().Add(ackPatience), done: make(chan struct{})}
}

// newChange hides h for by from now on. b.mu is held.
func newChange(h *hold, by time.Duration) *op {
	return &op{h: h, by: by, until: h.deadline, done: make(chan struct{})}
}

// batcher collects entries of all callers into requests of ten.
type batcher struct {
	b      *Broker
	change bool // of visibility: nothing is sent after its deadline
	send   func(context.Context, *queue, []*op) []*failure

	mu      sync.Mutex
	waiting []*op
	timer   *time.Timer
}

// add sends ops, at most ten, in one request and in their order, perhaps with others.
func (q *batcher) add(ops ...*op) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting)+len(ops) > batchSize {
		q.flush()
	}
	q.waiting = append(q.waiting, ops...)
	switch {
	case len(q.waiting) >= batchSize:
		q.flush()
	case q.timer == nil:
		q.timer = time.AfterFunc(batchLinger, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.flush()
		})
	}
}

// flush sends what waits. q.mu is held.
func (q *batcher) flush() {
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
	if len(q.waiting) == 0 {
		return
	}
	ops := q.waiting
	q.waiting = nil
	go q.run(ops)
}

// run makes one request and sees to each of its entries.
func (q *batcher) run(ops []*op) {
	now := time.Now()
	limit := now.Add(callLimit)
	var live []*op
	for _, o := range ops {
		if !now.Before(o.until) || q.change && passed(o.until, now) {
			if o.fail == nil || q.change {
				o.fail = late(o.fail)
			}
			close(o.done)
			continue
		}
		if q.change && o.until.Before(limit) { // neither may a try of the SDK begin after it
			limit = o.until
		}
		live = append(live, o)
	}
	if len(live) == 0 {
		return
	}
	ctx, cancel := context.WithDeadlineCause(q.b.life, limit, errSilent)
	defer cancel()
	fails := q.try(ctx, live)
	for i, o := range live {
		o.sent, o.fail = now, fails[i]
		if q.change {
			q.b.doubt(o)
		}
		if o.fail != nil && o.fail.class == temporary && q.again(o) {
			continue
		}
		close(o.done)
	}
}

// late is the failure of an entry that is not sent any more; before is that of its last try.
func late(before *failure) *failure {
	err := errors.New("the deadline passed")
	if before != nil {
		err = fmt.Errorf("the deadline passed after: %w", before.err)
	}
	return &failure{class: gone, err: err}
}

// doubt notes that a change without an answer may have been done: the hold is over when
// it says, perhaps at once, and somebody else may have the message. On a FIFO queue an old
// handle does nothing to others, so there the change is repeated.
func (b *Broker) doubt(o *op) {
	if o.fail == nil || !o.fail.silent || b.cfg.fifo {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if end := o.sent.Add(o.by); end.Before(o.h.deadline) {
		o.h.deadline = end
	}
	o.until = o.h.deadline
}

func (q *batcher) try(ctx context.Context, ops []*op) []*failure {
	to, err := q.b.prepare(ctx)
	if err != nil {
		f := *asFailure(err)
		f.silent = false // of the entries nothing was sent
		return slices.Repeat([]*failure{&f}, len(ops))
	}
	return q.send(ctx, to, ops)
}

// again has o tried once more, if there is time.
func (q *batcher) again(o *op) bool {
	if q.b.life.Err() != nil {
		return false
	}
	wait := min(100*time.Millisecond<<min(o.tries, 10), 5*time.Second)
	wait = wait*3/4 + rand.N(wait/2)
	o.tries++
	if !q.change {
		if time.Now().Add(wait).After(o.until) {
			return false
		}
		q.b.prolong(o.h)
	}
	// A change is looked at again in any case: its end is its deadline.
	time.AfterFunc(min(wait, max(time.Until(o.until), 0)), func() { q.add(o) })
	return true
}

// change makes visibility changes, in their order, and waits for all of them. It must
// not be called with b.mu held.
func (b *Broker) change(ops []*op) {
	// By number, so that two calls never wait for each other.
	turns := slices.Clone(ops)
	slices.SortFunc(turns, func(x, y *op) int { return int(x.h.serial - y.h.serial) })
	for _, o := range turns {
		o.h.turn <- struct{}{} // held for as long as a request takes
	}
	for part := range slices.Chunk(ops, batchSize) {
		b.mu.Lock()
		for _, o := range part {
			o.until = o.h.deadline // perhaps changed meanwhile
		}
		b.mu.Unlock()
		b.changes.add(part...)
		for _, o := range part {
			<-o.done
			b.changedTo(o)
			<-o.h.turn
		}
	}
}

// changedTo takes the outcome of a change into the books.
func (b *Broker) changedTo(o *op) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := o.h
	switch {
	case o.fail == nil:
		if h.deadline = o.sent.Add(o.by); h.deadline.After(h.end) {
			h.deadline = h.end
		}
	case o.fail.class == gone && h.settling == nil: // else it crossed the delete
		b.lose(h)
	case o.fail.class == limit:
		h.end = h.deadline
	}
}

// giveBack makes holds visible again after delay, in their order. They are in no book any
// more. b.mu is held.
func (b *Broker) giveBack(hs []*hold, delay time.Duration) {
	now := time.Now()
	var ops []*op
	for _, h := range hs {
		if !h.lapsed(now) {
			ops = append(ops, newChange(h, delay))
		}
	}
	if len(ops) == 0 {
		return
	}
	b.stats.Released += int64(len(ops))
	b.background(func() { b.change(ops) })
}

// prolong extends a hold whose delete does not get through, so that the message is
// not handed out as long as there is hope.
func (b *Broker) prolong(h *hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if h.lapsed(now) || h.deadline.Sub(now) > b.visibility/2 || len(h.turn) > 0 {
		return
	}
	ops := []*op{newChange(h, min(b.visibility, h.end.Sub(now)))}
	if h.group != nil && len(h.group.holds) > 0 && h.group.holds[0] == h {
		ops = b.extension(h.group, b.visibility)
	}
	b.background(func() { b.change(ops) })
}

func (b *Broker) deleteBatch(ctx context.Context, q *queue, ops []*op) []*failure {
	in := &sqs.DeleteMessageBatchInput{QueueUrl: &q.url}
	for i, o := range ops {
		in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{Id: entryID(i), ReceiptHandle: &o.h.handle})
	}
	out, err := b.clients.settle.DeleteMessageBatch(ctx, in)
	if err != nil {
		return b.refusals(ops, slices.Repeat([]*failure{failed(err)}, len(ops)))
	}
	ok := make([]*string, len(out.Successful))
	for i := range out.Successful {
		ok[i] = out.Successful[i].Id
	}
	return b.refusals(ops, outcomes(len(ops), ok, out.Failed))
}

// refusals counts and logs what each entry of a delete was answered.
func (b *Broker) refusals(ops []*op, fails []*failure) []*failure {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, f := range fails {
		if f == nil {
			continue
		}
		b.stats.AcksFailed++
		if b.stats.AckCodes == nil {
			b.stats.AckCodes = map[string]int64{}
		}
		b.stats.AckCodes[f.code]++
		if ops[i].tries == 0 {
			b.cfg.Logger.Warn("message not deleted", "message_id", ops[i].h.id, "code", f.code, "error", f.err)
		}
	}
	return fails
}

// once keeps the SDK from repeating a change: it does not know which may be.
func once(o *sqs.Options) { o.Retryer = aws.NopRetryer{} }

func (b *Broker) changeBatch(ctx context.Context, q *queue, ops []*op) []*failure {
	in := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &q.url}
	for i, o := range ops {
		in.Entries = append(in.Entries, types.ChangeMessageVisibilityBatchRequestEntry{
			Id: entryID(i), ReceiptHandle: &o.h.handle, VisibilityTimeout: timeout(o.by)})
	}
	out, err := b.clients.settle.ChangeMessageVisibilityBatch(ctx, in, once)
	if err != nil {
		return slices.Repeat([]*failure{failed(err)}, len(ops))
	}
	ok := make([]*string, len(out.Successful))
	for i := range out.Successful {
		ok[i] = out.Successful[i].Id
	}
	return outcomes(len(ops), ok, out.Failed)
}

// entryID names an entry within its request, by its place: message ids can be there twice.
func entryID(i int) *string { return new(strconv.Itoa(i)) }

// outcomes sorts the answers of a batch by entry. One without an answer is tried again.
func outcomes(n int, ok []*string, bad []types.BatchResultErrorEntry) []*failure {
	fails := slices.Repeat([]*failure{{class: temporary, code: "NoAnswer", err: errors.New("the answer does not mention the entry"), silent: true}}, n)
	set := func(id *string, f *failure) {
		if i, err := strconv.Atoi(deref(id)); err == nil && i >= 0 && i < n {
			fails[i] = f
		}
	}
	for _, id := range ok {
		set(id, nil)
	}
	for _, e := range bad {
		set(e.Id, failedEntry(e))
	}
	return fails
}
