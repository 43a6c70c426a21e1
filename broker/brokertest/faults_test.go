package brokertest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/brokertest"
	"github.com/paidonce/paidonce/broker/memory"
)

// start returns a queue with one message, and that message handed out to the
// queue's own source.
func start(t *testing.T, wrap func(*memory.Queue) broker.Publisher) (*memory.Queue, broker.Delivery) {
	t.Helper()
	q := memory.New(memory.Options{Visibility: time.Minute})
	if err := wrap(q).Publish(t.Context(), broker.Message{Body: []byte("a")}); err != nil {
		t.Fatal(err)
	}
	return q, one(t, q)
}

func plain(q *memory.Queue) broker.Publisher { return q }

func one(t *testing.T, s broker.Source) broker.Delivery {
	t.Helper()
	ds, err := s.Receive(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return ds[0]
}

func check(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

func depth(t *testing.T, q *memory.Queue, want memory.Depth) {
	t.Helper()
	if got := q.Depth(); got != want {
		t.Errorf("depth %+v, want %+v", got, want)
	}
}

// spoil is a When that is true once.
func spoil() func(broker.Delivery) bool {
	done := false
	return func(broker.Delivery) bool {
		defer func() { done = true }()
		return !done
	}
}

func TestLostAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, d := start(t, plain)
		f := brokertest.LostAck{Source: q, When: spoil()}
		check(t, "lost ack", f.Ack(t.Context(), d), nil)
		depth(t, q, memory.Depth{Held: 1})
		d = one(t, f) // after the visibility timeout
		if d.Receives != 2 {
			t.Errorf("receives %d, want 2", d.Receives)
		}
		check(t, "second ack", f.Ack(t.Context(), d), nil)
		depth(t, q, memory.Depth{})
	})
}

func TestFailingAck(t *testing.T) {
	q, d := start(t, plain)
	f := brokertest.FailingAck{Source: q, When: spoil()}
	check(t, "ack", f.Ack(t.Context(), d), broker.ErrUnavailable)
	depth(t, q, memory.Depth{Held: 1})
	check(t, "second ack", f.Ack(t.Context(), d), nil)
	depth(t, q, memory.Depth{})
}

func TestSlowExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, d := start(t, plain)
		f := brokertest.SlowExtend{Source: q, By: 50 * time.Second, When: spoil()}
		at := time.Now()
		due, err := f.Extend(t.Context(), d, time.Minute)
		check(t, "extend in time", err, nil)
		if want := at.Add(110 * time.Second); !due.Equal(want) {
			t.Errorf("deadline %v, want %v", due, want)
		}
		f = brokertest.SlowExtend{Source: q, By: time.Minute}
		_, err = f.Extend(t.Context(), d, time.Minute)
		check(t, "extend too late", err, broker.ErrNotHeld)

		cause := errors.New("gave up")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		_, err = f.Extend(ctx, one(t, q), time.Minute)
		check(t, "extend with a context that ends", err, cause)
	})
}

func TestFailExtend(t *testing.T) {
	q, d := start(t, plain)
	f := brokertest.FailExtend{Source: q, When: spoil()}
	_, err := f.Extend(t.Context(), d, time.Hour)
	check(t, "extend", err, broker.ErrUnavailable)
	due, err := f.Extend(t.Context(), d, time.Hour)
	check(t, "second extend", err, nil)
	if !due.After(d.Deadline) {
		t.Errorf("deadline %v, want after %v", due, d.Deadline)
	}
	_, err = brokertest.FailExtend{Source: q, Err: broker.ErrLimit}.Extend(t.Context(), d, time.Hour)
	check(t, "extend with an error of its own", err, broker.ErrLimit)
}

func TestTwice(t *testing.T) {
	q, a := start(t, func(q *memory.Queue) broker.Publisher { return brokertest.Twice{Publisher: q} })
	b := one(t, q)
	if a.Receipt == b.Receipt || string(a.Body) != string(b.Body) {
		t.Errorf("hand-outs %v and %v, want one body under two receipts", a, b)
	}
	check(t, "ack", q.Ack(t.Context(), a), nil)
	depth(t, q, memory.Depth{Held: 1})
	check(t, "ack of the other", q.Ack(t.Context(), b), nil)
	depth(t, q, memory.Depth{})
}

func TestUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, d := start(t, plain)
		f := &brokertest.Unavailable{Source: q}
		f.Set(true)
		_, err := f.Receive(t.Context(), 1)
		check(t, "receive", err, broker.ErrUnavailable)
		check(t, "ack", f.Ack(t.Context(), d), broker.ErrUnavailable)
		check(t, "nack", f.Nack(t.Context(), d, 0), broker.ErrUnavailable)
		check(t, "dead-letter", f.DeadLetter(t.Context(), d, "no"), broker.ErrUnavailable)
		_, err = f.Extend(t.Context(), d, time.Hour)
		check(t, "extend", err, broker.ErrUnavailable)
		depth(t, q, memory.Depth{Held: 1})

		f.Set(false)
		result := make(chan error)
		go func() {
			_, err := f.Receive(t.Context(), 1)
			result <- err
		}()
		synctest.Wait()
		f.Set(true)
		check(t, "nack beside the fault", q.Nack(t.Context(), d, 0), nil)
		check(t, "receive that waited when the broker went", <-result, broker.ErrUnavailable)
		depth(t, q, memory.Depth{Ready: 1})

		f.Set(false)
		d = one(t, f)
		if d.Receives != 2 {
			t.Errorf("receives %d, want 2: what nobody got is not counted", d.Receives)
		}
		check(t, "ack", f.Ack(t.Context(), d), nil)
		depth(t, q, memory.Depth{})
	})
}
