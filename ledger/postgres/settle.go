package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

var settleSQL = statement("settle")

// settledRow is what a settlement found and did.
type settledRow struct {
	Rule    string // J8, J9, note: done; same, state, early: refused
	Was     ledger.AttemptState
	State   ledger.State // the job's, afterwards
	Surplus bool
}

// Settle implements ledger.Ledger.
func (l *Ledger) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	if err := e.Check(); err != nil {
		return ledger.Settled{}, err
	}
	e = e.Clean()
	r, err := again(ctx, fmt.Sprintf("settle attempt %s as %s", id.ID, e.State), func() (settledRow, error) {
		return locked[settledRow](ctx, l.pool, id.Tenant, id.Job, settleSQL, settleArgs(id, e)...)
	})
	switch {
	case errors.Is(err, ledger.ErrNotFound):
		return ledger.Settled{}, ledger.ErrNotFound
	case err != nil:
		return ledger.Settled{}, err
	case r.Rule == "early":
		return ledger.Settled{}, ledger.ErrTooEarly
	case r.Rule == "state":
		return ledger.Settled{}, fmt.Errorf("%w: the attempt is %s already", ledger.ErrState, r.Was)
	}
	return ledger.Settled{Job: r.State, Surplus: r.Surplus}, nil
}

func settleArgs(id ledger.AttemptID, e ledger.Evidence) []any {
	var asked *time.Time
	if !e.AskedAt.IsZero() {
		asked = &e.AskedAt
	}
	var first *time.Duration
	if e.FirstByte != 0 {
		first = &e.FirstByte
	}
	var codec string
	var body []byte
	if e.State == ledger.Received {
		codec, body = ledger.Text(e.Response.Codec), append([]byte{}, e.Response.Body...) // an empty answer is one: never null
	}
	return []any{id.Tenant, id.Job, [16]byte(id.ID), e.State, e.By, asked, e.SettleWindow,
		e.Class, e.Who, e.Reason, e.Status, e.ProviderRequestID, e.ObjectID,
		first, e.Usage.In, e.Usage.Cached, e.Usage.Out, e.Cost, e.CostSource, codec, body}
}
