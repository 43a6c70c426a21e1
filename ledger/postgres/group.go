package postgres

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/paidonce/paidonce/ledger"
)

const (
	// batchSize and batchBytes bound a batch: more gains nothing, and the first one in it
	// waits for all.
	batchSize  = 128
	batchBytes = 1 << 20
	// batchTime bounds a batch whose callers have no limit of their own.
	batchTime = time.Minute
	// batchWait is how long a batch waits for rows that others hold locked, in the server's
	// words. A lone statement waits as long as its caller does.
	batchWait = "200ms"
)

// group makes one kind of statement for all who ask at the same time: those who find every
// lane busy are taken together by the next one that is free, in one statement and one
// commit. Nobody is waited for. Asks and rows go by pointer: a goroutine keeps the stack that
// it once needed, and that of every call that waits for a model went through here.
type group[A any, R row] struct {
	lanes *lanes
	// run makes the statement for some asks. A row names the ask that it belongs to by its
	// place; none belongs to those that found nothing.
	run func(ctx context.Context, asks []*A) ([]R, error)
	// key is what no two of a batch may have in common; nil: any may be together.
	key func(*A) any
	// size is the bytes of an ask that count; nil: it is small.
	size func(*A) int

	mu      sync.Mutex
	waiting []*item[A, R] // in the order in which they came; who has left is passed over
	gone    int           // how many of them, from the first, are in batches
	called  bool          // a lane was asked to come, and has not come yet
}

// row is of a statement for many: it has its place.
type row interface{ at() int }

// place is the first column of such a row: which of the asks it belongs to, from 1.
type place struct{ Item int }

func (p place) at() int { return p.Item - 1 }

// item is one ask on its way.
type item[A, R any] struct {
	ctx  context.Context
	ask  *A
	done chan struct{} // closed once the rest is there
	left atomic.Bool   // its caller has gone, and nobody was told yet
	with atomic.Pointer[crowd]

	row *R
	err error
	end exit
}

// errAlone: the batch was refused, and nothing of it happened. Each makes its own.
var errAlone = errors.New("a batch was refused")

// newGroup returns a group for small asks that may all be together.
func newGroup[A any, R row](l *lanes, run func(context.Context, []*A) ([]R, error)) *group[A, R] {
	g := &group[A, R]{lanes: l, run: run}
	l.serves(g.refuse)
	return g
}

// do is the row for a; ErrNotFound: there is none. When ctx ends, an ask that is not yet
// in a batch is withdrawn, and of one that is nothing is known.
func (g *group[A, R]) do(ctx context.Context, a *A) (*R, error) {
	it := &item[A, R]{ctx: ctx, ask: a, done: make(chan struct{})}
	g.wait(it)
	select {
	case <-it.done:
	case <-ctx.Done():
		it.left.Store(true)
		it.leave()
		return nil, context.Cause(ctx)
	}
	it.end.suffer()
	if it.err == errAlone {
		return on(ctx, g.lanes, func() (*R, error) { return g.alone(ctx, a) })
	}
	return it.row, it.err
}

// wait has more asks wait with the others, and has a lane come if it is not coming already. Who waits is woken once, when it is answered.
func (g *group[A, R]) wait(more ...*item[A, R]) {
	g.mu.Lock()
	if len(g.waiting) == cap(g.waiting) && g.gone > len(g.waiting)/2 { // it may never be empty: the room of those who went is used again
		n := copy(g.waiting, g.waiting[g.gone:])
		clear(g.waiting[n:])
		g.waiting, g.gone = g.waiting[:n], 0
	}
	g.waiting = append(g.waiting, more...)
	call := !g.called && g.gone < len(g.waiting)
	g.called = g.called || call
	g.mu.Unlock()
	if call && !g.lanes.call(g.come) {
		g.refuse()
	}
}

// come is a lane that was asked for.
func (g *group[A, R]) come(t *turn) {
	g.mu.Lock()
	g.called = false
	g.mu.Unlock()
	g.depart(t)
}

// next is who waits longest; nil: nobody does.
func (g *group[A, R]) next() *item[A, R] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gone == len(g.waiting) {
		return nil
	}
	it := g.waiting[g.gone]
	g.waiting[g.gone] = nil
	if g.gone++; g.gone == len(g.waiting) {
		g.waiting, g.gone = g.waiting[:0], 0
	}
	return it
}

