package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// open reports whether the worker's epoch is the current one and not closed.
func (l *Ledger) open(id ledger.WorkerID) bool {
	w := l.workers[id.ID]
	return w != nil && w.epoch == id.Epoch && !w.closed
}

// Join implements ledger.Workers.
func (l *Ledger) Join(ctx context.Context, w ledger.Worker) (ledger.WorkerID, error) {
	if err := w.Check(); err != nil {
		return ledger.WorkerID{}, err
	}
	now, unlock, err := l.begin(ctx)
	if err != nil {
		return ledger.WorkerID{}, err
	}
	defer unlock()
	life := &worker{epoch: 1, lease: now.Add(w.TTL)}
	if before := l.workers[w.ID]; before != nil {
		life.epoch, life.counted = before.epoch+1, before.counted
	}
	l.workers[w.ID] = life
	return ledger.WorkerID{ID: w.ID, Epoch: life.epoch}, nil
}

// Renew implements ledger.Workers.
func (l *Ledger) Renew(ctx context.Context, id ledger.WorkerID, ttl time.Duration) (ledger.Renewed, error) {
	if ttl <= 0 {
		return ledger.Renewed{}, fmt.Errorf("%w: renew: a lease of %s", ledger.ErrRequest, ttl)
	}
	now, unlock, err := l.begin(ctx)
	if err != nil {
		return ledger.Renewed{}, err
	}
	defer unlock()
	if !l.open(id) {
		return ledger.Renewed{}, ledger.ErrClosed
	}
	l.workers[id.ID].lease = now.Add(ttl)
	return ledger.Renewed{Deadline: now.Add(ttl), Cancelled: l.flagged(id)}, nil
}

// Flagged implements ledger.Workers.
func (l *Ledger) Flagged(ctx context.Context, id ledger.WorkerID) ([]ledger.Key, error) {
	_, unlock, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return l.flagged(id), nil
}

func (l *Ledger) flagged(id ledger.WorkerID) (keys []ledger.Key) {
	for _, r := range l.rows {
		if r.State == ledger.Running && r.Owner == id && r.Cancel {
			keys = append(keys, r.Key)
		}
	}
	return keys
}

// Leave implements ledger.Workers.
func (l *Ledger) Leave(ctx context.Context, id ledger.WorkerID) error {
	_, unlock, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if l.open(id) {
		l.workers[id.ID].closed = true
	}
	return nil
}
