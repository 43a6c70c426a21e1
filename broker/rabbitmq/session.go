package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/paidonce/paidonce/broker"
)

const (
	// maxLinger is how long a prefetched delivery waits for a Receive.
	maxLinger = 2 * time.Second
	// maxTick is how often a session looks for what waits or is held for too long.
	maxTick = 500 * time.Millisecond
	// flushTime lets the last acks overtake the close that follows them: a
	// quorum queue drops those still on their way inside the broker.
	flushTime = 50 * time.Millisecond
)

// session is one channel and what is held on it. Its end takes back everything:
// tags begin at 1 again on the next channel, so nothing of it may be settled there.
type session struct {
	c          *consumer
	link       *link
	ch         *amqp.Channel
	generation int64
	receipts   string // begins those of its deliveries
	chClosed   chan *amqp.Error
	cancels    chan string   // subscriptions that the broker ended
	lost       chan struct{} // a pump ended without our asking
	dead       chan struct{} // closed at the end
	delivered  atomic.Bool
	writes     chan writing // what settles deliveries, for write

	sub    *subscription    // nil while nobody wants anything; written by supervise, under c.mu
	serial int              // of subscriptions
	held   map[uint64]*held // by tag, under c.mu
}

// receipt names the delivery with that tag.
func (s *session) receipt(tag uint64) string { return s.receipts + strconv.FormatUint(tag, 10) }

// named is what a receipt names, nil if it is not held here. c.mu is held.
func (s *session) named(receipt string) *held {
	number, ours := strings.CutPrefix(receipt, s.receipts)
	tag, err := strconv.ParseUint(number, 10, 64)
	if !ours || err != nil {
		return nil
	}
	return s.held[tag]
}

// subscription is one consumer tag. The broker sends up to window deliveries
// that are not settled yet.
type subscription struct {
	tag      string
	window   int
	out      int // not settled, under c.mu
	ending   atomic.Bool
	finished chan struct{} // closed when everything that was prefetched has arrived
}

// run keeps the session going until it ends, and says why it did: ErrClosed after
// an orderly close.
func (s *session) run(ctx context.Context) error {
	t := time.NewTicker(min(maxTick, s.c.b.cfg.AckTimeout/20))
	defer t.Stop()
	for {
		err := s.match(ctx)
		if err != nil {
			return s.why(ctx, err)
		}
		select {
		case <-s.c.stopping:
			s.c.closeErr = s.shutdown(s.c.closing)
			return broker.ErrClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		case e := <-s.link.closed:
			return lost(LostConnection, e)
		case e := <-s.chClosed:
			return s.channelLost(e)
		case _, ok := <-s.cancels:
			if ok {
				return s.cancelled(ctx)
			}
			s.cancels = nil // the channel is gone; chClosed says why
		case <-s.lost:
			return s.why(ctx, errors.New("deliveries ended"))
		case _, ok := <-s.link.blocked: // publishing is blocked, and this connection does not publish
			if !ok {
				s.link.blocked = nil
			}
		case <-s.c.wake:
		case <-t.C:
			err = s.tidy(ctx)
		}
		if err != nil {
			return s.why(ctx, err)
		}
	}
}

// why finds the reason behind an error of a call, if the driver has told one.
func (s *session) why(ctx context.Context, err error) error {
	select {
	case e := <-s.link.closed:
		return lost(LostConnection, e)
	case e := <-s.chClosed:
		return s.channelLost(e)
	case _, ok := <-s.cancels:
		if ok {
			return s.cancelled(ctx)
		}
	default:
	}
	if s.link.conn.IsClosed() {
		return &lostError{LostConnection, err}
	}
	return &lostError{LostChannel, err}
}

// channelLost tells the deaths of a channel apart. One code stands for several.
func (s *session) channelLost(e *amqp.Error) error {
	if e != nil && e.Code == amqp.PreconditionFailed && strings.Contains(e.Reason, "timed out") {
		return lost(LostAckTimeout, e)
	}
	return s.link.channelLost(e)
}

// cancelled is told by the broker that the subscription is no more: the queue was
// deleted, or (from RabbitMQ 4.3) a delivery was held for too long. The channel is
// open still, but gets nothing until its old deliveries are settled; a new one does.
func (s *session) cancelled(ctx context.Context) error {
	err := s.link.do(ctx, callLimit, func() error {
		ch, err := s.link.conn.Channel()
		if err != nil {
			return err
		}
		if _, err := ch.QueueDeclarePassive(s.c.b.cfg.Queue, true, false, false, false, nil); err != nil {
			return err
		}
		return ch.Close()
	})
	if err != nil {
		return &lostError{LostQueue, fmt.Errorf("subscription ended by the broker: %w", err)}
	}
	return &lostError{LostAckTimeout, errors.New("subscription ended by the broker, the queue exists")}
}

// match makes the subscription fit those who wait. It asks for as many as may be
// held; deliveries that an earlier subscription got and that are not settled yet
// do not count in the broker's window, so the window is made smaller by them.
func (s *session) match(ctx context.Context) error {
	c := s.c
	c.mu.Lock()
	lacking, room := s.lacking(), s.room()
	quit := c.quit
	c.mu.Unlock()
	switch {
	case quit && s.sub != nil:
		return s.suspend(ctx)
	case !lacking:
		return nil
	case s.sub != nil:
		if err := s.unsubscribe(ctx); err != nil {
			return err
		}
	}
	return s.subscribe(ctx, room)
}

