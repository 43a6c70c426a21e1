package sqlite

import (
	"context"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// Reopen implements ledger.Reopener.
func (l *Ledger) Reopen(ctx context.Context, o ledger.Reopening) (ledger.Reopened, error) {
	if err := o.Check(); err != nil {
		return ledger.Reopened{}, err
	}
	return write(ctx, l, "reopen "+o.Key.Text, func(t *tx) (ledger.Reopened, error) { return t.reopen(o) })
}

func (t *tx) reopen(o ledger.Reopening) (ledger.Reopened, error) {
	r, err := t.find(o.Key)
	if err != nil {
		return ledger.Reopened{}, err
	}
	if r == nil {
		return ledger.Reopened{}, ledger.ErrNotFound
	}
	f := r.facts(t.now)
	f.DoublePay = o.DoublePay
	_, err = one(context.Background(), t, func(s scanner) (none struct{}, err error) {
		return none, s.Scan(&f.InputKept, &f.TokenUsed, &f.UnknownCalls)
	}, "reopenable", r.Key.Tenant, r.ID, r.Generation, o.Token)
	if err != nil {
		return ledger.Reopened{}, err
	}
	rule := o.Rule()
	guard := rule.Allows(f)
	if f.TokenUsed && guard != "" {
		return ledger.Reopened{State: r.State, Generation: r.Generation, Again: true}, nil
	}
	if err := ledger.ReopenRefusal(f, guard); err != nil {
		return ledger.Reopened{}, err
	}
	if o.Token != "" {
		if err := t.begin(r, o.Token); err != nil {
			return ledger.Reopened{}, err
		}
	}
	if !o.Waiting {
		r.Cancel, r.Runs, r.panics, r.Error = false, 0, 0, nil
	}
	r.Carrier, r.NextAt = ledger.CarriedByLedger, t.now
	r.move(rule, t.now, o.Who, o.Told(f))
	return ledger.Reopened{State: r.State, Generation: r.Generation}, t.save(r)
}

// begin begins a new generation.
func (t *tx) begin(r *row, token string) error {
	if _, err := t.exec("rerun", r.Key.Tenant, r.ID, token, micros(t.now)); err != nil {
		return err
	}
	if r.State != ledger.Done {
		if _, err := t.exec("reopen_surplus", r.Key.Tenant, r.ID, r.Generation); err != nil {
			return err
		}
	}
	r.Generation++
	r.Replays, r.resultID, r.DoneAt = 0, ledger.ID{}, time.Time{}
	r.uncounted, r.BeganAt = r.attempts, t.now
	_, err := t.exec("reopen", r.Key.Tenant, r.ID)
	return err
}
