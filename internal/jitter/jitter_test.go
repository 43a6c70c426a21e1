package jitter_test

import (
	"testing"
	"time"

	"github.com/paidonce/paidonce/internal/jitter"
)

func TestBelow(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 1000 {
		d, q := jitter.Below(4), jitter.Quarter(8)
		if d < 0 || d >= 4 || q < 8 || q > 10 {
			t.Fatalf("below 4: %d; 8 and a quarter: %d", d, q)
		}
		seen[d] = true
	}
	if len(seen) != 4 || jitter.Below(1) != 0 || jitter.Quarter(0) != 0 {
		t.Errorf("below 4 there are %v", seen)
	}
	undo := jitter.Decide(func(n int64) int64 { return n - 1 })
	if d := jitter.Below(time.Hour); d != time.Hour-1 {
		t.Errorf("decided is %s", d)
	}
	if undo(); jitter.Below(1) != 0 {
		t.Error("chance does not decide again")
	}
	defer func() {
		if recover() == nil {
			t.Error("below nothing there is something")
		}
	}()
	jitter.Below(0)
}
