package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// hook is the user's work in a commit of this ledger.
type hook struct {
	fn func(context.Context) error
}

// commit collects the effects of the hooks of one commit.
type commit struct {
	mu      sync.Mutex
	effects []func()
}

type commitKey struct{}

// OnCommit adds work to the commit of the run's result; a run is a *job.Run. fn may be run
// more than once. What it leaves in memory must go through Then, so that it
// happens with the result or not at all. An error of fn commits nothing.
func OnCommit(run interface{ OnCommit(ledger.Hook) }, fn func(context.Context) error) {
	run.OnCommit(hook{fn})
}

// Then registers an effect of a function given to OnCommit or RunTx, under the context it was
// called with. Effects happen in order while the result, or the mark on the answer, is committed and the ledger
// is locked: they must not wait, and not call the ledger. It panics on any other context.
func Then(ctx context.Context, effect func()) {
	c, ok := ctx.Value(commitKey{}).(*commit)
	if !ok {
		panic("memory: Then needs the context of a function given to OnCommit or RunTx")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.effects = append(c.effects, effect)
}

// work runs the user's work, whose effects c collects.
func (c *commit) work(ctx context.Context, h ledger.Hook) error {
	own, ok := h.(hook)
	if !ok {
		return fmt.Errorf("%w: a %T was made for another kind of ledger than memory", ledger.ErrHook, h)
	}
	ctx = context.WithValue(ctx, commitKey{}, c)
	if err := ledger.Work(func() error { return own.fn(ctx) }); err != nil {
		return fmt.Errorf("%w: %w", ledger.ErrHook, err)
	}
	return nil
}

// Complete implements ledger.Ledger.
func (l *Ledger) Complete(ctx context.Context, lease ledger.Lease, res ledger.Result) error {
	if err := cmp.Or(res.Check(), res.CheckSteps(lease.Key), res.CheckMessages()); err != nil {
		return err
	}
	if done, err := l.complete(ctx, lease, res, nil); done || err != nil {
		return err
	}
	c := &commit{}
	for _, h := range res.Hooks {
		if err := c.work(ctx, h); err != nil {
			return err
		}
	}
	_, err := l.complete(ctx, lease, res, c)
	return err
}

// complete checks J10, and commits when there is something to commit. No lock is held while
// hooks run, so the guards are asked before and after them. done reports that the
// result is there already.
func (l *Ledger) complete(ctx context.Context, lease ledger.Lease, res ledger.Result, c *commit) (done bool, err error) {
	now, unlock, err := l.begin(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	r := l.row(lease.Key.Tenant, lease.Job)
	f := l.leaseFacts(r, lease, now)
	if f.FenceHeld && r.State == ledger.Done && r.Result != nil && r.Result.ID == res.ID {
		return true, nil
	}
	t := ledger.Row("J10")
	if err := ledger.Refusal(t.Allows(f)); err != nil || c == nil {
		return false, err
	}
	for _, effect := range c.effects {
		effect()
	}
	who := r.Owner.ID
	r.Result, r.DoneAt, r.Error, r.Owner = result(&res), now, nil, ledger.WorkerID{}
	for _, a := range r.attempts {
		if a.State == ledger.Received && a.Generation == r.Generation && !slices.Contains(res.Used, a.ID) {
			a.Surplus = true
		}
	}
	r.move(t, now, who, "")
	for _, s := range res.Steps {
		l.follow(r, s, now, who)
	}
	l.put(r, res, now)
	return true, nil
}

// Release implements ledger.Ledger.
func (l *Ledger) Release(ctx context.Context, lease ledger.Lease, o ledger.Outcome) (ledger.Released, error) {
	now, unlock, err := l.begin(ctx)
	if err != nil {
		return ledger.Released{}, err
	}
	defer unlock()
	r := l.row(lease.Key.Tenant, lease.Job)
	f := l.leaseFacts(r, lease, now)
	if f.FenceHeld && (r.State == ledger.Ready || r.State == ledger.Failed || r.State == ledger.Cancelled) {
		return r.released(now), nil // its own effect, before a reply that was lost
	}
	if r == nil {
		return ledger.Released{}, ledger.ErrLost
	}
	t, why, ok := ledger.PickRelease(f, o, r.panics)
	if !ok {
		return ledger.Released{}, ledger.ErrLost
	}
	if o.Panicked {
		r.panics++
	}
	r.Error = &why
	switch t.ID {
	case "J11":
		r.NextAt = now.Add(o.RetryIn)
		if o.GiveBack {
			r.Runs = max(0, r.Runs-1)
		}
	case "J13":
		r.Runs = max(0, r.Runs-1)
		r.lapse(t, now, o.Who)
		return r.released(now), nil
	}
	r.move(t, now, o.Who, ": "+o.Error.Class)
	r.disown()
	return r.released(now), nil
}

func (r *row) released(now time.Time) ledger.Released {
	x := ledger.Released{State: r.State, Carrier: r.Carrier}
	if r.State == ledger.Ready || r.State == ledger.Unknown {
		x.RetryIn = max(0, r.NextAt.Sub(now))
	}
	return x
}

// Carry implements ledger.Ledger.
func (l *Ledger) Carry(ctx context.Context, lease ledger.Lease) error {
	now, unlock, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	r := l.row(lease.Key.Tenant, lease.Job)
	t := ledger.Row("JC")
	if err := ledger.Refusal(t.Allows(l.leaseFacts(r, lease, now))); err != nil || r.Carrier == ledger.CarriedByLedger {
		return err
	}
	r.Carrier = ledger.CarriedByLedger
	r.move(t, now, r.Owner.ID, "")
	return nil
}

// Replay implements ledger.Ledger.
func (l *Ledger) Replay(ctx context.Context, lease ledger.Lease, p ledger.ReplayPolicy) error {
	now, unlock, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	r := l.row(lease.Key.Tenant, lease.Job)
	f := l.leaseFacts(r, lease, now)
	if r != nil {
		f.ReplayLeft = r.Replays < p.Max
		f.Held = r.State != ledger.Unknown || now.Sub(r.unknownAt) >= p.Hold
		f.PastRoutes = r.pastRoutes(now)
		f.InBudget = ledger.InBudget(r.Budget, r.Cost, r.Reserved, r.openReserve())
		r.limits(&f, r.OpenCalls, now)
	}
	t, ok := ledger.Pick(f, "J16", "J16o")
	if !ok {
		return ledger.ReplayRefusal(f)
	}
	r.closeOpen(now, all)
	r.Replays++
	if t.To == ledger.Ready {
		r.NextAt = now
		r.disown()
	}
	r.move(t, now, p.Who, ": "+p.Reason)
	return nil
}
