package postgres

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

//go:noinline
func fallsHere() { panic("a fault") }

// TestFallen: an error that was raised stays one for whoever recovers it.
func TestFallen(t *testing.T) {
	cause := errors.New("a cause")
	if f := fell(cause); !errors.Is(f, cause) {
		t.Errorf("%v is not its cause", f)
	}
	if f := fell("a fault"); errors.Unwrap(f) != nil {
		t.Errorf("%v has a cause", f)
	}
}

func TestLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(1)
		func() {
			defer func() {
				f, ok := recover().(*fallen)
				if !ok {
					t.Fatal("the caller got no panic of a lane")
				}
				value, stack := f.Panicked()
				if value != "a fault" || !strings.Contains(string(stack), "postgres.fallsHere(") || !strings.Contains(f.Error(), "a fault") || !strings.Contains(f.Error(), "postgres.fallsHere(") {
					t.Errorf("the caller got the panic %v of %s", value, stack)
				}
			}()
			l.do(t.Context(), fallsHere)
		}()

		running, release := make(chan struct{}), make(chan struct{})
		ended := false
		go l.do(t.Context(), func() {
			close(running)
			<-release
			ended = true
		})
		<-running // the lane has outlived the panic
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		if err := l.do(ctx, func() { t.Error("run for a caller that is gone") }); !errors.Is(err, gone) {
			t.Errorf("a full lane and a caller that is gone: %v", err)
		}
		refused := make(chan error, 1)
		go func() { refused <- l.do(t.Context(), func() { t.Error("run after the end") }) }()
		synctest.Wait()
		go func() {
			synctest.Wait()
			close(release)
		}()
		l.close()
		if err := <-refused; !ended || !errors.Is(err, errClosed) {
			t.Errorf("closed: what ran has ended: %t; who waited got %v", ended, err)
		}
		l.close()
		if err := l.do(t.Context(), func() {}); !errors.Is(err, errClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// made is a statement of a test: for how many it is, and how long it takes. One for nobody does not begin.
type made struct {
	asks int
	time.Duration
}

// TestTurns says when statements begin that are all asked for at once, on four lanes where no other number is said.
func TestTurns(t *testing.T) {
	const ms, late = time.Millisecond, time.Second
	for name, c := range map[string]struct {
		made  []made
		begin []time.Duration
		lanes int
	}{
		"lone ones":             {[]made{{1, ms}, {1, 2 * ms}, {1, 2 * ms}, {1, ms}, {1, ms}}, []time.Duration{0, 0, 0, 0, ms}, 0},
		"as many as a crowd":    {[]made{{1, ms}, {1, 2 * ms}, {1, 2 * ms}, {1, 2 * ms}, {1, 2 * ms}, {1, ms}, {1, ms}}, []time.Duration{0, 0, 0, 0, 0, ms, 2 * ms}, 8},
		"pairs":                 {[]made{{2, ms}, {2, 2 * ms}, {1, 2 * ms}, {1, ms}}, []time.Duration{0, 0, ms, 2 * ms}, 0},
		"lone ones and a pair":  {[]made{{1, 2 * ms}, {1, 2 * ms}, {2, ms}, {1, ms}}, []time.Duration{0, 0, 0, ms}, 0},
		"a crowd":               {[]made{{crowded, ms}, {1, ms}, {1, ms}}, []time.Duration{0, ms, ms}, 0},
		"not quite a crowd":     {[]made{{crowded - 1, ms}, {1, ms}}, []time.Duration{0, 0}, 0},
		"a crowd and others":    {[]made{{1, 2 * ms}, {crowded, ms}, {1, ms}}, []time.Duration{0, 0, ms}, 0},
		"others and a crowd":    {[]made{{1, ms}, {crowded, 2 * ms}, {1, ms}}, []time.Duration{0, 0, 2 * ms}, 0},
		"a full batch":          {[]made{{batchSize, ms}, {1, ms}}, []time.Duration{0, 0}, 0},
		"nothing to do":         {[]made{{0, 0}, {crowded, ms}, {0, 0}, {crowded, ms}}, []time.Duration{0, 0, ms, ms}, 0},
		"late ones":             {[]made{{crowded, late}, {crowded, late}, {1, late}, {1, ms}, {1, ms}}, []time.Duration{0, patience, 2 * patience, 2 * patience, 2*patience + ms}, 0},
		"late by nothing":       {[]made{{crowded, patience}, {crowded, patience}, {crowded, patience}, {1, ms}}, []time.Duration{0, patience, 2 * patience, 3 * patience}, 0},
		"more late ones":        {[]made{{2, late}, {2, late}, {1, late}, {1, late}, {1, ms}}, []time.Duration{0, 0, patience, patience, late}, 0},
		"late and lone at once": {[]made{{2, patience}, {2, patience}, {1, patience}, {1, patience}}, []time.Duration{0, 0, patience, patience}, 0},
		"a full batch and pair": {[]made{{batchSize, ms}, {2, 2 * ms}, {1, ms}}, []time.Duration{0, 0, ms}, 0},
		"full batches":          {[]made{{batchSize, ms}, {batchSize, ms}, {1, ms}}, []time.Duration{0, 0, ms}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, zero := newLanes(cmp.Or(c.lanes, 4)), time.Now()
				begin := make([]time.Duration, len(c.made))
				var all sync.WaitGroup
				for i, m := range c.made {
					all.Add(1)
					go func() {
						l.work <- func(turn *turn) {
							defer all.Done()
							begin[i] = time.Since(zero)
							if m.asks > 0 {
								turn.begin(m.asks)
							}
							time.Sleep(m.Duration)
						}
					}()
					synctest.Wait()
				}
				all.Wait()
				if !slices.Equal(begin, c.begin) {
					t.Errorf("they began after %v, want %v", begin, c.begin)
				}
				rest(t, l)
				l.close()
			})
		})
	}
}

