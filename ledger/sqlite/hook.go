package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// hookTime bounds the user's work when its caller does not: everybody else who
// writes waits for it.
const hookTime = time.Minute

// Tx is the transaction that commits a result, as far as the user's work may use it: as
// *sql.Tx, without an end of its own. It is good until the work returns or its context
// ends; statements that would end the transaction are refused.
type Tx interface {
	// ExecContext runs statements that return no rows.
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	// QueryContext runs a statement that returns rows. They are closed when the work returns.
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	// QueryRowContext runs a statement that returns one row; read it with Scan.
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// hook is the user's work in the result's transaction.
type hook struct {
	fn func(context.Context, Tx) error
}

// OnCommit adds work to the transaction that commits the run's result; run is a *job.Run.
// What fn writes through tx is committed with the result or not at all. fn may run
// more than once, each time in a new transaction. It must be short: nobody else
// writes to the file meanwhile, and it is left behind, without its transaction, when
// the commit's context ends or after a minute. An error of fn commits nothing, and
// the run ends with it.
func OnCommit(run interface{ OnCommit(ledger.Hook) }, fn func(ctx context.Context, tx Tx) error) {
	run.OnCommit(hook{fn})
}

// errOver is the cause of a context whose work has returned.
var errOver = errors.New("the transaction is over")

// errGone: the engine has taken back the whole transaction after an error of a statement (no room, an interrupt, a conflict that was
// to end it). What is written from here would be committed by itself.
var errGone = errors.New("an error of one of its statements has ended the transaction")

// userTx is a Tx on the writer's connection.
type userTx struct {
	w    *writer
	conn *sql.Conn
	ctx  context.Context // of the work
	mu   sync.Mutex      // held while a statement is begun
	over bool
	full error // of a statement that found no room; nil: of none
	rows []*sql.Rows
}

// begin locks the transaction for a statement. Its context ends when either does.
func (t *userTx) begin(ctx context.Context) (context.Context, func()) {
	t.mu.Lock()
	ctx, cancel := context.WithCancelCause(ctx)
	context.AfterFunc(t.ctx, func() { cancel(context.Cause(t.ctx)) })
	switch {
	case t.over:
		cancel(errOver)
	case t.w.gone.Load():
		cancel(errGone)
	}
	return ctx, t.mu.Unlock
}

// ExecContext implements Tx.
func (t *userTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	ctx, unlock := t.begin(ctx)
	defer unlock()
	res, err := t.conn.ExecContext(ctx, query, args...)
	t.met(err)
	return res, err
}

// QueryContext implements Tx.
func (t *userTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	ctx, unlock := t.begin(ctx)
	defer unlock()
	rows, err := t.conn.QueryContext(ctx, query, args...)
	t.met(err)
	if err == nil {
		t.rows = append(t.rows, rows)
	}
	return rows, err
}

// QueryRowContext implements Tx.
func (t *userTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	ctx, unlock := t.begin(ctx)
	defer unlock()
	row := t.conn.QueryRowContext(ctx, query, args...)
	t.met(row.Err())
	return row
}

// met notes the error of a statement. One that writes and returns rows (RETURNING) has written, or not, before its first row.
func (t *userTx) met(err error) {
	if full(err) {
		t.full = err
	}
}

// end waits for the statement under way, which the end of its context interrupts, and lets
// no other begin.
func (t *userTx) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	for _, r := range t.rows {
		_ = r.Close() // the work had its error from Next
	}
}

// filled is the error of a statement of the work that found no room in the ledger's file.
func (t *userTx) filled() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.full
}

// panicked carries a panic of the user's work to the goroutine that asked for it.
type panicked struct{ value any }

func (p panicked) Error() string { return fmt.Sprintf("the work panicked: %v", p.value) }

// run runs the user's work on the writer's transaction, which is still there after nil.
func (t *tx) run(ctx context.Context, h hook) error {
	user := &userTx{w: t.w, conn: t.w.conn}
	err := t.work(ctx, h, user)
	gone, noRoom := t.w.gone.Load(), user.filled()
	switch {
	case full(err) && (gone || noRoom != nil), gone && noRoom != nil:
		return errors.Join(noRoom, err) // the ledger's own fault, not the user's
	case err == nil && gone:
		err = errGone
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ledger.ErrHook, err)
	}
	return nil
}

// work runs it on a goroutine of its own: work that does not heed its context is left behind.
func (t *tx) work(ctx context.Context, h hook, user *userTx) error {
	ctx, stop := context.WithTimeoutCause(ctx, hookTime, fmt.Errorf("it took longer than %s", hookTime))
	defer stop()
	user.ctx = ctx
	t.w.inHook.Store(true)
	defer t.w.inHook.Store(false)
	defer user.end()
	defer stop() // interrupts what the work left running
	ended := make(chan error, 1)
	go func() {
		err := errors.New("it ended its goroutine")
		defer func() {
			if v := recover(); v != nil {
				err = panicked{v}
			}
			ended <- err
		}()
		err = ledger.Work(func() error { return h.fn(ctx, user) })
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
