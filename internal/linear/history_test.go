package linear

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/paidonce/paidonce/ledger"
)

// store is what a history is recorded on.
type store interface {
	ledger.Ledger
	ledger.Workers
	Sweep(ctx context.Context, n int) (ledger.Swept, error)
}

// history is one job and what its workers asked and were told.
type history struct {
	t     *testing.T
	store store
	req   ledger.Request
	begun time.Time

	mu       sync.Mutex
	ops      []porcupine.Operation
	leases   []ledger.Lease
	attempts []ledger.ID
	epochs   int
	tokens   int
	results  int
}

// worker is one of those who ask at once.
type worker struct {
	*history
	n     int
	rng   *rand.Rand
	id    ledger.WorkerID
	epoch int
	token ledger.ID
	named int // its token
	late  int64
	wait  func(*rand.Rand) time.Duration // how long it waits for a reply; 0: as long as it takes
}

// play lets workers act at random on one fresh job, and returns what they were told.
func play(t *testing.T, s store, seed uint64, workers, steps int, wait func(*rand.Rand) time.Duration, trouble func()) []porcupine.Operation {
	h := &history{t: t, store: s, begun: time.Now(), req: ledger.Request{
		Key: ledger.Key{Tenant: "acme", Text: fmt.Sprintf("acme:linear:%d:%s", seed, ledger.NewID())}, Action: "linear", InputHash: ledger.Hash{1},
		Input: []byte(`{}`), Carrier: ledger.CarriedByBroker, MaxRun: time.Hour}}
	var all sync.WaitGroup
	for n := range workers {
		w := &worker{history: h, n: n, rng: rand.New(rand.NewPCG(seed, uint64(n))), wait: wait}
		w.join()
		all.Go(func() {
			for range steps {
				w.act()
			}
		})
	}
	if trouble != nil {
		trouble()
	}
	all.Wait()
	end := time.Since(h.begun).Nanoseconds() + 1
	for i := range h.ops {
		if h.ops[i].Output.(reply).lost {
			h.ops[i].Return = end // it may still happen
		}
	}
	return h.ops
}

