package ledgertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/paidonce/paidonce/ledger"
)

// storm is one job that many workers, reconcilers and people act on at once, and
// what they were told. What they were told must be true in the end.
type storm struct {
	*env
	req ledger.Request

	mu       sync.Mutex
	leases   []ledger.Lease
	fences   map[int64]int        // told Run or adopted, by fence
	sent     map[ledger.ID]string // attempts whose gate said yes, and their call
	answered map[ledger.ID]bool   // attempts of which an answer was taken
	results  []ledger.ID          // commits that said yes
}

// storms acts at random from many goroutines. No order is expected, only that every
// promise that was made is kept.
func storms(e *env) {
	for n := range e.rounds(40) {
		s := &storm{env: e, req: e.request(fmt.Sprint("storm ", n)), fences: map[int64]int{}, sent: map[ledger.ID]string{}, answered: map[ledger.ID]bool{}}
		s.req.Budget = 0
		at(6, func(i int) {
			w := e.worker
			rng := rand.New(rand.NewPCG(uint64(n), uint64(i)))
			for range 25 {
				s.act(rng, w)
			}
		})
		s.check(n)
		s.end()
	}
}

// act does one thing, and remembers what it was promised.
func (s *storm) act(rng *rand.Rand, w ledger.WorkerID) {
	ctx, lease := s.Context(), s.lease(rng)
	var err error
	switch n := rng.IntN(20); {
	case n < 5:
		err = s.claim(w)
	case n < 9:
		a := call([]string{"one", "two"}[rng.IntN(2)])
		if k, lookErr := s.Store.Look(ctx, lease, a.Call); lookErr == nil {
			a.LateSeen = k.Late
		}
		if err = s.Store.Send(ctx, lease, a); err == nil {
			s.note(func() { s.sent[a.ID] = a.Call.Name })
		}
	case n < 13:
		err = s.settle(rng, lease.Job)
	case n < 14:
		r := ledger.Result{ID: ledger.NewID(), Body: []byte("1"), Hooks: []ledger.Hook{s.Hook(s.req.Key.Text)}}
		if err = s.Store.Complete(ctx, lease, r); err == nil {
			s.note(func() { s.results = append(s.results, r.ID) })
		}
	case n < 16:
		_, err = s.Store.Release(ctx, lease, outcome())
	case n < 17:
		err = s.Store.Replay(ctx, lease, ledger.ReplayPolicy{Max: 9, Who: "w1"})
	case n < 18:
		_, err = s.Store.Sweep(ctx, 100)
	case n < 19:
		s.adopted(w)
	default:
		err = s.Store.Carry(ctx, lease)
	}
	for _, fine := range []error{ledger.ErrLost, ledger.ErrLate, ledger.ErrOpen, ledger.ErrNotFound, ledger.ErrState} {
		if errors.Is(err, fine) {
			return
		}
	}
	if err != nil {
		s.Errorf("in a storm: %v", err)
	}
}

func (s *storm) note(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
}

func (s *storm) lease(rng *rand.Rand) ledger.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch n := len(s.leases); {
	case n == 0:
		return ledger.Lease{Key: s.req.Key, Job: 1 << 40}
	case rng.IntN(4) == 0:
		return s.leases[rng.IntN(n)]
	default:
		return s.leases[n-1]
	}
}

func (s *storm) claim(w ledger.WorkerID) error {
	r := s.req
	r.Token, r.Worker = ledger.NewID(), w
	c, err := s.Store.Claim(s.Context(), r)
	if err == nil && c.Verdict == ledger.Run {
		s.note(func() { s.leases, s.fences[c.Lease.Fence] = append(s.leases, c.Lease), s.fences[c.Lease.Fence]+1 })
	}
	return err
}

func (s *storm) adopted(w ledger.WorkerID) {
	as, err := s.Store.Adopt(s.Context(), adoption(w, 100))
	if err != nil {
		s.Errorf("adopt: %v", err)
	}
	for _, a := range as {
		s.note(func() { s.leases, s.fences[a.Lease.Fence] = append(s.leases, a.Lease), s.fences[a.Lease.Fence]+1 })
	}
}

// settle reports an answer, or that there is none, of any attempt that was sent.
func (s *storm) settle(rng *rand.Rand, job int64) error {
	var id ledger.ID
	s.note(func() {
		for id = range s.sent { // any one
			break
		}
	})
	ev := answer(cent)
	if rng.IntN(3) == 0 {
		ev = no(ledger.NotSent)
	}
	_, err := s.Store.Settle(s.Context(), ledger.AttemptID{Tenant: s.req.Key.Tenant, Job: job, ID: id}, ev)
	if err == nil && ev.State == ledger.Received {
		s.note(func() { s.answered[id] = true })
	}
	return err
}

// check compares the row with what everybody was told.
func (s *storm) check(n int) {
	s.Helper()
	got := s.sound(s.req.Key)
	if len(got.Attempts) != len(s.sent) {
		s.Errorf("storm %d: %d gates said yes, %d attempts are on record", n, len(s.sent), len(got.Attempts))
	}
	for _, a := range got.Attempts {
		if s.sent[a.ID] != a.Call.Name {
			s.Errorf("storm %d: attempt %s of call %s is on record, and was sent for %q", n, a.ID, a.Call.Name, s.sent[a.ID])
		}
		if s.answered[a.ID] != (a.State == ledger.Received) || s.answered[a.ID] && dollars(a.Evidence.Cost) != cent.String() {
			s.Errorf("storm %d: attempt %s is %s, cost %s; its answer was taken: %v", n, a.ID, a.State, dollars(a.Evidence.Cost), s.answered[a.ID])
		}
	}
	for fence, times := range s.fences {
		if times != 1 {
			s.Errorf("storm %d: fence %d was given out %d times", n, fence, times)
		}
		if fence > got.Fence {
			s.Errorf("storm %d: fence %d was given out, the row has %d", n, fence, got.Fence)
		}
	}
	marks := 0
	for _, m := range s.Marks() {
		if m == s.req.Key.Text {
			marks++
		}
	}
	switch {
	case len(s.results) > 1, marks != len(s.results), (got.State == ledger.Done) != (len(s.results) == 1):
		s.Errorf("storm %d: %d commits said yes, the user's work is there %d times, the job is %s", n, len(s.results), marks, got.State)
	case len(s.results) == 1 && got.Result.ID != s.results[0]:
		s.Errorf("storm %d: result %s was committed, %s is there", n, s.results[0], got.Result.ID)
	}
}

// end keeps the job out of the next storm's adoptions.
func (s *storm) end() {
	s.Helper()
	v := ledger.Resolution{Key: s.req.Key, Action: ledger.Cancel, By: ledger.ByPerson, Who: "kim", Reason: "over"}
	if _, err := s.Store.Resolve(s.Context(), v); err != nil && !errors.Is(err, ledger.ErrState) {
		s.Fatalf("end a storm: %v", err)
	}
	if j := s.read(s.req.Key); j.State == ledger.Running {
		s.LapseRun(s.req.Key)
		s.sweep()
		if _, err := s.Store.Resolve(s.Context(), v); err != nil {
			s.Fatalf("end a storm: %v", err)
		}
	}
}
