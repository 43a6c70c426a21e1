package protocol

import "github.com/paidonce/paidonce/ledger"

// How a run goes on with an answer, and ends.

// apply is J10a, in the transaction of the user's rows. It returns the guard that refused.
func (m *move) apply(i int) string {
	w, r := &m.workers[i], &m.row
	a := &m.attempts[w.attempt]
	f := m.leased(w.fence)
	first := m.answer(0)
	f.Attempt, f.Applied = attemptStates[a.state], a.applied
	f.FirstIn = !a.gone && a.gen == r.gen && (w.attempt == first || first == nobody)
	t := ledger.Row("J10a")
	g := t.Allows(f)
	said := deed{verb: applies, worker: int8(i), fence: w.fence, n: w.attempt, guard: g}
	if g != "unapplied" {
		said.want = kind(ledger.Refusal(g))
	}
	m.tell(said)
	if g != "" {
		return g
	}
	m.breach(m.truth.applied[r.gen] > 0, "the rows for an answer were committed twice")
	m.breach(a.state != received, "rows were committed for an answer that is not in the ledger")
	m.offence(r.state != running, "rows were committed for a job that does not run")
	m.strange(w.fence)
	m.truth.applied[r.gen]++
	a.applied = true
	m.turn(t)
	return ""
}

// complete is J10; false: it is not the worker's to complete.
func (m *move) complete(i int) bool {
	w, r := &m.workers[i], &m.row
	t := ledger.Row("J10")
	g := t.Allows(m.leased(w.fence))
	m.tell(deed{verb: completes, worker: int8(i), fence: w.fence, n: w.attempt, guard: g, want: ledger.Refusal(g)})
	if g != "" {
		return false
	}
	m.breach(m.truth.results[r.gen] > 0, "a second result was committed")
	m.offence(r.open > 0, "a job is done with a call open")
	m.breach(m.attempts[w.attempt].state != received || m.attempts[w.attempt].gen != r.gen, "a result was committed that no answer stands behind")
	m.strange(w.fence)
	for n := range m.attempts {
		if a := &m.attempts[n]; a.state == received && a.gen == r.gen && int8(n) != w.attempt {
			a.surplus = true
		}
	}
	m.truth.results[r.gen]++
	m.turn(t)
	token := r.token // stays, and is good for nothing
	r.disown()
	r.token = token
	return true
}

// release ends a run without a result (J11, J12, J13, J19b); false: it was not the worker's.
func (m *move) release(i int) bool {
	w, r := &m.workers[i], &m.row
	f := m.leased(w.fence)
	t, _, ok := ledger.PickRelease(f, ledger.Outcome{Fail: w.fail}, 0)
	said := deed{verb: releases, worker: int8(i), fence: w.fence, fail: w.fail, got: t.ID}
	if over := f.FenceHeld && (r.state == ready || r.state == failed || r.state == cancelled); !ok && !over {
		said.want = ledger.ErrLost
	}
	m.tell(said)
	if !ok {
		return false
	}
	m.strange(w.fence)
	m.offence(t.ID == "J19b" && !m.truth.cancelled, "a job was cancelled that nobody cancelled")
	m.offence(t.ID != "J19b" && t.ID != "J13" && r.cancel, "a cancelled job ended as something else")
	switch t.ID {
	case "J13":
		r.runs--
		m.lapse(t)
		return true
	case "J11":
		r.due = false
	case "J19b":
		m.closeOpen()
	}
	m.turn(t)
	r.disown()
	return true
}

// carry makes the ledger the carrier of the owner's job (JC).
func (m *move) carry(i int) bool {
	w := &m.workers[i]
	g := ledger.Row("JC").Allows(m.leased(w.fence))
	m.tell(deed{verb: carries, worker: int8(i), fence: w.fence, guard: g, want: ledger.Refusal(g)})
	if g != "" {
		return false
	}
	m.strange(w.fence)
	m.offence(m.row.state != running, "a job that does not run changed its carrier")
	m.row.carried = true
	return true
}

// replay gives the permission of the policy (J16, J16o).
func (m *move) replay(fence uint8) bool {
	r := &m.row
	f := m.leased(fence)
	f.InBudget, f.CallsLeft = m.inBudget(r.open), m.callsLeft(r.open) // each holds back one, and would again
	t, ok := ledger.Pick(f, "J16", "J16o")
	said := deed{verb: replays, fence: fence, got: t.ID}
	if !ok {
		said.guard, said.want = ledger.Row(map[bool]string{true: "J16", false: "J16o"}[f.State == ledger.Unknown]).Allows(f), kind(ledger.ReplayRefusal(f))
	}
	m.tell(said)
	if !ok {
		return false
	}
	m.strange(fence)
	m.offence(!m.inBudget(r.open), "a replay was allowed whose call the budget forbids")
	m.offence(!m.callsLeft(r.open) || r.lifetimeOver, "a replay was allowed whose call the limits forbid")
	m.offence(r.replays >= m.Replays, "the policy's replays were exceeded")
	m.offence(!m.pastRoutes(), "a call was given up while its answer could still come")
	m.offence(t.ID == "J16" && !r.held, "a replay did not wait for hold")
	m.offence(t.ID == "J16o" && (r.cancel || r.deadlineOver), "a run that was to end went on")
	m.offence(r.open == 0, "a permission was given for nothing")
	m.truth.permits[r.gen]++
	m.closeOpen()
	r.replays++
	m.turn(t)
	if r.state == ready {
		r.due = true
		r.disown()
	}
	return true
}
