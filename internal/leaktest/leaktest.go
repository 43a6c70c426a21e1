// Package leaktest finds goroutines that tests leave behind.
//
//	func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }
//
// When all tests of the package have ended, no goroutine may be left that runs in this module, or in a module that is named.
// Those of the test support below internal/ do not count: servers are shared by all tests of a process, and end with it.
package leaktest

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	module  = "github.com/paidonce/paidonce/"
	support = module + "internal/"
	// grace is how long what was told to end may take to do so, on a busy machine.
	grace = 20 * time.Second
)

// Main runs the tests and returns the exit code: 1 where they passed and goroutines are left. modules are import paths, such as
// github.com/jackc/pgx, whose goroutines count as well.
func Main(m *testing.M, modules ...string) int {
	return check(m.Run(), os.Stderr, grace, modules)
}

func check(code int, w io.Writer, grace time.Duration, modules []string) int {
	if code != 0 {
		return code // a test that failed leaves what it was about to close
	}
	var left []string
	for end := time.Now().Add(grace); ; time.Sleep(10 * time.Millisecond) {
		if left = leaked(stacks(), modules); len(left) == 0 {
			return code
		}
		if time.Now().After(end) {
			break
		}
	}
	fmt.Fprintf(w, "leaktest: %d goroutines are left %v after the tests:\n\n%s\n", len(left), grace, strings.Join(left, "\n\n"))
	return 1
}

// stacks are those of all goroutines but the caller's, as runtime.Stack prints them.
func stacks() []string {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			all := strings.Split(strings.TrimSpace(string(buf[:n])), "\n\n")
			return all[1:] // the first is the caller's
		}
		buf = make([]byte, 2*len(buf))
	}
}

// leaked are the stacks that have a frame, or a creator, in the module or in modules, and none in the test support.
func leaked(all, modules []string) (left []string) {
	for _, stack := range all {
		ours, theirs := false, false
		for line := range strings.Lines(stack) {
			f := strings.TrimPrefix(line, "created by ")
			theirs = theirs || strings.HasPrefix(f, support)
			ours = ours || strings.HasPrefix(f, module) || slices.ContainsFunc(modules, func(m string) bool { return strings.HasPrefix(f, m) })
		}
		if ours && !theirs {
			left = append(left, stack)
		}
	}
	return left
}
