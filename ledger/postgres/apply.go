package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger"
)

var (
	applicableSQL = statement("applicable")
	applySQL      = statement("apply")
)

// RunTx returns a call's answer, as call.Run does, and has fn work on it in a transaction that marks the answer as applied:
// run is a *job.Run, and call a job.Call. What fn writes through tx is committed once for each answer, before
// RunTx returns: a later run of the job, or a second RunTx, gets the answer and does not run fn. It
// is bound as the work of OnCommit is, and an error of it leaves the answer captured and not applied.
// See job.Call.RunTx for the rest.
func RunTx[Run, In, Out any](ctx context.Context, run Run, call interface {
	RunTx(ctx context.Context, run Run, in In, work func(Out) ledger.Hook) (Out, error)
}, in In, fn func(ctx context.Context, tx pgx.Tx, out Out) error) (Out, error) {
	return call.RunTx(ctx, run, in, func(out Out) ledger.Hook {
		return hook{func(ctx context.Context, tx pgx.Tx) error { return fn(ctx, tx, out) }}
	})
}

// applied is the user's rows for an answer that want to be committed.
type applied struct {
	lease   ledger.Lease
	attempt ledger.ID
	work    hook
}

// appliedRow is the job's row, and the attempt's if there is one, as an application saw them.
type appliedRow struct {
	State   ledger.State
	Fence   int64
	N       *int
	Attempt *ledger.AttemptState
	Applied *bool
	FirstIn bool
	Done    bool // by this statement
}

// verdict is what the rows say of the application of an answer: nil when it is there, errUncommitted when it may come.
func (r appliedRow) verdict(a *applied) error {
	f := ledger.Facts{Exists: true, State: r.State, FenceHeld: r.Fence == a.lease.Fence, FirstIn: r.FirstIn, Attempt: value(r.Attempt), Applied: value(r.Applied)}
	switch guard := ledger.Row("J10a").Allows(f); {
	case r.Done, guard == "unapplied":
		return nil
	case guard == "":
		return errUncommitted
	case guard == "received" && r.N == nil:
		return ledger.ErrNotFound
	default:
		return ledger.Refusal(guard)
	}
}

// Apply implements ledger.Ledger.
func (l *Ledger) Apply(ctx context.Context, lease ledger.Lease, attempt ledger.ID, work ledger.Hook) error {
	h, err := own(work)
	if err != nil {
		return err
	}
	a := &applied{lease, attempt, h}
	return persevere(ctx, "apply an answer of "+lease.Key.Text,
		func() error { return l.apply(ctx, a) },
		func() error { return l.wasApplied(ctx, a) })
}

// apply commits the user's rows once.
func (l *Ledger) apply(ctx context.Context, a *applied) error {
	// Ask before the user's work runs for nothing, or a second time.
	err := a.verdict(first(many[appliedRow](ctx, l.pool, applicableSQL, a.lease.Key.Tenant, a.lease.Job, [16]byte(a.attempt))))
	if !errors.Is(err, errUncommitted) {
		return err
	}
	err = l.inTransaction(ctx, []hook{a.work}, func(tx pgx.Tx) error {
		row, err := first(a.locked(ctx, tx, applySQL, a.lease.Fence))
		if err == nil && !row.Done && row.verdict(a) == nil {
			return errAlready
		}
		return a.verdict(row, err)
	})
	if errors.Is(err, errAlready) {
		return nil
	}
	return err
}

// errAlready: somebody else committed the rows while this transaction was under way, so it is rolled back.
var errAlready = errors.New("the answer is applied already")

// locked locks the job and runs a statement about the attempt, in one pipeline.
func (a *applied) locked(ctx context.Context, q querier, sql string, args ...any) ([]appliedRow, error) {
	tenant, job := a.lease.Key.Tenant, a.lease.Job
	b := pipeline(1)
	b.Queue(lockSQL, []string{tenant}, []int64{job})
	return end[appliedRow](ctx, q, b, sql, append([]any{tenant, job, [16]byte(a.attempt)}, args...)...)
}

// verdict is that of the row, or why there is none.
func (a *applied) verdict(row *appliedRow, err error) error {
	switch {
	case errors.Is(err, ledger.ErrNotFound):
		return ledger.ErrLost
	case err != nil:
		return err
	}
	return row.verdict(a)
}

// wasApplied asks what became of a commit whose reply is lost, on another connection and under a lock, as committed does.
func (l *Ledger) wasApplied(ctx context.Context, a *applied) error {
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	row, err := first(a.locked(ctx, l.pool, applicableSQL))
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		return fmt.Errorf("read %s after its commit: %w", a.lease.Key, err)
	}
	return a.verdict(row, err)
}
