package job

import (
	"runtime"
)

// aside runs f on a goroutine of its own, and waits for it. A goroutine keeps the stack that it once needed, and a verb of a ledger
// needs a deep one: made by the caller, every handler that waits for a model would hold it. A panic of f is the caller's, and so
// is its Goexit: what f was to find out is not known then. The panic's stack ends with that goroutine, so the run keeps it. Work of the user stays where the user calls.
func (r *Run) aside(f func()) {
	type end struct {
		returned bool
		panicked any
		stack    []byte
	}
	ended := make(chan end, 1)
	go func() {
		var e end
		defer func() {
			if v := recover(); v != nil {
				p := Panicked(v)
				e.panicked, e.stack = p.Value, p.Stack
			}
			ended <- e
		}()
		f()
		e.returned = true
	}()
	switch e := <-ended; {
	case e.panicked != nil:
		r.fellAside(e.stack)
		panic(e.panicked)
	case !e.returned:
		runtime.Goexit()
	}
}

func (r *Run) fellAside(stack []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fell = &stack
}

// panicked is a panic of the run's handler, for whoever has recovered it, with the stack of the last panic aside, which may be where it began.
func (r *Run) panicked(v any) *PanicError {
	p := Panicked(v)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fell != nil {
		p.Stack = append(append(p.Stack, elsewhere...), *r.fell...)
	}
	return p
}
