package job

import (
	"runtime"
	"runtime/debug"
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
			if e.panicked = recover(); e.panicked != nil {
				e.stack = debug.Stack()
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

// stack is that of a panic of the run's handler, for whoever has recovered it, and of the last panic aside, which may be where it began.
func (r *Run) stack() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := debug.Stack()
	if r.fell != nil {
		s = append(append(s, "\npanicked aside: "...), *r.fell...)
	}
	return s
}
