package sealed

import (
	"context"
	"slices"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// Store is a ledger whose bodies are sealed. Make one with Wrap.
type Store struct {
	ledger.Store
	keys *Keys
}

// Wrap puts keys before a ledger. With none in them it is still of use: what others sealed is ErrKey
// then, and not a result.
//
// The largest body is smaller than ledger.MaxBody by what sealing adds, less than ledger.WrapRoom.
func Wrap(s ledger.Store, k *Keys) *Store { return &Store{s, k} }

// Unwrap returns the ledger behind the keys.
func (s *Store) Unwrap() ledger.Store { return s.Store }

// Claim implements ledger.Ledger. A saved result that does not open is told without its body: whoever
// acknowledges a duplicate needs none, and Job says why.
func (s *Store) Claim(ctx context.Context, r ledger.Request) (ledger.Claimed, error) {
	r.Input = s.keys.seal(inputPlace(r.Key, r.InputHash), r.Input)
	c, err := s.Store.Claim(ctx, r)
	if err == nil && c.Result != nil && c.Result.Body != nil {
		c.Result.Body, _ = s.keys.open(resultPlace(r.Key, c.Result.ID), c.Result.Body)
	}
	return c, err
}

// Look implements ledger.Ledger.
func (s *Store) Look(ctx context.Context, l ledger.Lease, c ledger.CallRef) (ledger.Looked, error) {
	k, err := s.Store.Look(ctx, l, c)
	if err != nil || k.Answer == nil {
		return k, err
	}
	r := &k.Answer.Response
	r.Body, err = s.keys.open(answerPlace(l.Key.Tenant, l.Job, k.Answer.Attempt, r.Codec), r.Body)
	if err != nil {
		return ledger.Looked{}, err
	}
	return k, nil
}

// Settle implements ledger.Ledger.
func (s *Store) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	if e.Response != nil {
		codec := ledger.Text(e.Response.Codec) // as it will be read
		body := e.Response.Body
		if body == nil {
			body = []byte{}
		}
		e.Response = &ledger.Response{Codec: codec, Body: s.keys.seal(answerPlace(id.Tenant, id.Job, id.ID, codec), body)}
	}
	return s.Store.Settle(ctx, id, e)
}

// Complete implements ledger.Ledger.
func (s *Store) Complete(ctx context.Context, l ledger.Lease, r ledger.Result) error {
	if err := r.CheckMessages(); err != nil {
		return err // sealed, nothing is empty
	}
	if r.Body == nil {
		r.Body = []byte{}
	}
	r.Body = s.keys.seal(resultPlace(l.Key, r.ID), r.Body)
	r.Steps = slices.Clone(r.Steps)
	for i := range r.Steps {
		step := &r.Steps[i]
		step.Input = s.keys.seal(inputPlace(step.Key, step.InputHash), step.Input)
	}
	r.Messages = slices.Clone(r.Messages)
	for i := range r.Messages {
		m := &r.Messages[i]
		m.Body = s.keys.seal(messagePlace(ledger.OutgoingID{Tenant: l.Key.Tenant, Job: l.Job, Result: r.ID, N: i + 1}), m.Body)
	}
	return s.Store.Complete(ctx, l, r)
}

// Submit implements ledger.Submitter.
func (s *Store) Submit(ctx context.Context, all ...ledger.Submission) ([]ledger.Submitted, error) {
	all = slices.Clone(all)
	for i := range all {
		all[i] = s.Seal(all[i])
	}
	return s.Store.Submit(ctx, all...)
}

// Seal implements ledger.Submitter.
func (s *Store) Seal(j ledger.Submission) ledger.Submission {
	j.Input = s.keys.seal(inputPlace(j.Key, j.InputHash), j.Input)
	return j
}

// TakeMessages implements ledger.Outbox.
func (s *Store) TakeMessages(ctx context.Context, n int, hold time.Duration) ([]ledger.Outgoing, error) {
	all, err := s.Store.TakeMessages(ctx, n, hold)
	for i := range all {
		m := &all[i]
		if m.Fault == nil {
			m.Body, m.Fault = s.keys.open(messagePlace(m.ID), m.Body)
		}
	}
	return all, err
}

// Due implements ledger.Reconciler.
func (s *Store) Due(ctx context.Context, n int, grace time.Duration, actions ...string) ([]ledger.Stored, error) {
	due, err := s.Store.Due(ctx, n, grace, actions...)
	for i := range due {
		d := &due[i]
		if d.Fault == nil {
			d.Input, d.Fault = s.keys.open(inputPlace(d.Key, d.InputHash), d.Input)
		}
	}
	return due, err
}

// Adopt implements ledger.Reconciler.
func (s *Store) Adopt(ctx context.Context, a ledger.Adoption) ([]ledger.Adopted, error) {
	adopted, err := s.Store.Adopt(ctx, a)
	for i := range adopted {
		j := &adopted[i]
		if j.Input != nil {
			j.Input, j.Fault = s.keys.open(inputPlace(j.Lease.Key, j.InputHash), j.Input)
		}
	}
	return adopted, err
}

// Job implements ledger.Reader.
func (s *Store) Job(ctx context.Context, k ledger.Key) (ledger.Job, error) {
	j, err := s.Store.Job(ctx, k)
	if err == nil && j.Result != nil {
		j.Result.Body, err = s.keys.open(resultPlace(k, j.Result.ID), j.Result.Body)
	}
	for i := range j.Earlier {
		if r := &j.Earlier[i].Result; err == nil {
			r.Body, err = s.keys.open(resultPlace(k, r.ID), r.Body)
		}
	}
	if err != nil {
		return ledger.Job{}, err
	}
	return j, nil
}

// Answer implements ledger.Reader.
func (s *Store) Answer(ctx context.Context, id ledger.AttemptID) (ledger.Response, error) {
	r, err := s.Store.Answer(ctx, id)
	if err != nil {
		return r, err
	}
	r.Body, err = s.keys.open(answerPlace(id.Tenant, id.Job, id.ID, r.Codec), r.Body)
	if err != nil {
		return ledger.Response{}, err
	}
	return r, nil
}
