package job

import (
	"errors"
	"runtime"
	"testing"
)

// TestAside: whatever ends what is done aside ends its caller, who would else take a gate that did not answer for open.
func TestAside(t *testing.T) {
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		f        func()
		returned bool
		panicked any
	}{
		"returns": {f: func() {}, returned: true},
		"panics":  {f: func() { panic(boom) }, panicked: boom},
		"exits":   {f: runtime.Goexit},
	} {
		t.Run(name, func(t *testing.T) {
			var returned bool
			var panicked any
			over := make(chan struct{})
			go func() {
				defer close(over)
				defer func() { panicked = recover() }()
				aside(tc.f)
				returned = true
			}()
			<-over
			if returned != tc.returned || panicked != tc.panicked {
				t.Errorf("returned %t, panicked with %v; want %t, %v", returned, panicked, tc.returned, tc.panicked)
			}
		})
	}
}
