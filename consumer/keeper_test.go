package consumer_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// metronome is a source that notes when it is asked for extensions, and may refuse them.
type metronome struct {
	broker.Source
	refuse error

	mu   sync.Mutex
	asks int
	at   map[time.Time]int // extensions by moment
}

func (m *metronome) Extend(ctx context.Context, d broker.Delivery, by time.Duration) (time.Time, error) {
	m.mu.Lock()
	if m.asks++; m.asks > 100_000 {
		panic("the keeper asks without end")
	}
	m.at[time.Now()]++
	m.mu.Unlock()
	if m.refuse != nil {
		return time.Time{}, m.refuse
	}
	return m.Source.Extend(ctx, d, by)
}

// staggered runs 40 jobs of two minutes that arrive 0.4 s apart, and looks at m when the last
// one ended.
func staggered(t *testing.T, m *metronome, look func()) {
	bubble(t, memory.Options{Visibility: 30 * time.Second}, func(r *rig) {
		r.cfg.Workers = 40
		r.prov.script = func(string, int) (time.Duration, error) { return 110 * time.Second, nil }
		m.at = map[time.Time]int{}
		a := r.start("a", func(c *consumer.Config) { m.Source, c.Source = c.Source, m })
		for i := range 40 {
			r.send(strconv.Itoa(i))
			time.Sleep(400 * time.Millisecond)
		}
		time.Sleep(2 * time.Minute)
		m.mu.Lock()
		look()
		m.mu.Unlock()
		r.end(a)
		for i := range 40 {
			r.want(strconv.Itoa(i), done1)
		}
	})
}

// Deliveries that arrived one after the other are extended together, so that an adapter has
// something to put into a batch; none is extended more than twice as often for it.
func TestExtensionsOfStaggeredArrivalsAreTogether(t *testing.T) {
	var m metronome
	staggered(t, &m, func() {
		if n := len(m.at); n > 25 {
			t.Errorf("extended at %d moments in two minutes, want every 5 to 10 s", n)
		}
		if m.asks < 40*9 || m.asks > 40*22 {
			t.Errorf("%d extensions of 40 deliveries, want 10 to 22 of each", m.asks)
		}
	})
}

// hurried is a source that shows a deadline of its own.
type hurried struct {
	broker.Source
	visibility time.Duration
}

func (s hurried) Receive(ctx context.Context, n int) ([]broker.Delivery, error) {
	ds, err := s.Source.Receive(ctx, n)
	for i := range ds {
		ds[i].Deadline = time.Now().Add(s.visibility)
	}
	return ds, err
}

// Extensions that do not get through for an hour are asked for at a steady pace, once a
// second at most, also where one delivery is asked for with another.
func TestRefusedExtensionsAreBounded(t *testing.T) {
	bubble(t, memory.Options{Visibility: 3 * time.Hour}, func(r *rig) {
		r.call.Routes[0].Timeout = 2 * time.Hour
		r.cfg.Workers, r.cfg.SettleWindow, r.cfg.Hold, r.cfg.MaxRun = 10, 3*time.Hour, 3*time.Hour, 3*time.Hour
		r.prov.script = func(string, int) (time.Duration, error) { return time.Hour, nil }
		m := metronome{refuse: broker.ErrUnavailable, at: map[time.Time]int{}}
		a := r.start("a", func(c *consumer.Config) {
			m.Source, c.Source = hurried{c.Source, 30 * time.Second}, &m
			c.Log = slog.New(slog.DiscardHandler)
		})
		for i := range 10 {
			r.send(strconv.Itoa(i))
			time.Sleep(400 * time.Millisecond)
		}
		time.Sleep(2 * time.Hour)
		r.end(a)
		for i := range 10 {
			r.want(strconv.Itoa(i), done1)
		}
		r.queue(memory.Depth{})
		if m.asks < 10*3000 || m.asks > 10*3700 {
			t.Errorf("%d tries for ten deliveries in an hour, want one a second for each", m.asks)
		}
	})
}

// deafAcks is a source that takes every delivery back before it is extended, and lets a late
// ack remove the message, as SQS does.
type deafAcks struct {
	broker.Source
	slow time.Duration // until it says so
	mu   sync.Mutex
	told []string
}

func (s *deafAcks) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, what)
}

