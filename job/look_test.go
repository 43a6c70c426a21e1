package job

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// looking is a ledger that counts looks.
type looking struct {
	ledger.Ledger
	looks int
}

func (l *looking) Look(ctx context.Context, lease ledger.Lease, c ledger.CallRef) (ledger.Looked, error) {
	l.looks++
	return l.Ledger.Look(ctx, lease, c)
}

// TestFirstLook: the first call of a job's first run does not ask the ledger for what nobody can have left there. Every
// other does, also the same one when it is asked for again.
func TestFirstLook(t *testing.T) {
	b := newBench(t)
	l := &looking{Ledger: b.l}
	b.change = func(cfg *RunConfig) { cfg.Ledger = l }
	refuse := func(context.Context, *Attempt) (string, error) { return "", Fail(errors.New("no")) }
	post := func(ctx context.Context, a *Attempt) (string, error) { return "paid", a.Sent(ctx) }

	j := b.run()
	if first := ask(t, j, "openai", time.Minute, refuse); first.err == nil || l.looks != 0 {
		t.Errorf("the first call: %v, after %d looks", first.err, l.looks)
	}
	if again := ask(t, j, "openai", time.Minute, post); again.out != "paid" || l.looks != 1 {
		t.Errorf("the same run again: %q, %v, after %d looks", again.out, again.err, l.looks)
	}
	b.release(j)
	if second := ask(t, b.run(), "openai", time.Minute, refuse); second.out != "paid" || l.looks != 2 {
		t.Errorf("the second run: %q, %v, after %d looks", second.out, second.err, l.looks)
	}
}

// TestFirstLookLate: should there be an answer all the same, the gate says so, and the call looks.
func TestFirstLookLate(t *testing.T) {
	f := &fake{onSend: func(context.Context) error { return ledger.ErrLate }}
	f.attempts = []*fakeAttempt{{Attempt: ledger.Attempt{ID: ledger.NewID(), Call: ledger.CallRef{Name: "ask"}, Route: "only"},
		state: ledger.Received, evidence: ledger.Evidence{State: ledger.Received, Response: &ledger.Response{Codec: codecJSON, Body: []byte(`"kept"`)}}}}
	l := &looking{Ledger: f}
	j := testRun(t, l, func(cfg *RunConfig) { cfg.Lease.Fence = 1 })
	got := ask(t, j, "openai", time.Minute, func(ctx context.Context, a *Attempt) (string, error) { return "paid again", a.Sent(ctx) })
	if got.out != "kept" || got.err != nil || l.looks != 1 || f.sends != 1 {
		t.Errorf("got %q, %v, after %d looks and %d gates", got.out, got.err, l.looks, f.sends)
	}
}
