package memory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
)

// inBubble runs f with a queue under simulated time. Leaving it proves that the
// queue left no goroutine behind: one would make the bubble panic.
func inBubble(t *testing.T, opts memory.Options, f func(*testing.T, *memory.Queue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, memory.New(opts)) })
}

func publish(t *testing.T, q broker.Publisher, bodies ...string) {
	t.Helper()
	for _, b := range bodies {
		if err := q.Publish(t.Context(), broker.Message{Body: []byte(b)}); err != nil {
			t.Fatal(err)
		}
	}
}

// one receives a single delivery, waiting as long as it takes.
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

// at checks that exactly d has passed since start.
func at(t *testing.T, start time.Time, d time.Duration) {
	t.Helper()
	if got := time.Since(start); got != d {
		t.Errorf("at %v, want %v", got, d)
	}
}

func TestDeadlineIsExact(t *testing.T) {
	inBubble(t, memory.Options{Visibility: time.Hour}, func(t *testing.T, q *memory.Queue) {
		start := time.Now()
		publish(t, q, "a")
		d := one(t, q)
		if !d.Deadline.Equal(start.Add(time.Hour)) || d.Receives != 1 {
			t.Errorf("deadline %v and receives %d", d.Deadline, d.Receives)
		}
		d = one(t, q.Source()) // waits for the deadline
		at(t, start, time.Hour)
		if d.Receives != 2 {
			t.Errorf("receives %d, want 2", d.Receives)
		}

		time.Sleep(time.Hour - time.Nanosecond)
		depth(t, q, memory.Depth{Held: 1})
		time.Sleep(time.Nanosecond)
		depth(t, q, memory.Depth{Ready: 1})
	})
}

func TestSettleAtTheDeadline(t *testing.T) {
	inBubble(t, memory.Options{Visibility: time.Hour}, func(t *testing.T, q *memory.Queue) {
		publish(t, q, "in time", "too late")
		inTime, tooLate := one(t, q), one(t, q)
		time.Sleep(time.Hour - time.Nanosecond)
		check(t, "ack before the deadline", q.Ack(t.Context(), inTime), nil)
		time.Sleep(time.Nanosecond)
		check(t, "ack at the deadline", q.Ack(t.Context(), tooLate), broker.ErrNotHeld)
		check(t, "nack at the deadline", q.Nack(t.Context(), tooLate, 0), broker.ErrNotHeld)
		check(t, "dead-letter at the deadline", q.DeadLetter(t.Context(), tooLate, "no"), broker.ErrNotHeld)
		_, err := q.Extend(t.Context(), tooLate, time.Hour)
		check(t, "extend at the deadline", err, broker.ErrNotHeld)
		depth(t, q, memory.Depth{Ready: 1})
	})
}

func TestExtendHoldsForHours(t *testing.T) {
	inBubble(t, memory.Options{}, func(t *testing.T, q *memory.Queue) {
		start := time.Now()
		publish(t, q, "long job")
		d := one(t, q)
		if !d.Deadline.Equal(start.Add(memory.DefaultVisibility)) {
			t.Errorf("deadline %v, want the default", d.Deadline)
		}
		other := make(chan broker.Delivery)
		go func() { other <- one(t, q.Source()) }()
		for range 11 * 60 * 4 {
			time.Sleep(15 * time.Second)
			due, err := q.Extend(t.Context(), d, 30*time.Second)
			if err != nil || !due.Equal(time.Now().Add(30*time.Second)) {
				t.Fatalf("extend after %v: %v and error %v", time.Since(start), due, err)
			}
		}
		depth(t, q, memory.Depth{Held: 1})
		again := <-other
		at(t, start, 11*time.Hour+30*time.Second)
		if again.Receives != 2 {
			t.Errorf("receives %d, want 2: extending is no hand-out", again.Receives)
		}
		check(t, "ack", q.Ack(t.Context(), d), broker.ErrNotHeld)
		depth(t, q, memory.Depth{Held: 1})
	})
}

func TestExtendToAnEarlierTime(t *testing.T) {
	inBubble(t, memory.Options{Visibility: time.Hour}, func(t *testing.T, q *memory.Queue) {
		start := time.Now()
		publish(t, q, "a")
		d := one(t, q)
		done := make(chan struct{})
		go func() {
			defer close(done)
			one(t, q.Source())
			at(t, start, time.Minute)
		}()
		synctest.Wait() // it waits for the later deadline
		_, err := q.Extend(t.Context(), d, time.Minute)
		check(t, "extend", err, nil)
		<-done
	})
}

