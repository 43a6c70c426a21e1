package protocol

import "github.com/paidonce/paidonce/ledger"

// The verbs of a ledger on the one row, as ledger/memory has them. Each asks the guards of the
// product's table, makes its changes as one step, and tells what the truth thinks of them.

// move is one step being taken: the world that it changes, and what is wrong with it.
type move struct {
	*Scenario
	world
	guarantee string  // broken, in words; "": it holds
	rule      string  // broken, of those beneath the guarantee
	tells     *[]deed // whoever leads a ledger along; nil: nobody
}

// breach notes that the guarantee is broken, if is.
func (m *move) breach(is bool, what string) {
	if is && m.guarantee == "" {
		m.guarantee = what
	}
}

// offence notes that a rule beneath the guarantee is broken, if is.
func (m *move) offence(is bool, what string) {
	if is && m.rule == "" {
		m.rule = what
	}
}

// facts is what the guards may know of the row.
func (m *move) facts() ledger.Facts {
	r := &m.row
	if !r.exists {
		return ledger.Facts{}
	}
	return ledger.Facts{
		Exists: true, State: states[r.state], OpenCalls: int(r.open), Cancel: r.cancel, InputKept: r.input,
		Due: r.due, Lapsed: !m.open() || r.deadlineOver, Owned: m.open() && r.state == unknown, Held: r.held || r.state != unknown,
		RunsLeft: r.runs < m.MaxRuns, ReplayLeft: r.replays < m.Replays, PastRoutes: m.pastRoutes(), Past: m.truth.old,
		CallsLeft: m.callsLeft(1), InLifetime: !r.lifetimeOver,
		UnknownCalls: m.unknownCalls()}
}

// leased are the facts for the holder of a lease, who is bound by its run's deadline alone.
func (m *move) leased(fence uint8) ledger.Facts {
	f := m.facts()
	f.FenceHeld = m.row.exists && m.row.fence == fence
	f.Lapsed = m.row.deadlineOver
	return f
}

func (m *move) pastRoutes() bool {
	for _, a := range m.attempts {
		if a.state == sent && !a.gone && !a.overdue {
			return false
		}
	}
	return true
}

func (m *move) unknownCalls() int {
	unknown := [2]int{}
	for _, a := range m.attempts {
		if !a.gone && a.gen == m.row.gen && a.state == closedUnknown && m.answer(a.call) == nobody {
			unknown[a.call] = 1
		}
	}
	return unknown[0] + unknown[1]
}

func (m *move) callsLeft(more uint8) bool { return m.Calls == 0 || m.row.calls+more <= m.Calls }

func (m *move) inBudget(reserve uint8) bool {
	return m.Budget == 0 || m.row.cost+m.row.reserved+reserve <= m.Budget
}

// turn makes a transition's own change: the state, and who may write from now on.
func (m *move) turn(t ledger.Transition) {
	if t.Fence {
		m.row.fence++
	}
	if t.To != "" {
		m.row.state = stateOf(t.To)
	}
}

// insert makes the row of a key that was never seen (J1, J1s, J10s).
func (m *move) insert(carried bool) {
	for i := range m.attempts { // what a row that is written over knew is forgotten
		a := &m.attempts[i]
		a.gone = a.gone || a.state != none
	}
	m.row = row{exists: true, gen: 1, owner: nobody, input: carried || !m.NoInput, carried: carried, due: true}
	m.truth.results[1], m.truth.applied[1], m.truth.old = 0, 0, false
}

// claim asks for the job, as ledger.Claim does. run: it is the worker's.
func (m *move) claim(i int) (run bool) {
	w := m.workers[i]
	said := deed{verb: claims, worker: int8(i), epoch: w.epoch, token: w.token, copy: w.copy}
	said.got, said.want = m.claims(i)
	said.fence, said.verdict = m.row.fence, m.verdict(i, said.got)
	m.tell(said)
	return said.want == nil && said.verdict == ledger.Run
}

// claims returns the transition that a claim makes, if it makes one.
func (m *move) claims(i int) (id string, err error) {
	w := &m.workers[i]
	f := m.facts()
	f.SameInput = m.row.exists && !m.other(w)
	f.TokenHeld = m.row.exists && m.row.token == w.token
	t, ok := ledger.PickClaim(f)
	if !ok {
		return "", nil
	}
	r := &m.row
	m.offence(t.ID == "J5" && r.state != running, "a run was given of a job that does not run")
	switch t.ID {
	case "J1", "J2", "J3":
		if w.epoch <= w.closed {
			return "", ledger.ErrClosed // it joins anew
		}
		m.offence(t.ID == "J3" && m.owned(), "a run was taken over from a live owner")
		m.offence(r.exists && !r.due && r.state == ready, "a job ran before it was due")
		m.offence(r.runs >= m.MaxRuns, "a job ran more often than it may")
		m.offence(t.ID == "J3" && r.cancel, "a job that is to be cancelled was run again")
		if t.ID == "J1" {
			m.insert(false)
			r.second = w.copy == 1
		}
		r.runs++
		m.turn(t)
		r.owner, r.epoch, r.token, r.deadlineOver = int8(i), w.epoch, w.token, false
		r.carried = r.carried || w.copy == nobody && r.input
		m.offence(m.other(w) && t.ID != "J1", "a message ran on another message's job")
	case "J2x", "J3x":
		m.offence(r.runs < m.MaxRuns, "a job failed with runs left")
		m.offence(m.other(w), "a message failed another message's job")
		m.offence(!r.due && r.state == ready, "a job was ended before it was due")
		m.offence(t.ID == "J3x" && m.owned(), "a job of a live owner failed")
		m.offence(t.ID == "J3x" && r.cancel, "a job that is to be cancelled failed")
		m.turn(t)
		r.disown()
	case "J4", "J19c":
		m.lapse(t)
	}
	return t.ID, nil
}

