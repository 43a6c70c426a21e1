package memory

import (
	"context"
	"slices"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// Reopen implements ledger.Reopener.
func (l *Ledger) Reopen(ctx context.Context, o ledger.Reopening) (ledger.Reopened, error) {
	if err := o.Check(); err != nil {
		return ledger.Reopened{}, err
	}
	now, unlock, err := l.begin(ctx)
	if err != nil {
		return ledger.Reopened{}, err
	}
	defer unlock()
	r := l.keys[o.Key]
	if r == nil {
		return ledger.Reopened{}, ledger.ErrNotFound
	}
	f := l.facts(r, now)
	f.InputKept = r.input != nil
	f.TokenUsed = slices.Contains(r.reruns, o.Token)
	f.UnknownCalls, f.DoublePay = r.unknownCalls(), o.DoublePay
	t := o.Rule()
	guard := t.Allows(f)
	if o.Token != "" && f.TokenUsed && guard != "" {
		return ledger.Reopened{State: r.State, Generation: r.Generation, Again: true}, nil
	}
	if err := ledger.ReopenRefusal(f, guard); err != nil {
		return ledger.Reopened{}, err
	}
	if o.Token != "" {
		r.begin(o.Token, now)
	}
	if !o.Waiting {
		r.Cancel, r.Runs, r.panics, r.Error = false, 0, 0, nil
	}
	r.Carrier, r.NextAt = ledger.CarriedByLedger, now
	r.move(t, now, o.Who, o.Told(f))
	return ledger.Reopened{State: r.State, Generation: r.Generation}, nil
}

// begin begins a new generation.
func (r *row) begin(token string, now time.Time) {
	for _, a := range r.attempts {
		if r.State != ledger.Done && a.Generation == r.Generation && a.State == ledger.Received {
			a.Surplus = true
		}
	}
	if r.Result != nil {
		r.earlier = append(r.earlier, ledger.Earlier{Generation: r.Generation, Result: *r.Result})
	}
	r.reruns = append(r.reruns, token)
	r.Generation++
	r.Replays, r.Calls, r.BeganAt, r.Result = 0, 0, now, nil
	r.DoneAt, r.Purged = time.Time{}, false
}

// unknownCalls counts the calls that may have been paid and have no answer.
func (r *row) unknownCalls() int {
	answered, unknown := map[ledger.CallRef]bool{}, map[ledger.CallRef]bool{}
	for _, a := range r.attempts {
		if a.Generation == r.Generation {
			answered[a.Call] = answered[a.Call] || a.State == ledger.Received
			unknown[a.Call] = unknown[a.Call] || a.State == ledger.UnknownAttempt
		}
	}
	n := 0
	for call := range unknown {
		if unknown[call] && !answered[call] {
			n++
		}
	}
	return n
}
