package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

var (
	joinSQL    = statement("join")
	renewSQL   = statement("renew")
	flaggedSQL = statement("flagged")
	leaveSQL   = statement("leave")
)

// Join implements ledger.Workers.
func (l *Ledger) Join(ctx context.Context, w ledger.Worker) (ledger.WorkerID, error) {
	if err := w.Check(); err != nil {
		return ledger.WorkerID{}, err
	}
	row, err := one[struct{ Epoch int64 }](ctx, l.pool, joinSQL, w.ID, w.TTL, w.Host, w.PID, w.Version, w.Config)
	if err != nil {
		return ledger.WorkerID{}, explain("join as worker "+w.ID, err)
	}
	return ledger.WorkerID{ID: w.ID, Epoch: row.Epoch}, nil
}

// keyRow names a job.
type keyRow struct{ Tenant, Key string }

func (k keyRow) key() ledger.Key { return ledger.Key{Tenant: k.Tenant, Text: k.Key} }

// Renew implements ledger.Workers.
func (l *Ledger) Renew(ctx context.Context, id ledger.WorkerID, ttl time.Duration) (ledger.Renewed, error) {
	if ttl <= 0 {
		return ledger.Renewed{}, fmt.Errorf("%w: renew: a lease of %s", ledger.ErrRequest, ttl)
	}
	asked := time.Now()
	tag, err := l.pool.Exec(ctx, renewSQL, id.ID, id.Epoch, ttl)
	if err != nil {
		return ledger.Renewed{}, explain("renew the lease of worker "+id.ID, err)
	}
	if tag.RowsAffected() == 0 {
		return ledger.Renewed{}, ledger.ErrClosed
	}
	flagged, err := l.Flagged(ctx, id)
	return ledger.Renewed{Deadline: asked.Add(ttl), Cancelled: flagged}, err
}

// Flagged implements ledger.Workers.
func (l *Ledger) Flagged(ctx context.Context, id ledger.WorkerID) ([]ledger.Key, error) {
	rows, err := many[keyRow](ctx, l.pool, flaggedSQL, id.ID, id.Epoch)
	if err != nil {
		return nil, fmt.Errorf("read the cancelled jobs of worker %s: %w", id.ID, err)
	}
	var keys []ledger.Key
	for _, k := range rows {
		keys = append(keys, k.key())
	}
	return keys, nil
}

// Leave implements ledger.Workers.
func (l *Ledger) Leave(ctx context.Context, id ledger.WorkerID) error {
	if _, err := l.pool.Exec(ctx, leaveSQL, id.ID, id.Epoch); err != nil {
		return fmt.Errorf("close the epoch of worker %s: %w", id.ID, err)
	}
	return nil
}
