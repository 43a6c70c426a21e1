package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger"
)

var (
	completeSQL    = statement("complete")
	uncommittedSQL = statement("uncommitted")
	committedSQL   = statement("committed")
)

// hook is the user's work in the result's transaction.
type hook struct {
	fn func(context.Context, pgx.Tx) error
}

// OnCommit adds work to the transaction that commits the run's result; run is a *job.Run.
// What fn writes through tx is committed with the result or not at all. fn may run
// more than once, each time in a new transaction, must not commit or roll back
// itself, and should be short: a connection is held meanwhile (no lock on the
// job is), with the planner settings of the ledger's own statements. An error of
// fn commits nothing, and the run ends with it.
func OnCommit(run interface{ OnCommit(ledger.Hook) }, fn func(ctx context.Context, tx pgx.Tx) error) {
	run.OnCommit(hook{fn})
}

// completedRow is the job row as a commit saw it.
type completedRow struct {
	State     ledger.State
	Fence     int64
	OpenCalls int
	Mine      bool // the result on it is this one
	Done      bool // by this statement
}

// finishedRow is one of many.
type finishedRow struct {
	place
	completedRow
	Surplus int // answers that were paid for and not used
}

// verdict is what the row says of the commit of a result: nil when it is there.
func (c completedRow) verdict(lease ledger.Lease) error {
	if c.Done || c.Mine && c.State == ledger.Done && c.Fence == lease.Fence {
		return nil
	}
	guard := ledger.Row("J10").Allows(ledger.Facts{
		Exists: true, State: c.State, FenceHeld: c.Fence == lease.Fence, OpenCalls: c.OpenCalls})
	if guard == "" {
		return errUncommitted
	}
	return ledger.Refusal(guard)
}

// errUncommitted: the job runs on and the result is not on record.
var errUncommitted = errors.New("the result is not committed")

// Complete implements ledger.Ledger.
func (l *Ledger) Complete(ctx context.Context, lease ledger.Lease, r ledger.Result) error {
	if err := cmp.Or(r.Check(), r.CheckSteps(lease.Key), r.CheckMessages()); err != nil {
		return err
	}
	hooks := make([]hook, len(r.Hooks))
	for i, h := range r.Hooks {
		var err error
		if hooks[i], err = own(h); err != nil {
			return err
		}
	}
	row, err := l.split(ctx, lease.Key.Tenant, lease.Job, r.Body, ledger.InlineBody)
	if err != nil {
		return err
	}
	r.Body = row
	return persevere(ctx, "complete "+lease.Key.Text,
		func() error { return l.complete(ctx, lease, r, hooks) },
		func() error { return l.committed(ctx, lease, r) })
}

// own is the hook if this ledger made it.
func own(h ledger.Hook) (hook, error) {
	own, ok := h.(hook)
	if !ok {
		return hook{}, fmt.Errorf("%w: a %T was made for another kind of ledger than Postgres", ledger.ErrHook, h)
	}
	return own, nil
}

// persevere commits, again where the server wants that. What became of a commit whose reply is lost is asked of seen,
// which answers errUncommitted when it may come. Of a full disk that is known: nothing was committed, and the user's work must not
// run three times for it.
func persevere(ctx context.Context, what string, commit, seen func() error) error {
	for try := 1; ; try++ {
		_, err := again(ctx, what, func() (struct{}, error) { return struct{}{}, commit() })
		if err == nil || definite(err) || errors.Is(err, ledger.ErrFull) {
			return err
		}
		// The reply is lost, or the server is: what the row says counts.
		switch seen := seen(); {
		case errors.Is(seen, errUncommitted) && try < 3:
		case errors.Is(seen, errUncommitted):
			return err
		case seen == nil || definite(seen):
			return seen
		default:
			return errors.Join(err, seen)
		}
	}
}

