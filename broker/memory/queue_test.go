package memory_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
)

func TestMaxReceives(t *testing.T) {
	inBubble(t, memory.Options{Visibility: time.Minute, MaxReceives: 3}, func(t *testing.T, q *memory.Queue) {
		publish(t, q, "poison")
		for want := range 3 {
			if d := one(t, q); d.Receives != want+1 {
				t.Errorf("receives %d, want %d", d.Receives, want+1)
			}
		}
		time.Sleep(time.Hour)
		// Nobody receives: the poison stays where it is.
		depth(t, q, memory.Depth{Ready: 1})
		publish(t, q, "good")
		if d := one(t, q); string(d.Body) != "good" {
			t.Errorf("got %q", d.Body)
		}
		depth(t, q, memory.Depth{Held: 1})
		ds := q.DeadLetters()
		if len(ds) != 1 || string(ds[0].Message.Body) != "poison" || ds[0].Reason != "receive limit of 3 reached" || !ds[0].At.Equal(time.Now()) {
			t.Errorf("dead letters %v", ds)
		}
	})
}

// With CountAll a hand-out counts whatever the nack says.
func TestCountAll(t *testing.T) {
	q := memory.New(memory.Options{CountAll: true, MaxReceives: 2})
	publish(t, q, "a")
	for want := range 2 {
		d := one(t, q)
		if d.Receives != want+1 {
			t.Errorf("receives %d, want %d", d.Receives, want+1)
		}
		d.Receives = 0
		check(t, "nack", q.Nack(t.Context(), d, 0), nil)
	}
	publish(t, q, "b")
	if d := one(t, q); string(d.Body) != "b" || len(q.DeadLetters()) != 1 {
		t.Errorf("handed out %s with %d dead letters", d.Body, len(q.DeadLetters()))
	}
}

