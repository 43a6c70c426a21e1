package rabbitmq

import (
	"context"
	"fmt"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/paidonce/paidonce/broker"
)

// publishing is one session of the publisher: a connection and its channel.
type publishing struct {
	p    *publisher
	link *link
	ch   *amqp.Channel

	returns      chan amqp.Return
	chClosed     chan *amqp.Error
	outcomes     chan outcome
	over         chan struct{} // closed with the session
	pending      []pending
	returned     map[string]int // returns seen whose confirms are still to come, by returnKey
	blockedSince time.Time      // zero: not blocked
	blockedBy    string
	redeclare    bool
	confirmedAny bool
}

// pending is a publication that waits for its confirm.
type pending struct {
	*publication
	confirm *amqp.DeferredConfirmation
}

// outcome says that the confirm of a publication has come.
type outcome struct{ p pending }

// init prepares the queues and opens the channel.
func (s *publishing) init(ctx context.Context) error {
	if s.p.b.cfg.Declare {
		// Whoever may not declare finds out by a return that a queue is not there.
		if err := s.p.b.prepare(ctx, s.link); err != nil {
			return err
		}
	}
	return s.link.do(ctx, callLimit, func() (err error) {
		if s.ch, err = s.link.conn.Channel(); err != nil {
			return err
		}
		s.returns = s.ch.NotifyReturn(make(chan amqp.Return, maxUnconfirmed))
		s.chClosed = s.ch.NotifyClose(make(chan *amqp.Error, 1))
		return s.ch.Confirm(false)
	})
}

// serve publishes until the session ends, and says why it did.
func (s *publishing) serve(ctx context.Context) error {
	defer s.end()
	stop := context.AfterFunc(ctx, s.link.kill) // a write may be stuck
	defer stop()
	for {
		requests, stopping := s.p.requests, s.p.stopping
		if len(s.pending) >= maxUnconfirmed {
			requests = nil
		}
		select {
		case r := <-requests:
			s.send(r)
		case o := <-s.outcomes:
			s.settle(o.p)
		case r, ok := <-s.returns:
			if !ok {
				s.returns = nil // the channel is gone; chClosed says why
				continue
			}
			s.note(r)
		case bl, ok := <-s.link.blocked:
			if !ok {
				s.link.blocked = nil // the connection is gone, which is no end of an alarm
				continue
			}
			s.block(bl)
		case err := <-s.link.closed:
			return lost(LostConnection, err)
		case err := <-s.chClosed:
			return s.link.channelLost(err)
		case <-stopping:
			return s.drain()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if s.redeclare && s.blockedSince.IsZero() {
			s.redeclare = false
			if err := s.p.b.prepare(ctx, s.link); err != nil {
				return err
			}
		}
	}
}

// send writes r, unless there is a reason not to. The write is bounded by the
// socket's deadline.
func (s *publishing) send(r *publication) {
	limit := s.p.b.cfg.maxBody(s.link.version)
	switch {
	case r.ctx.Err() != nil:
		r.done <- fmt.Errorf("not sent: %w: %w", broker.ErrUnavailable, context.Cause(r.ctx))
		return
	case len(r.msg.Body) > limit:
		r.done <- tooLarge(len(r.msg.Body), limit)
		return
	case !s.blockedSince.IsZero():
		r.done <- fmt.Errorf("not sent: the broker blocks publishing (%s): %w", s.blockedBy, broker.ErrUnavailable)
		return
	}
	dc, err := s.ch.PublishWithDeferredConfirm("", r.queue, true, false, r.msg)
	if err != nil {
		r.done <- fmt.Errorf("%w: %w", broker.ErrUnavailable, s.p.b.cfg.secrets.error(err))
		s.link.kill() // a part of it may be on the wire
		return
	}
	p := pending{r, dc}
	s.pending = append(s.pending, p)
	go func() {
		<-dc.Done() // also when the channel is lost
		select {
		case s.outcomes <- outcome{p}:
		case <-s.over:
		}
	}()
}

// settle tells a publication what became of it. The return of a message that no
// queue took comes before its confirm, which is an ack all the same.
func (s *publishing) settle(p pending) {
	for {
		select {
		case r, ok := <-s.returns:
			if ok {
				s.note(r)
				continue
			}
			s.returns = nil
		default:
		}
		break
	}
	s.pending = slices.DeleteFunc(s.pending, func(q pending) bool { return q.publication == p.publication })
	key := returnKey(p.queue, p.msg.MessageId)
	switch {
	case s.returned[key] > 0:
		if s.returned[key]--; s.returned[key] == 0 {
			delete(s.returned, key)
		}
		s.redeclare = s.redeclare || s.p.b.cfg.Declare && !p.reply
		p.done <- fmt.Errorf("queue does not exist: %w", broker.ErrUnroutable)
	case p.confirm.Acked():
		s.confirmedAny = true
		p.done <- nil
	default:
		// A broker's nack and a lost channel look the same.
		p.done <- fmt.Errorf("not confirmed, stored or not: %w", broker.ErrUnavailable)
	}
}

func (s *publishing) note(r amqp.Return) {
	s.p.b.count(func(st *status) { st.Returned++ })
	s.returned[returnKey(r.RoutingKey, r.MessageId)]++
}

// returnKey names a publication in a return. Of two with the same key neither or
// both find their queue, so they need not be told apart.
func returnKey(queue, id string) string { return queue + "\x00" + id }

func (s *publishing) block(bl amqp.Blocking) {
	s.unblock()
	if bl.Active {
		s.blockedSince, s.blockedBy = time.Now(), s.p.b.cfg.secrets.text(bl.Reason)
		s.p.b.cfg.Logger.Warn("broker blocks publishing", "reason", s.blockedBy)
	} else {
		s.p.b.cfg.Logger.Info("broker takes messages again")
	}
	s.p.b.count(func(st *status) { st.Blocked, st.BlockedReason = bl.Active, s.blockedBy })
}

// unblock counts the time of an alarm that ended, or whose connection did.
func (s *publishing) unblock() {
	if s.blockedSince.IsZero() {
		return
	}
	s.p.b.count(func(st *status) { st.Blocked = false; st.BlockedFor += time.Since(s.blockedSince) })
	s.blockedSince = time.Time{}
}

// drain waits for the confirms of what was sent, for as long as Close may take and
// somebody waits for them.
func (s *publishing) drain() error {
	ctx := s.p.closing
	for slices.ContainsFunc(s.pending, func(p pending) bool { return p.ctx.Err() == nil }) {
		select {
		case o := <-s.outcomes:
			s.settle(o.p)
		case err := <-s.link.closed:
			return lost(LostConnection, err)
		case err := <-s.chClosed:
			return s.link.channelLost(err)
		case <-ctx.Done():
			return broker.ErrClosed
		}
	}
	if s.blockedSince.IsZero() { // a blocked connection does not answer a close
		s.link.close(ctx)
	}
	return broker.ErrClosed
}

// end settles what can still be known, and leaves the rest unknown.
func (s *publishing) end() {
	close(s.over)
	for _, p := range slices.Clone(s.pending) {
		s.settle(p)
	}
	s.unblock()
	s.link.kill()
	s.p.b.count(func(st *status) { st.publisherUp = false })
}
