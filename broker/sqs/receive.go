package sqs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/paidonce/paidonce/broker"
)

const (
	// batchSize is how many messages or entries one request carries.
	batchSize = 10
	// linger is how long a message waits here for a Receive.
	linger = 250 * time.Millisecond
	// maxPolls bounds the polls that are open at once.
	maxPolls = 16
	// quick is how soon an empty answer is suspicious: the server should have waited.
	quick = 500 * time.Millisecond
	// attemptLife is how long a FIFO receive may be repeated under its id.
	attemptLife = 4 * time.Minute
)

// waiter is one Receive that waits. answer has room for one; nil says closed.
type waiter struct {
	n      int
	answer chan []broker.Delivery
}

// poll is one receive at SQS, with its repetitions after errors. No caller's context
// reaches it.
type poll struct {
	n       int // messages asked for
	since   time.Time
	attempt string    // ReceiveRequestAttemptId, on a FIFO queue
	began   time.Time // when attempt was first used
}

// Receive takes 1 to n deliveries (n below 1 counts as 1). It asks SQS for as many as are
// wanted and no more; up to ten come with one request, and a second poll is opened only
// when every one comes back full. It waits out everything that goes wrong, with pauses of
// 200 ms to 30 s; State says what that is.
//
// Errors: the cause of ctx, ErrClosed.
func (b *Broker) Receive(ctx context.Context, n int) ([]broker.Delivery, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("receive: %w", context.Cause(ctx))
	}
	w := &waiter{n: max(n, 1), answer: make(chan []broker.Delivery, 1)}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, fmt.Errorf("receive: %w", broker.ErrClosed)
	}
	b.waiters = append(b.waiters, w)
	b.serve()
	b.mu.Unlock()
	select {
	case ds := <-w.answer:
		return answered(ds)
	case <-ctx.Done():
	}
	if b.leave(w) {
		return nil, fmt.Errorf("receive: %w", context.Cause(ctx))
	}
	return answered(<-w.answer) // it came at the same moment
}

func answered(ds []broker.Delivery) ([]broker.Delivery, error) {
	if ds == nil {
		return nil, fmt.Errorf("receive: %w", broker.ErrClosed)
	}
	return ds, nil
}

// leave takes w out of those who wait. It is false when w was answered.
func (b *Broker) leave(w *waiter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, other := range b.waiters {
		if other == w {
			b.waiters = append(b.waiters[:i], b.waiters[i+1:]...)
			return true
		}
	}
	return false
}

// serve hands out what is there to those who wait, and has polls opened for the rest.
// b.mu is held.
func (b *Broker) serve() {
	now := time.Now()
	for len(b.waiters) > 0 && len(b.kept) > 0 {
		w := b.waiters[0]
		var ds []broker.Delivery
		for len(ds) < w.n && len(b.kept) > 0 {
			h := b.kept[0]
			b.kept = b.kept[1:]
			switch {
			case b.holds[h.receipt] != h:
			case h.lapsed(now):
				b.expire(h)
			default:
				h.out = true
				ds = append(ds, b.delivery(h))
			}
		}
		if len(ds) == 0 {
			break
		}
		b.waiters = b.waiters[1:]
		w.answer <- ds
	}
	b.keep()
	b.openPolls()
}

// expire drops a hold that lapsed before anybody had it. b.mu is held.
func (b *Broker) expire(h *hold) {
	if h.group != nil {
		b.lose(h)
		return
	}
	b.forget(h)
}

// offer gives h to the next Receive. b.mu is held.
func (b *Broker) offer(h *hold) {
	if b.holds[h.receipt] != h {
		return
	}
	h.arrived = time.Now()
	b.kept = append(b.kept, h)
	b.serve()
	if b.closed {
		b.releaseAll()
	}
}

// keep makes sure that what no Receive takes is given back. b.mu is held.
func (b *Broker) keep() {
	if b.keeping || len(b.kept) == 0 {
		return
	}
	b.keeping = true
	time.AfterFunc(time.Until(b.kept[0].arrived.Add(linger)), func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.keeping = false
		b.releaseKept(time.Now().Add(-linger))
		b.keep()
	})
}

// releaseKept gives back what has waited since then. b.mu is held.
func (b *Broker) releaseKept(since time.Time) {
	var back []*hold
	for len(b.kept) > 0 && !b.kept[0].arrived.After(since) {
		h := b.kept[0]
		b.kept = b.kept[1:]
		if b.holds[h.receipt] != h {
			continue
		}
		if h.group != nil {
			behind := b.abandon(h)
			b.forget(h)
			b.giveBack(append(behind, h), 0)
			continue
		}
		b.forget(h)
		back = append(back, h)
	}
	b.giveBack(back, 0)
}

