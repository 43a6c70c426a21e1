package ledger

import (
	"runtime"
	"strings"
	"sync/atomic"
)

// working counts the works of users that run in transactions of this process.
var working atomic.Int64

// Work runs work of the user in a transaction of a ledger. Whoever is called by it, on its goroutine, is told so
// by InWork. Adapters call every hook through it.
//
//go:noinline
func Work(fn func() error) error {
	working.Add(1)
	defer working.Add(-1)
	return fn()
}

// InWork reports whether its caller runs within Work. Such a caller holds a transaction open, and may be run again or not at all:
// it must not ask for anything that is paid for or that follows the result. Not seen are
// a goroutine that the work started, and a caller that is more than 64 calls below it. While no work runs it costs one read.
func InWork() bool {
	if working.Load() == 0 {
		return false
	}
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		if strings.HasSuffix(f.Function, workName) {
			return true
		}
	}
	return false
}

// workName is how the runtime names Work.
const workName = "/paidonce/ledger.Work"
