package job

import "runtime"

// aside runs f on a goroutine of its own, and waits for it. A goroutine keeps the stack that it once needed, and a verb of a ledger
// needs a deep one: made by the caller, every handler that waits for a model would hold it. A panic of f is the caller's, and so
// is its Goexit: what f was to find out is not known then. Work of the user stays where the user calls.
func aside(f func()) {
	type end struct {
		returned bool
		panicked any
	}
	ended := make(chan end, 1)
	go func() {
		var e end
		defer func() {
			e.panicked = recover()
			ended <- e
		}()
		f()
		e.returned = true
	}()
	switch e := <-ended; {
	case e.panicked != nil:
		panic(e.panicked)
	case !e.returned:
		runtime.Goexit()
	}
}
