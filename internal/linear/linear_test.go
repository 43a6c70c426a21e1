package linear

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/paidonce/paidonce/internal/faultproxy"
	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/memory"
	"github.com/paidonce/paidonce/ledger/postgres"
	"github.com/paidonce/paidonce/ledger/sqlite"
)

const (
	histories = 60
	workers   = 5
	steps     = 10
)

// tally is what the histories of a test held.
type tally struct{ histories, undecided, requests, lost, runs, sent, answered int }

// judge checks one history.
func (n *tally) judge(t *testing.T, seed uint64, ops []porcupine.Operation) bool {
	t.Helper()
	lost := 0
	for _, o := range ops {
		r, a := o.Output.(reply), o.Input.(ask)
		switch {
		case r.lost:
			lost++
		case r.verdict == ledger.Run:
			n.runs++
		case a.verb == send && r.err == nil:
			n.sent++
		case a.verb == settle && a.yes && r.err == nil:
			n.answered++
		}
	}
	n.histories++
	n.lost += lost
	n.requests += len(ops)
	// A look that was lost changes nothing and says nothing, and may stand anywhere: to the search it is only work.
	told := slices.DeleteFunc(slices.Clone(ops), func(o porcupine.Operation) bool {
		return o.Output.(reply).lost && o.Input.(ask).verb == look
	})
	switch porcupine.CheckOperationsTimeout(spec, told, 20*time.Second) {
	case porcupine.Unknown:
		n.undecided++
		t.Logf("seed %d: a history of %d requests, %d without a reply, was not decided", seed, len(ops), lost)
	case porcupine.Illegal:
		return false
	}
	return true
}

// want says that the histories held what they are made for.
func (n *tally) want(t *testing.T, lost bool) {
	t.Helper()
	t.Logf("%+v", *n)
	if n.runs == 0 || n.sent == 0 || n.answered == 0 || lost != (n.lost > 0) {
		t.Errorf("the histories held %+v: too little of something", *n)
	}
	// The search takes a time that doubles with each request without a reply, and a busy machine loses more of them.
	if n.undecided > n.histories/10 {
		t.Errorf("%d of %d histories were not decided", n.undecided, n.histories)
	}
}

func dump(t *testing.T, seed uint64, ops []porcupine.Operation) {
	t.Helper()
	var b strings.Builder
	for _, o := range ops {
		fmt.Fprintf(&b, "%8d-%8d us client %d: %+v -> %+v\n", o.Call/1000, o.Return/1000, o.ClientId, o.Input, o.Output)
	}
	t.Errorf("seed %d: no order of one request after another explains what these were told:\n%s", seed, b.String())
}

func patient(*rand.Rand) time.Duration { return 0 }

// hasty gives up waiting for a reply now and then; the request may happen all the same.
func hasty(r *rand.Rand) time.Duration {
	if r.IntN(8) > 0 {
		return 0
	}
	return time.Duration(r.IntN(3000)) * time.Microsecond
}

func TestMemory(t *testing.T) {
	var n tally
	defer n.want(t, false)
	for seed := range uint64(10 * histories) {
		if ops := play(t, memory.New(), seed, workers, steps, patient, nil); !n.judge(t, seed, ops) {
			dump(t, seed, ops)
			return
		}
	}
}