// rest checks that one lane waits for work, and that nothing is counted that has ended.
func rest(t *testing.T, l *lanes) {
	t.Helper()
	synctest.Wait()
	if len(l.next) != 0 || l.kept || len(l.under) != 0 || l.asks != 0 {
		t.Errorf("at rest %d other lanes may take what comes next, or none may (%t); %d statements are under way, for %d",
			len(l.next), l.kept, len(l.under), l.asks)
	}
}

// TestTurnsEnd: whatever becomes of a statement, its turn ends once.
func TestTurnsEnd(t *testing.T) {
	for name, f := range map[string]func(*lanes){
		"a panic": func(l *lanes) {
			defer func() { recover() }()
			l.do(context.Background(), func() { panic("a fault") })
		},
		"a late panic": func(l *lanes) {
			defer func() { recover() }()
			l.do(context.Background(), func() { time.Sleep(time.Second); panic("a fault") })
		},
		"two statements of one departure": func(l *lanes) {
			l.work <- func(turn *turn) {
				turn.begin(crowded)
				time.Sleep(time.Millisecond)
				turn.begin(crowded)
			}
		},
		"two late ones": func(l *lanes) {
			l.work <- func(turn *turn) {
				turn.begin(1)
				time.Sleep(time.Second)
				turn.begin(crowded)
				time.Sleep(time.Second)
			}
		},
		"one that is late before it begins": func(l *lanes) {
			l.work <- func(turn *turn) {
				time.Sleep(2 * patience)
				turn.begin(crowded)
				time.Sleep(time.Second)
			}
			begun := time.Now()
			l.do(context.Background(), func() {})
			if d := time.Since(begun); d != 2*patience {
				panic(d.String() + " until the next could begin")
			}
		},
		"ten at once, all as long as there is patience": func(l *lanes) {
			var all sync.WaitGroup
			for i := range 10 {
				all.Go(func() {
					if i%2 == 0 {
						l.do(context.Background(), func() { time.Sleep(patience) })
						return
					}
					l.work <- func(turn *turn) { turn.begin(crowded); time.Sleep(patience) }
				})
			}
			all.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLanes(4)
				f(l)
				time.Sleep(time.Minute)
				rest(t, l)
				l.close()
			})
		})
	}
}

// TestCloseAtWork: lanes that wait for a turn end as well, and those at work first end that.
func TestCloseAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(4)
		var ended atomic.Int32
		for range 2 {
			go l.do(t.Context(), func() { time.Sleep(patience / 2); ended.Add(1) })
		}
		synctest.Wait()
		l.close()
		if n := ended.Load(); n != 2 {
			t.Errorf("closed when %d of 2 had ended", n)
		}
	})
}

// TestGoexit: a statement that ends its goroutine is no success. Its caller ends as well, and the lane is there for the next.
func TestGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(2)
		for range 5 { // more than there are lanes
			var returned, ended bool
			var all sync.WaitGroup
			all.Go(func() {
				defer func() { ended = recover() == nil }()
				l.do(t.Context(), runtime.Goexit)
				returned = true
			})
			all.Wait()
			if returned || !ended {
				t.Errorf("the caller went on: %t; ended without a panic: %t", returned, ended)
			}
		}
		rest(t, l)
		if err := l.do(t.Context(), func() {}); err != nil {
			t.Error(err)
		}
		l.close()
	})
}

// TestCallAtTheEnd: who asks closed lanes to come, or is about to when they are closed, hears of it, and those who wait are refused at once.
func TestCallAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, refused := newLanes(0), 0
		l.serves(func() { refused++ })
		for range mostGroups {
			if !l.call(func(*turn) {}) {
				t.Error("lanes that are open do not come")
			}
		}
		late := make(chan bool, 1)
		go func() { late <- l.call(func(*turn) {}) }()
		synctest.Wait() // it has seen that they are open
		l.close()
		l.close()
		<-l.calls
		if <-late {
			t.Error("lanes that were closed meanwhile come")
		}
		for range 2 * mostGroups {
			if l.call(func(*turn) {}) {
				t.Error("closed lanes come")
			}
		}
		if refused != 1 {
			t.Errorf("those who wait were refused %d times", refused)
		}
	})
}

func TestTooManyGroups(t *testing.T) {
	l := newLanes(0)
	for range mostGroups {
		l.serves(func() {})
	}
	defer func() {
		if recover() == nil {
			t.Error("there is a group whose call could wait for a lane")
		}
	}()
	l.serves(func() {})
}
