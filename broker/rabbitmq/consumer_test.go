package rabbitmq

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/paidonce/paidonce/broker"
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

// A write that the driver does not finish ends with its caller's context.
func TestWriteIsBoundedByContext(t *testing.T) {
	block := make(chan struct{})
	defer close(block)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	h := &held{session: &session{dead: make(chan struct{})}}
	told := make(chan error, 1)
	go func() { told <- h.tell(ctx, func() error { <-block; return nil }) }()
	select {
	case err := <-told:
		if !errors.Is(err, broker.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("hangs")
	}
	dead := &held{session: &session{dead: make(chan struct{})}}
	close(dead.session.dead)
	if err := dead.tell(t.Context(), func() error { <-block; return nil }); !errors.Is(err, broker.ErrNotHeld) {
		t.Errorf("on a session that ended: %v", err)
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
