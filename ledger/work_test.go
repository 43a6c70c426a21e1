package ledger

import (
	"errors"
	"testing"
)

// TestInWork: who is called by work is told so, and nobody else.
func TestInWork(t *testing.T) {
	boom := errors.New("boom")
	if InWork() {
		t.Error("in work without any")
	}
	var deep func(n int) bool
	deep = func(n int) bool {
		if n == 0 {
			return InWork()
		}
		return deep(n - 1)
	}
	err := Work(func() error {
		beside := make(chan bool)
		go func() { beside <- deep(3) }()
		if !InWork() || !deep(20) || <-beside {
			t.Error("work does not know that it is, or a goroutine beside it says that it is")
		}
		return boom
	})
	if err != boom || InWork() {
		t.Errorf("%v, in work afterwards: %v", err, InWork())
	}
	func() {
		defer func() { recover() }()
		_ = Work(func() error { panic("boom") })
	}()
	if InWork() || working.Load() != 0 {
		t.Error("in work after a panic")
	}
}