// join opens an epoch for the worker; a lost reply is asked for again, since it concerns no job.
func (w *worker) join() {
	for try := 0; ; try++ {
		id, err := w.store.Join(w.t.Context(), ledger.Worker{ID: fmt.Sprintf("linear%d-%s", w.n, ledger.NewID()), TTL: time.Hour})
		if err == nil {
			w.id = id
			break
		}
		if try > 50 {
			w.t.Errorf("join: %v", err)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.epoch = w.epochs
	w.epochs++
	w.token, w.named = ledger.NewID(), w.tokens
	w.tokens++
}

// act asks for one thing.
func (w *worker) act() {
	switch n := w.rng.IntN(20); {
	case n < 6:
		w.claims()
	case n < 11:
		w.sends()
	case n < 15:
		w.settles()
	case n < 17:
		w.releases()
	case n < 18:
		w.completes()
	case n < 19 && w.epoch < epochs-8:
		w.leaves()
	default:
		w.sweeps()
	}
}

// told records a request and its reply.
func (w *worker) told(a ask, do func(context.Context) (reply, error)) reply {
	ctx := w.t.Context()
	if d := w.wait(w.rng); d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	call := time.Since(w.begun).Nanoseconds()
	r, err := do(ctx)
	if err != nil {
		r = reply{lost: true}
		for _, known := range []error{ledger.ErrLost, ledger.ErrLate, ledger.ErrOpen, ledger.ErrNotFound, ledger.ErrState, ledger.ErrClosed, ledger.ErrRepeated} {
			if errors.Is(err, known) {
				r = reply{err: known}
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ops = append(w.ops, porcupine.Operation{ClientId: w.n, Input: a, Output: r, Call: call, Return: time.Since(w.begun).Nanoseconds()})
	if r.lost {
		w.n += 100 // porcupine's clients ask one thing at a time, and this one's may still go on
	}
	return r
}

func (w *worker) claims() {
	if w.rng.IntN(3) == 0 {
		w.mu.Lock()
		w.token, w.named = ledger.NewID(), w.tokens
		w.tokens++
		w.mu.Unlock()
	}
	w.told(ask{verb: claim, epoch: w.epoch, token: w.named}, func(ctx context.Context) (reply, error) {
		q := w.req
		q.Worker, q.Token = w.id, w.token
		c, err := w.store.Claim(ctx, q)
		if err == nil && c.Verdict == ledger.Run {
			w.mu.Lock()
			w.leases = append(w.leases, c.Lease)
			w.mu.Unlock()
		}
		return reply{verdict: c.Verdict, fence: c.Lease.Fence}, err
	})
}

// lease is one that somebody was given, most often the last.
func (w *worker) lease() (ledger.Lease, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.leases)
	if n == 0 {
		return ledger.Lease{}, false
	}
	if w.rng.IntN(4) == 0 {
		return w.leases[w.rng.IntN(n)], true
	}
	return w.leases[n-1], true
}

func (w *worker) sends() {
	l, ok := w.lease()
	if !ok {
		return
	}
	ref := ledger.CallRef{Name: "one"}
	k := w.told(ask{verb: look, fence: l.Fence}, func(ctx context.Context) (reply, error) {
		k, err := w.store.Look(ctx, l, ref)
		return reply{looked: looked{k.Late, k.Attempts, k.Open, k.Answer != nil}}, err
	})
	w.mu.Lock()
	n, id := len(w.attempts), ledger.NewID()
	if n < most {
		w.attempts = append(w.attempts, id)
	}
	w.mu.Unlock()
	if n >= most {
		return
	}
	late := w.late // of an earlier look: a run may be slow
	if w.late = k.looked.late; w.rng.IntN(3) > 0 {
		late = w.late
	}
	w.told(ask{verb: send, fence: l.Fence, attempt: n, late: late}, func(ctx context.Context) (reply, error) {
		return reply{}, w.store.Send(ctx, l, ledger.Attempt{ID: id, Call: ref, Route: "primary", Provider: "fake", Model: "m",
			Timeout: time.Minute, LateSeen: late})
	})
}

func (w *worker) settles() {
	l, ok := w.lease()
	w.mu.Lock()
	ids := slices.Clone(w.attempts)
	w.mu.Unlock()
	if !ok || len(ids) == 0 {
		return
	}
	a := ask{verb: settle, attempt: w.rng.IntN(len(ids)), yes: w.rng.IntN(3) == 0}
	w.told(a, func(ctx context.Context) (reply, error) {
		e := ledger.Evidence{State: ledger.NotSent, By: ledger.BySender, Class: "not_sent"}
		if a.yes {
			e = ledger.Evidence{State: ledger.Received, By: ledger.BySender, Class: "ok", Response: &ledger.Response{Codec: "json", Body: []byte(`1`)}}
		}
		s, err := w.store.Settle(ctx, ledger.AttemptID{Tenant: "acme", Job: l.Job, ID: ids[a.attempt]}, e)
		return reply{state: s.Job}, err
	})
}

func (w *worker) releases() {
	if l, ok := w.lease(); ok {
		w.told(ask{verb: release, fence: l.Fence}, func(ctx context.Context) (reply, error) {
			r, err := w.store.Release(ctx, l, ledger.Outcome{Error: ledger.JobError{Class: "retry", Text: "again"}, Who: "w"})
			return reply{state: r.State}, err
		})
	}
}

func (w *worker) completes() {
	l, ok := w.lease()
	if !ok {
		return
	}
	w.mu.Lock()
	w.results++
	n := w.results
	w.mu.Unlock()
	id := ledger.NewID()
	for range 1 + w.rng.IntN(2) { // once more, as after a lost reply
		w.told(ask{verb: complete, fence: l.Fence, result: n}, func(ctx context.Context) (reply, error) {
			return reply{}, w.store.Complete(ctx, l, ledger.Result{ID: id, Body: []byte(`1`)})
		})
	}
}

func (w *worker) leaves() {
	r := w.told(ask{verb: leave, epoch: w.epoch}, func(ctx context.Context) (reply, error) { return reply{}, w.store.Leave(ctx, w.id) })
	if w.rng.IntN(2) == 0 || r.lost {
		w.join()
	} // else it goes on with a closed epoch, as one that does not know
}

func (w *worker) sweeps() {
	w.told(ask{verb: sweep}, func(ctx context.Context) (reply, error) {
		s, err := w.store.Sweep(ctx, 100)
		if slices.Contains(s.Lapsed, w.req.Key) {
			return reply{swept: true}, err
		}
		return reply{}, err
	})
}
