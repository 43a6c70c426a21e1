package protocol

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/memory"
)

// A rival is a real ledger that is led along a history of the model: each verb is asked of it as the model made it, each
// worker joins and leaves, and time passes, a minute a step. A limit that the model lets be over at some
// step is made so long that it is over then; for that the history is known before.
type rival struct {
	context.Context
	history
	ledger.Store
	at       int // the step
	key      ledger.Key
	job      int64
	lives    map[life]ledger.WorkerID
	tokens   map[uint8]ledger.ID
	attempts [maxAttempts]ledger.ID
	sentAt   [maxAttempts]int // step
	asked    [2]time.Time     // by the reconciler of a worker
	began    int              // step, of the generation
	since    int              // step, of its being unknown
	mothers  int              // jobs whose results asked for this one
	orders   int              // of another run
	worked   int              // times that the user's rows for an answer were
}

// life is an epoch of a worker of the model.
type life struct{ worker, epoch uint8 }

const (
	minute  = time.Minute
	forever = 100_000 * time.Hour
	cent    = ledger.USD / 100
)

// lead takes a ledger along a history. It returns the first difference.
func (h history) lead(ctx context.Context, l ledger.Store) error {
	v := &rival{Context: ctx, history: h, Store: l, key: ledger.Key{Tenant: "t", Text: "t:job"}, lives: map[life]ledger.WorkerID{}, tokens: map[uint8]ledger.ID{}}
	start := h.start()
	v.enter(&start)
	for i, s := range h.steps {
		v.at = i
		time.Sleep(minute)
		if err := v.take(s); err != nil {
			return fmt.Errorf("%s: %w, after%s", h.Name, err, h.upTo(i))
		}
	}
	return nil
}

// take takes one step, and compares.
func (v *rival) take(s step) error {
	if s.broken != "" {
		return errors.New(s.broken)
	}
	if s.from.row.gen != s.to.row.gen || s.from.row.exists != s.to.row.exists {
		v.began = v.at
	}
	if s.from.row.state != unknown && s.to.row.state == unknown {
		v.since = v.at
	}
	for i := range s.to.workers {
		if s.to.workers[i].seeks.at == told && s.from.workers[i].seeks.at != told {
			v.asked[i] = time.Now()
		}
	}
	for _, d := range s.deeds {
		if err := v.do(s, d); err != nil {
			return fmt.Errorf("%s: %w", d.verb, err)
		}
	}
	v.enter(&s.to)
	if err := v.leave(s); err != nil {
		return err
	}
	return v.compare(&s.to)
}

// enter lets the workers join that a world has.
func (v *rival) enter(w *world) {
	for i := range w.workers {
		if k := &w.workers[i]; k.epoch > k.closed {
			v.life(i, k.epoch, k.closed+1 == k.epoch)
		}
	}
}

// life is a worker's epoch. Who lost the last one joins anew; in the place of one that died another begins.
func (v *rival) life(i int, epoch uint8, again bool) ledger.WorkerID {
	l := life{uint8(i), epoch}
	if id, ok := v.lives[l]; ok {
		return id
	}
	name := fmt.Sprintf("%s%d", who[i], epoch)
	if before, ok := v.lives[life{l.worker, epoch - 1}]; ok && again {
		name = before.ID
	}
	id, err := v.Join(v, ledger.Worker{ID: name, TTL: forever})
	if err != nil {
		panic(err)
	}
	v.lives[l] = id
	return id
}

