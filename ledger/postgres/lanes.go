package postgres

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// lanes are the goroutines that make the statements of groups, as many as there are
// connections. A goroutine keeps the stack that it once needed, and pgx needs a deep one: made by
// the caller, every call that waits for a model would hold it. The user's work in a
// result's transaction stays on the caller's own goroutine.
//
// Few statements are under way at a time, so that who comes meanwhile comes together with others:
// two, or one for a crowd. While all are for one ask each there is nobody to share with, and a few more may
// begin. The other lanes are for when statements are late.
type lanes struct {
	work   chan func(*turn) // never buffered: who is not taken can leave
	calls  chan func(*turn) // of groups, one of each at a time
	next   chan struct{}    // with the lane that takes what comes next
	closed chan struct{}
	once   sync.Once
	all    sync.WaitGroup
	groups []func() // what refuses those who wait in them

	mu    sync.Mutex
	under []*turn     // statements under way that are not late, the oldest first
	asks  int         // for how many they are, but for full batches
	kept  bool        // next is with nobody until there is room again
	late  *time.Timer // nil: it was never needed. It runs while next is kept: under[0] is late then
}

const (
	// turns is how many statements are under way at a time, but for late and lone ones.
	turns = 2
	// crowded is how many asks are a crowd, beside which no statement begins. Of a batch that is full there is one more.
	crowded = 5
	// patience is when a statement is late: it waits for a row's lock, or for a slow disk, and holds nobody
	// back any more. On a fast disk a large batch takes about as long.
	patience = 3 * time.Millisecond
	// mostGroups is how many groups lanes may serve.
	mostGroups = 16
)

// turn is one statement of a lane.
type turn struct {
	lanes *lanes
	since time.Time
	asks  int  // that count; guarded by lanes.mu, as is the rest
	begun bool // whether it has let another lane take what comes next, or keeps it from that
}

// begin says for how many the statement is, the first time, and lets another lane take what comes next if it may.
func (t *turn) begin(asks int) {
	l := t.lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.begun {
		return
	}
	if asks == batchSize {
		asks = 0
	}
	t.begun, t.asks, l.kept = true, asks, true
	l.under, l.asks = append(l.under, t), l.asks+asks
	l.handOn()
}

// end is its end.
func (t *turn) end() {
	t.begin(0) // if there was nothing to do
	l := t.lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.under, t); i >= 0 {
		l.drop(i)
	}
	l.handOn()
}

// drop takes a statement from those under way.
func (l *lanes) drop(i int) {
	l.asks -= l.under[i].asks
	l.under = slices.Delete(l.under, i, i+1)
}

// handOn lets a lane take what comes next, if none may and there is room. A timer is set only where somebody may be held back:
// to set one for each statement wakes the runtime each time.
func (l *lanes) handOn() {
	if !l.kept {
		return
	}
	for len(l.under) > 0 && time.Since(l.under[0].since) >= patience {
		l.drop(0)
	}
	few, lone := len(l.under) < turns, !slices.ContainsFunc(l.under, (*turn).shared)
	switch {
	case l.asks < crowded && (few || lone):
		l.kept = false
		l.next <- struct{}{} // there is one, and room for it
	case l.late == nil:
		l.late = time.AfterFunc(patience-time.Since(l.under[0].since), l.look)
	default:
		l.late.Reset(patience - time.Since(l.under[0].since))
	}
}

// shared reports whether the statement is for more than one ask, or was full.
func (t *turn) shared() bool { return t.asks != 1 }

// look is for when a statement is late.
func (l *lanes) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handOn()
}

// errClosed: the ledger was closed.
var errClosed = errors.New("the Postgres ledger is closed")

func newLanes(n int) *lanes {
	l := &lanes{work: make(chan func(*turn)), calls: make(chan func(*turn), mostGroups), next: make(chan struct{}, 1), closed: make(chan struct{})}
	l.next <- struct{}{}
	for range n {
		l.all.Go(l.run)
	}
	return l
}

func (l *lanes) run() {
	closed := false
	defer func() {
		if !closed { // the statement ended its goroutine, which was the lane
			l.all.Go(l.run)
		}
	}()
	for {
		select {
		case <-l.next:
		case <-l.closed:
			closed = true
			return
		}
		select {
		case f := <-l.work:
			l.make(f)
		case f := <-l.calls:
			l.make(f)
		case <-l.closed:
			closed = true
			return
		}
	}
}

// make makes a statement, on the lane that takes what comes next. The turn ends whatever becomes of f.
func (l *lanes) make(f func(*turn)) {
	t := &turn{lanes: l, since: time.Now()}
	defer t.end()
	f(t)
}

// serves has the lanes serve one more group, before they are used.
func (l *lanes) serves(refuse func()) {
	if l.groups = append(l.groups, refuse); len(l.groups) > mostGroups {
		panic("there is no room for the calls of so many groups") // a programmer's mistake, seen at the first start
	}
}

// call asks for a lane, for a group that has not asked yet; false: they are closed. Who calls while they are closed is told at least once.
func (l *lanes) call(come func(*turn)) bool {
	if l.isClosed() {
		return false
	}
	l.calls <- come
	return !l.isClosed()
}

func (l *lanes) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// close waits for what runs.
func (l *lanes) close() {
	l.once.Do(func() {
		close(l.closed)
		for _, refuse := range l.groups {
			refuse()
		}
	})
	l.all.Wait()
}

// exit is how a statement ended.
type exit struct {
	returned bool
	panicked *fallen
}

// fallen is a panic on a lane, for those who asked. Its stack is over when it is theirs, so it brings it along.
type fallen struct {
	value any
	stack []byte
}

// fell is v, which was recovered on this goroutine just now; nil for none.
func fell(v any) *fallen {
	if v == nil {
		return nil
	}
	return &fallen{v, debug.Stack()}
}

// Error has the stack in it, for a process that dies of it.
func (f *fallen) Error() string {
	return fmt.Sprintf("%v\n\non a lane of the ledger:\n%s", f.value, f.stack)
}

// Unwrap is the value, if that is an error.
func (f *fallen) Unwrap() error {
	err, _ := f.value.(error)
	return err
}

// Panicked is what was raised, and where: job.Panicked asks for it.
func (f *fallen) Panicked() (value any, stack []byte) { return f.value, f.stack }

// suffer ends the caller as the statement ended: in a panic, or in runtime.Goexit, after which nothing is known of it.
func (e exit) suffer() {
	switch {
	case e.panicked != nil:
		panic(e.panicked)
	case !e.returned:
		runtime.Goexit()
	}
}

// do runs f on a lane and waits for its end; f ends with ctx. A panic of f is the
// caller's, with its stack, and so is its Goexit.
func (l *lanes) do(ctx context.Context, f func()) error {
	done := make(chan exit, 1)
	task := func(t *turn) {
		var e exit
		defer func() {
			e.panicked = fell(recover())
			done <- e
		}()
		t.begin(1)
		f()
		e.returned = true
	}
	select {
	case l.work <- task:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.closed:
		return errClosed
	}
	(<-done).suffer()
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
