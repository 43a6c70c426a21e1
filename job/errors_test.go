package job

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"
)

// Case 47: errors are wrapped in any order, and each has one class.
func TestClassOf(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		class Class
		in    time.Duration
	}{
		"plain":       {io.EOF, Retryable, 0},
		"fail":        {Fail(io.EOF), Permanent, 0},
		"failf":       {Failf("x: %w", io.EOF), Permanent, 0},
		"retry":       {Retry(io.EOF), Retryable, 0},
		"retry in":    {RetryIn(time.Minute, io.EOF), Retryable, time.Minute},
		"unsure":      {Unsure(io.EOF), Unknown, 0},
		"wrapped":     {fmt.Errorf("x: %w", Fail(io.EOF)), Permanent, 0},
		"joined":      {errors.Join(errors.New("x"), Unsure(io.EOF)), Unknown, 0},
		"outer wins":  {RetryIn(time.Second, Fail(io.EOF)), Retryable, time.Second},
		"inner stays": {Fail(Retry(io.EOF)), Permanent, 0},
	} {
		class, in := ClassOf(c.err)
		if class != c.class || in != c.in || !errors.Is(c.err, io.EOF) {
			t.Errorf("%s: %s, %s; want %s, %s", name, class, in, c.class, c.in)
		}
	}
	for _, err := range []error{Fail(nil), Retry(nil), RetryIn(1, nil), Unsure(nil)} {
		if err != nil {
			t.Errorf("an error was made of none: %v", err)
		}
	}
}

func TestPolicy(t *testing.T) {
	for s, want := range map[string]Policy{"": Hold(), "hold": Hold(), "fail": FailUnknown(), "replay:1": Replay(1), "replay:12": Replay(12)} {
		p, err := ParsePolicy(s)
		if err != nil || p != want || s != "" && p.String() != s {
			t.Errorf("%q reads as %s, %v", s, p, err)
		}
	}
	for _, s := range []string{"replay", "replay:", "replay:0", "replay:-1", "replay:1x", "replay:01", "replay: 1", "Hold", "hold "} {
		if p, err := ParsePolicy(s); err == nil {
			t.Errorf("%q reads as %s", s, p)
		}
	}
}
