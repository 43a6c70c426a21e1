package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// Join implements ledger.Workers.
func (l *Ledger) Join(ctx context.Context, w ledger.Worker) (ledger.WorkerID, error) {
	if err := w.Check(); err != nil {
		return ledger.WorkerID{}, err
	}
	return write(ctx, l, "join as worker "+w.ID, func(t *tx) (ledger.WorkerID, error) {
		t.wrote = true
		epoch, err := one(context.Background(), t, scalar[int64], "join", w.ID, micros(t.now.Add(w.TTL)), w.Host, w.PID, w.Version, w.Config, micros(t.now))
		return ledger.WorkerID{ID: w.ID, Epoch: epoch}, err
	})
}

// Renew implements ledger.Workers.
func (l *Ledger) Renew(ctx context.Context, id ledger.WorkerID, ttl time.Duration) (ledger.Renewed, error) {
	if ttl <= 0 {
		return ledger.Renewed{}, fmt.Errorf("%w: renew: a lease of %s", ledger.ErrRequest, ttl)
	}
	asked := time.Now()
	return write(ctx, l, "renew the lease of worker "+id.ID, func(t *tx) (ledger.Renewed, error) {
		n, err := t.exec("renew", micros(t.now.Add(ttl)), id.ID, id.Epoch)
		if err != nil {
			return ledger.Renewed{}, err
		}
		if n == 0 {
			t.wrote = false
			return ledger.Renewed{}, ledger.ErrClosed
		}
		flagged, err := many(context.Background(), t, readKey, "flagged", id.ID, id.Epoch)
		return ledger.Renewed{Deadline: asked.Add(ttl), Cancelled: flagged}, err
	})
}

// Flagged implements ledger.Workers.
func (l *Ledger) Flagged(ctx context.Context, id ledger.WorkerID) ([]ledger.Key, error) {
	keys, err := many(ctx, l.readers, readKey, "flagged", id.ID, id.Epoch)
	if err != nil {
		return nil, fmt.Errorf("read the cancelled jobs of worker %s: %w", id.ID, explain(err))
	}
	return keys, nil
}

func readKey(s scanner) (k ledger.Key, err error) { return k, s.Scan(&k.Tenant, &k.Text) }

// Leave implements ledger.Workers.
func (l *Ledger) Leave(ctx context.Context, id ledger.WorkerID) error {
	_, err := write(ctx, l, "close the epoch of worker "+id.ID, func(t *tx) (int, error) {
		return t.exec("leave", micros(t.now), id.ID, id.Epoch)
	})
	return err
}
