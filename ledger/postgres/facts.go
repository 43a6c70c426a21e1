package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger"
)

var factsSQL = statement("facts")

// lockedRow is all that guards look at, of a row that is locked.
type lockedRow struct {
	place
	ID          int64
	State       ledger.State
	Fence       int64
	OpenCalls   int
	OpenUntil   *time.Time
	Cancel      bool
	InputKept   bool
	Carrier     ledger.Carrier
	Owner       *string
	RunDeadline *time.Time
	NextAt      time.Time
	UnknownAt   *time.Time
	Panics      int
	Replays     int
	Cost        *ledger.Nano
	Reserved    ledger.Nano
	Budget      ledger.Nano
	Calls       int
	MaxCalls    int
	Lifetime    time.Duration
	BeganAt     time.Time
	Now         time.Time // the ledger's clock, read while the lock is held
}

// facts are those for whoever presents a fence. An owner is bound by its run's
// deadline alone.
func (r lockedRow) facts(fence int64) ledger.Facts {
	return ledger.Facts{
		Exists: true, State: r.State, OpenCalls: r.OpenCalls, Cancel: r.Cancel, InputKept: r.InputKept,
		FenceHeld: r.Fence == fence,
		Lapsed:    r.RunDeadline != nil && !r.Now.Before(*r.RunDeadline),
	}
}

// released says what became of the job, which was to be due at nextAt.
func (r lockedRow) released(state ledger.State, c ledger.Carrier, nextAt time.Time) ledger.Released {
	x := ledger.Released{State: state, Carrier: c}
	if state == ledger.Ready || state == ledger.Unknown {
		x.RetryIn = max(0, nextAt.Sub(r.Now))
	}
	return x
}

// under runs fn with a job's row locked; what it writes through tx is one
// transaction. ErrNotFound: there is no such job.
func (l *Ledger) under(ctx context.Context, tenant string, job int64, fn func(pgx.Tx, lockedRow) error) error {
	return l.underAll(ctx, []jobRef{{tenant, job}}, func(tx pgx.Tx, rows []lockedRow) error {
		row, err := first(rows, nil)
		if err != nil {
			return err
		}
		return fn(tx, *row)
	})
}

// underAll is under for some jobs. Those that are not there have no row.
func (l *Ledger) underAll(ctx context.Context, jobs []jobRef, fn func(pgx.Tx, []lockedRow) error) error {
	return pgx.BeginTxFunc(ctx, l.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		rows, err := end[lockedRow](ctx, tx, pipeline(len(jobs)), factsSQL, column(jobs, jobRef.of), column(jobs, jobRef.id))
		if err != nil {
			return err
		}
		return fn(tx, rows)
	})
}
