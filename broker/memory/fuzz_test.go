package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
)

// FuzzQueue runs random operations of three consumers against a queue and a
// model of it that knows nothing but a state per message. No message is ever
// lost, none is held by two consumers at once, and all happens at the exact
// time.
func FuzzQueue(f *testing.F) {
	for seed := range uint64(32) {
		r := rand.New(rand.NewPCG(seed, 1))
		program := make([]byte, 400)
		for i := range program {
			program[i] = byte(r.Uint32())
		}
		f.Add(program)
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		synctest.Test(t, func(t *testing.T) { newModel(t, program).run() })
	})
}

type state int

const (
	ready state = iota
	held
	delayed
	dead
	acked
)

// entry is what the model knows of one message.
type entry struct {
	state    state
	receives int
	handed   int       // held: index of its hand-out
	due      time.Time // held, delayed: when it becomes ready by itself; zero: never
	limit    time.Time // held: no extension past this
}

// handed is one hand-out ever made, settled or not.
type handed struct {
	broker.Delivery
	source int
}

type model struct {
	*testing.T
	program []byte
	opts    memory.Options
	queue   *memory.Queue
	sources []*memory.Source
	entries map[string]*entry // by body
	handed  []handed
}

func newModel(t *testing.T, program []byte) *model {
	m := &model{T: t, program: program, entries: map[string]*entry{}}
	kind := m.next(6)
	m.opts = memory.Options{Visibility: 30 * time.Second, NoDeadline: kind%2 == 1, MaxHold: []time.Duration{0, 45 * time.Second, 30 * time.Second}[kind/2]}
	m.queue = memory.New(m.opts)
	m.sources = []*memory.Source{m.queue.Source(), m.queue.Source(), m.queue.Source()}
	return m
}

// next takes a number below n from the program; 0 when it is used up.
func (m *model) next(n int) int {
	if len(m.program) == 0 {
		return 0
	}
	b := m.program[0]
	m.program = m.program[1:]
	return int(b) % n
}

func (m *model) run() {
	ops := []func(){m.publish, m.receive, m.receive, m.receive, m.ack, m.nack, m.nack, m.extend, m.deadLetter, m.lapse, m.drop, m.sleep}
	for len(m.program) > 0 {
		ops[m.next(len(ops))]()
		m.compare()
	}
	m.finish()
}

// tick makes ready what has become so by itself.
func (m *model) tick() {
	for _, e := range m.entries {
		if (e.state == held || e.state == delayed) && !e.due.IsZero() && !time.Now().Before(e.due) {
			e.state = ready
		}
	}
}

// count returns how many messages are in a state.
func (m *model) count(s state) int {
	n := 0
	for _, e := range m.entries {
		if e.state == s {
			n++
		}
	}
	return n
}

func (m *model) compare() {
	m.tick()
	want := memory.Depth{Ready: m.count(ready), Held: m.count(held), Delayed: m.count(delayed)}
	if got := m.queue.Depth(); got != want {
		m.Fatalf("depth %+v, want %+v", got, want)
	}
	if got := len(m.queue.DeadLetters()); got != m.count(dead) {
		m.Fatalf("%d dead letters, want %d", got, m.count(dead))
	}
}

func (m *model) publish() {
	var ms []broker.Message
	for range m.next(3) + 1 {
		body := fmt.Sprint(len(m.entries))
		m.entries[body] = &entry{}
		ms = append(ms, broker.Message{Body: []byte(body)})
	}
	check(m.T, "publish", m.queue.Publish(m.Context(), ms...), nil)
}

func (m *model) receive() {
	source, n := m.next(len(m.sources)), m.next(4)+1
	cause := errors.New("waited long enough")
	ctx, cancel := context.WithTimeoutCause(m.Context(), time.Minute, cause)
	defer cancel()
	// It waits, if it must, for the first message that becomes ready by itself.
	start, at := time.Now(), time.Time{}
	for _, e := range m.entries {
		switch {
		case e.state == ready:
			at = start
		case (e.state == held || e.state == delayed) && !e.due.IsZero() && (at.IsZero() || e.due.Before(at)):
			at = e.due
		}
	}
	if at.Equal(start.Add(time.Minute)) {
		return // either may win
	}
	ds, err := m.sources[source].Receive(ctx, n)
	m.tick()
	if at.IsZero() || at.After(start.Add(time.Minute)) {
		if !errors.Is(err, cause) || len(ds) > 0 || time.Since(start) != time.Minute {
			m.Fatalf("receive with nothing to come: %d deliveries and error %v after %v", len(ds), err, time.Since(start))
		}
		return
	}
	if want := min(n, m.count(ready)); err != nil || len(ds) != want || !time.Now().Equal(at) {
		m.Fatalf("receive up to %d: %d deliveries and error %v at %v, want %d at %v", n, len(ds), err, time.Now(), want, at)
	}
	for _, d := range ds {
		m.take(d, source)
	}
}

