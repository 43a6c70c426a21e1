package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

var (
	putSQL         = statement("put")
	outboxTakeSQL  = statement("outbox_take")
	outboxDropSQL  = statement("outbox_drop")
	outboxCountSQL = statement("outbox_count")
)

// outgoingRow is a message in the outbox.
type outgoingRow struct {
	Tenant string
	Job    int64
	Result [16]byte
	N      int
	Action string
	Origin *ledger.Origin
	Body   []byte
}

// TakeMessages implements ledger.Outbox.
func (l *Ledger) TakeMessages(ctx context.Context, n int, hold time.Duration) ([]ledger.Outgoing, error) {
	rows, err := many[outgoingRow](ctx, l.pool, outboxTakeSQL, n, hold)
	if err != nil {
		return nil, fmt.Errorf("take messages to publish: %w", err)
	}
	var all []ledger.Outgoing
	for _, r := range rows {
		all = append(all, ledger.Outgoing{ID: ledger.OutgoingID{Tenant: r.Tenant, Job: r.Job, Result: r.Result, N: r.N},
			Action: r.Action, Body: r.Body, Origin: value(r.Origin)})
	}
	return all, nil
}

// DropMessages implements ledger.Outbox.
func (l *Ledger) DropMessages(ctx context.Context, ids []ledger.OutgoingID) error {
	_, err := one[struct{ N int }](ctx, l.pool, outboxDropSQL,
		column(ids, func(m ledger.OutgoingID) string { return m.Tenant }),
		column(ids, func(m ledger.OutgoingID) int64 { return m.Job }),
		column(ids, func(m ledger.OutgoingID) [16]byte { return m.Result }),
		column(ids, func(m ledger.OutgoingID) int { return m.N }))
	if err != nil {
		return fmt.Errorf("drop messages that are published: %w", err)
	}
	return nil
}

// CountMessages implements ledger.Outbox.
func (l *Ledger) CountMessages(ctx context.Context) (int, error) {
	row, err := one[struct{ N int }](ctx, l.pool, outboxCountSQL)
	if err != nil {
		return 0, fmt.Errorf("count the outbox: %w", err)
	}
	return row.N, nil
}
