package sqs

import (
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// hold is one hand-out of a message that this process has. Its fields are under
// Broker.mu; handle, id, group and end of life are fixed.
type hold struct {
	serial  int64
	receipt string // ours: begins with the Broker's id, so that those of another are not taken for it
	handle  string // SQS's
	id      string
	group   *group // nil on a standard queue
	msg     types.Message
	arrived time.Time

	// deadline is when SQS takes the message back, by this process's clocks
	// and rather early than late. After it a visibility change with the handle would
	// act on whoever holds the message then, so none is sent.
	deadline time.Time
	end      time.Time // no deadline is later: the 12 hours, less a margin

	out      bool          // a caller has it
	lost     bool          // SQS said that it is not held any more
	copied   bool          // it is in the dead-letter queue already
	settling *settlement   // nil: nobody settles it
	turn     chan struct{} // has room for one: one visibility change at a time
}

// lapsed says that nothing but a delete may be sent for h any more. Broker.mu is held.
func (h *hold) lapsed(now time.Time) bool { return h.lost || passed(h.deadline, now) }

// passed says that t is over, by either clock: the monotonic one stands still while a
// machine sleeps, and the wall clock may be set back.
func passed(t, now time.Time) bool { return !now.Before(t) || !now.Round(0).Before(t.Round(0)) }

// group is what this process has of one FIFO group, in order. Only the first is handed
// out; those behind it are parked here until it was acknowledged.
type group struct {
	name  string
	holds []*hold
}

// behind are the holds of the group after h, last one first: in the order in which
// they are given back.
func (g *group) behind(h *hold) []*hold {
	if g == nil {
		return nil
	}
	i := slices.Index(g.holds, h)
	if i < 0 {
		return nil
	}
	hs := slices.Clone(g.holds[i+1:])
	slices.Reverse(hs)
	return hs
}

// forget takes h out of the books. b.mu is held.
func (b *Broker) forget(h *hold) {
	delete(b.holds, h.receipt)
	g := h.group
	if g == nil {
		return
	}
	g.holds = slices.DeleteFunc(g.holds, func(other *hold) bool { return other == h })
	if len(g.holds) == 0 && b.groups[g.name] == g {
		delete(b.groups, g.name)
	}
}

// abandon takes everything behind h out of the books, because h cannot be the first
// any more, and returns what must be given back. b.mu is held.
func (b *Broker) abandon(h *hold) []*hold {
	var back []*hold
	now := time.Now()
	for _, other := range h.group.behind(h) {
		b.forget(other)
		if !other.lapsed(now) {
			back = append(back, other)
		}
	}
	return back
}

// lose notes that SQS does not hold h for us any more, and gives back what waited
// behind it. What is late may still be acknowledged on a standard queue. b.mu is held.
func (b *Broker) lose(h *hold) {
	if b.holds[h.receipt] != h {
		return // it was given back
	}
	if !h.lost {
		h.lost = true
		b.stats.Lost++
	}
	if h.group == nil {
		return
	}
	back := b.abandon(h)
	b.forget(h)
	b.giveBack(back, 0)
}

// promote hands out the next of a group whose first is done with. What lapsed
// meanwhile is dropped with all that comes after it. b.mu is held.
func (b *Broker) promote(g *group) {
	if g == nil || len(g.holds) == 0 || g.holds[0].out {
		return
	}
	next, now := g.holds[0], time.Now()
	if next.deadline.Sub(now) > b.visibility/2 {
		b.offer(next)
		return
	}
	// Whoever gets it measures by what is left how long to extend. What lapsed meanwhile is
	// lost by this, without a word to SQS.
	ops := b.extension(g, b.visibility)
	b.background(func() {
		b.change(ops)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.offer(next)
	})
}

// extension extends the first of a group, and with it those that wait behind it. b.mu is
// held.
func (b *Broker) extension(g *group, by time.Duration) []*op {
	var ops []*op
	now := time.Now()
	for _, h := range g.holds {
		ops = append(ops, newChange(h, min(max(by, b.visibility), h.end.Sub(now))))
	}
	return ops
}

// drop takes holds that lapsed out of the books, twelve hours after they began: until
// then a late acknowledgement is still worth sending. b.mu is held.
func (b *Broker) drop(now time.Time) {
	if now.Sub(b.dropped) < time.Minute {
		return
	}
	b.dropped = now
	for _, h := range b.holds {
		switch {
		case h.settling != nil || !h.lapsed(now):
		case h.group != nil:
			b.lose(h)
		case !h.out || now.After(h.end):
			b.forget(h)
		default:
			h.msg = types.Message{} // nobody can do anything with it
		}
	}
}
