package protocol

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/memory"
)

// TestLedger leads the memory ledger along histories of the model, step by step: what the model explores is what the
// ledger does. The shortest history to each end of each verb, and walks by chance; together they make every transition.
func TestLedger(t *testing.T) {
	walks, worlds := 20, 5_000
	if *deep {
		walks, worlds = 1_000, 100_000
	}
	made := map[string]bool{}
	for i, s := range scenarios {
		t.Run(s.Name, func(t *testing.T) {
			for _, h := range s.histories(t, uint64(i), walks, worlds) {
				for _, s := range h.steps {
					for _, d := range s.deeds {
						made[d.transition()] = true
					}
				}
				if err := led(t, h, memory.New()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	for _, row := range ledger.Transitions() {
		if !made[row.ID] && !t.Failed() {
			t.Errorf("no history makes %s (%s)", row.ID, row.Name)
		}
	}
}

// histories are the shortest to each end of each verb among so many worlds, and walks of the longer scenario.
func (s Scenario) histories(t *testing.T, seed uint64, walks, worlds int) (all []history) {
	t.Helper()
	for end, way := range s.firsts(worlds) {
		h, err := s.along(way)
		if err != nil {
			t.Fatalf("%s: %+v: %v", s.Name, end, err)
		}
		all = append(all, h)
	}
	for i := range walks {
		all = append(all, s.longer().walk(rand.New(rand.NewPCG(seed, uint64(i))), 200))
	}
	return all
}

// led leads a ledger along h, in simulated time.
func led(t *testing.T, h history, l ledger.Store) (err error) {
	synctest.Test(t, func(t *testing.T) { err = h.lead(t.Context(), l) })
	return err
}

// transition is the one that was made; "": none.
func (d deed) transition() string {
	switch {
	case d.got != "":
		return d.got
	case d.guard != "" || d.want != nil:
		return ""
	case d.verb == settles && d.end != received:
		return "J9"
	case d.rule != "":
		return d.rule
	}
	return map[verb]string{sends: "J7", settles: "J8", applies: "J10a", completes: "J10", carries: "JC", adopts: "J14", givesUp: "J17"}[d.verb]
}

// TestLedgerFaults gives the memory ledger a fault, and sees that a history meets it.
func TestLedgerFaults(t *testing.T) {
	var all []history
	for i, s := range scenarios {
		all = append(all, s.histories(t, uint64(i), 2, 5_000)...)
	}
	for name, faulty := range map[string]func(ledger.Store) ledger.Store{
		"a job is due at once":                   func(l ledger.Store) ledger.Store { return hasty{l} },
		"a lookup that came too early proves":    func(l ledger.Store) ledger.Store { return credulous{l} },
		"a policy has one replay more":           func(l ledger.Store) ledger.Store { return generous{l} },
		"a job runs however often its runs died": func(l ledger.Store) ledger.Store { return patient{l} },
		"a late answer is not counted":           func(l ledger.Store) ledger.Store { return deaf{l} },
		"evidence without a lease is dropped":    func(l ledger.Store) ledger.Store { return forgetful{l} },
	} {
		t.Run(name, func(t *testing.T) {
			for _, h := range all {
				if err := led(t, h, faulty(memory.New())); err != nil {
					return
				}
			}
			t.Error("no history meets it")
		})
	}
}

type (
	hasty     struct{ ledger.Store }
	credulous struct{ ledger.Store }
	generous  struct{ ledger.Store }
	patient   struct{ ledger.Store }
	deaf      struct{ ledger.Store }
	forgetful struct{ ledger.Store }
)

func (f hasty) Release(ctx context.Context, l ledger.Lease, o ledger.Outcome) (ledger.Released, error) {
	o.RetryIn = 0
	return f.Store.Release(ctx, l, o)
}

func (f credulous) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	e.SettleWindow = min(e.SettleWindow, 1)
	return f.Store.Settle(ctx, id, e)
}

func (f generous) Replay(ctx context.Context, l ledger.Lease, p ledger.ReplayPolicy) error {
	p.Max++
	return f.Store.Replay(ctx, l, p)
}

func (f patient) Claim(ctx context.Context, r ledger.Request) (ledger.Claimed, error) {
	r.MaxRuns = 0
	return f.Store.Claim(ctx, r)
}

func (f deaf) Look(ctx context.Context, l ledger.Lease, c ledger.CallRef) (ledger.Looked, error) {
	k, err := f.Store.Look(ctx, l, c)
	k.Late = 0
	return k, err
}

func (f forgetful) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	if e.By == ledger.ByPerson {
		return ledger.Settled{}, nil
	}
	return f.Store.Settle(ctx, id, e)
}
