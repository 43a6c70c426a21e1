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
	place
	Rule    string // J8, J9, note: done; same, state, early: refused
	Was     ledger.AttemptState
	State   ledger.State // the job's, afterwards
	Surplus bool
	Known   bool // the same, by another kind of actor
}

// settleAsk is evidence on an attempt.
type settleAsk struct {
	id ledger.AttemptID
	ledger.Evidence
}

func (a *settleAsk) job() jobRef { return jobRef{a.id.Tenant, a.id.Job} }

func (a *settleAsk) String() string {
	return fmt.Sprintf("settle attempt %s as %s", a.id.ID, a.State)
}

// codec and body are those of an answer; none: "" and null.
func (a *settleAsk) codec() string {
	if a.State != ledger.Received {
		return ""
	}
	return ledger.Text(a.Response.Codec)
}

func (a *settleAsk) body() []byte {
	if a.State != ledger.Received {
		return nil
	}
	return a.Response.Body
}

// Settle implements ledger.Ledger.
func (l *Ledger) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	if err := e.Check(); err != nil {
		return ledger.Settled{}, err
	}
	if e.State == ledger.Received {
		row, err := l.split(ctx, id.Tenant, id.Job, e.Response.Body, ledger.InlineBody)
		if err != nil {
			return ledger.Settled{}, err
		}
		e.Response = &ledger.Response{Codec: e.Response.Codec, Body: row}
	}
	ask := &settleAsk{id, e.Clean()}
	r, err := again(ctx, ask, func() (*settledRow, error) { return l.settlements.do(ctx, ask) })
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
	return ledger.Settled{Job: r.State, Surplus: r.Surplus, Known: r.Known}, nil
}

func (l *Ledger) settle(ctx context.Context, asks []*settleAsk) ([]settledRow, error) {
	text := func(of func(*settleAsk) string) list[string] { return column(asks, of) }
	tokens := func(of func(*ledger.Usage) *int64) list[*int64] {
		return column(asks, func(a *settleAsk) *int64 { return of(&a.Usage) })
	}
	return locked[settledRow](ctx, l.pool, column(asks, (*settleAsk).job), settleSQL,
		column(asks, func(a *settleAsk) [16]byte { return a.id.ID }),
		text(func(a *settleAsk) string { return string(a.State) }),
		text(func(a *settleAsk) string { return string(a.By) }),
		column(asks, func(a *settleAsk) *time.Time { return nonzero(a.AskedAt) }),
		column(asks, func(a *settleAsk) time.Duration { return a.SettleWindow }),
		text(func(a *settleAsk) string { return a.Class }),
		text(func(a *settleAsk) string { return a.Who }),
		text(func(a *settleAsk) string { return a.Reason }),
		column(asks, func(a *settleAsk) int { return a.Status }),
		text(func(a *settleAsk) string { return a.ProviderRequestID }),
		text(func(a *settleAsk) string { return a.ObjectID }),
		column(asks, func(a *settleAsk) *time.Duration { return nonzero(a.FirstByte) }),
		tokens(func(u *ledger.Usage) *int64 { return u.In }),
		tokens(func(u *ledger.Usage) *int64 { return u.Cached }),
		tokens(func(u *ledger.Usage) *int64 { return u.Out }),
		column(asks, func(a *settleAsk) *ledger.Nano { return a.Cost }),
		text(func(a *settleAsk) string { return a.CostSource }),
		text((*settleAsk).codec),
		column(asks, (*settleAsk).body))
}

// nonzero is null for what is not known.
func nonzero[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
