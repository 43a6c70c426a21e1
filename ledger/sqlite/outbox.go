package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// put puts what a result asks for into the outbox.
func (t *tx) put(r *row, res ledger.Result) error {
	due := micros(t.now.Add(ledger.MessageHold))
	for i, m := range res.Messages {
		if _, err := t.exec("put", r.Key.Tenant, r.ID, res.ID[:], i+1, r.Generation, m.Action, due, m.Body); err != nil {
			return err
		}
	}
	return nil
}

// TakeMessages implements ledger.Outbox. A reader looks first, so that an outbox with nothing in it costs no write.
func (l *Ledger) TakeMessages(ctx context.Context, n int, hold time.Duration) ([]ledger.Outgoing, error) {
	due, err := many(ctx, l.readers, readOutgoing, "outbox_due", micros(clock()), n)
	if err != nil {
		return nil, fmt.Errorf("look for messages to publish: %w", explain(err))
	}
	if len(due) == 0 {
		return nil, nil
	}
	return write(ctx, l, "take messages to publish", func(t *tx) ([]ledger.Outgoing, error) {
		due, err := many(context.Background(), t, readOutgoing, "outbox_due", micros(t.now), n)
		for i, m := range due {
			if err == nil && (i == 0 || m.ID.Tenant != due[i-1].ID.Tenant || m.ID.Job != due[i-1].ID.Job) {
				_, err = t.exec("outbox_hold", micros(t.now.Add(hold)), m.ID.Tenant, m.ID.Job)
			}
		}
		return due, err
	})
}

func readOutgoing(s scanner) (m ledger.Outgoing, err error) {
	var result []byte
	var origin *string
	if err := s.Scan(&m.ID.Tenant, &m.ID.Job, &result, &m.ID.N, &m.Action, &m.Body, &origin); err != nil {
		return m, err
	}
	m.ID.Result = id(result)
	m.Origin, err = readOrigin(origin)
	return m, err
}

// DropMessages implements ledger.Outbox.
func (l *Ledger) DropMessages(ctx context.Context, ids []ledger.OutgoingID) error {
	_, err := write(ctx, l, "drop messages that are published", func(t *tx) (none struct{}, err error) {
		for _, m := range ids {
			if err == nil {
				_, err = t.exec("outbox_drop", m.Tenant, m.Job, m.Result[:], m.N)
			}
		}
		return none, err
	})
	return err
}

// CountMessages implements ledger.Outbox.
func (l *Ledger) CountMessages(ctx context.Context) (int, error) {
	n, err := one(ctx, l.readers, scalar[int], "outbox_count")
	if err != nil {
		return 0, fmt.Errorf("count the outbox: %w", explain(err))
	}
	return n, nil
}