func TestNackCountsOnFromTheDelivery(t *testing.T) {
	q := memory.New(memory.Options{})
	publish(t, q, "a")
	for _, c := range []struct{ given, want int }{{0, 1}, {0, 1}, {1, 2}, {2, 3}, {99, 4}, {-5, 1}} {
		d := one(t, q)
		d.Receives = c.given
		if err := q.Nack(t.Context(), d, 0); err != nil {
			t.Fatal(err)
		}
		d = one(t, q)
		if d.Receives != c.want {
			t.Errorf("given back with receives %d: came back with %d, want %d", c.given, d.Receives, c.want)
		}
		d.Receives--
		if err := q.Nack(t.Context(), d, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHandOutIsACopy: nobody can change what the queue hands out next.
func TestHandOutIsACopy(t *testing.T) {
	q := memory.New(memory.Options{})
	m := broker.Message{Body: []byte("body"), Attributes: map[string]string{"k": "v"}}
	spoil := func(m broker.Message) {
		m.Body[0] = 'X'
		m.Attributes["k"] = "X"
	}
	intact := func(what string, m broker.Message) {
		t.Helper()
		if string(m.Body) != "body" || m.Attributes["k"] != "v" {
			t.Errorf("%s: %q %v", what, m.Body, m.Attributes)
		}
	}
	if err := q.Publish(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	spoil(m)
	d := one(t, q)
	intact("published message was changed", d.Message)
	spoil(d.Message)
	if err := q.Nack(t.Context(), d, 0); err != nil {
		t.Fatal(err)
	}
	d = one(t, q)
	intact("delivery was changed", d.Message)
	if err := q.DeadLetter(t.Context(), d, "why"); err != nil {
		t.Fatal(err)
	}
	spoil(d.Message)
	spoil(q.DeadLetters()[0].Message)
	intact("dead letter was changed", q.DeadLetters()[0].Message)
}

func TestDropGivesBackInOrder(t *testing.T) {
	q := memory.New(memory.Options{})
	publish(t, q, "a", "b", "c", "d", "e", "f")
	s := q.Source()
	for range 3 {
		one(t, s)
	}
	kept := one(t, q)
	s.Drop()
	depth(t, q, memory.Depth{Ready: 5, Held: 1})
	var got []string
	for range 5 {
		got = append(got, string(one(t, s).Body))
	}
	if !slices.Equal(got, []string{"e", "f", "a", "b", "c"}) {
		t.Errorf("handed out %v", got)
	}
	if err := q.Ack(t.Context(), kept); err != nil {
		t.Errorf("the delivery of another source: %v", err)
	}
}

// TestDelete: the queue goes under the feet of its users.
func TestDelete(t *testing.T) {
	inBubble(t, memory.Options{}, func(t *testing.T, q *memory.Queue) {
		publish(t, q, "a", "b", "c")
		dead, delayed, d := one(t, q), one(t, q), one(t, q)
		check(t, "dead-letter", q.DeadLetter(t.Context(), dead, "why"), nil)
		check(t, "nack", q.Nack(t.Context(), delayed, time.Hour), nil)
		waiting := make(chan error)
		go func() {
			_, err := q.Receive(t.Context(), 1)
			waiting <- err
		}()
		synctest.Wait()
		q.Delete()
		check(t, "receive that waited", <-waiting, broker.ErrUnavailable)
		check(t, "ack", q.Ack(t.Context(), d), broker.ErrNotHeld)
		check(t, "publish", q.Publish(t.Context(), broker.Message{}), broker.ErrUnroutable)
		depth(t, q, memory.Depth{})
		time.Sleep(2 * time.Hour)
		depth(t, q, memory.Depth{})
		if n := len(q.DeadLetters()); n != 1 {
			t.Errorf("%d dead letters, want 1", n)
		}
	})
}

// TestClose: the queue closes for every source, and stays readable.
func TestClose(t *testing.T) {
	inBubble(t, memory.Options{}, func(t *testing.T, q *memory.Queue) {
		publish(t, q, "a", "b")
		s := q.Source()
		d := one(t, s)
		one(t, q)
		waiting := make(chan error)
		go func() {
			_, err := q.Source().Receive(t.Context(), 1)
			waiting <- err
		}()
		synctest.Wait()
		check(t, "close", q.Close(), nil)
		check(t, "receive that waited", <-waiting, broker.ErrClosed)
		check(t, "ack", s.Ack(t.Context(), d), broker.ErrClosed)
		check(t, "publish", q.Publish(t.Context(), broker.Message{}), broker.ErrClosed)
		check(t, "lapse", q.Lapse(d), broker.ErrNotHeld)
		depth(t, q, memory.Depth{Ready: 2})
		check(t, "second close", q.Close(), nil)
	})
}

// TestEndedContext: a call whose caller has gone changes nothing.
func TestEndedContext(t *testing.T) {
	q := memory.New(memory.Options{})
	publish(t, q, "a")
	d := one(t, q)
	cause := errors.New("caller has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	check(t, "publish", q.Publish(ctx, broker.Message{}), cause)
	check(t, "ack", q.Ack(ctx, d), cause)
	check(t, "nack", q.Nack(ctx, d, 0), cause)
	check(t, "dead-letter", q.DeadLetter(ctx, d, "no"), cause)
	_, err := q.Extend(ctx, d, time.Hour)
	check(t, "extend", err, cause)
	depth(t, q, memory.Depth{Held: 1})
}

func TestPublishIsAllOrNothing(t *testing.T) {
	q := memory.New(memory.Options{MaxBody: 3})
	err := q.Publish(t.Context(), broker.Message{Body: []byte("abc")}, broker.Message{Body: []byte("abcd")})
	check(t, "publish", err, broker.ErrTooLarge)
	depth(t, q, memory.Depth{})
	if err := q.Publish(t.Context(), broker.Message{ID: "mine", Body: []byte("abc")}); err != nil {
		t.Fatal(err)
	}
	if d := one(t, q); d.ID != "mine" {
		t.Errorf("id %q, want the publisher's", d.ID)
	}
}
