package leaktest

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLeaked(t *testing.T) {
	for what, c := range map[string]struct {
		stack string
		want  bool
	}{
		"runs here":      {"goroutine 7 [select]:\ngithub.com/paidonce/paidonce/consumer.(*Consumer).loop(0x1)\n\t/x/consumer.go:1 +0x1", true},
		"was made here":  {"goroutine 7 [select]:\nnet/http.serve()\n\t/x/http.go:1\ncreated by github.com/paidonce/paidonce/job.Do in goroutine 1\n\t/x/job.go:1 +0x1", true},
		"of a driver":    {"goroutine 7 [select]:\ngithub.com/jackc/pgx/v5.x()\n\t/x/pgx.go:1 +0x1", true},
		"of test server": {"goroutine 7 [select]:\ngithub.com/paidonce/paidonce/internal/pgtest.x()\n\t/x/a.go:1\ncreated by github.com/paidonce/paidonce/internal/pgtest.y\n\t/x/a.go:2", false},
		"of another":     {"goroutine 7 [select]:\nos/signal.loop()\n\t/x/a.go:1 +0x1", false},
	} {
		if got := len(leaked([]string{c.stack}, []string{"github.com/jackc/pgx"})) == 1; got != c.want {
			t.Errorf("one that %s: left %t, want %t", what, got, c.want)
		}
	}
}

// A real goroutine is seen while it is there, by its stack alone. This package is test support, so it looks for the
// functions of the test by name.
func TestStacks(t *testing.T) {
	stop, gone := make(chan struct{}), make(chan struct{})
	go func() { defer close(gone); leftBehind(stop) }()
	there := func() bool {
		return slices.ContainsFunc(stacks(), func(s string) bool { return strings.Contains(s, "leaktest.leftBehind(") })
	}
	for !there() {
		time.Sleep(time.Millisecond)
	}
	close(stop)
	<-gone
	for there() { // it ends after it said so
		time.Sleep(time.Millisecond)
	}
}

func leftBehind(stop chan struct{}) { <-stop }

func TestCheck(t *testing.T) {
	var said strings.Builder
	if code := check(3, &said, 0, nil); code != 3 || said.Len() != 0 {
		t.Errorf("after failed tests: exit %d, %q", code, said.String())
	}
	if code := check(0, &said, 0, nil); code != 0 || said.Len() != 0 {
		t.Errorf("nothing is left: exit %d, %q", code, said.String())
	}
	if code := check(0, &said, 0, []string{"testing."}); code != 1 || !strings.Contains(said.String(), "testing.") {
		t.Errorf("a goroutine is left: exit %d, %q", code, said.String())
	}
}
