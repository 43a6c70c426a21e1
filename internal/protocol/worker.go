package protocol

import "github.com/paidonce/paidonce/ledger"

// The story of a worker, one durable point a step: take a delivery, claim, look, gate, send, settle,
// complete, acknowledge.

// work takes every step that worker i can take next.
func (x *explorer) work(i int) {
	w := &x.from.workers[i]
	switch w.at {
	case idle:
		x.take(i)
	case claiming:
		x.step(i, "claims", func(m *move) { m.claimed(i) })
		x.lost(i, "claims, the reply is lost", func(m *move) { m.claim(i) })
	case looking:
		x.step(i, "looks", func(m *move) { m.look(i) })
	case gating:
		x.gate(i)
	case repeated:
		x.step(i, "settles its repeated attempt as not sent", func(m *move) { m.unsent(i) })
	case writing, checked:
		x.write(i)
	case waiting:
		x.wait(i)
	case answered:
		x.step(i, "settles the answer", func(m *move) {
			m.settle(m.workers[i].attempt, received, ledger.BySender, true)
			m.has(i, m.workers[i].attempt)
		})
		if x.Applies {
			x.try(i, "has its rows committed before its answer", func(m *move) bool { return m.apply(i) == "" })
		}
	case refused:
		x.step(i, "settles the refusal, tries again", func(m *move) {
			m.settle(m.workers[i].attempt, rejected, ledger.BySender, true)
			m.workers[i].at = gating
		})
		x.step(i, "settles the refusal, gives back", func(m *move) { m.settle(m.workers[i].attempt, rejected, ledger.BySender, true); m.ends(i, false) })
		x.step(i, "settles the refusal, fails", func(m *move) { m.settle(m.workers[i].attempt, rejected, ledger.BySender, true); m.ends(i, true) })
	case unsure:
		x.step(i, "gives back with an open call", func(m *move) { m.ends(i, false) })
		x.step(i, "fails with an open call", func(m *move) { m.ends(i, true) })
		if x.Replays > 0 {
			x.try(i, "replays within its run", func(m *move) bool { m.workers[i].at = gating; return m.replay(m.workers[i].fence) })
		}
	case applying:
		x.step(i, "commits rows for the answer", func(m *move) { m.applied(i) })
		x.lost(i, "commits rows for the answer, the reply is lost", func(m *move) { m.apply(i) })
		x.lost(i, "gives back, and its goroutine goes on", func(m *move) { m.release(i); m.workers[i].mayLose = true })
	case completing:
		x.step(i, "completes", func(m *move) { m.completed(i, m.complete(i)) })
		x.lost(i, "completes, the reply is lost", func(m *move) { m.complete(i) })
		for _, fail := range []bool{false, true} {
			x.lost(i, "completes, the reply is lost, and it gives up", func(m *move) { m.complete(i); m.ends(i, fail) })
		}
		x.step(i, "panics on the answer", func(m *move) { m.ends(i, false) })
	case releasing:
		x.step(i, "releases", func(m *move) { m.release(i); m.settles(i) })
		x.lost(i, "releases, the reply is lost", func(m *move) { m.release(i) })
	case acking:
		x.step(i, "acknowledges", func(m *move) { m.ack(i) })
		x.lost(i, "acknowledges, which is lost", func(m *move) { m.workers[i].rest() })
	case nacking:
		x.step(i, "gives its delivery back", func(m *move) { m.drop(i); m.workers[i].rest() })
	}
	if w.at >= looking && w.at <= completing && w.copy != nobody && x.Carry {
		x.try(i, "leaves the job to the ledger and acknowledges", func(m *move) bool {
			if !m.carry(i) {
				return false
			}
			m.acked(i)
			m.workers[i].copy = nobody
			return true
		})
	}
}

// take gives an idle worker something to do: a delivery, or a job that the ledger carries.
func (x *explorer) take(i int) {
	for c := range x.from.copies {
		if x.from.copies[c].at == queued {
			x.step(i, "receives "+copyNames[c], func(m *move) {
				m.copies[c] = copyAt{handed, int8(i)}
				m.begin(i, int8(c))
			})
		}
	}
	if x.from.revived() {
		x.step(i, "takes the stored input", func(m *move) { m.begin(i, nobody) })
	}
}

// revived reports whether the job is one that the ledger brings back.
func (w *world) revived() bool {
	r := &w.row
	return r.exists && r.carried && (r.state == ready && r.due || r.state == running && (!w.open() || r.deadlineOver) && r.open == 0)
}

var copyNames = [maxCopies]string{"the message", "its duplicate"}

func (m *move) begin(i int, c int8) {
	w := &m.workers[i]
	w.joins()
	w.at, w.copy, w.token, w.attempt = claiming, c, token(i, w.epoch), nobody
}

// joins takes a new epoch if the last one was closed.
func (w *worker) joins() { w.epoch = max(w.epoch, w.closed+1) }

// rest ends the work on a delivery.
func (w *worker) rest() {
	*w = worker{epoch: w.epoch, closed: w.closed, attempt: nobody, copy: nobody, stray: w.stray, seeks: w.seeks}
}

// claimed claims and does what the verdict says.
func (m *move) claimed(i int) {
	w, r := &m.workers[i], &m.row
	if m.claim(i) {
		w.at, w.fence, w.mayLose = looking, r.fence, !m.open() || r.deadlineOver
		if m.Strays && w.stray == 0 {
			w.stray = r.fence
		}
		return
	}
	if m.row.exists && m.other(w) {
		m.copies[w.copy] = copyAt{at: dead}
		w.rest()
		return
	}
	m.settles(i)
}

