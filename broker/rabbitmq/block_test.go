package rabbitmq_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/rabbitmq"
)

// Brokers that do not answer. None of these may hang: the limits below are nets
// under the test, far above what a bounded call takes.
const net = 15 * time.Second

// within runs f and fails the test if it takes until the net.
func (b *bench) within(what string, f func()) {
	b.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(net):
		b.Fatalf("%s hangs", what)
	}
}

// patient makes the heartbeat notice nothing within a test.
func patient(c *rabbitmq.Config) { c.Heartbeat = 5 * time.Minute }

// ending is a context that ends soon.
func (b *bench) ending(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(b.Context(), d)
	b.Cleanup(cancel)
	return ctx
}

// Case 72: the broker runs out of memory. Publishing says so and does not wait,
// acks go on, a stop is in time, and the job that could not be given back is not lost.
func TestMemoryAlarm(t *testing.T) {
	b := newBench(t)
	r := b.open()
	b.publish(r, "acked in the alarm", "held in the alarm")
	held := map[string]broker.Delivery{}
	for _, d := range b.receive(r, 2) {
		held[string(d.Body)] = d
	}
	b.srv.MemoryAlarm(t, true)
	b.within("publish into the alarm", func() {
		b.is("publish into the alarm", r.Publish(b.ending(300*time.Millisecond), broker.Message{Body: []byte("pending")}), broker.ErrUnavailable)
	})
	b.eventually("blocked", func() bool { return r.State().Blocked })
	var err error
	b.within("nack while blocked", func() { err = r.Nack(t.Context(), held["held in the alarm"], time.Second) })
	b.is("nack while blocked", err, broker.ErrUnavailable)
	if err == nil || !strings.Contains(err.Error(), "memory") {
		t.Errorf("the error does not name the alarm: %v", err)
	}
	b.ack(r, held["acked in the alarm"])
	b.within("close in the alarm", func() {
		if err := r.Close(b.ending(5 * time.Second)); err != nil {
			t.Errorf("close in the alarm: %v", err)
		}
	})
	b.srv.MemoryAlarm(t, false)
	after := b.open()
	b.publish(after, "after the alarm")
	got := map[string]bool{}
	b.eventually("everything is acknowledged", func() bool {
		ds, err := after.Receive(b.ending(300*time.Millisecond), 10)
		if err == nil { // what was pending may be there too, or went with its connection
			for _, d := range ds {
				got[string(d.Body)] = true
			}
			b.ack(after, ds...)
		}
		return got["held in the alarm"] && got["after the alarm"] && err != nil
	})
	if got["acked in the alarm"] {
		t.Errorf("came back: %v", got)
	}
	b.wantDepth(0, 0)
}

// Publishing goes on when the alarm ends, and State says for how long it was off.
func TestAlarmEnds(t *testing.T) {
	b := newBench(t)
	r := b.open()
	b.srv.MemoryAlarm(t, true)
	pending := make(chan error, 1)
	go func() { pending <- r.Publish(b.soon(), broker.Message{Body: []byte("waits for the end")}) }()
	b.eventually("blocked", func() bool { return r.State().Blocked })
	b.srv.MemoryAlarm(t, false)
	if err := <-pending; err != nil {
		t.Errorf("the message that was sent before the notice: %v", err)
	}
	b.ack(r, b.one(r))
	b.eventually("not blocked", func() bool { s := r.State(); return !s.Blocked && s.BlockedFor > 0 })
	b.worksAgain(r, "after the alarm")
}

// Case 73: the network swallows everything after a publish. A delayed nack returns
// with its context, the original is not acknowledged, and is not lost.
func TestBlackhole(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	proxy, through := b.proxied()
	r := b.open(through, patient)
	b.publish(r, "held")
	d := b.one(r)
	proxy.Stall()
	for range 2 { // the second one finds it held as before
		b.within("nack into a black hole", func() {
			b.is("nack into a black hole", r.Nack(b.ending(200*time.Millisecond), d, time.Millisecond), broker.ErrUnavailable)
		})
	}
	b.within("close into a black hole", func() {
		if err := r.Close(b.ending(time.Second)); err == nil {
			t.Error("close into a black hole says that all is well")
		}
	})
	proxy.Reset() // also what was on its way
	other := b.open()
	b.ack(other, b.one(other))
	b.wantDepth(0, 0)
}

// Case 70: a stop in a storm of messages that nobody confirms.
func TestCloseInAPublishStorm(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	proxy, through := b.proxied()
	r := b.open(through, patient)
	d := func() broker.Delivery { b.publish(r, "held"); return b.one(r) }()
	proxy.Stall()
	var storm sync.WaitGroup
	body := bytes.Repeat([]byte("x"), 100<<10)
	for range 300 {
		storm.Go(func() {
			if err := r.Publish(b.Context(), broker.Message{Body: body}); err == nil {
				t.Error("a publish that nobody confirmed says that it is stored")
			}
		})
	}
	time.Sleep(100 * time.Millisecond) // so that the socket fills; it may also be later
	b.within("close in a storm", func() { r.Close(b.ending(time.Second)) })
	b.within("what was published", storm.Wait)
	if err := r.Ack(b.ending(time.Second), d); !errors.Is(err, broker.ErrClosed) {
		t.Errorf("ack after close: %v", err)
	}
}

// A frozen broker with full sockets. The driver alone would hang here for as long
// as the broker is frozen: the heartbeat that should notice waits for a write.
func TestFrozenBroker(t *testing.T) {
	b := newBench(t)
	log := &captured{}
	r := b.open(func(c *rabbitmq.Config) {
		c.Heartbeat, c.Logger = time.Second, slog.New(slog.NewTextHandler(io.MultiWriter(log, t.Output()), nil))
	})
	b.publish(r, "held")
	d := b.one(r)
	b.srv.Freeze(t)
	var storm sync.WaitGroup
	body := bytes.Repeat([]byte("x"), 1<<20)
	for range 20 {
		storm.Go(func() {
			b.is("publish to a frozen broker", r.Publish(b.ending(6*time.Second), broker.Message{Body: body}), broker.ErrUnavailable)
		})
	}
	b.eventually("both connections are given up", func() bool {
		s := r.State()
		return !s.Connected && s.TakenBack == 1 && s.Reconnects[rabbitmq.LostConnection] == 2
	})
	if s := r.State(); s.Reconnects[rabbitmq.LostChannel] != 0 {
		t.Errorf("the end of a connection counts as one of a channel: %v", s.Reconnects)
	}
	b.is("ack of what was lost", r.Ack(b.soon(), d), broker.ErrNotHeld)
	b.within("publishing to a frozen broker", storm.Wait)
	b.srv.Thaw(t)
	// Unconfirmed is not the same as not stored: some may be there.
	for got := ""; got != "held"; {
		d := b.one(r)
		b.ack(r, d)
		got = string(d.Body[:4])
	}
	b.eventually("connected", func() bool { return r.State().Connected })
	if strings.Contains(log.text(), "takes messages again") {
		t.Error("the end of a connection is taken for the end of an alarm")
	}
}
