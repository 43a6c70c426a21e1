package memory

import (
	"bytes"
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/paidonce/paidonce/broker"
)

// message is in exactly one place: ready, or held (and in timed, if the hold
// ends by itself), or delayed (in timed, without a holder), or a dead letter.
type message struct {
	broker.Message
	receives int

	holder  *Source // nil unless held
	receipt string
	handed  int       // place in the order of hand-outs
	limit   time.Time // no Extend past this; zero: none

	due   time.Time // when it becomes ready by itself
	place int       // breaks ties of due
	timed bool      // it is in the queue's timed, at index
	index int
}

// handOut gives m to s.
func (q *Queue) handOut(m *message, s *Source, now time.Time) broker.Delivery {
	m.receives++
	again := m.handed > 0
	m.holder, m.handed = s, q.next()
	m.receipt = fmt.Sprintf("r%d", m.handed)
	m.limit = time.Time{}
	if q.opts.MaxHold > 0 {
		m.limit = now.Add(q.opts.MaxHold)
	}
	q.held[m.receipt] = m
	d := broker.Delivery{Message: clone(m.Message), Receipt: m.receipt, Receives: m.receives, Again: again}
	switch {
	case !q.opts.NoDeadline:
		d.Deadline = now.Add(q.opts.Visibility)
		if !m.limit.IsZero() && d.Deadline.After(m.limit) {
			d.Deadline = m.limit
		}
		q.schedule(m, d.Deadline)
	case !m.limit.IsZero():
		q.schedule(m, m.limit)
	}
	return d
}

// release ends the hold on m; the caller says where it goes.
func (q *Queue) release(m *message) {
	delete(q.held, m.receipt)
	m.holder, m.receipt = nil, ""
	if m.timed {
		heap.Remove(&q.timed, m.index)
	}
}

// giveBack ends the hold on m, or its delay, and makes it ready.
func (q *Queue) giveBack(m *message) {
	q.release(m)
	q.ready.push(m)
}

// takeBackDue makes ready, in the order of their times, the messages whose
// deadline or delay is over. A delivery is held until its deadline, not at it.
func (q *Queue) takeBackDue(now time.Time) {
	for len(q.timed) > 0 && !q.timed[0].due.After(now) {
		q.giveBack(q.timed[0])
	}
}

// schedule makes m ready by itself at due, unless something happens before.
func (q *Queue) schedule(m *message, due time.Time) {
	m.due, m.place = due, q.next()
	if m.timed {
		heap.Fix(&q.timed, m.index)
	} else {
		heap.Push(&q.timed, m)
	}
}

// heldBy returns what s holds, or every source if s is nil, in the order of the
// hand-outs.
func (q *Queue) heldBy(s *Source) []*message {
	var ms []*message
	for _, m := range q.held {
		if s == nil || m.holder == s {
			ms = append(ms, m)
		}
	}
	slices.SortFunc(ms, func(a, b *message) int { return cmp.Compare(a.handed, b.handed) })
	return ms
}

// clone copies m, so that neither publisher nor handler can change what the
// queue hands out next.
func clone(m broker.Message) broker.Message {
	return broker.Message{ID: m.ID, Body: bytes.Clone(m.Body), Attributes: maps.Clone(m.Attributes)}
}

// timed is a heap of the messages that become ready by themselves, the next one
// first.
type timed []*message

func (t timed) Len() int { return len(t) }
func (t timed) Less(i, j int) bool {
	if c := t[i].due.Compare(t[j].due); c != 0 {
		return c < 0
	}
	return t[i].place < t[j].place
}
func (t timed) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}
func (t *timed) Push(x any) {
	m := x.(*message)
	m.timed, m.index = true, len(*t)
	*t = append(*t, m)
}
func (t *timed) Pop() any {
	old := *t
	m := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	m.timed = false
	return m
}

// fifo is a line of messages, the one that waits longest first.
type fifo struct {
	ms   []*message
	head int
}

func (f *fifo) len() int { return len(f.ms) - f.head }

func (f *fifo) push(m *message) { f.ms = append(f.ms, m) }

func (f *fifo) pop() *message {
	m := f.ms[f.head]
	f.ms[f.head] = nil
	f.head++
	if f.head*2 > len(f.ms) {
		f.ms = slices.Delete(f.ms, 0, f.head)
		f.head = 0
	}
	return m
}
