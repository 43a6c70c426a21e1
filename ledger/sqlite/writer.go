package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	driver "modernc.org/sqlite"

	"github.com/paidonce/paidonce/ledger"
)

const (
	// groupSize is how many items are committed together at most, and groupTime how long
	// their work may take before it is committed: the first one waits for all.
	groupSize = 256
	groupTime = 20 * time.Millisecond
	// lockWait bounds the wait for another process that writes.
	lockWait = 5 * time.Second
)

// errEnded: the ledger is closed.
var errEnded = errors.New("the ledger is closed")

// item is a verb that waits to be part of a transaction.
type item struct {
	ctx   context.Context
	do    func(*tx) error
	hooks bool // it runs the user's work
	err   error
	done  chan struct{} // closed once err is there
}

// writer is the one goroutine of a process that writes. It owns its connection.
type writer struct {
	conn       *sql.Conn
	statements statements
	items      chan *item
	stop       chan struct{}
	ended      chan struct{}
	inHook     atomic.Bool // user SQL may not touch the transaction itself
	gone       atomic.Bool // the engine took back the whole transaction, as after some errors of a statement
}

func newWriter(conn *sql.Conn) (*writer, error) {
	w := &writer{conn: conn, statements: statements{on: conn}, items: make(chan *item, groupSize),
		stop: make(chan struct{}), ended: make(chan struct{})}
	err := conn.Raw(func(c any) error {
		c.(driver.HookRegisterer).RegisterRollbackHook(func() { w.gone.Store(true) })
		return c.(driver.AuthorizerRegisterer).RegisterAuthorizer(w.authorize)
	})
	if err != nil {
		return nil, fmt.Errorf("guard the transaction: %w", err)
	}
	go w.run()
	return w, nil
}

// authorize refuses what would end or split the transaction under everybody else in it
// when it comes from the user's work.
func (w *writer) authorize(action driver.AuthorizerActionCode, _, _, _, _ string) driver.AuthorizerReturnCode {
	switch action {
	case driver.AuthTransaction, driver.AuthSavepoint, driver.AuthAttach, driver.AuthDetach:
		if w.inHook.Load() {
			return driver.AuthorizerDeny
		}
	}
	return driver.AuthorizerOK
}

// close commits what is under way and ends the goroutine.
func (w *writer) close() error {
	close(w.stop)
	<-w.ended
	return errors.Join(w.statements.close(), w.conn.Close())
}

// write runs a verb in the writer's next transaction, and returns once it is committed. When
// ctx ends before, it returns the cause: the verb may be committed all the same.
func write[T any](ctx context.Context, l *Ledger, what string, fn func(*tx) (T, error)) (T, error) {
	return submit(ctx, l, what, false, fn)
}

func submit[T any](ctx context.Context, l *Ledger, what string, hooks bool, fn func(*tx) (T, error)) (T, error) {
	var v, none T
	it := &item{ctx: ctx, hooks: hooks, done: make(chan struct{})}
	it.do = func(t *tx) (err error) {
		v, err = fn(t)
		return err
	}
	if err := l.writer.put(it); err != nil {
		return none, fmt.Errorf("%s: %w", what, err)
	}
	if it.err != nil {
		return none, known(what, it.err)
	}
	return v, nil
}

// known leaves the errors of the contract as they are: callers compare them.
func known(what string, err error) error {
	for _, e := range []error{ledger.ErrLost, ledger.ErrCancelled, ledger.ErrBudget, ledger.ErrDayBudget, ledger.ErrLate, ledger.ErrRepeated, ledger.ErrOpen,
		ledger.ErrClosed, ledger.ErrNotFound, ledger.ErrState, ledger.ErrTooEarly, ledger.ErrNoInput, ledger.ErrHook, ledger.ErrRequest, ledger.ErrDamaged} {
		if errors.Is(err, e) {
			return err
		}
	}
	return fmt.Errorf("%s: %w", what, explain(err))
}

// put hands an item to the writer and waits for it. Its error says that the item is not done
// with, and its fields may not be looked at.
func (w *writer) put(it *item) error {
	if it.ctx.Err() != nil {
		return context.Cause(it.ctx)
	}
	select {
	case w.items <- it:
	case <-it.ctx.Done():
		return context.Cause(it.ctx)
	case <-w.stop:
		return errEnded
	}
	select {
	case <-it.done:
		return nil
	case <-it.ctx.Done():
		return context.Cause(it.ctx)
	case <-w.ended: // it came too late to be taken
		select {
		case <-it.done:
			return nil
		default:
			return errEnded
		}
	}
}

