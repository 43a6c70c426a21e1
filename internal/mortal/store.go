package mortal

import (
	"context"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/ledger"
)

// source is a source whose process may have been killed.
type source struct {
	broker.Source
	n *Node
}

func (s source) Receive(ctx context.Context, n int) ([]broker.Delivery, error) {
	if s.n.Gone() {
		return nil, errGone
	}
	return s.Source.Receive(ctx, n)
}

func (s source) Ack(ctx context.Context, d broker.Delivery) error {
	if s.n.Gone() {
		return broker.ErrNotHeld
	}
	return s.Source.Ack(ctx, d)
}

func (s source) Nack(ctx context.Context, d broker.Delivery, delay time.Duration) error {
	if s.n.Gone() {
		return broker.ErrNotHeld
	}
	return s.Source.Nack(ctx, d, delay)
}

func (s source) DeadLetter(ctx context.Context, d broker.Delivery, reason string) error {
	if s.n.Gone() {
		return broker.ErrNotHeld
	}
	return s.Source.DeadLetter(ctx, d, reason)
}

// store is a ledger whose client may be killed before what it asks about a job arrives, or before the answer does.
type store struct {
	ledger.Store
	n    *Node
	fate Fate // nil: it lives
}

// ask does what a process asks of the ledger, if it still can, and answers if it still listens.
func ask[T any](s store, verb string, do func() (T, error)) (T, error) {
	var none T
	after := false
	if s.fate != nil && !s.n.Gone() {
		after = s.fate(s.n, verb)
	}
	if s.n.Gone() {
		return none, errGone
	}
	v, err := do()
	if after {
		s.n.Kill()
	}
	if s.n.Gone() {
		return none, errGone
	}
	return v, err
}

func (s store) Claim(ctx context.Context, r ledger.Request) (ledger.Claimed, error) {
	return ask(s, "claim", func() (ledger.Claimed, error) { return s.Store.Claim(ctx, r) })
}

func (s store) Look(ctx context.Context, l ledger.Lease, c ledger.CallRef) (ledger.Looked, error) {
	return ask(s, "look", func() (ledger.Looked, error) { return s.Store.Look(ctx, l, c) })
}

func (s store) Send(ctx context.Context, l ledger.Lease, a ledger.Attempt) error {
	_, err := ask(s, "send", func() (int, error) { return 0, s.Store.Send(ctx, l, a) })
	return err
}

func (s store) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	return ask(s, "settle", func() (ledger.Settled, error) { return s.Store.Settle(ctx, id, e) })
}

func (s store) Complete(ctx context.Context, l ledger.Lease, r ledger.Result) error {
	_, err := ask(s, "complete", func() (int, error) { return 0, s.Store.Complete(ctx, l, r) })
	return err
}

func (s store) Apply(ctx context.Context, l ledger.Lease, attempt ledger.ID, work ledger.Hook) error {
	_, err := ask(s, "apply", func() (int, error) { return 0, s.Store.Apply(ctx, l, attempt, work) })
	return err
}

func (s store) Release(ctx context.Context, l ledger.Lease, o ledger.Outcome) (ledger.Released, error) {
	return ask(s, "release", func() (ledger.Released, error) { return s.Store.Release(ctx, l, o) })
}

// What is not about one job kills nobody, and reaches nobody from a dead process.

func (s store) Renew(ctx context.Context, id ledger.WorkerID, ttl time.Duration) (ledger.Renewed, error) {
	if s.n.Gone() {
		return ledger.Renewed{}, errGone
	}
	return s.Store.Renew(ctx, id, ttl)
}

func (s store) Leave(ctx context.Context, id ledger.WorkerID) error {
	if s.n.Gone() {
		return errGone
	}
	return s.Store.Leave(ctx, id)
}

func (s store) Sweep(ctx context.Context, n int) (ledger.Swept, error) {
	if s.n.Gone() {
		return ledger.Swept{}, errGone
	}
	return s.Store.Sweep(ctx, n)
}

func (s store) Due(ctx context.Context, n int, grace time.Duration, actions ...string) ([]ledger.Stored, error) {
	if s.n.Gone() {
		return nil, errGone
	}
	return s.Store.Due(ctx, n, grace, actions...)
}

func (s store) Adopt(ctx context.Context, a ledger.Adoption) ([]ledger.Adopted, error) {
	if s.n.Gone() {
		return nil, errGone
	}
	return s.Store.Adopt(ctx, a)
}

func (s store) Resolve(ctx context.Context, r ledger.Resolution) (ledger.Released, error) {
	if s.n.Gone() {
		return ledger.Released{}, errGone
	}
	return s.Store.Resolve(ctx, r)
}