// definite reports whether the error says that nothing was committed, for good.
func definite(err error) bool {
	for _, e := range []error{ledger.ErrLost, ledger.ErrOpen, ledger.ErrHook, ledger.ErrLate, ledger.ErrState, ledger.ErrNotFound} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// complete commits once. Without hooks and steps it is one pipeline, with those of others.
func (l *Ledger) complete(ctx context.Context, lease ledger.Lease, r ledger.Result, hooks []hook) error {
	c := &completion{lease, r}
	switch {
	case len(hooks) == 0 && !c.asks():
		return verdict(lease)(l.completions.do(ctx, c))
	case len(hooks) == 0:
		return verdict(lease)(first(on(ctx, l.lanes, func() ([]finishedRow, error) { return finishAsking(ctx, l.pool, c) })))
	}
	// Ask before the user's work runs for nothing, or a second time.
	if err := l.seen(ctx, l.pool, uncommittedSQL, lease, r); !errors.Is(err, errUncommitted) {
		return err
	}
	return l.inTransaction(ctx, hooks, func(tx pgx.Tx) error { return finishIn(ctx, tx, c) })
}

// inTransaction runs the user's work, and then what commits it: the job's row is locked last.
func (l *Ledger) inTransaction(ctx context.Context, hooks []hook, finish func(pgx.Tx) error) error {
	tx, err := l.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	// Rolled back also when a hook panics; after a commit this does nothing.
	defer tx.Rollback(context.WithoutCancel(ctx))
	for _, h := range hooks {
		if err := ledger.Work(func() error { return h.fn(ctx, tx) }); err != nil {
			if c := tx.Conn(); c.IsClosed() || full(err) && c.PgConn().TxStatus() == 'E' {
				return err // the server's fault, not the user's
			}
			return hookError(err)
		}
		if s := tx.Conn().PgConn().TxStatus(); s != 'T' {
			return fmt.Errorf("%w: it ended the transaction, or went on after an error in it (transaction status %q)", ledger.ErrHook, s)
		}
	}
	if err := finish(tx); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		if strings.HasPrefix(sqlState(err), "23") { // a deferred constraint on the user's rows
			return hookError(err)
		}
		return err
	}
	return nil
}

// hookError is the error of the user's work, or of a server that wants the
// transaction repeated.
func hookError(err error) error {
	if retriable(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ledger.ErrHook, err)
}

// completion is a result that wants to be committed.
type completion struct {
	lease  ledger.Lease
	result ledger.Result
}

func (c *completion) job() jobRef { return jobRef{c.lease.Key.Tenant, c.lease.Job} }

// used is the attempts that the handler used, each once, as an array literal.
func (c *completion) used() string {
	ids := make([]string, 0, len(c.result.Used))
	for i, id := range c.result.Used {
		if !slices.Contains(c.result.Used[:i], id) {
			ids = append(ids, id.String())
		}
	}
	return "{" + strings.Join(ids, ",") + "}"
}

// finish writes results and their job rows.
func finish(ctx context.Context, q querier, cs []*completion) ([]finishedRow, error) {
	return end[finishedRow](ctx, q, pipeline(len(cs)), completeSQL, completeArgs(cs)...)
}

// completeArgs are the arguments of the statement for some results.
func completeArgs(cs []*completion) []any {
	return []any{
		column(cs, func(c *completion) string { return c.lease.Key.Tenant }),
		column(cs, func(c *completion) int64 { return c.lease.Job }),
		column(cs, func(c *completion) int64 { return c.lease.Fence }),
		column(cs, func(c *completion) [16]byte { return c.result.ID }),
		column(cs, func(c *completion) string { return c.result.Schema }),
		column(cs, func(c *completion) []byte { return c.result.Body }),
		column(cs, (*completion).used),
	}
}

// verdict is what the row that comes back says of the commit under a lease.
func verdict(lease ledger.Lease) func(*finishedRow, error) error {
	return func(row *finishedRow, err error) error {
		if errors.Is(err, ledger.ErrNotFound) {
			return ledger.ErrLost
		}
		if err != nil {
			return err
		}
		return row.verdict(lease)
	}
}

// committed asks what became of a commit, on another connection and under a lock,
// which waits for a server process that is still at it.
func (l *Ledger) committed(ctx context.Context, lease ledger.Lease, r ledger.Result) error {
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	return l.seen(ctx, l.pool, committedSQL, lease, r)
}

// seen reads the verdict on a commit that was, or is to be, made.
func (l *Ledger) seen(ctx context.Context, q querier, sql string, lease ledger.Lease, r ledger.Result) error {
	row, err := one[completedRow](ctx, q, sql, lease.Key.Tenant, lease.Job, [16]byte(r.ID))
	if errors.Is(err, ledger.ErrNotFound) {
		return ledger.ErrLost
	}
	if err != nil {
		return fmt.Errorf("read %s after its commit: %w", lease.Key, err)
	}
	return row.verdict(lease)
}
