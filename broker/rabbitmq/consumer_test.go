package rabbitmq

import (
	"context"
	"errors"
	"log/slog"
	"slices"
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

// A write that the driver does not finish ends with its caller's context, and so does one that waits behind it. Both are
// on their way all the same, one after the other.
func TestWriteIsBoundedByContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		var written []string
		s := &session{dead: make(chan struct{}), writes: make(chan writing)}
		go s.write()
		told := make(chan error)
		for _, name := range []string{"first", "second"} {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				told <- (&held{session: s}).tell(ctx, func() error {
					<-block
					written = append(written, name)
					return nil
				})
			}()
			synctest.Wait()
		}
		for range 2 {
			if err := <-told; !errors.Is(err, broker.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		}
		close(block)
		synctest.Wait()
		if !slices.Equal(written, []string{"first", "second"}) {
			t.Errorf("written: %v", written)
		}
		if err := (&held{session: s}).tell(t.Context(), func() error { return errors.New("closed") }); !errors.Is(err, broker.ErrNotHeld) {
			t.Errorf("on a channel that is closed: %v", err)
		}
		close(s.dead)
		synctest.Wait()
		if err := (&held{session: s}).tell(t.Context(), func() error { return nil }); !errors.Is(err, broker.ErrNotHeld) {
			t.Errorf("on a session that ended: %v", err)
		}
	})
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
