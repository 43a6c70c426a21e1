package protocol

import "github.com/paidonce/paidonce/ledger"

// orders takes what a person can order at any time.
func (x *explorer) orders() {
	if x.from.verbs >= x.Verbs || !x.from.row.exists {
		return
	}
	verb := func(name string, do func(*move) bool) {
		x.try(nobody, "a person "+name, func(m *move) bool { m.verbs++; return do(m) })
	}
	verb("cancels", (*move).cancelled)
	verb("gives up the unknown job", func(m *move) bool {
		was := m.row.state
		m.giveUp(m.row.fence)
		return was != m.row.state
	})
	verb("orders another run", func(m *move) bool { return m.reopen("J18", order{}) })
	verb("repeats the order, whose reply was lost", func(m *move) bool { return m.row.orders > 0 && m.reopen("J18", order{again: true}) })
	verb("retries", func(m *move) bool { return m.reopen("J18r", order{}) })
	verb("retries and accepts to pay twice", func(m *move) bool { return m.reopen("J18r", order{doublePay: true}) })
	verb("lets it wait no longer", func(m *move) bool { return m.reopen("J18w", order{}) })
	for n := range x.from.attempts {
		if a := &x.from.attempts[n]; a.state != none && !a.gone {
			if a.wire == executed {
				verb("brings the answer of attempt "+digit(n), func(m *move) bool {
					was := m.attempts[n]
					m.settle(int8(n), received, ledger.ByPerson, true)
					return m.attempts[n] != was
				})
			}
			verb("rules attempt "+digit(n)+" out", func(m *move) bool { return m.ruleOut(int8(n)) })
		}
	}
}

// cancelled is J19 and J19f.
func (m *move) cancelled() bool {
	t, ok := ledger.Pick(m.facts(), "J19", "J19f")
	said := deed{verb: cancels, got: t.ID}
	if !ok && m.row.state != cancelled {
		said.want = ledger.ErrState
	}
	m.tell(said)
	if !ok {
		return false
	}
	m.offence(m.row.state >= done, "a job that had ended was cancelled")
	m.truth.cancelled = true
	if t.ID == "J19f" {
		m.offence(m.row.state != running, "a job was flagged that does not run")
		m.row.cancel = true
		return true
	}
	m.offence(m.row.state == running, "a running job was cancelled under its owner")
	m.closeOpen()
	m.turn(t)
	m.row.disown()
	return true
}

// ruleOut is a person's word that a call never happened: J9. It is a permission to pay again.
func (m *move) ruleOut(n int8) bool {
	a := m.attempts[n]
	m.settle(n, notSent, ledger.ByPerson, true)
	if m.attempts[n] == a {
		return false
	}
	m.truth.permits[a.gen]++
	return true
}

// order is what a person says beside the verb.
type order struct {
	doublePay bool
	again     bool // with the token of the last order
}

// reopen is J18, J18r and J18w.
func (m *move) reopen(id string, o order) bool {
	r := &m.row
	f := m.facts()
	f.InputKept = r.input && !r.purged
	f.TokenUsed, f.DoublePay = o.again, o.doublePay
	if id == "J18" && int(r.gen) == len(m.truth.permits)-1 {
		return false // the model is full
	}
	t := ledger.Row(id)
	g := t.Allows(f)
	m.tell(deed{verb: reopens, rule: id, order: o, guard: g, want: kind(ledger.ReopenRefusal(f, g))})
	if g != "" {
		return false
	}
	m.offence(!r.input, "a job was opened again that has no input")
	m.offence(o.again, "one order made two runs")
	switch id {
	case "J18":
		m.breach(r.state < done, "a job that had not ended was begun anew")
		m.anew()
	case "J18r":
		m.breach(r.state != failed, "a job that had not failed was retried")
		m.breach(f.UnknownCalls > 0 && !o.doublePay, "a call that may be paid was freed to be sent again")
		if o.doublePay && f.UnknownCalls > 0 {
			m.truth.permits[r.gen]++
		}
	case "J18w":
		m.breach(r.state != ready, "a job that was not ready was hurried")
	}
	if id != "J18w" {
		r.cancel, r.runs = false, 0
	}
	r.carried, r.due = true, true
	m.turn(t)
	return true
}

// anew begins a generation.
func (m *move) anew() {
	r := &m.row
	for i := range m.attempts {
		if a := &m.attempts[i]; r.state != done && a.gen == r.gen && a.state == received {
			a.surplus = true
		}
	}
	r.orders++
	r.gen++
	r.replays, r.calls, r.purged, r.lifetimeOver = 0, 0, false, false
	m.truth.cancelled = false
}