func (s *deafAcks) Extend(context.Context, broker.Delivery, time.Duration) (time.Time, error) {
	s.note("extend")
	time.Sleep(s.slow)
	return time.Time{}, broker.ErrNotHeld
}

func (s *deafAcks) Ack(ctx context.Context, d broker.Delivery) error {
	s.note("ack")
	if err := s.Source.Ack(ctx, d); err != nil {
		return err
	}
	return broker.ErrNotHeld
}

func (s *deafAcks) Nack(ctx context.Context, d broker.Delivery, delay time.Duration) error {
	s.note("nack")
	return s.Source.Nack(ctx, d, delay)
}

// The broker took a delivery back while its job ran. It is extended no more, and acknowledged all
// the same when the job is done: nobody may have the message. It is counted once, as lost.
func TestALostDeliveryIsAcknowledgedLate(t *testing.T) {
	lost(t, nil, func(r *rig, told, outcomes []string) {
		r.want("1", done1)
		r.queue(memory.Depth{})
		if !slices.Equal(told, []string{"extend", "ack"}) || !slices.Equal(outcomes, []string{"lost"}) {
			t.Errorf("the broker was told %v, outcomes %v: want one extension, one ack, lost once", told, outcomes)
		}
	})
}

// It is not given back: that could end the hold of whoever has the message.
func TestALostDeliveryIsNotGivenBack(t *testing.T) {
	lost(t, errors.New("not yet"), func(r *rig, told, outcomes []string) {
		if j := r.job("1"); j.State != ledger.Ready {
			t.Errorf("the job is %s", j.State)
		}
		if !slices.Equal(told, []string{"extend"}) || !slices.Equal(outcomes, []string{"lost"}) {
			t.Errorf("the broker was told %v, outcomes %v: want one extension, lost once", told, outcomes)
		}
	})
}

// lost runs one job whose delivery the broker takes back; the user's code ends with err.
func lost(t *testing.T, err error, look func(r *rig, told, outcomes []string)) {
	bubble(t, memory.Options{Visibility: 3 * time.Minute}, func(r *rig) {
		r.prov.script = func(string, int) (time.Duration, error) { return 100 * time.Second, nil }
		r.cfg.Retry = consumer.Backoff{First: 10 * time.Second, Ceil: 10 * time.Second} // not waited for in the process
		r.after = func(context.Context, *job.Run, ask) error { return err }
		s := &deafAcks{}
		var mu sync.Mutex
		var outcomes []string
		r.send("1")
		a := r.start("a", func(c *consumer.Config) {
			s.Source, c.Source = c.Source, s
			c.Trace.Delivered = func(_, outcome string) {
				mu.Lock()
				defer mu.Unlock()
				outcomes = append(outcomes, outcome)
			}
		})
		time.Sleep(2 * time.Minute)
		r.end(a)
		look(r, s.told, outcomes)
	})
}

// The keeper looks after a delivery, and speaks of it, while somebody finds out which job it asks for.
func TestADeliveryIsLostWhileItsBodyIsRead(t *testing.T) {
	bubble(t, memory.Options{Visibility: 3 * time.Minute}, func(r *rig) {
		r.cfg.Resolve = func(context.Context, consumer.Pointer) ([]byte, error) {
			time.Sleep(10 * time.Second)
			return []byte(plain), nil
		}
		r.prov.script = func(string, int) (time.Duration, error) { return time.Minute, nil }
		s := &deafAcks{slow: 7 * time.Second} // from 5 s on
		var mu sync.Mutex
		var outcomes []string
		if err := r.q.Publish(t.Context(), broker.Message{Body: []byte(s3)}); err != nil {
			t.Fatal(err)
		}
		a := r.start("a", func(c *consumer.Config) {
			s.Source, c.Source = hurried{c.Source, 15 * time.Second}, s
			c.Trace.Delivered = func(job, outcome string) {
				mu.Lock()
				defer mu.Unlock()
				outcomes = append(outcomes, job+" "+outcome)
			}
		})
		time.Sleep(2 * time.Minute)
		r.end(a)
		r.want("1", done1)
		r.queue(memory.Depth{})
		if !slices.Equal(s.told, []string{"extend", "ack"}) || !slices.Equal(outcomes, []string{"ask lost"}) {
			t.Errorf("the broker was told %v, outcomes %q: want one extension, one ack, lost once", s.told, outcomes)
		}
	})
}
