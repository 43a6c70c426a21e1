package mortal

import (
	"context"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/broker"
)

// source is a source whose process may be frozen or killed.
type source struct {
	broker.Source
	n     *Node
	watch func(*Node, Op, bool) bool
}

// told tells whoever watches.
func (s source) told(verb string, arg any, after bool, err error) (lost bool) {
	return s.watch != nil && s.watch(s.n, Op{Verb: verb, Arg: arg, Err: err}, after)
}

// Receive takes nothing once the process stands still.
func (s source) Receive(ctx context.Context, n int) ([]broker.Delivery, error) {
	if !s.n.runs() {
		return nil, errGone
	}
	rctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.n.mu.Lock()
	stop := context.AfterFunc(s.n.awake, cancel)
	s.n.mu.Unlock()
	defer stop()
	ds, err := s.Source.Receive(rctx, n)
	if err != nil && rctx.Err() != nil && ctx.Err() == nil {
		s.n.runs()
		return nil, fmt.Errorf("the process stood still: %w", broker.ErrUnavailable)
	}
	if err == nil {
		s.told("receive", ds, true, nil)
	}
	return ds, err
}

func (s source) settle(verb string, d broker.Delivery, do func() error) error {
	lost := s.told(verb, d, false, nil)
	if !s.n.runs() {
		return broker.ErrNotHeld
	}
	var err error
	if !lost {
		err = do()
	}
	s.told(verb, d, true, err)
	if !s.n.runs() {
		return broker.ErrNotHeld
	}
	return err
}

func (s source) Ack(ctx context.Context, d broker.Delivery) error {
	return s.settle("ack", d, func() error { return s.Source.Ack(ctx, d) })
}

func (s source) Nack(ctx context.Context, d broker.Delivery, delay time.Duration) error {
	return s.settle("nack", d, func() error { return s.Source.Nack(ctx, d, delay) })
}

func (s source) DeadLetter(ctx context.Context, d broker.Delivery, reason string) error {
	return s.settle("dead_letter", d, func() error { return s.Source.DeadLetter(ctx, d, reason) })
}

func (s source) Extend(ctx context.Context, d broker.Delivery, by time.Duration) (time.Time, error) {
	if !s.n.runs() {
		return time.Time{}, broker.ErrNotHeld
	}
	return s.Source.Extend(ctx, d, by)
}

// publisher is a publisher whose process may be frozen or killed.
type publisher struct {
	broker.Publisher
	n *Node
}

func (p publisher) Publish(ctx context.Context, ms ...broker.Message) error {
	if !p.n.runs() {
		return broker.ErrUnavailable
	}
	err := p.Publisher.Publish(ctx, ms...)
	if !p.n.runs() {
		return broker.ErrUnavailable
	}
	return err
}
