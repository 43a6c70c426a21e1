package protocol

import "github.com/paidonce/paidonce/ledger"

// Everybody who is not a worker's run: the provider, time, faults, the broker, sweepers,
// reconcilers, producers, a person.

var who = [2]string{"A", "B"}

// provide takes the provider's steps.
func (x *explorer) provide() {
	for n := range x.from.attempts {
		if x.from.attempts[n].wire != flying {
			continue
		}
		x.step(nobody, "the provider executes attempt "+digit(n), func(m *move) {
			m.attempts[n].wire = executed
			m.billed(n)
		})
		if x.Refuses {
			x.step(nobody, "the provider refuses attempt "+digit(n), func(m *move) { m.attempts[n].wire = declined })
		}
		x.fault(nobody, "attempt "+digit(n)+" vanishes on its way", func(m *move) { m.attempts[n].wire, m.attempts[n].cut = vanished, true })
	}
	for n := range x.from.attempts {
		if a := &x.from.attempts[n]; a.wire == executed && !a.cut && x.waitsFor(n) {
			x.fault(nobody, "the connection of attempt "+digit(n)+" is cut", func(m *move) { m.attempts[n].cut = true })
		}
	}
}

func (x *explorer) waitsFor(n int) bool {
	for i := range x.from.workers {
		if w := &x.from.workers[i]; w.at == waiting && int(w.attempt) == n {
			return true
		}
	}
	return false
}

// billed counts what the provider executed of a generation against what was allowed.
func (m *move) billed(n int) {
	gen, call := m.attempts[n].gen, m.attempts[n].call
	paid := uint8(0)
	for _, a := range m.attempts {
		if a.wire == executed && a.gen == gen && a.call == call {
			paid++
		}
	}
	m.breach(paid > 1+m.truth.permits[gen], "a call was paid twice without a permission on record")
}

// pass lets limits be over, one at a time. What is not a fault needs no budget of faults.
func (x *explorer) pass() {
	f := &x.from
	for n := range f.attempts {
		a := &f.attempts[n]
		if a.state == none {
			continue
		}
		if !a.overdue {
			x.step(nobody, "the route's timeout of attempt "+digit(n)+" is over", func(m *move) { m.attempts[n].overdue = true })
		} else if x.Asks && !a.settled && a.wire != flying && (x.SlowSocket || !x.at(writing, n)) {
			x.step(nobody, "the settle window of attempt "+digit(n)+" is over", func(m *move) { m.attempts[n].settled = true })
		}
	}
	r := &f.row
	if r.exists && !r.due && (r.state == ready || r.state == unknown) {
		x.step(nobody, "the job is due", func(m *move) { m.row.due = true })
	}
	if r.exists && r.state == unknown && !r.held && (x.Replays > 0 || x.GivesUp) {
		x.step(nobody, "hold is over", func(m *move) { m.row.held = true })
	}
	for i := range f.workers {
		x.lapses(i)
	}
	if r.state == running && r.owner != nobody && !r.deadlineOver {
		x.fault(nobody, "the run's deadline is over", func(m *move) {
			m.row.deadlineOver = true
			m.mayLose(int(m.row.owner), false)
		})
	}
	if x.Lifetime && r.exists && !r.lifetimeOver {
		x.step(nobody, "the job's lifetime is over", func(m *move) { m.row.lifetimeOver = true })
	}
	if x.Day {
		x.step(nobody, "others spend the day's budget, or it is another day", func(m *move) { m.dayFull = !m.dayFull })
	}
	if x.Retain && r.exists && r.state != running && !f.truth.old && x.quiet() {
		x.step(nobody, "the retention is over", func(m *move) { m.truth.old = true })
	}
}

// at reports whether a worker is at that step of attempt n.
func (x *explorer) at(s at, n int) bool {
	for i := range x.from.workers {
		if w := &x.from.workers[i]; w.at == s && int(w.attempt) == n {
			return true
		}
	}
	return false
}

// quiet reports whether no copy is left and nobody is about to claim.
func (x *explorer) quiet() bool {
	for _, c := range x.from.copies[:x.Copies] {
		if c.at != acked && c.at != dead {
			return false
		}
	}
	return x.from.workers[0].at != claiming && x.from.workers[1].at != claiming
}