// openPolls opens as many polls as those who wait need. b.mu is held.
func (b *Broker) openPolls() {
	if b.closed {
		return
	}
	wanted := b.wants()
	for p := range b.polls {
		wanted -= p.n
	}
	for ; wanted > 0 && len(b.polls) < b.target; wanted -= batchSize {
		p := &poll{n: min(batchSize, wanted), since: time.Now()}
		b.polls[p] = struct{}{}
		b.background(func() { b.poll(p) })
	}
}

// poll receives until an answer came that is worth something, or nobody waits any more.
func (b *Broker) poll(p *poll) {
	for {
		got, err := b.ask(p)
		pause := b.took(p, got, err)
		if pause == 0 {
			return
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-b.stopping:
			t.Stop()
		}
		if !b.wanted(p) {
			return
		}
	}
}

// wanted says whether p shall ask again. If not, it is no poll any more.
func (b *Broker) wanted(p *poll) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiters) == 0 || b.closed {
		delete(b.polls, p)
		return false
	}
	p.since = time.Now()
	if p.attempt == "" { // an attempt is repeated as it was
		p.n = min(p.n, b.wants())
	}
	return true
}

// wants is how many deliveries those who wait want. b.mu is held.
func (b *Broker) wants() (n int) {
	for _, w := range b.waiters {
		n += w.n
	}
	return n
}

// receipts is the answer to one receive. handed is when the server began to answer,
// asked when it was asked.
type receipts struct {
	messages      []types.Message
	asked, handed time.Time
}

// ask makes one request.
func (b *Broker) ask(p *poll) (receipts, error) {
	q, err := b.current(b.polling)
	if err != nil {
		return receipts{}, err
	}
	now := time.Now()
	in := &sqs.ReceiveMessageInput{
		QueueUrl: &q.url, MaxNumberOfMessages: int32(p.n), WaitTimeSeconds: timeout(b.cfg.waitAt(q)),
		VisibilityTimeout:           timeout(b.cfg.Visibility), // 0 is not sent: it would override the queue's own
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		MessageAttributeNames:       []string{"All"},
	}
	if q.fifo {
		// The same id gets the messages of a lost reply again.
		if p.attempt == "" || now.Sub(p.began) > attemptLife {
			p.attempt, p.began = rand.Text(), now
		}
		in.ReceiveRequestAttemptId = &p.attempt
	}
	ctx, cancel := context.WithTimeoutCause(b.polling, b.cfg.Wait+pollGrace, errSilent)
	defer cancel()
	var first atomic.Pointer[time.Time]
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: func() { first.Store(new(time.Now())) }})
	out, err := b.clients.receive.ReceiveMessage(ctx, in)
	if err != nil {
		return receipts{}, failed(err)
	}
	r := receipts{messages: out.Messages, asked: now, handed: time.Now()}
	if t := first.Load(); t != nil { // a large body may have taken its time
		r.handed = *t
	}
	// Nor does the server wait longer than it was asked to. What came after that lay
	// unread, in the network or before a process that was frozen.
	if latest := now.Add(b.cfg.waitAt(q)); passed(latest, r.handed) {
		r.handed = latest
	}
	return r, nil
}

// took records an answer. A pause of 0 ends the poll, else it asks again after it.
func (b *Broker) took(p *poll, got receipts, err error) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.stats.Receives++
	if err != nil {
		b.target = 1
		pause := b.pauses.NextBackOff()
		if f, ok := errors.AsType[*failure](err); ok && f.class == missing {
			b.queue = nil // asked for anew, and made anew where that is allowed
		}
		if b.polling.Err() == nil {
			b.noteLocked("nothing received", err, pause)
		}
		return pause
	}
	b.stats.answered(now)
	if len(got.messages) == 0 {
		b.stats.Empty++
		b.target = 1
		p.attempt = "" // it was answered
		if now.Sub(p.since) < quick {
			return b.pauses.NextBackOff()
		}
	}
	b.pauses.Reset()
	delete(b.polls, p)
	b.arrive(got)
	full := len(got.messages) == p.n
	if b.fulls = b.fulls + 1; !full {
		b.fulls, b.target = 0, 1
	} else if b.fulls >= b.target {
		b.fulls, b.target = 0, min(b.target+1, maxPolls)
	}
	b.serve()
	if b.closed {
		b.releaseAll()
	}
	return 0
}
