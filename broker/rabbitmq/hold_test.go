package rabbitmq_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/rabbitmq"
)

// How long a delivery is held. The broker's ack timeout is 3 s in these tests,
// looked at once a second.
func TestAckTimeout(t *testing.T) {
	// A frame around the parallel tests: it ends when they have.
	t.Run("3s", func(t *testing.T) {
		b := newBench(t)
		b.srv.AckTimeout(t, 3*time.Second)
		t.Run("extend and hand off", func(t *testing.T) { t.Parallel(); handOff(newBench(t)) })
		t.Run("overdue", func(t *testing.T) { t.Parallel(); overdue(newBench(t)) })
		t.Run("configured too long", func(t *testing.T) { t.Parallel(); configuredTooLong(newBench(t)) })
		t.Run("prefetch 10, one at a time", func(t *testing.T) { t.Parallel(); slowOneByOne(newBench(t)) })
	})
}

func threeSeconds(c *rabbitmq.Config) { c.AckTimeout = 3 * time.Second }

// Case 79, the adapter's part: a job longer than the ack timeout gives back a parked
// copy in time, does so for as long as the job runs, and no channel is closed.
func handOff(b *bench) {
	r := b.open(threeSeconds)
	b.publish(r, "long")
	d := b.one(r)
	started, calls := time.Now(), 1
	for hop := 0; time.Since(started) < 7*time.Second; hop++ {
		if hop > 0 {
			d = b.one(r)
		}
		if d.Receives != 1 {
			b.Errorf("hop %d has Receives %d: a parked copy counts nothing", hop, d.Receives)
		}
		for {
			deadline, err := r.Extend(b.soon(), d, time.Second)
			if errors.Is(err, broker.ErrLimit) {
				break
			}
			if err != nil || !deadline.Equal(d.Deadline) {
				b.Fatalf("extend: %v and error %v, want the unchanged %v", deadline, err, d.Deadline)
			}
			time.Sleep(50 * time.Millisecond)
		}
		parked := d
		parked.Receives--
		if err := r.Nack(b.soon(), parked, time.Second); err != nil {
			b.Fatalf("park: %v", err)
		}
	}
	b.ack(r, b.one(r))
	b.wantDepth(0, 0)
	s := r.State()
	if calls != 1 || s.Generation != 1 || s.Reconnects[rabbitmq.LostAckTimeout] != 0 || s.Copies < 3 || s.Overdue != 0 {
		b.Errorf("state: %+v", s)
	}
}

// A delivery that nobody hands off is given back before the broker closes the
// channel under all others.
func overdue(b *bench) {
	r := b.open(threeSeconds)
	b.publish(r, "forgotten")
	d := b.one(r)
	time.Sleep(time.Second)
	b.publish(r, "neighbour")
	neighbour := b.one(r)
	b.eventually("given back", func() bool { return r.State().Overdue == 1 })
	b.is("ack of what was given back", r.Ack(b.soon(), d), broker.ErrNotHeld)
	b.ack(r, neighbour)
	again := b.one(r)
	if string(again.Body) != "forgotten" || again.Receives != 2 {
		b.Errorf("got %q with Receives %d, want the forgotten one with 2", again.Body, again.Receives)
	}
	b.ack(r, again)
	b.wantDepth(0, 0)
	if s := r.State(); s.Generation != 1 {
		b.Errorf("the channel was closed: %+v", s)
	}
}

// The broker's own timeout is shorter than the configured one: every delivery of
// the channel is taken back, and the reason is named.
func configuredTooLong(b *bench) {
	r := b.open(func(c *rabbitmq.Config) { c.AckTimeout = time.Hour })
	b.publish(r, "a", "b")
	ds := b.receive(r, 2)
	b.lossOf(r, rabbitmq.LostAckTimeout)
	b.eventually("both were taken back", func() bool { return r.State().TakenBack == 2 })
	b.is("ack after the timeout", r.Ack(b.soon(), ds[0]), broker.ErrNotHeld)
	b.ack(r, b.receive(r, 2)...)
	b.wantDepth(0, 0)
	if s := r.State(); s.Reconnects[rabbitmq.LostConnection] != 0 {
		b.Errorf("the connection went too: %+v", s)
	}
}

// Case 86: one slow job at a time with a deep prefetch. What waits here would reach
// the timeout although no job is slow.
func slowOneByOne(b *bench) {
	r := b.open(threeSeconds, func(c *rabbitmq.Config) { c.Prefetch = 10 })
	var bodies []string
	for i := range 5 {
		bodies = append(bodies, string(rune('a'+i)))
	}
	b.publish(r, bodies...)
	done := map[string]int{}
	for len(done) < len(bodies) {
		d := b.one(r)
		time.Sleep(1500 * time.Millisecond)
		b.ack(r, d)
		done[string(d.Body)]++
	}
	for body, n := range done {
		if n != 1 {
			b.Errorf("%q was done %d times", body, n)
		}
	}
	b.wantDepth(0, 0)
	if s := r.State(); s.Generation != 1 || s.TakenBack != 0 {
		b.Errorf("the channel was closed: %+v", s)
	}
}

// What is prefetched and not received goes back: others get it.
func TestPrefetchedIsNotStranded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first, second := b.open(), b.open()
	b.publish(first, "a", "b", "c")
	held := b.one(first) // the other two are prefetched with it, or soon after
	others := b.receive(second, 2)
	b.wantDepth(0, 3)
	b.ack(second, others...)
	b.ack(first, held)
	b.wantDepth(0, 0)
}

// Case 2: a pause burns no receives: nothing is asked for while nobody receives.
func TestPauseLeavesMessagesInTheQueue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.open()
	b.worksAgain(r, "before the pause")
	b.eventually("nothing is asked for", func() bool { return b.srv.Consumers(t, b.url, b.queue) == 0 })
	b.publish(r, "waits")
	b.wantDepth(1, 0)
	d := b.one(r)
	if d.Receives != 1 {
		t.Errorf("Receives %d after the pause, want 1", d.Receives)
	}
	b.ack(r, d)
	b.wantDepth(0, 0)
}

// The window is as large as Prefetch, whatever came before: deliveries of earlier
// subscriptions that are held make it smaller, and do so only while they are held.
func TestWindowFollowsWhatIsHeld(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.open(func(c *rabbitmq.Config) { c.Prefetch = 2 })
	b.publish(r, "1", "2", "3", "4", "5")
	held := b.receive(r, 2)
	nothing := func(what string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if ds, err := r.Receive(ctx, 1); len(ds) > 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%s: got %d deliveries and error %v", what, len(ds), err)
		}
	}
	nothing("two of two are held") // gives up, so the subscription ends
	b.ack(r, held[0])
	held[0] = b.one(r) // of a new subscription, for one
	b.ack(r, held[1])
	held[1] = b.one(r) // which is full while that one is held, so of a third
	nothing("two of two are held, of two subscriptions")
	b.ack(r, held...)
	b.ack(r, b.one(r))
	b.wantDepth(0, 0)
}

// A producer makes one connection, and a second one only when it receives.
func TestProducerOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.open()
	b.publish(r, "a")
	if n := b.srv.Connections(t, b.url); n != 1 || !r.State().Connected {
		t.Errorf("a producer has %d connections, want 1, and is connected: %v", n, r.State().Connected)
	}
	b.ack(r, b.one(r))
	if n := b.srv.Connections(t, b.url); n != 2 {
		t.Errorf("a consumer has %d connections, want 2", n)
	}
	b.close(r)
	b.eventually("no connection is left", func() bool { return b.srv.Connections(t, b.url) == 0 })
	b.wantDepth(0, 0)
}