// lapse is J4, J13 and J19c.
func (m *move) lapse(t ledger.Transition) {
	r := &m.row
	m.offence(t.ID != "J13" && m.owned(), "a live owner's run was ended by others")
	m.offence(t.ID != "J13" && r.state != running, "a job lapsed that did not run")
	m.offence(t.ID == "J19c" && !m.truth.cancelled, "a job was cancelled that nobody cancelled")
	if t.ID == "J19c" {
		m.closeOpen()
	}
	m.turn(t)
	r.disown()
	r.held, r.due = false, true
	r.carried = r.carried || r.input && t.ID != "J19c"
}

// other reports whether the worker's message has another input than the job.
func (m *move) other(w *worker) bool {
	return m.Mismatch && w.copy != nobody && (w.copy == 1) != m.row.second
}

// owned reports whether somebody runs the job whose right to it nothing has ended.
func (m *move) owned() bool {
	for i := range m.workers {
		w := &m.workers[i]
		if w.at >= looking && w.at <= releasing && w.fence == m.row.fence && !w.mayLose {
			return m.row.state == running
		}
	}
	return false
}

// closeOpen closes what is open as unknown, for good.
func (m *move) closeOpen() {
	for i := range m.attempts {
		a := &m.attempts[i]
		if a.state == sent && !a.gone {
			a.state = closedUnknown
		}
	}
	m.row.open = 0
}

// send is the gate (J7). It returns the guard that refused, "" if none did.
func (m *move) send(i int, fence, late, call uint8) string {
	w, r := &m.workers[i], &m.row
	f := m.leased(fence)
	f.InBudget, f.LateSeen, f.OverDay = m.inBudget(1), r.late == late, m.dayFull
	t := ledger.Row("J7")
	g := t.Allows(f)
	said := deed{verb: sends, worker: int8(i), fence: fence, late: late, call: call, guard: g, want: ledger.Refusal(g), n: nobody}
	if g != "" {
		m.tell(said)
		return g
	}
	said.n = m.free()
	m.tell(said)
	m.breach(m.answer(call) != nobody, "a call was sent whose paid answer is in the ledger")
	m.offence(r.state != running, "a call was sent for a job that does not run")
	m.offence(!m.inBudget(1), "a call was sent over the job's budget")
	m.offence(m.dayFull, "a call was sent over the day's budget")
	m.offence(!m.callsLeft(1), "more calls were sent than the job may send")
	m.offence(r.lifetimeOver, "a call was sent after the job's lifetime")
	m.offence(r.cancel, "a call was sent for a job that is to be cancelled")
	m.offence(r.deadlineOver, "a call was sent after the run's deadline")
	m.strange(fence)
	n := said.n
	m.attempts[n] = attempt{state: sent, call: call, gen: r.gen, fence: r.fence, reserved: true}
	if call == 0 {
		w.attempt = n
	} else {
		m.attempts[n].wire = flying
	}
	m.turn(t)
	r.open++
	r.calls++
	r.reserved++
	return ""
}

// strange notes a change by a worker that lost the job.
func (m *move) strange(fence uint8) {
	m.offence(m.row.fence != fence, "a worker that had lost the job changed it")
}

// settle records the end of an attempt (J8, J9), as by sees it. settleable: who says so may.
func (m *move) settle(n int8, end attemptState, by ledger.Actor, settleable bool) {
	a, r := &m.attempts[n], &m.row
	f := m.facts()
	f.Exists, f.Attempt, f.Settleable = f.Exists && !a.gone, attemptStates[a.state], settleable
	t := ledger.Row("J9")
	if end == received {
		t = ledger.Row("J8")
	}
	g := t.Allows(f)
	m.tell(deed{verb: settles, n: n, end: end, by: by, proof: settleable, guard: g, want: settleRefusal(g, a.state == end)})
	if g != "" {
		m.breach(end == received && a.state != received && !a.gone, "a paid answer was refused by the ledger")
		return
	}
	m.offence(a.gone, "evidence was written to a job that is not there")
	m.breach(a.state == received, "a paid answer was written over")
	m.offence(end != received && !settleable, "a call was ruled out before its settle window was over")
	if a.state == sent {
		r.open--
	}
	if a.reserved {
		a.reserved = false
		r.reserved--
	}
	if end == notSent && a.gen == r.gen && a.state != notSent {
		r.calls--
	}
	if end == received && a.gen == r.gen && a.state == notSent {
		r.calls++
	}
	open := a.state == sent
	a.state = end
	switch {
	case end == received:
		m.capture(a, open)
	case end == rejected:
		r.cost += m.Refusal
	}
	m.turn(t)
	if r.state == unknown && r.open == 0 {
		r.state, r.due = ready, true
		r.disown()
	}
}

// settleRefusal is what who settles is told of a guard. again: the attempt is so already.
func settleRefusal(guard string, again bool) error {
	switch {
	case guard == "exists":
		return ledger.ErrNotFound
	case guard == "" || again:
		return nil
	case guard == "definite":
		return ledger.ErrTooEarly
	}
	return ledger.ErrState
}

func (m *move) capture(a *attempt, open bool) {
	r := &m.row
	r.captures++
	r.cost++
	a.captured = r.captures
	for i := range m.attempts {
		if b := &m.attempts[i]; b.state == sent && !b.gone && b.gen == a.gen && b.call == a.call {
			b.state = closedUnknown
			r.open--
		}
	}
	a.surplus = r.state == done || a.gen < r.gen
	if a.fence != r.fence || !open {
		r.late++
	}
}