func TestSQLite(t *testing.T) {
	var n tally
	defer n.want(t, true)
	path := filepath.Join(t.TempDir(), "ledger.db")
	if err := sqlite.Migrate(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	l, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for seed := range uint64(histories) {
		wait := patient
		if seed%2 == 1 {
			wait = hasty
		}
		if ops := play(t, l, seed, workers, steps, wait, nil); !n.judge(t, seed, ops) {
			dump(t, seed, ops)
			return
		}
	}
}

// TestPostgres lets replies be lost, connections be reset and requests be given up, each in its own histories and together.
func TestPostgres(t *testing.T) {
	var n tally
	defer n.want(t, true)
	direct := pgtest.Copy(t, "ledger", func(u string) error { return postgres.Migrate(t.Context(), u) })
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	proxy := faultproxy.Start(t, u.Host)
	u.Host = proxy.Addr()
	l, err := postgres.Open(t.Context(), u.String(), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	resets := func() {
		for range 2 {
			time.Sleep(15 * time.Millisecond)
			proxy.Reset()
		}
	}
	for seed := range uint64(histories / 2) {
		wait, trouble := patient, func() {}
		if seed%4&1 == 1 {
			wait = hasty
		}
		if seed%4&2 == 2 {
			trouble = resets
		}
		if ops := play(t, l, seed, workers, steps, wait, trouble); !n.judge(t, seed, ops) {
			dump(t, seed, ops)
			return
		}
	}
}

// TestBrokenIsSeen gives the checker ledgers that break a promise now and then, and mean no error by it.
func TestBrokenIsSeen(t *testing.T) {
	for name, b := range map[string]func() *broken{
		"two are told to run": func() *broken {
			var last ledger.Claimed
			var mu sync.Mutex
			return &broken{claim: func(l *memory.Ledger, ctx context.Context, q ledger.Request) (ledger.Claimed, error) {
				mu.Lock()
				defer mu.Unlock()
				c, err := l.Claim(ctx, q)
				if c.Verdict == ledger.Busy && last.Verdict == ledger.Run {
					return last, nil
				}
				last = c
				return c, err
			}}
		},
		"an answer is forgotten": func() *broken {
			return &broken{settle: func(l *memory.Ledger, ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
				if e.State == ledger.Received {
					return ledger.Settled{Job: ledger.Running}, nil
				}
				return l.Settle(ctx, id, e)
			}}
		},
		"a gate says yes and keeps no record": func() *broken {
			return &broken{send: func(l *memory.Ledger, ctx context.Context, lease ledger.Lease, a ledger.Attempt) error {
				if a.ID[0]&3 == 0 {
					return nil
				}
				return l.Send(ctx, lease, a)
			}}
		},
		"a look is older than it": func() *broken {
			var last ledger.Looked
			var mu sync.Mutex
			return &broken{look: func(l *memory.Ledger, ctx context.Context, lease ledger.Lease, c ledger.CallRef) (ledger.Looked, error) {
				mu.Lock()
				defer mu.Unlock()
				k, err := l.Look(ctx, lease, c)
				old := last
				last = k
				if err == nil && old.Attempts > 0 {
					return old, nil
				}
				return k, err
			}}
		},
	} {
		seen := false
		for seed := uint64(0); seed < histories && !seen; seed++ {
			l := b()
			l.Ledger = memory.New()
			seen = porcupine.CheckOperations(spec, play(t, l, seed, workers, steps, patient, nil)) == false
		}
		if !seen {
			t.Errorf("%s: %d histories, and nothing was noticed", name, histories)
		}
	}
}

// broken is a ledger one verb of which is another.
type broken struct {
	*memory.Ledger
	claim  func(*memory.Ledger, context.Context, ledger.Request) (ledger.Claimed, error)
	look   func(*memory.Ledger, context.Context, ledger.Lease, ledger.CallRef) (ledger.Looked, error)
	send   func(*memory.Ledger, context.Context, ledger.Lease, ledger.Attempt) error
	settle func(*memory.Ledger, context.Context, ledger.AttemptID, ledger.Evidence) (ledger.Settled, error)
}

func (b *broken) Claim(ctx context.Context, q ledger.Request) (ledger.Claimed, error) {
	if b.claim != nil {
		return b.claim(b.Ledger, ctx, q)
	}
	return b.Ledger.Claim(ctx, q)
}

func (b *broken) Look(ctx context.Context, l ledger.Lease, c ledger.CallRef) (ledger.Looked, error) {
	if b.look != nil {
		return b.look(b.Ledger, ctx, l, c)
	}
	return b.Ledger.Look(ctx, l, c)
}

func (b *broken) Send(ctx context.Context, l ledger.Lease, a ledger.Attempt) error {
	if b.send != nil {
		return b.send(b.Ledger, ctx, l, a)
	}
	return b.Ledger.Send(ctx, l, a)
}

func (b *broken) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	if b.settle != nil {
		return b.settle(b.Ledger, ctx, id, e)
	}
	return b.Ledger.Settle(ctx, id, e)
}
