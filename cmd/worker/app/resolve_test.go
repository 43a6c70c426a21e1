package app

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
	ledgermemory "github.com/paidonce/paidonce/ledger/memory"
)

// contended is a ledger in which something happens just before each verdict of a person.
type contended struct {
	*ledgermemory.Ledger
	before func()
}

func (c contended) Resolve(ctx context.Context, r ledger.Resolution) (ledger.Released, error) {
	c.before()
	return c.Ledger.Resolve(ctx, r)
}

// TestGiveUpBesideAReconciler: that a reconciler takes the job up to look for evidence changes
// nothing that a person decided by; evidence does.
func TestGiveUpBesideAReconciler(t *testing.T) {
	for name, c := range map[string]struct {
		looks    int  // of reconcilers, one before each try
		evidence bool // on the first call
		calls    int
		state    ledger.State
	}{
		"two looks":            {2, false, 1, ledger.Failed},
		"looks without end":    {100, false, 1, ledger.Unknown},
		"a look and an answer": {1, true, 1, ledger.Ready},
		"one answer of two":    {1, true, 2, ledger.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, l := t.Context(), ledgermemory.New()
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			w, err := l.Join(ctx, ledger.Worker{ID: "w", TTL: time.Hour})
			must(err)
			k := ledger.Key{Tenant: "acme", Text: "acme:a:1"}
			claimed, err := l.Claim(ctx, ledger.Request{Key: k, Action: "a", Worker: w, Token: ledger.NewID(), MaxRun: time.Hour})
			must(err)
			a := ledger.Attempt{ID: ledger.NewID(), Call: ledger.CallRef{Name: "c"}, Route: "r", Provider: "p", Model: "m", Timeout: time.Minute}
			must(l.Send(ctx, claimed.Lease, a))
			if c.calls == 2 {
				b := a
				b.ID, b.Call.Name = ledger.NewID(), "d"
				must(l.Send(ctx, claimed.Lease, b))
			}
			_, err = l.Release(ctx, claimed.Lease, ledger.Outcome{})
			must(err)
			j, err := l.Job(ctx, k)
			must(err)

			looks := 0
			s := contended{l, func() {
				if looks++; looks > c.looks {
					return
				}
				now, err := l.Job(ctx, k)
				must(err)
				_, err = l.Resolve(ctx, ledger.Resolution{Key: k, Fence: now.Fence, Action: ledger.Keep, By: ledger.ByReconciler})
				must(err)
				_, err = l.Adopt(ctx, ledger.Adoption{Worker: w, Token: ledger.NewID(), Max: 10})
				must(err)
				if c.evidence {
					_, err = l.Settle(ctx, ledger.AttemptID{Tenant: "acme", Job: j.ID, ID: a.ID}, ledger.Evidence{State: ledger.Received, By: ledger.BySender,
						Response: &ledger.Response{Codec: "json", Body: []byte("1")}})
					must(err)
				}
			}}
			var out bytes.Buffer
			err = resolveCommand{Key: k.Text, Reason: "x"}.giveUp(ctx, &call{Process: Process{Stdout: &out}}, s, j)
			if (err == nil) != (c.state == ledger.Failed) || err != nil && !strings.Contains(err.Error(), "PO503") {
				t.Errorf("%v\n%s", err, &out)
			}
			if now, err := l.Job(ctx, k); err != nil || now.State != c.state {
				t.Errorf("the job is %s, want %s; %v", now.State, c.state, err)
			}
		})
	}
}