// lacking says whether those who wait need another subscription than there is: none is there, or the broker sends
// nothing more on it although more may be held. c.mu is held.
func (s *session) lacking() bool {
	return s.c.waiting > 0 && len(s.c.buffer) == 0 && s.room() > 0 && (s.sub == nil || s.sub.out >= s.sub.window)
}

// room is how many more may be held. c.mu is held.
func (s *session) room() int { return s.c.b.cfg.Prefetch - len(s.held) }

func (s *session) subscribe(ctx context.Context, window int) error {
	s.serial++
	sub := &subscription{tag: fmt.Sprintf("paidonce-%s-%d-%d", s.c.id, s.generation, s.serial), window: window, finished: make(chan struct{})}
	err := s.link.do(ctx, callLimit, func() error {
		// Not global: a quorum queue answers that by closing the connection.
		if err := s.ch.Qos(window, 0, false); err != nil {
			return err
		}
		ds, err := s.ch.Consume(s.c.b.cfg.Queue, sub.tag, false, false, false, false, nil)
		if err != nil {
			return err
		}
		s.set(sub)
		go s.pump(sub, ds)
		return nil
	})
	if err != nil {
		return fmt.Errorf("subscribe to %s: %w", s.c.b.cfg.Queue, err)
	}
	return nil
}

// pump takes deliveries as soon as they are there, so that the time they wait here
// is known.
func (s *session) pump(sub *subscription, ds <-chan amqp.Delivery) {
	defer close(sub.finished)
	for d := range ds {
		s.arrive(sub, d)
	}
	if !sub.ending.Load() {
		select {
		case s.lost <- struct{}{}:
		default:
		}
	}
}

func (s *session) arrive(sub *subscription, d amqp.Delivery) {
	c := s.c
	h := &held{original: originalOf(&d), session: s, sub: sub, tag: d.DeliveryTag, arrived: time.Now()}
	s.delivered.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != s {
		return // the broker has it back already
	}
	sub.out++
	s.held[h.tag] = h
	c.buffer = append(c.buffer, h)
	if c.waiting > 0 && len(c.buffer) == 1 { // for what is there already they have been woken
		c.broadcast()
	}
}

// unsubscribe ends the subscription and returns when everything that the broker had
// sent on it has arrived. Deliveries stay held.
func (s *session) unsubscribe(ctx context.Context) error {
	sub := s.sub
	sub.ending.Store(true)
	if err := s.link.do(ctx, callLimit, func() error { return s.ch.Cancel(sub.tag, false) }); err != nil {
		return fmt.Errorf("unsubscribe: %w", err)
	}
	<-sub.finished
	s.set(nil)
	return nil
}

func (s *session) set(sub *subscription) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.sub = sub
	s.c.lookIfLacking() // somebody may have begun to wait since
}

// suspend gives back what nobody has received, and asks for nothing until somebody
// does: what waits should wait in the queue, where others see it.
func (s *session) suspend(ctx context.Context) error {
	if err := s.unsubscribe(ctx); err != nil {
		return err
	}
	c := s.c
	c.mu.Lock()
	back := c.buffer
	c.buffer = nil
	for _, h := range back {
		h.forget()
	}
	c.mu.Unlock()
	return s.requeue(ctx, back)
}

func (s *session) requeue(ctx context.Context, hs []*held) error {
	return s.link.do(ctx, callLimit, func() error {
		for _, h := range hs {
			if err := s.ch.Nack(h.tag, false, true); err != nil {
				return fmt.Errorf("give back: %w", err)
			}
		}
		return nil
	})
}

// tidy gives back what is held for too long, and suspends when nobody has received
// for a while although something is there, or could come.
func (s *session) tidy(ctx context.Context) error {
	c := s.c
	limit := time.Now().Add(-c.b.cfg.AckTimeout / 10 * 9)
	var overdue []*held
	c.mu.Lock()
	for _, h := range s.held {
		if h.state != settling && h.arrived.Before(limit) {
			overdue = append(overdue, h)
			h.forget()
		}
	}
	idle := s.sub != nil && c.waiting == 0 && time.Since(c.idleSince) > min(maxLinger, c.b.cfg.AckTimeout/10) && (len(c.buffer) > 0 || s.sub.out < s.sub.window)
	c.mu.Unlock()
	if len(overdue) > 0 {
		c.b.count(func(st *status) { st.Overdue += int64(len(overdue)) })
		c.b.cfg.Logger.Warn("deliveries held for too long were given back", "count", len(overdue), "ack_timeout", c.b.cfg.AckTimeout)
		if err := s.requeue(ctx, overdue); err != nil {
			return err
		}
	}
	if idle {
		return s.suspend(ctx)
	}
	return nil
}

// shutdown is the orderly end of a session and its connection. The acks that were
// written last arrive only if the channel is used once more before it closes.
func (s *session) shutdown(ctx context.Context) error {
	err := s.link.do(ctx, closeLimit, func() error {
		if s.sub != nil {
			if err := s.suspend(ctx); err != nil {
				return err
			}
		}
		if err := s.c.settled(ctx); err != nil {
			return err
		}
		if _, err := s.ch.QueueDeclarePassive(s.c.b.cfg.Queue, true, false, false, false, nil); err != nil {
			return err
		}
		time.Sleep(flushTime)
		return s.ch.Close()
	})
	s.link.close(ctx)
	if err != nil {
		return fmt.Errorf("close the consumer, the last acks may not have arrived: %w", err)
	}
	return nil
}

// settled waits for the calls that settle something.
func (c *consumer) settled(ctx context.Context) error {
	for {
		c.mu.Lock()
		n, changed := c.settling, c.changed
		c.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