func TestDelaysEndInOrder(t *testing.T) {
	inBubble(t, memory.Options{}, func(t *testing.T, q *memory.Queue) {
		start := time.Now()
		delays := []time.Duration{3 * time.Hour, time.Hour, 5 * time.Hour, 2 * time.Hour, time.Hour, 4 * time.Hour}
		for i := range delays {
			publish(t, q, fmt.Sprint(i))
		}
		for _, delay := range delays {
			check(t, "nack", q.Nack(t.Context(), one(t, q), delay), nil)
		}
		depth(t, q, memory.Depth{Delayed: 6})
		for _, want := range []struct {
			body string
			at   time.Duration
		}{{"1", 1 * time.Hour}, {"4", 1 * time.Hour}, {"3", 2 * time.Hour}, {"0", 3 * time.Hour}, {"5", 4 * time.Hour}, {"2", 5 * time.Hour}} {
			d := one(t, q)
			at(t, start, want.at)
			if string(d.Body) != want.body || d.Receives != 2 {
				t.Errorf("after %v: %q with receives %d, want %q with 2", want.at, d.Body, d.Receives, want.body)
			}
			check(t, "ack", q.Ack(t.Context(), d), nil)
		}
		depth(t, q, memory.Depth{})

		// What becomes ready while nobody looks is handed out in the order of its
		// times as well, behind what was ready before.
		publish(t, q, "a", "b", "c")
		a, b := one(t, q), one(t, q)
		check(t, "nack", q.Nack(t.Context(), a, 2*time.Second), nil)
		check(t, "nack", q.Nack(t.Context(), b, time.Second), nil)
		time.Sleep(time.Hour)
		var got []string
		for range 3 {
			got = append(got, string(one(t, q).Body))
		}
		if !slices.Equal(got, []string{"c", "b", "a"}) {
			t.Errorf("handed out %v", got)
		}
	})
}

func TestMaxHold(t *testing.T) {
	inBubble(t, memory.Options{Visibility: 30 * time.Minute, MaxHold: 12 * time.Hour}, func(t *testing.T, q *memory.Queue) {
		start := time.Now()
		publish(t, q, "very long job")
		d := one(t, q)
		var err error
		for err == nil {
			var due time.Time
			if due, err = q.Extend(t.Context(), d, 30*time.Minute); err == nil {
				d.Deadline = due
				time.Sleep(20 * time.Minute)
			} else if !due.Equal(d.Deadline) {
				t.Errorf("ErrLimit beside the deadline %v, want the unchanged %v", due, d.Deadline)
			}
		}
		check(t, "extend", err, broker.ErrLimit)
		// Extended at 0:00, 0:20 … 11:20 to 11:50; refused at 11:40, to 12:10.
		at(t, start, 11*time.Hour+40*time.Minute)
		due, err := q.Extend(t.Context(), d, 20*time.Minute)
		check(t, "extend to the limit itself", err, nil)
		if !due.Equal(start.Add(12 * time.Hour)) {
			t.Errorf("extended to %v", due)
		}
		d = one(t, q.Source())
		at(t, start, 12*time.Hour)
		// The limit counts from each hand-out, not from the publish.
		if !d.Deadline.Equal(time.Now().Add(30 * time.Minute)) {
			t.Errorf("second hand-out has the deadline %v", d.Deadline)
		}
	})
}

func TestMaxHoldBelowVisibility(t *testing.T) {
	inBubble(t, memory.Options{Visibility: time.Hour, MaxHold: time.Minute}, func(t *testing.T, q *memory.Queue) {
		start := time.Now()
		publish(t, q, "a")
		if d := one(t, q); !d.Deadline.Equal(start.Add(time.Minute)) {
			t.Errorf("deadline %v, want the limit", d.Deadline)
		}
		one(t, q)
		at(t, start, time.Minute)
	})
}

func TestNoDeadline(t *testing.T) {
	inBubble(t, memory.Options{NoDeadline: true}, func(t *testing.T, q *memory.Queue) {
		publish(t, q, "a")
		s := q.Source()
		d := one(t, s)
		time.Sleep(1000 * time.Hour)
		due, err := s.Extend(t.Context(), d, time.Hour)
		check(t, "extend", err, nil)
		if !d.Deadline.IsZero() || !due.IsZero() {
			t.Errorf("deadlines %v and %v, want none", d.Deadline, due)
		}
		time.Sleep(1000 * time.Hour)
		depth(t, q, memory.Depth{Held: 1})
		s.Drop()
		depth(t, q, memory.Depth{Ready: 1})
		check(t, "ack after drop", s.Ack(t.Context(), d), broker.ErrNotHeld)
	})
}

func TestNoDeadlineWithAckTimeout(t *testing.T) {
	inBubble(t, memory.Options{NoDeadline: true, MaxHold: 30 * time.Minute}, func(t *testing.T, q *memory.Queue) {
		start := time.Now()
		publish(t, q, "a")
		d := one(t, q)
		if !d.Deadline.IsZero() {
			t.Errorf("deadline %v, want none shown", d.Deadline)
		}
		_, err := q.Extend(t.Context(), d, time.Hour)
		check(t, "extend", err, nil)
		one(t, q.Source())
		at(t, start, 30*time.Minute)
		check(t, "ack", q.Ack(t.Context(), d), broker.ErrNotHeld)
	})
}

func TestReceiveWaitsForHours(t *testing.T) {
	inBubble(t, memory.Options{}, func(t *testing.T, q *memory.Queue) {
		start := time.Now()
		cause := errors.New("shift is over")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 8*time.Hour, cause)
		defer cancel()
		ds, err := q.Receive(ctx, 1)
		check(t, "receive", err, cause)
		at(t, start, 8*time.Hour)
		if len(ds) > 0 {
			t.Errorf("%d deliveries beside an error", len(ds))
		}

		time.AfterFunc(3*time.Hour, func() { publish(t, q, "a") })
		one(t, q)
		at(t, start, 11*time.Hour)
	})
}
