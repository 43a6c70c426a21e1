package memory_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/memory"
)

// run is what OnCommit needs of a *job.Run.
type run struct{ hooks []ledger.Hook }

func (r *run) OnCommit(h ledger.Hook) { r.hooks = append(r.hooks, h) }

// claimed is a job that runs, on a ledger with one worker.
func claimed(t *testing.T, l *memory.Ledger, ttl, maxRun time.Duration) (ledger.Request, ledger.Lease) {
	t.Helper()
	w, err := l.Join(t.Context(), ledger.Worker{ID: "w1", TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	r := ledger.Request{Key: ledger.Key{Tenant: "acme", Text: "acme:a:1"}, Action: "a", Worker: w, Token: ledger.NewID(), MaxRun: maxRun}
	c, err := l.Claim(t.Context(), r)
	if err != nil || c.Verdict != ledger.Run {
		t.Fatalf("claim: %+v %v", c, err)
	}
	return r, c.Lease
}

// A hook may wait: the ledger is not locked meanwhile, and what changed is noticed.
func TestHooksWaitOutsideTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memory.New()
		r, lease := claimed(t, l, time.Hour, time.Minute)
		var j run
		var effects []string
		memory.OnCommit(&j, func(ctx context.Context) error {
			memory.Then(ctx, func() { effects = append(effects, "done") })
			time.Sleep(2 * time.Minute) // past the run deadline
			r.Token = ledger.NewID()
			if c, err := l.Claim(ctx, r); err != nil || c.Verdict != ledger.Run {
				t.Errorf("a claim while the hook waits: %+v %v", c, err)
			}
			return nil
		})
		err := l.Complete(t.Context(), lease, ledger.Result{ID: ledger.NewID(), Hooks: j.hooks})
		if !errors.Is(err, ledger.ErrLost) || len(effects) != 0 {
			t.Errorf("a commit that was overtaken in its hook: %v, effects %v", err, effects)
		}
		if job, err := l.Job(t.Context(), r.Key); err != nil || job.State != ledger.Running || job.Fence != 2 {
			t.Errorf("the job is %+v %v", job, err)
		}
	})
}

func TestEffectsHappenInOrderWithTheResult(t *testing.T) {
	l := memory.New()
	_, lease := claimed(t, l, time.Hour, time.Hour)
	var j run
	var effects []int
	for i := range 3 {
		memory.OnCommit(&j, func(ctx context.Context) error {
			memory.Then(ctx, func() { effects = append(effects, i) })
			memory.Then(ctx, func() { effects = append(effects, 10+i) })
			return nil
		})
	}
	if err := l.Complete(t.Context(), lease, ledger.Result{ID: ledger.NewID(), Hooks: j.hooks}); err != nil {
		t.Fatal(err)
	}
	if want := []int{0, 10, 1, 11, 2, 12}; !slices.Equal(effects, want) {
		t.Errorf("effects %v, want %v", effects, want)
	}
}

func TestThenPanicsElsewhere(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("an effect that no commit will make was taken")
		}
	}()
	memory.Then(t.Context(), func() {})
}

// In a bubble leases, deadlines and due times pass by themselves.
func TestTimePassesInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memory.New()
		r, lease := claimed(t, l, time.Minute, time.Hour)
		if err := l.Send(t.Context(), lease, ledger.Attempt{ID: ledger.NewID(), Call: ledger.CallRef{Name: "c"}, Timeout: time.Minute}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Second)
		if s, err := l.Sweep(t.Context(), 10); err != nil || s.Epochs != 0 {
			t.Errorf("swept %+v %v a second too early", s, err)
		}
		time.Sleep(time.Second)
		if s, err := l.Sweep(t.Context(), 10); err != nil || s.Epochs != 1 || len(s.Lapsed) != 1 {
			t.Errorf("swept %+v %v when the lease was over", s, err)
		}
		counts, err := l.Unknowns(t.Context())
		if err != nil || len(counts) != 1 || counts[0].Oldest != 0 {
			t.Errorf("unknowns %+v %v", counts, err)
		}
		lease.Fence++
		for _, hold := range []time.Duration{0, time.Second, time.Second} {
			time.Sleep(hold)
			err = l.Replay(t.Context(), lease, ledger.ReplayPolicy{Max: 1, Hold: 2 * time.Second})
		}
		if err != nil {
			t.Errorf("a replay after the hold time: %v", err)
		}
		if job, err := l.Job(t.Context(), r.Key); err != nil || job.State != ledger.Ready {
			t.Errorf("the job is %+v %v", job, err)
		}
	})
}
