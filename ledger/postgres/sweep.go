package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger"
)

var (
	sweepWorkersSQL = statement("sweep_workers")
	sweepJobsSQL    = statement("sweep_jobs")
	dueSQL          = statement("due")
	adoptSQL        = statement("adopt")
	adoptOpenSQL    = statement("adopt_open")
)

// Sweep implements ledger.Reconciler.
func (l *Ledger) Sweep(ctx context.Context, n int) (ledger.Swept, error) {
	return again(ctx, "sweep", func() (ledger.Swept, error) {
		var s ledger.Swept
		tag, err := l.pool.Exec(ctx, sweepWorkersSQL)
		if err != nil {
			return s, err
		}
		s.Epochs = int(tag.RowsAffected())
		swept, err := many[struct {
			Tenant, Key string
			State       ledger.State
		}](ctx, l.pool, sweepJobsSQL, n)
		for _, r := range swept {
			k := keyRow{r.Tenant, r.Key}.key()
			if r.State == ledger.Unknown {
				s.Lapsed = append(s.Lapsed, k)
			} else {
				s.Cancelled = append(s.Cancelled, k)
			}
		}
		return s, err
	})
}

// Due implements ledger.Reconciler.
func (l *Ledger) Due(ctx context.Context, n int, grace time.Duration, actions ...string) ([]ledger.Stored, error) {
	rows, err := many[struct {
		ID                  int64
		Tenant, Key, Action string
		InputHash, Body     []byte
		Origin              *ledger.Origin
	}](ctx, l.pool, dueSQL, n, grace, actions)
	var due []ledger.Stored
	for size := 0; err == nil && len(due) < len(rows) && size < ledger.MaxBody; {
		r := rows[len(due)]
		s := ledger.Stored{Key: keyRow{r.Tenant, r.Key}.key(), Action: r.Action, InputHash: ledger.Hash(r.InputHash), Origin: value(r.Origin)}
		s.Input, s.Fault, err = input(join(ctx, l.pool, r.Tenant, r.ID, r.Body))
		due, size = append(due, s), size+len(s.Input)
	}
	if err != nil {
		return nil, fmt.Errorf("list the jobs to run from the ledger: %w", err)
	}
	return due, nil
}

// adoptedRow is an unknown job that was adopted.
type adoptedRow struct {
	Tenant, Key string
	ID          int64
	Fence       int64
	Action      string
	InputHash   []byte
	Replays     int
	Since       time.Duration
	Now         time.Time
	Input       []byte
}

// Adopt implements ledger.Reconciler.
func (l *Ledger) Adopt(ctx context.Context, a ledger.Adoption) ([]ledger.Adopted, error) {
	if err := a.Check(); err != nil {
		return nil, err
	}
	return again(ctx, "adopt unknown jobs", func() ([]ledger.Adopted, error) {
		var adopted []ledger.Adopted
		err := pgx.BeginTxFunc(ctx, l.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			open, err := one[struct{ Open bool }](ctx, tx, adoptOpenSQL, a.Worker.ID, a.Worker.Epoch, [16]byte(a.Token))
			if err != nil {
				return err
			}
			if !open.Open {
				return ledger.ErrClosed
			}
			rows, err := many[adoptedRow](ctx, tx, adoptSQL, a.Worker.ID, a.Worker.Epoch, a.Max, [16]byte(a.Token))
			if err != nil {
				return err
			}
			for _, r := range rows {
				one, err := r.adopted(ctx, tx)
				if err != nil {
					return err
				}
				adopted = append(adopted, one)
			}
			return nil
		})
		return adopted, err
	})
}

func (r adoptedRow) adopted(ctx context.Context, q querier) (ledger.Adopted, error) {
	open, err := attempts(ctx, q, r.Tenant, r.ID, ledger.Sent)
	if err != nil {
		return ledger.Adopted{}, err
	}
	body, fault, err := input(join(ctx, q, r.Tenant, r.ID, r.Input))
	return ledger.Adopted{
		Lease:  ledger.Lease{Key: keyRow{r.Tenant, r.Key}.key(), Job: r.ID, Fence: r.Fence},
		Action: r.Action, InputHash: ledger.Hash(r.InputHash), Input: body, Fault: fault,
		Since: r.Since, Replays: r.Replays, Now: r.Now, Open: open,
	}, err
}
