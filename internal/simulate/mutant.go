package simulate

import (
	"context"
	"slices"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/ledger"
)

// mutant is what is wrong with a world, so that the checker has something to see. The zero value: nothing is.
type mutant struct {
	name   string
	from   uint64 // a seed from which on it is seen soon; 0: from the first
	table  func() (undo func())
	store  func(ledger.Store) ledger.Store
	source func(*world, broker.Source) broker.Source
}

// without takes a guard out of a row of the table of transitions, which the memory ledger goes by.
func without(row, guard string) mutant {
	return mutant{name: row + " without " + guard, table: func() func() {
		for _, t := range ledger.Transitions() {
			for g := range t.Guards {
				if held := t.Guards[g].Holds; t.ID == row && t.Guards[g].Name == guard {
					t.Guards[g].Holds = func(ledger.Facts) bool { return true }
					return func() { t.Guards[g].Holds = held }
				}
			}
		}
		panic("simulate: no guard " + guard + " in " + row)
	}}
}

// ignoring has a state of attempts settled in vain.
func ignoring(state ledger.AttemptState) mutant {
	return mutant{name: "a settle that forgets what is " + string(state), store: func(s ledger.Store) ledger.Store { return forgetful{s, state} }}
}

type forgetful struct {
	ledger.Store
	state ledger.AttemptState
}

func (s forgetful) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	if e.State == s.state {
		return ledger.Settled{Job: ledger.Running}, nil
	}
	return s.Store.Settle(ctx, id, e)
}

// early acknowledges what it hands out.
type early struct {
	broker.Source
	w *world
}

func (s early) Receive(ctx context.Context, n int) ([]broker.Delivery, error) {
	ds, err := s.Source.Receive(ctx, n)
	for _, d := range ds {
		s.w.acks(d)
		if err := s.Source.Ack(ctx, d); err != nil {
			return nil, err
		}
	}
	return ds, err
}

// blind does not see attempts that are open, nor, with them, that their job must not be taken over.
type blind struct{ ledger.Store }

func (s blind) Claim(ctx context.Context, r ledger.Request) (ledger.Claimed, error) {
	j, err := s.Store.Job(ctx, r.Key)
	if err == nil && j.State == ledger.Unknown {
		for _, a := range j.Attempts {
			if a.State == ledger.Sent {
				_, _ = s.Settle(ctx, ledger.AttemptID{Tenant: r.Key.Tenant, Job: j.ID, ID: a.ID}, ledger.Evidence{State: ledger.NotSent, By: ledger.BySender})
			}
		}
	}
	return s.Store.Claim(ctx, r)
}

// usurper takes jobs over from owners that live.
type usurper struct{ ledger.Store }

func (s usurper) Claim(ctx context.Context, r ledger.Request) (ledger.Claimed, error) {
	c, err := s.Store.Claim(ctx, r)
	if err != nil || c.Verdict != ledger.Busy {
		return c, err
	}
	j, err := s.Store.Job(ctx, r.Key)
	if err == nil {
		err = s.Leave(ctx, j.Owner)
	}
	if err != nil {
		return c, err
	}
	return s.Store.Claim(ctx, r)
}

// hasty believes a lookup at once.
type hasty struct{ ledger.Store }

func (s hasty) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	if e.By == ledger.ByReconciler {
		e.SettleWindow = time.Nanosecond
	}
	return s.Store.Settle(ctx, id, e)
}

// openGate lets some calls through the gate without a mark.
type openGate struct{ ledger.Store }

func (s openGate) Send(ctx context.Context, l ledger.Lease, a ledger.Attempt) error {
	if a.Call.Name == "a" {
		return nil
	}
	return s.Store.Send(ctx, l, a)
}

// amnesiac does not look answers up.
type amnesiac struct{ ledger.Store }

func (s amnesiac) Look(ctx context.Context, l ledger.Lease, c ledger.CallRef) (ledger.Looked, error) {
	k, err := s.Store.Look(ctx, l, c)
	k.Answer, k.Open = nil, 0
	return k, err
}

// doubling does the user's work twice.
type doubling struct{ ledger.Store }

func (s doubling) Complete(ctx context.Context, l ledger.Lease, r ledger.Result) error {
	r.Hooks = slices.Concat(r.Hooks, r.Hooks)
	return s.Store.Complete(ctx, l, r)
}

// losing drops what the outbox was to publish.
type losing struct{ ledger.Store }

func (s losing) Complete(ctx context.Context, l ledger.Lease, r ledger.Result) error {
	r.Messages = nil
	return s.Store.Complete(ctx, l, r)
}

func late(m mutant, from uint64) mutant { m.from = from; return m }

// mutants break one rule each.
func mutants() []mutant {
	wrap := func(name string, f func(ledger.Store) ledger.Store) mutant { return mutant{name: name, store: f} }
	return []mutant{
		{name: "acks before the job is done", source: func(w *world, s broker.Source) broker.Source { return early{s, w} }},
		ignoring(ledger.Received),
		ignoring(ledger.NotSent),
		wrap("a claim that runs what is unknown", func(s ledger.Store) ledger.Store { return blind{s} }),
		late(wrap("a claim that takes over from the living", func(s ledger.Store) ledger.Store { return usurper{s} }), 50),
		wrap("a lookup that is believed at once", func(s ledger.Store) ledger.Store { return hasty{s} }),
		wrap("a gate without a mark", func(s ledger.Store) ledger.Store { return openGate{s} }),
		wrap("a look that sees no answer", func(s ledger.Store) ledger.Store { return amnesiac{s} }),
		wrap("a commit that does the user's work twice", func(s ledger.Store) ledger.Store { return doubling{s} }),
		late(wrap("a result that loses its messages", func(s ledger.Store) ledger.Store { return losing{s} }), 60),
		without("J9", "definite"),
	}
}