// mayLose notes that the time is over in which a worker's job, or what its reconciler adopted, was its own.
func (m *move) mayLose(i int, process bool) {
	if w := &m.workers[i]; w.at >= looking && w.at <= releasing {
		w.mayLose = true
	}
	if process && m.workers[i].seeks.at != resting {
		m.workers[i].seeks.mayLose = true
	}
}

// lapses closes the epochs of a process: one that died, or one that froze, which is a fault.
func (x *explorer) lapses(i int) {
	w := &x.from.workers[i]
	if w.closed < w.epoch-1 {
		x.step(nobody, "the lease of "+who[i]+", who died, is over", func(m *move) { m.workers[i].closed = w.epoch - 1 })
	}
	if w.closed < w.epoch && (w.at != idle || w.seeks.at != resting) {
		x.fault(nobody, "the lease of "+who[i]+", who freezes, is over", func(m *move) {
			m.workers[i].closed = w.epoch
			m.mayLose(i, true)
		})
	}
}

// crash ends a process; another begins in its place.
func (x *explorer) crash(i int) {
	w := &x.from.workers[i]
	if w.at == idle && w.seeks.at == resting {
		return
	}
	x.fault(i, "dies", func(m *move) {
		m.drop(i)
		m.workers[i] = worker{epoch: w.epoch + 1, closed: w.closed, attempt: nobody, copy: nobody}
	})
}

// deliver takes the broker's steps, and those of who publishes.
func (x *explorer) deliver() {
	for c := range x.from.copies {
		k := x.from.copies[c]
		switch {
		case k.at == unpublished && (c == 0 || x.Copies > 1) && c < x.Copies:
			x.step(nobody, "a producer publishes "+copyNames[c], func(m *move) { m.copies[c].at = queued })
		case k.at == handed && x.from.workers[k.holder].leaves(c):
			x.step(nobody, "the visibility of "+copyNames[c]+" is over", func(m *move) { m.copies[c] = copyAt{at: queued} })
		case k.at == handed:
			x.fault(nobody, "the visibility of "+copyNames[c]+" lapses", func(m *move) { m.copies[c] = copyAt{at: queued} })
		}
	}
	if x.from.submits < x.Submits {
		for _, id := range []string{"J1s", "J10s"} {
			x.step(nobody, "the job is submitted by "+id, func(m *move) { m.submits++; m.submit(id) })
		}
	}
}

// leaves reports whether a worker extends the visibility of that copy no longer.
func (w *worker) leaves(c int) bool { return w.at == idle || int(w.copy) != c || w.closed >= w.epoch }

// submit makes the job's row without a message, as a producer or as another job's result does.
func (m *move) submit(id string) {
	t := ledger.Row(id)
	g := t.Allows(m.facts())
	m.tell(deed{verb: submits, rule: id, guard: g})
	if g != "" {
		return
	}
	m.offence(m.row.exists, "a job was written over")
	m.insert(true)
	m.turn(t)
}

// sweep ends what lapsed (J4, J19c), and forgets what is old (J20, J20k).
func (x *explorer) sweep() {
	r := &x.from.row
	if r.exists {
		x.try(nobody, "a sweeper ends the lapsed run", func(m *move) bool {
			t, ok := ledger.Pick(m.facts(), "J4", "J19c")
			m.tell(deed{verb: sweeps, got: t.ID})
			if ok {
				m.lapse(t)
			}
			return ok
		})
	}
	if x.Retain && r.exists {
		x.try(nobody, "the result is purged", func(m *move) bool { return m.purge("J20") })
		x.try(nobody, "the key is forgotten", func(m *move) bool { return m.purge("J20k") })
	}
}

func (m *move) purge(id string) bool {
	g := ledger.Row(id).Allows(m.facts())
	m.tell(deed{verb: purges, rule: id, guard: g})
	if g != "" || id == "J20" && m.row.purged {
		return false
	}
	m.offence(m.row.state < done, "a job that has not ended was purged")
	m.offence(!m.truth.old, "a job was purged before its time")
	if id == "J20" {
		m.row.purged = true
		return true
	}
	m.insert(false)
	m.row = row{owner: nobody}
	m.truth.forgotten = true
	return true
}

