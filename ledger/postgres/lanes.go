package postgres

import (
	"context"
	"errors"
	"sync"
)

// lanes are the goroutines that make the statements of groups, as many as there are
// connections. A goroutine keeps the stack that it once needed, and pgx needs a deep one: made by
// the caller, every call that waits for a model would hold it. The user's work in a
// result's transaction stays on the caller's own goroutine.
type lanes struct {
	work   chan func()
	closed chan struct{}
	once   sync.Once
	all    sync.WaitGroup
}

// errClosed: the ledger was closed.
var errClosed = errors.New("the Postgres ledger is closed")

func newLanes(n int) *lanes {
	l := &lanes{work: make(chan func()), closed: make(chan struct{})}
	for range n {
		l.all.Go(l.run)
	}
	return l
}

func (l *lanes) run() {
	for {
		select {
		case f := <-l.work:
			f()
		case <-l.closed:
			return
		}
	}
}

// close waits for what runs.
func (l *lanes) close() {
	l.once.Do(func() { close(l.closed) })
	l.all.Wait()
}

// do runs f on a lane and waits for its end; f ends with ctx. A panic of f is the
// caller's.
func (l *lanes) do(ctx context.Context, f func()) error {
	done := make(chan any, 1)
	task := func() {
		defer func() { done <- recover() }()
		f()
	}
	select {
	case l.work <- task:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.closed:
		return errClosed
	}
	if v := <-done; v != nil {
		panic(v)
	}
	return nil
}

// on is f, run on a lane.
func on[T any](ctx context.Context, l *lanes, f func() (T, error)) (v T, err error) {
	if lerr := l.do(ctx, func() { v, err = f() }); lerr != nil {
		return v, lerr
	}
	return v, err
}

// ask is one, made on a lane.
func ask[T any](ctx context.Context, l *Ledger, sql string, args ...any) (T, error) {
	return on(ctx, l.lanes, func() (T, error) { return one[T](ctx, l.pool, sql, args...) })
}
