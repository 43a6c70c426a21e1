package mortal

import (
	"context"
	"errors"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// store is a ledger whose client may be stopped before what it asks about a job arrives, or before the answer does.
type store struct {
	ledger.Store
	n     *Node
	fate  Fate // nil: it lives
	watch func(*Node, Op, bool) bool
}

// ask does what a process asks of the ledger, if it still can, and answers if it still listens.
func ask[T any](s store, op Op, do func() (T, error)) (T, error) {
	var none T
	after := false
	if s.watch != nil {
		s.watch(s.n, op, false)
	}
	if s.fate != nil && !s.n.Gone() {
		after = s.fate(s.n, op.Verb)
	}
	if !s.n.runs() {
		return none, errGone
	}
	v, err := do()
	if s.watch != nil {
		op.Err = err
		s.watch(s.n, op, true)
	}
	if after {
		s.n.Kill()
	}
	if !s.n.runs() {
		return none, errGone
	}
	return v, err
}

func (s store) Claim(ctx context.Context, r ledger.Request) (ledger.Claimed, error) {
	op := Op{Verb: "claim", Key: r.Key, Arg: r}
	return ask(s, op, func() (ledger.Claimed, error) { return s.Store.Claim(ctx, r) })
}

func (s store) Look(ctx context.Context, l ledger.Lease, c ledger.CallRef) (ledger.Looked, error) {
	op := Op{Verb: "look", Key: l.Key, Arg: c, Fence: l.Fence}
	return ask(s, op, func() (ledger.Looked, error) { return s.Store.Look(ctx, l, c) })
}

func (s store) Send(ctx context.Context, l ledger.Lease, a ledger.Attempt) error {
	op := Op{Verb: "send", Key: l.Key, Arg: a, Fence: l.Fence}
	_, err := ask(s, op, func() (int, error) { return 0, s.Store.Send(ctx, l, a) })
	return err
}

func (s store) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	op := Op{Verb: "settle", Arg: Settling{id, e}}
	return ask(s, op, func() (ledger.Settled, error) { return s.Store.Settle(ctx, id, e) })
}

func (s store) Complete(ctx context.Context, l ledger.Lease, r ledger.Result) error {
	op := Op{Verb: "complete", Key: l.Key, Arg: r, Fence: l.Fence}
	_, err := ask(s, op, func() (int, error) { return 0, s.Store.Complete(ctx, l, r) })
	return err
}

func (s store) Apply(ctx context.Context, l ledger.Lease, attempt ledger.ID, work ledger.Hook) error {
	op := Op{Verb: "apply", Key: l.Key, Arg: attempt, Fence: l.Fence}
	_, err := ask(s, op, func() (int, error) { return 0, s.Store.Apply(ctx, l, attempt, work) })
	return err
}

func (s store) Release(ctx context.Context, l ledger.Lease, o ledger.Outcome) (ledger.Released, error) {
	op := Op{Verb: "release", Key: l.Key, Arg: o, Fence: l.Fence}
	return ask(s, op, func() (ledger.Released, error) { return s.Store.Release(ctx, l, o) })
}

// What is not about one job kills nobody, and reaches nobody from a dead process.

func alive[T any](s store, do func() (T, error)) (T, error) {
	var none T
	if !s.n.runs() {
		return none, errGone
	}
	v, err := do()
	if !s.n.runs() {
		return none, errGone
	}
	return v, err
}

func (s store) Join(ctx context.Context, w ledger.Worker) (ledger.WorkerID, error) {
	id, err := alive(s, func() (ledger.WorkerID, error) { return s.Store.Join(ctx, w) })
	if err == nil {
		s.n.mu.Lock()
		s.n.worker = id
		s.n.mu.Unlock()
	}
	return id, err
}

func (s store) Renew(ctx context.Context, id ledger.WorkerID, ttl time.Duration) (ledger.Renewed, error) {
	return alive(s, func() (ledger.Renewed, error) { return s.Store.Renew(ctx, id, ttl) })
}

func (s store) Flagged(ctx context.Context, id ledger.WorkerID) ([]ledger.Key, error) {
	return alive(s, func() ([]ledger.Key, error) { return s.Store.Flagged(ctx, id) })
}

func (s store) Leave(ctx context.Context, id ledger.WorkerID) error {
	_, err := alive(s, func() (int, error) { return 0, s.Store.Leave(ctx, id) })
	return err
}

func (s store) Sweep(ctx context.Context, n int) (ledger.Swept, error) {
	return alive(s, func() (ledger.Swept, error) { return s.Store.Sweep(ctx, n) })
}

func (s store) Due(ctx context.Context, n int, grace time.Duration, actions ...string) ([]ledger.Stored, error) {
	return alive(s, func() ([]ledger.Stored, error) { return s.Store.Due(ctx, n, grace, actions...) })
}

func (s store) Adopt(ctx context.Context, a ledger.Adoption) ([]ledger.Adopted, error) {
	return alive(s, func() ([]ledger.Adopted, error) { return s.Store.Adopt(ctx, a) })
}

func (s store) Resolve(ctx context.Context, r ledger.Resolution) (ledger.Released, error) {
	return alive(s, func() (ledger.Released, error) { return s.Store.Resolve(ctx, r) })
}

func (s store) Replay(ctx context.Context, l ledger.Lease, p ledger.ReplayPolicy) error {
	_, err := alive(s, func() (int, error) { return 0, s.Store.Replay(ctx, l, p) })
	return err
}

func (s store) Carry(ctx context.Context, l ledger.Lease) error {
	_, err := alive(s, func() (int, error) { return 0, s.Store.Carry(ctx, l) })
	return err
}

func (s store) Count(ctx context.Context, id ledger.WorkerID, batch ledger.ID, all []ledger.Avoided) error {
	_, err := alive(s, func() (int, error) { return 0, s.Store.Count(ctx, id, batch, all) })
	return err
}

func (s store) TakeMessages(ctx context.Context, n int, hold time.Duration) ([]ledger.Outgoing, error) {
	return alive(s, func() ([]ledger.Outgoing, error) { return s.Store.TakeMessages(ctx, n, hold) })
}

func (s store) DropMessages(ctx context.Context, ids []ledger.OutgoingID) error {
	_, err := alive(s, func() (int, error) { return 0, s.Store.DropMessages(ctx, ids) })
	return err
}

func (s store) Job(ctx context.Context, k ledger.Key) (ledger.Job, error) {
	return alive(s, func() (ledger.Job, error) { return s.Store.Job(ctx, k) })
}

var errGone = errors.New("this process was killed")