// seek takes the steps of the reconciler of process i.
func (x *explorer) seek(i int) {
	s := &x.from.workers[i].seeks
	if i >= x.Reconcilers {
		return
	}
	switch s.at {
	case resting:
		if x.from.row.exists {
			x.try(i, "adopts the unknown job", func(m *move) bool { return m.adopt(i) })
		}
	case adopted:
		x.ask(i)
	case told:
		x.step(i, "records what the provider said", func(m *move) { m.heard(i) })
	case judging:
		x.step(i, "keeps the job for a later look", func(m *move) { m.keep(i) })
		if x.Replays > 0 {
			x.try(i, "replays by policy", func(m *move) bool { defer m.rested(i); return m.replay(m.workers[i].seeks.fence) })
		}
		if x.GivesUp {
			x.step(i, "gives up by policy", func(m *move) { m.giveUp(m.workers[i].seeks.fence); m.rested(i) })
		}
	}
}

func (m *move) rested(i int) { m.workers[i].seeks = seeker{attempt: nobody} }

func (m *move) adopt(i int) bool {
	w, r := &m.workers[i], &m.row
	t := ledger.Row("J14")
	g := t.Allows(m.facts())
	w.joins()
	m.tell(deed{verb: adopts, worker: int8(i), epoch: w.epoch, guard: g})
	if g != "" {
		return false
	}
	m.offence(r.state != unknown, "a job was adopted that is not unknown")
	m.offence(!r.due, "an unknown job was looked at before it was due")
	for j := range m.workers {
		s := &m.workers[j].seeks
		m.offence(s.at != resting && s.fence == r.fence && !s.mayLose, "two reconcilers own one job")
	}
	m.turn(t)
	r.owner, r.epoch, r.deadlineOver = int8(i), w.epoch, false
	w.seeks = seeker{at: adopted, fence: r.fence, attempt: nobody}
	for n, a := range m.attempts {
		if a.state == sent && !a.gone {
			w.seeks.attempt = int8(n)
		}
	}
	if w.seeks.attempt == nobody {
		w.seeks.at = judging
	}
	return true
}

// ask asks the provider, who tells the truth, or nothing.
func (x *explorer) ask(i int) {
	n := x.from.workers[i].seeks.attempt
	a := x.from.attempts[n]
	hear := func(v verdict) func(*move) {
		return func(m *move) { s := &m.workers[i].seeks; s.at, s.says, s.proof = told, v, a.settled }
	}
	x.step(i, "asks the provider, who cannot tell", hear(cannotTell))
	if !x.Asks {
		return
	}
	switch a.wire {
	case executed:
		x.step(i, "asks the provider, who has the answer", hear(happened))
	case declined:
		x.step(i, "asks the provider, who refused the call", hear(refusedIt))
	default:
		x.step(i, "asks the provider, who knows no such call", hear(absent))
	}
}

// heard records a verdict, and leaves the rest to the policy.
func (m *move) heard(i int) {
	s := &m.workers[i].seeks
	switch s.says {
	case happened:
		m.settle(s.attempt, received, ledger.ByReconciler, true)
	case refusedIt:
		m.settle(s.attempt, rejected, ledger.ByReconciler, s.proof)
	case absent:
		m.settle(s.attempt, notSent, ledger.ByReconciler, s.proof)
	}
	s.at = judging
	if !m.row.exists || m.row.state != unknown || m.row.fence != s.fence {
		m.rested(i)
	}
}

// keep puts the job back for a later look.
func (m *move) keep(i int) {
	s := &m.workers[i].seeks
	r := &m.row
	said := deed{verb: keeps, fence: s.fence}
	switch {
	case !r.exists:
		said.want = ledger.ErrNotFound
	case r.state != unknown || r.fence != s.fence:
		said.want = ledger.ErrLost
	}
	m.tell(said)
	if said.want == nil {
		r.disown()
		r.due = false
	}
	m.rested(i)
}

// giveUp is J17.
func (m *move) giveUp(fence uint8) {
	f := m.facts()
	f.FenceHeld = m.row.exists && m.row.fence == fence
	t := ledger.Row("J17")
	g := t.Allows(f)
	said := deed{verb: givesUp, fence: fence, guard: g}
	switch {
	case !m.row.exists:
		said.want = ledger.ErrNotFound
	case g != "" && !(m.row.state == failed && f.FenceHeld): // else it is found done
		said.want = ledger.Refusal(g)
	}
	m.tell(said)
	if g != "" {
		return
	}
	m.strange(fence)
	m.closeOpen()
	m.turn(t)
	m.row.disown()
}

func digit(n int) string { return string(rune('1' + n)) }
