package job

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"
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
				new(Run).aside(tc.f)
				returned = true
			}()
			<-over
			if returned != tc.returned || panicked != tc.panicked {
				t.Errorf("returned %t, panicked with %v; want %t, %v", returned, panicked, tc.returned, tc.panicked)
			}
		})
	}
}

//go:noinline
func fallsHere() { panic("boom") }

// afar is a panic of another goroutine that was raised again.
type afar struct{ PanicError }

func (a afar) Panicked() (any, []byte) { return a.Value, a.Stack }

// TestPanicked: a panic that was raised again is what it was, and its stack says who was told and where it began.
func TestPanicked(t *testing.T) {
	there := afar{PanicError{"boom", []byte("there")}}
	for name, tc := range map[string]struct {
		raised any
		begun  string
	}{"here": {"boom", ""}, "afar": {there, "\npanicked elsewhere: there"}} {
		t.Run(name, func(t *testing.T) {
			var p, aside *PanicError
			func() {
				defer func() { p = Panicked(recover()) }()
				panic(tc.raised)
			}()
			r := new(Run)
			func() {
				defer func() { aside = r.panicked(recover()) }()
				r.aside(func() { panic(tc.raised) })
			}()
			if p.Value != "boom" || aside.Value != "boom" || p.Error() != "PO316 the handler panicked: boom" {
				t.Errorf("raised %v, and aside %v", p, aside)
			}
			for _, p := range []*PanicError{p, aside} {
				if !strings.Contains(string(p.Stack), "job.TestPanicked.func1") || !strings.HasSuffix(string(p.Stack), tc.begun) {
					t.Errorf("its stack is %s", p.Stack)
				}
			}
		})
	}
}

// TestAsideStack: whoever reads of a panic of a ledger's verb is told where it was, although its goroutine is gone.
func TestAsideStack(t *testing.T) {
	c := Call[string, string]{Name: "c", Routes: []Route[string, string]{{Name: "a", Timeout: time.Minute,
		Do: func(ctx context.Context, a *Attempt, _ string) (string, error) { return "", a.Sent(ctx) }}}}
	h := newHandler(Def[note, string]{Name: "send", Uses: Uses(c),
		Handle: func(ctx context.Context, j *Run, _ note) (string, error) { return c.Run(ctx, j, "in") }})
	in, err := Encode("send", note{Tenant: "acme", ID: "1"})
	if err != nil {
		t.Fatal(err)
	}
	store := &fake{onSend: func(context.Context) error { fallsHere(); return nil }}
	_, err = h.Run(t.Context(), testRun(t, store, func(c *RunConfig) { c.Lease.Fence = 1 }), &in.Content)
	p, ok := errors.AsType[*PanicError](err)
	if !ok || p.Value != "boom" || !strings.Contains(string(p.Stack), "job.fallsHere(") || !strings.Contains(string(p.Stack), "job.(*question[...]).do(") {
		t.Errorf("the run ended with %v, and its stack is %s", err, p.Stack)
	}
}