// settles ends a delivery by what the row says: an ack needs an outcome that is durable.
func (m *move) settles(i int) {
	w, r := &m.workers[i], &m.row
	w.at = nacking
	if r.exists && (r.state >= done || r.carried) {
		w.at = acking
	}
}

// ends gives the run up.
func (m *move) ends(i int, fail bool) {
	m.workers[i].at, m.workers[i].fail = releasing, fail
}

func (m *move) look(i int) {
	w, r := &m.workers[i], &m.row
	if !r.exists || r.fence != w.fence {
		m.tell(deed{verb: looks, fence: w.fence, want: ledger.ErrLost, answer: nobody})
		m.settles(i) // it lost the job
		return
	}
	w.late = r.late
	open := m.opened(0)
	m.tell(deed{verb: looks, fence: w.fence, late: r.late, answer: m.answer(0), open: open})
	switch n := m.answer(0); {
	case n != nobody:
		m.has(i, n)
	case open:
		w.at = unsure
	default:
		w.at = gating
	}
}

// has goes on with an answer.
func (m *move) has(i int, n int8) {
	w := &m.workers[i]
	w.attempt, w.at = n, completing
	if m.Applies {
		w.at = applying
	}
}

// applied commits the user's rows for an answer, once, and goes on. An answer that came second is not theirs.
func (m *move) applied(i int) {
	w := &m.workers[i]
	switch m.apply(i) {
	case "", "unapplied":
		w.at = completing
	case "first_answer":
		w.attempt = m.answer(0)
	default:
		m.ends(i, false)
	}
}

// gate asks the send gate. What refuses decides how the run goes on.
func (x *explorer) gate(i int) {
	if x.from.free() == nobody {
		x.full = true // of the model, not of the product
		return
	}
	x.step(i, "passes the gate", func(m *move) {
		switch m.send(i, m.workers[i].fence, m.workers[i].late, 0) {
		case "":
			m.workers[i].at = writing
		case "late_seen":
			m.workers[i].at = looking
		case "in_budget", "calls_left", "in_lifetime":
			m.ends(i, true)
		default:
			m.ends(i, false)
		}
	})
	x.lost(i, "passes the gate, the reply is lost", func(m *move) {
		if m.send(i, m.workers[i].fence, m.workers[i].late, 0) == "" {
			m.workers[i].at = repeated
		}
	})
}

// unsent settles an attempt of which no byte left, and asks the gate for another.
func (m *move) unsent(i int) {
	m.settle(m.workers[i].attempt, notSent, ledger.BySender, true)
	m.workers[i].at = gating
}

// write sends the first byte, if the send window is open.
func (x *explorer) write(i int) {
	w := &x.from.workers[i]
	n := w.attempt
	if x.from.attempts[n].overdue && w.at != checked {
		x.step(i, "finds the send window over", func(m *move) { m.unsent(i) })
		return
	}
	if x.SlowSocket && w.at == writing {
		x.step(i, "looks at the send window", func(m *move) { m.workers[i].at = checked })
		return
	}
	x.step(i, "writes the request", func(m *move) { m.attempts[n].wire = flying; m.workers[i].at = waiting })
}

// wait ends the wait for an answer in one of its ways.
func (x *explorer) wait(i int) {
	a := &x.from.attempts[x.from.workers[i].attempt]
	to := func(next at) func(*move) { return func(m *move) { m.workers[i].at = next } }
	switch {
	case a.cut:
		x.step(i, "finds its connection cut", to(unsure))
		return
	case a.wire == executed:
		x.step(i, "reads the answer", to(answered))
	case a.wire == declined:
		x.step(i, "reads a refusal", to(refused))
	}
	if a.overdue {
		x.step(i, "waits no longer", to(unsure))
	}
}

// completed goes on after J10. Who did not complete reads the row again, by its fence.
func (m *move) completed(i int, mine bool) {
	r := &m.row
	switch {
	case mine:
		m.workers[i].at = acking
	case r.exists && r.fence == m.workers[i].fence && r.state == running:
		m.ends(i, false) // another call is open
	default:
		m.settles(i)
	}
}

// ack acknowledges the delivery, if it is still the worker's.
func (m *move) ack(i int) {
	m.acked(i)
	m.workers[i].rest()
}

func (m *move) acked(i int) {
	c := m.workers[i].copy
	if c == nobody || m.copies[c] != (copyAt{handed, int8(i)}) {
		return // ErrNotHeld
	}
	r := &m.row
	durable := r.exists && (r.state >= done || r.carried && r.input) || !r.exists && m.truth.forgotten
	m.breach(!durable, "a message was acknowledged before its outcome was durable")
	m.copies[c] = copyAt{at: acked}
}

// drop gives a delivery back to its queue.
func (m *move) drop(i int) {
	if c := m.workers[i].copy; c != nobody && m.copies[c] == (copyAt{handed, int8(i)}) {
		m.copies[c] = copyAt{at: queued}
	}
}

// strays lets a goroutine that a handler began, and does not wait for, make a call of its own.
func (x *explorer) strays(i int) {
	w := &x.from.workers[i]
	if w.stray == 0 || x.from.free() == nobody {
		return
	}
	x.step(i, "has a goroutine that sends another call", func(m *move) {
		k := &m.workers[i]
		fence := k.stray
		k.stray = 0
		if r := &m.row; r.exists && m.answer(1) == nobody && !m.opened(1) { // it looked
			m.send(i, fence, r.late, 1)
		}
	})
}

// opened reports whether the call has an open attempt.
func (w *world) opened(call uint8) bool {
	for _, a := range w.attempts {
		if a.state == sent && !a.gone && a.gen == w.row.gen && a.call == call {
			return true
		}
	}
	return false
}