// take checks a delivery and notes who holds it.
func (m *model) take(d broker.Delivery, source int) {
	e := m.entries[string(d.Body)]
	if e == nil || e.state != ready {
		m.Fatalf("handed out %q, which the model has as %+v", d.Body, e)
	}
	for _, h := range m.handed {
		if h.Receipt == d.Receipt {
			m.Fatalf("receipt %q was given out twice", d.Receipt)
		}
	}
	now := time.Now()
	*e = entry{state: held, receives: e.receives + 1, handed: len(m.handed)}
	if m.opts.MaxHold > 0 {
		e.limit = now.Add(m.opts.MaxHold)
		e.due = e.limit
	}
	want := time.Time{}
	if !m.opts.NoDeadline {
		e.due = now.Add(m.opts.Visibility) // never past the limits used here
		want = e.due
	}
	if !d.Deadline.Equal(want) || d.Receives != e.receives {
		m.Fatalf("handed out with deadline %v and receives %d, want %v and %d", d.Deadline, d.Receives, want, e.receives)
	}
	m.handed = append(m.handed, handed{d, source})
}

// pick chooses a hand-out, of the last few or of long ago, and a source that
// settles it: mostly the one it was given to. e is nil unless that source holds
// it now.
func (m *model) pick() (s *memory.Source, d broker.Delivery, e *entry) {
	if len(m.handed) == 0 {
		return m.sources[0], broker.Delivery{Receipt: "never given"}, nil
	}
	back := min(m.next(len(m.handed)), m.next(64))
	i := len(m.handed) - 1 - back
	h := m.handed[i]
	source := h.source
	if m.next(8) == 7 {
		source = m.next(len(m.sources))
	}
	if e = m.entries[string(h.Body)]; e.state != held || e.handed != i || source != h.source {
		e = nil
	}
	return m.sources[source], h.Delivery, e
}

// settled checks the error of an operation on a hand-out.
func (m *model) settled(what string, e *entry, err error) {
	want := error(nil)
	if e == nil {
		want = broker.ErrNotHeld
	}
	if !errors.Is(err, want) {
		m.Fatalf("%s: got error %v, want %v", what, err, want)
	}
}

func (m *model) ack() {
	s, d, e := m.pick()
	m.settled("ack", e, s.Ack(m.Context(), d))
	if e != nil {
		e.state = acked
	}
}

func (m *model) nack() {
	s, d, e := m.pick()
	d.Receives -= m.next(2)
	delay := time.Duration(m.next(4)*m.next(30)) * time.Second
	m.settled("nack", e, s.Nack(m.Context(), d, delay))
	if e != nil {
		*e = entry{state: ready, receives: d.Receives}
		if delay > 0 {
			e.state, e.due = delayed, time.Now().Add(delay)
		}
	}
}

func (m *model) deadLetter() {
	s, d, e := m.pick()
	m.settled("dead-letter", e, s.DeadLetter(m.Context(), d, "why"))
	if e != nil {
		e.state = dead
	}
}

func (m *model) extend() {
	s, d, e := m.pick()
	by := time.Duration(m.next(60)) * time.Second
	due, err := s.Extend(m.Context(), d, by)
	want := time.Now().Add(by)
	switch {
	case e == nil || m.opts.NoDeadline:
		m.settled("extend", e, err)
	case !e.limit.IsZero() && want.After(e.limit):
		if !errors.Is(err, broker.ErrLimit) || !due.Equal(e.due) {
			m.Fatalf("extend past the limit: %v and error %v", due, err)
		}
	case err != nil || !due.Equal(want):
		m.Fatalf("extend: %v and error %v, want %v", due, err, want)
	default:
		e.due = due
	}
}

func (m *model) lapse() {
	if len(m.handed) == 0 {
		return
	}
	i := m.next(len(m.handed))
	e := m.entries[string(m.handed[i].Body)]
	if e.state != held || e.handed != i {
		e = nil
	}
	m.settled("lapse", e, m.queue.Lapse(m.handed[i].Delivery))
	if e != nil {
		e.state = ready
	}
}

func (m *model) drop() {
	source := m.next(len(m.sources))
	m.sources[source].Drop()
	for _, e := range m.entries {
		if e.state == held && m.handed[e.handed].source == source {
			e.state = ready
		}
	}
}

func (m *model) sleep() { time.Sleep(time.Duration(m.next(60)) * time.Second) }

// finish acks every message that is left, and finds each of them.
func (m *model) finish() {
	for _, s := range m.sources {
		s.Drop()
	}
	time.Sleep(time.Hour)
	left := len(m.entries) - m.count(acked) - m.count(dead)
	for range left {
		d := one(m.T, m.queue)
		if e := m.entries[string(d.Body)]; e.state == acked || e.state == dead {
			m.Fatalf("%q came back after it was settled", d.Body)
		}
		m.entries[string(d.Body)].state = acked
		check(m.T, "ack", m.queue.Ack(m.Context(), d), nil)
	}
	m.compare()
}
