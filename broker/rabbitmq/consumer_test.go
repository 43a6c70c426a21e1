package rabbitmq

import (
	"errors"
	"log/slog"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// A Receive that comes just after Close has woken the others must not wait for ever.
func TestTakeAfterClose(t *testing.T) {
	c := newConsumer(&Broker{cfg: &settings{}})
	if err := c.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	ds, changed := c.take(1)
	select {
	case <-changed:
	default:
		t.Error("a receive after close waits")
	}
	if len(ds) > 0 {
		t.Errorf("got %v", ds)
	}
}

// Supervise looks again when those who wait lack a subscription, whichever change it was that made them; else it is let alone.
func TestLookOnlyWhenLacking(t *testing.T) {
	for _, c := range []struct {
		name                       string
		waits, buffered, held, out int
		subscribed                 bool
		window                     int
		want                       bool
	}{
		{name: "no subscription", waits: 1, want: true},
		{name: "nobody waits"},
		{name: "something is there already", waits: 1, buffered: 1},
		{name: "as many are held as may be", waits: 1, held: 4},
		{name: "the broker sends more", waits: 1, held: 3, subscribed: true, out: 1, window: 2},
		{name: "the subscription is full and more may be held", waits: 1, held: 3, subscribed: true, out: 2, window: 2, want: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newConsumer(&Broker{cfg: &settings{Config: Config{Prefetch: 4}}})
			s := &session{c: b, held: map[uint64]*held{}}
			b.started, b.session, b.waiting, b.buffer = true, s, c.waits, make([]*held, c.buffered)
			for i := range c.held {
				s.held[uint64(i+1)] = nil
			}
			var sub *subscription
			if c.subscribed {
				sub = &subscription{out: c.out, window: c.window}
			}
			look := func(after string, change func()) {
				t.Helper()
				change()
				select {
				case <-b.wake:
					if !c.want {
						t.Errorf("after %s it looks", after)
					}
				default:
					if c.want {
						t.Errorf("after %s it does not look", after)
					}
				}
			}
			look("the subscription changed", func() { s.set(sub) })
			look("a delivery was settled", func() { b.settling++; b.finish(&held{session: s, tag: 99}, nil) })
			if c.waits > 0 && c.buffered == 0 {
				look("somebody began to wait", func() { b.take(1) })
			}
		})
	}
}

// One connection that is made ends the other one's long pause, but not the shortest
// one: two that lose each other's broker again and again must not spin.
func TestPauseEndsWhenTheBrokerIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Broker{cfg: &settings{Config: Config{Logger: slog.New(slog.DiscardHandler)}, secrets: &redactor{}}, reached: make(chan struct{})}
		began := time.Now()
		paused := make(chan bool)
		go func() { paused <- b.pause(t.Context(), nil, "publisher", errors.New("refused"), time.Hour) }()
		synctest.Wait()
		b.begun(func(*status) {})
		if ok := <-paused; !ok || time.Since(began) != shortest {
			t.Errorf("paused for %v (%v), want %v", time.Since(began), ok, shortest)
		}
	})
}

// A receipt names what its own session holds, and nothing else has a name.
func TestNamed(t *testing.T) {
	s := &session{receipts: "a-1-", held: map[uint64]*held{0: {}, 7: {tag: 7}, math.MaxUint64: {}}} // a broker's tags begin with 1
	if got := s.named(s.receipt(7)); got != s.held[7] {
		t.Errorf("its own receipt names %+v", got)
	}
	for _, receipt := range []string{"", "7", "a-2-7", "a-11-7", "b-1-7", "a-1-8", "a-1-", "a-1-x", "a-1-7x", "a-1-+7", "a-1-18446744073709551616"} {
		if got := s.named(receipt); got != nil {
			t.Errorf("%q names %+v", receipt, got)
		}
	}
}