// leave closes the epochs that the step does.
func (v *rival) leave(s step) error {
	for i := range s.to.workers {
		for e := s.from.workers[i].closed + 1; e <= s.to.workers[i].closed; e++ {
			if id, ok := v.lives[life{uint8(i), e}]; ok {
				if err := v.Leave(v, id); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// over is how long it takes from step from on until nothing but time ends a limit; forever: it does not while it lasts.
func (v *rival) over(from int, ends, lasts func(*world) bool) time.Duration {
	for i := from + 1; i < len(v.steps); i++ {
		switch w := &v.steps[i].to; {
		case !lasts(w):
			return forever
		case ends(w) && len(v.steps[i].deeds) == 0:
			return time.Duration(i-from) * minute
		case ends(w):
			return forever
		}
	}
	return forever
}

// compare compares the rows.
func (v *rival) compare(w *world) error {
	j, err := v.Job(v, v.key)
	r := &w.row
	if !r.exists {
		if !errors.Is(err, ledger.ErrNotFound) {
			return fmt.Errorf("the ledger has a job that the model has not: %+v %w", j, err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	v.job = j.ID
	if got, want := v.shown(j), v.model(w); got != want {
		return fmt.Errorf("the rows differ\nledger %+v\nmodel  %+v", got, want)
	}
	for n := range w.attempts {
		if err := v.attempt(j, n, &w.attempts[n]); err != nil {
			return err
		}
	}
	return errors.Join(v.seen(w), v.brought(w))
}

// shown is a row as both have it.
type shown struct {
	state          ledger.State
	carrier        ledger.Carrier
	gen, runs      int
	calls, replays int
	open           int
	fence          int64
	cost, reserved ledger.Nano
	cancel, input  bool
	purged, result bool
	due            bool // ready and unknown ones
	owner          ledger.WorkerID
}

func (v *rival) shown(j ledger.Job) shown {
	s := shown{state: j.State, carrier: j.Carrier, gen: j.Generation, runs: j.Runs, calls: j.Calls, replays: j.Replays, open: j.OpenCalls,
		fence: j.Fence, reserved: j.Reserved, cancel: j.Cancel, input: j.InputKept, purged: j.Purged, result: j.Result != nil, owner: j.Owner}
	if j.Cost != nil {
		s.cost = *j.Cost
	}
	s.due = (j.State == ledger.Ready || j.State == ledger.Unknown) && !time.Now().Before(j.NextAt)
	return s
}

func (v *rival) model(w *world) shown {
	r := &w.row
	s := shown{state: states[r.state], carrier: ledger.CarriedByBroker, gen: int(r.gen), runs: int(r.runs), calls: int(r.calls), replays: int(r.replays),
		open: int(r.open), fence: int64(r.fence), cost: ledger.Nano(r.cost) * cent, reserved: ledger.Nano(r.reserved) * cent, cancel: r.cancel,
		input: r.input, purged: r.purged && r.state == done, result: r.state == done && !r.purged,
		due: (r.state == ready || r.state == unknown) && r.due}
	if r.carried {
		s.carrier = ledger.CarriedByLedger
	}
	if r.owner != nobody {
		s.owner = v.lives[life{uint8(r.owner), r.epoch}]
	}
	return s
}

// attempt compares one.
func (v *rival) attempt(j ledger.Job, n int, a *attempt) error {
	if a.state == none || a.gone {
		return nil
	}
	i := slices.IndexFunc(j.Attempts, func(b ledger.AttemptRow) bool { return b.ID == v.attempts[n] })
	if i < 0 {
		return fmt.Errorf("the ledger has no attempt %d", n+1)
	}
	b := j.Attempts[i]
	type both struct {
		state            ledger.AttemptState
		call             string
		gen              int
		surplus, applied bool
		fence            int64
	}
	got := both{b.State, b.Call.Name, b.Generation, b.Surplus, !b.Applied.IsZero(), b.Fence}
	want := both{attemptStates[a.state], callNames[a.call], int(a.gen), a.surplus, a.applied, int64(a.fence)}
	if a.state == received {
		want.fence = got.fence // the model forgets it
	}
	if got != want {
		return fmt.Errorf("attempt %d differs\nledger %+v\nmodel  %+v", n+1, got, want)
	}
	return nil
}

var callNames = [2]string{"one", "another"}

// seen compares what a run that looks is told.
func (v *rival) seen(w *world) error {
	for call := range uint8(2) {
		if err := v.look(deed{fence: w.row.fence, call: call, late: w.row.late, answer: w.answer(call), open: w.opened(call)}); err != nil {
			return err
		}
	}
	return nil
}

// brought compares whether the ledger would bring the job back.
func (v *rival) brought(w *world) error {
	due, err := v.Due(v, 1000, forever)
	if err != nil {
		return err
	}
	has := slices.ContainsFunc(due, func(s ledger.Stored) bool { return s.Key == v.key })
	if has != w.revived() {
		return fmt.Errorf("the ledger brings the job back: %v; the model: %v", has, w.revived())
	}
	return nil
}

// answers compares an error.
func answers(err, want error) error {
	if want == nil && err != nil || !errors.Is(err, want) {
		return fmt.Errorf("the ledger answers %v, the model %v", err, want)
	}
	return nil
}

func (v *rival) lease(fence uint8) ledger.Lease {
	return ledger.Lease{Key: v.key, Job: v.job, Fence: int64(fence)}
}

func (v *rival) input(copy bool) ledger.Hash {
	h := ledger.Hash{1}
	if copy {
		h[0]++
	}
	return h
}

// whose is whose step a label names.
func whose(label string) int { return strings.IndexByte("AB", label[0]) }

// work marks that the user's rows were committed.
func (v *rival) work() ledger.Hook {
	var run catcher
	memory.OnCommit(&run, func(ctx context.Context) error {
		memory.Then(ctx, func() { v.worked++ })
		return nil
	})
	return run.hook
}

// catcher is a run as far as hooks need one.
type catcher struct{ hook ledger.Hook }

func (c *catcher) OnCommit(h ledger.Hook) { c.hook = h }
