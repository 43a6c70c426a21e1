package job

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/paidonce/paidonce/ledger"
)

// tee is a stream on its way to user code. All of it is kept, since it becomes the
// saved answer; user code reads what was let through.
type tee struct {
	mu    sync.Mutex
	moved sync.Cond
	text  []byte
	let   int   // how much user code may see
	err   error // after that; nil: there is more to come
}

func newTee() *tee {
	t := new(tee)
	t.moved.L = &t.mu
	return t
}

// let through up to n; err follows it, if it is not nil.
func (t *tee) pass(text []byte, n int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text, t.let = text, n
	if t.err == nil {
		t.err = err
	}
	t.moved.Broadcast()
}

// teeBody is user code's end of a tee. Closing it does not stop the stream, which is
// read to its end for the record.
type teeBody struct {
	tee  *tee
	ctx  context.Context // the caller's
	stop func() bool
	off  int
	shut bool
}

func newTeeBody(ctx context.Context, t *tee) *teeBody {
	b := &teeBody{tee: t, ctx: ctx}
	b.stop = context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.moved.Broadcast()
	})
	return b
}

// Read waits for text that is let through, or for the caller's context.
func (b *teeBody) Read(p []byte) (int, error) {
	t := b.tee
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		switch {
		case b.shut:
			return 0, http.ErrBodyReadAfterClose
		case b.off < t.let:
			n := copy(p, t.text[b.off:t.let])
			b.off += n
			return n, nil
		case t.err != nil:
			return 0, t.err
		case b.ctx.Err() != nil:
			return 0, context.Cause(b.ctx)
		case len(p) == 0:
			return 0, nil
		}
		t.moved.Wait()
	}
}

// Close ends the reading, not the stream.
func (b *teeBody) Close() error {
	b.stop()
	b.tee.mu.Lock()
	defer b.tee.mu.Unlock()
	b.shut = true
	b.tee.moved.Broadcast()
	return nil
}

// stream takes an event stream in, whether or not user code reads along. The end of
// it is let through when it is on record: who sees a terminal event stops there.
func (x *exchange) stream(resp *http.Response) {
	t := newTee()
	x.tee = t
	r := &reading{strict: x.flavour != generic}
	x.deliver(x.response(resp, newTeeBody(x.caller.Context(), t), -1))
	text, end, err := x.pump(resp.Body, t, r)
	o := x.streamed(resp, text, r, end, err)
	err = io.EOF
	if !x.record(o) || o.evidence.State == ledger.Sent || o.evidence.State == ledger.Received && o.err != nil {
		err = x.lost(io.ErrUnexpectedEOF)
	}
	let := len(text)
	if o.evidence.State == ledger.Received && err != io.EOF {
		let = t.let // an answer that is not on record is not handed over as a whole one
	}
	t.pass(text, let, err)
}

// pump reads the stream to its terminal event or its end, and lets through what
// is not part of the end.
func (x *exchange) pump(body io.Reader, t *tee, r *reading) (text []byte, end meaning, err error) {
	var c eventCutter
	take := func(e event) bool {
		end = r.read(e)
		x.noted(r)
		return end == completed || end == failing
	}
	for {
		text = slices.Grow(text, 4<<10)
		n, rerr := body.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		for e, ok := c.next(text); ok; e, ok = c.next(text) {
			if take(e) {
				return text[:e.end], end, nil
			}
			if !r.finished {
				t.pass(text, e.end, nil)
			}
		}
		if !r.finished {
			t.pass(text, c.safe, nil)
		}
		switch {
		case rerr != nil:
			if e, ok := c.last(text); ok && take(e) {
				return text, end, nil
			}
			return text, passing, rerr
		case len(text) > maxAnswer:
			return text, passing, ErrTooLarge
		}
	}
}

// streamed is the outcome of a stream that was read.
func (x *exchange) streamed(resp *http.Response, text []byte, r *reading, end meaning, err error) outcome {
	x.objectID, x.bill = r.objectID, r.bill
	clean := errors.Is(err, io.EOF)
	switch {
	case end == failing:
		return x.faulted(r.fault)
	case end == completed || r.ended(clean):
		return x.received(resp, text)
	case errors.Is(err, ErrTooLarge):
		x.bill = bill{} // its counts are not the last ones
		return x.received(resp, text)
	case clean:
		return x.unknown("no_terminal_event", errors.New("the stream ended without its terminal event"))
	}
	class := lostClass(err)
	if class != "timeout" && class != "cancelled" {
		class = "cut_stream"
	}
	return x.unknown(class, err)
}

// noted puts the answer's id on record while the stream goes on: if this process
// dies, it is what a reconciler can ask the provider about. It is tried in the
// background, and no longer than until the outcome is recorded.
func (x *exchange) noted(r *reading) {
	if r.objectID == "" || x.noteDone != nil {
		return
	}
	x.objectID, x.bill = r.objectID, r.bill
	e := x.evidence(ledger.Sent, "streaming")
	ctx, cancel := context.WithCancel(x.ctx)
	done := make(chan struct{})
	x.noteDone = func() { cancel(); <-done }
	go func() {
		defer close(done)
		defer x.caught()
		x.a.note(ctx, e)
	}()
}