func (w *writer) run() {
	defer close(w.ended)
	for {
		select {
		case it := <-w.items:
			w.commit(it)
		case <-w.stop:
			return
		}
	}
}

// commit runs a group that begins with first, and answers all of it.
func (w *writer) commit(first *item) {
	group, broken, err := w.try(first, w.more)
	w.answer(group, broken, err)
}

// answer tells each of a group what came of it. When one of several broke the
// transaction for all, each is tried again by itself, in order, so that it fails alone.
func (w *writer) answer(group []*item, broken bool, err error) {
	if broken && len(group) > 1 {
		for _, it := range group {
			alone, broken, err := w.try(it, nil)
			w.answer(alone, broken, err)
		}
		return
	}
	for _, it := range group {
		if err != nil {
			it.err = err
		}
		close(it.done)
	}
}

// more is the next item that waits already, or nil. The callers of the last group
// are given the chance to come with their next.
func (w *writer) more() *item {
	for range 2 {
		select {
		case it := <-w.items:
			return it
		default:
			runtime.Gosched()
		}
	}
	return nil
}

// try runs items in one transaction, from first on as long as more has any. Each of the
// group then has its own refusal in err, unless the transaction as a whole has one.
// broken reports that the fault is that of one item.
func (w *writer) try(first *item, more func() *item) (group []*item, broken bool, err error) {
	group = []*item{first}
	if err := w.begin(); err != nil {
		return group, false, err
	}
	begun := time.Now()
	for it := first; it != nil; {
		if err := w.do(it); err != nil {
			w.rollback()
			return group, true, err
		}
		if it = nil; more != nil && len(group) < groupSize && time.Since(begun) < groupTime {
			if it = more(); it != nil {
				group = append(group, it)
			}
		}
	}
	if err := w.exec("commit"); err != nil {
		w.rollback()
		if deferred(err) { // a constraint on the user's rows that is checked at the commit
			return group, true, fmt.Errorf("%w: %w", ledger.ErrHook, err)
		}
		return group, false, err
	}
	return group, false, nil
}

// do runs one item. Its error breaks the transaction: what the item wrote cannot be
// taken out of it.
func (w *writer) do(it *item) error {
	it.err = nil
	if it.ctx.Err() != nil {
		it.err = context.Cause(it.ctx) // nobody waits for it, and it was not begun
		return nil
	}
	t := &tx{w: w, now: clock()}
	if !it.hooks {
		it.err = it.do(t)
		if it.err != nil && (t.wrote || w.gone.Load()) {
			return it.err
		}
		return nil
	}
	// What the user's work wrote before it failed is taken back alone.
	if err := w.exec("savepoint hook"); err != nil {
		return err
	}
	if it.err = it.do(t); it.err != nil {
		if err := w.exec("rollback to hook"); err != nil {
			return it.err // the transaction is gone, and it was this item's work
		}
	}
	if err := w.exec("release hook"); err != nil {
		return fmt.Errorf("%w: it left a statement open: %w", ledger.ErrHook, err)
	}
	return nil
}

// begin takes the file's write lock, for which another process may have to be waited.
func (w *writer) begin() error {
	w.gone.Store(false)
	err := retry(func() error { return w.exec("begin immediate") })
	if err != nil && busy(err) {
		return fmt.Errorf("%w: it was asked for %s long: %w", ErrBusy, lockWait, err)
	}
	return err
}

// rollback ends a transaction that may be gone already.
func (w *writer) rollback() { _ = w.exec("rollback") }

// exec runs a statement on the transaction itself.
func (w *writer) exec(statement string) error {
	st, err := w.statements.plain(statement)
	if err != nil {
		return err
	}
	_, err = st.Exec()
	return err
}

// tx is the writer's transaction as one verb sees it.
type tx struct {
	w     *writer
	now   time.Time // the ledger's clock, read under the lock; one value per row
	wrote bool
}

// exec runs a statement that writes, and returns how many rows it changed.
func (t *tx) exec(name string, args ...any) (int, error) {
	st, err := t.w.statements.get(context.Background(), name)
	if err != nil {
		return 0, err
	}
	t.wrote = true
	res, err := st.Exec(args...)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

// query implements querier. It is not interrupted: an interrupted write ends the
// transaction of all.
func (t *tx) query(ctx context.Context, name string, args ...any) (*sql.Rows, error) {
	st, err := t.w.statements.get(context.Background(), name)
	if err != nil {
		return nil, err
	}
	return st.Query(args...)
}