// refuse answers all who wait: there are no lanes any more.
func (g *group[A, R]) refuse() {
	g.mu.Lock()
	g.called = false // no lane comes, and who waits from now on must hear of that
	g.mu.Unlock()
	for it := g.next(); it != nil; it = g.next() {
		it.fail(errClosed)
	}
}

// depart makes batches on a lane, of who was held back and of who waits, until it holds nobody back.
func (g *group[A, R]) depart(t *turn, held ...*item[A, R]) {
	defer func() {
		if len(held) > 0 { // a statement ended this goroutine, and it is over for those in it alone
			g.depart(t, held...)
		}
	}()
	for first := true; first || len(held) > 0; first = false {
		batch, before := []*item[A, R](nil), held
		held = nil
		batch, held = g.board(before)
		g.wait() // the rest need not wait for this one
		if len(batch) > 0 {
			t.begin(len(batch))
			g.serve(batch)
		}
	}
}

// board fills a batch, with those who were held back before with others. Who has a key that
// is in it already is held back, so that his statement comes after.
func (g *group[A, R]) board(before []*item[A, R]) (batch, held []*item[A, R]) {
	keys, bytes := map[any]bool{}, 0
	full := func() bool { return len(batch) == batchSize || bytes >= batchBytes }
	take := func(it *item[A, R]) {
		if it.ctx.Err() != nil {
			it.fail(context.Cause(it.ctx)) // nobody waits for it, and it was not begun
			return
		}
		if g.key != nil {
			k := g.key(it.ask)
			if full() || keys[k] {
				held = append(held, it)
				return
			}
			keys[k] = true
		}
		if g.size != nil {
			bytes += g.size(it.ask)
		}
		batch = append(batch, it)
	}
	for _, it := range before {
		take(it)
	}
	for !full() && len(held) < batchSize {
		it := g.next()
		if it == nil {
			break
		}
		take(it)
	}
	return batch, held
}

// serve makes the statement for a batch and answers all of it. A batch of one is its
// caller's own statement.
func (g *group[A, R]) serve(batch []*item[A, R]) {
	var e exit
	defer func() {
		e.panicked = fell(recover())
		for _, it := range batch { // each of them must hear of it
			it.end = e
			close(it.done)
		}
	}()
	if len(batch) == 1 {
		it := batch[0]
		it.row, it.err = g.alone(it.ctx, it.ask)
		e.returned = true
		return
	}
	ctx, stop := together(batch)
	defer stop()
	asks := make([]*A, len(batch))
	for i, it := range batch {
		asks[i] = it.ask
		it.err = ledger.ErrNotFound
	}
	rows, err := g.run(ctx, asks)
	if oneToBlame(err) {
		err = errAlone
	}
	for i := range rows {
		it := batch[rows[i].at()]
		it.row, it.err = &rows[i], nil
	}
	for _, it := range batch {
		if err != nil {
			it.err = err
		}
	}
	e.returned = true
}

// alone makes the statement for one.
func (g *group[A, R]) alone(ctx context.Context, a *A) (*R, error) { return first(g.run(ctx, []*A{a})) }

func (it *item[A, R]) fail(err error) {
	it.err, it.end.returned = err, true
	close(it.done)
}

// crowd are the callers who wait for a batch.
type crowd struct {
	waiting atomic.Int64
	cancel  context.CancelFunc
}

// together is the context of a batch. It ends when nobody is left who waits for it, so that
// a server that does not answer holds no lane longer than its callers have patience. Callers say
// themselves that they leave: a context that is watched keeps memory for it, as long as it lives.
func together[A, R any](batch []*item[A, R]) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(context.Background(), batchTime)
	c := &crowd{cancel: cancel}
	c.waiting.Store(int64(len(batch)))
	for _, it := range batch {
		it.with.Store(c)
		it.leave()
	}
	return ctx, cancel
}

// leave tells the crowd that the caller has gone, once: it may go before there is one.
func (it *item[A, R]) leave() {
	c := it.with.Load()
	if c != nil && it.left.CompareAndSwap(true, false) && c.waiting.Add(-1) == 0 {
		c.cancel()
	}
}

// oneToBlame reports whether the server refused a batch, so that nothing of it happened,
// for what may be the fault of one of it. Troubles of the server's own (no resources,
// shutdown, I/O) are everybody's. Severity itself is in the server's language.
func oneToBlame(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.SeverityUnlocalized == "ERROR" && !strings.Contains("53 57 58", e.Code[:2])
}
