package protocol

import (
	"fmt"
	"strings"

	"github.com/paidonce/paidonce/ledger"
)

// Scenario says who takes part and what may go wrong.
type Scenario struct {
	Name    string
	Faults  uint8 // at most, of any kind, in one history
	Copies  int   // of the message that producers publish
	Submits uint8 // of the key without a message
	Verbs   uint8 // orders of a person
	// Reconcilers is how many of the processes have one.
	Reconcilers int
	MaxRuns     uint8
	Replays     uint8 // the policy's; 0: hold
	Budget      uint8 // in calls; 0: none
	Calls       uint8 // the job may send; 0: any number
	Refusal     uint8 // what a refused call costs, in calls
	Mismatch    bool  // the second copy has another input
	NoInput     bool  // the row does not hold the input
	Asks        bool  // the provider can be asked
	Refuses     bool  // the provider may refuse
	GivesUp     bool  // by policy
	Carry       bool  // a worker may leave its job to the ledger
	Day         bool  // there is a budget of the day
	Lifetime    bool  // the job's may end
	Applies     bool  // the handler has rows of its own for the answer (RunTx)
	Retain      bool  // the retention may end
	Strays      bool  // handlers leave goroutines behind that make a call of their own
	// FreezesAlone leaves out every fault but processes that freeze.
	FreezesAlone bool
	// SlowSocket lets a process sleep between its last look at the send window and the first byte.
	SlowSocket bool
	// GuaranteeAlone looks for nothing beneath the guarantee.
	GuaranteeAlone bool
}

// mostWorlds keeps a mistake in the model from filling the memory.
const mostWorlds = 16_000_000

// Violation is a history that ends where it must not.
type Violation struct {
	What      string
	Guarantee bool // itself is broken, not a rule beneath it
	Trace     []string
}

func (v *Violation) String() string {
	return v.What + "\n\t" + strings.Join(v.Trace, "\n\t")
}

// Explored is what a search saw.
type Explored struct {
	Worlds    int
	Steps     int
	Violation *Violation // nil: none
}

// explorer searches breadth first, so that a violation has a shortest history.
type explorer struct {
	*Scenario
	from  world
	full  bool // the model has no room for what follows
	seen  map[world]int32
	queue []node
	edges [][]int32 // to whom it leads without a fault or a person, by world
	now   int32
	steps int
	bad   *Violation
	nth   int16 // of the steps that the world allows, in the order in which they are tried
	heard []deed
	visit func(step)         // is told of every step instead; nil: explore
	first map[ending][]int16 // of each way in which a verb ends, the shortest way there; nil: nobody asks
}

// step is one that a world allows, or one that is refused and has asked a verb for it.
type step struct {
	label    string
	from, to world
	deeds    []deed
	refused  bool // to is from
	nth      int16
	broken   string // of the guarantee and the rules
}

type node struct {
	world world
	from  int32
	label string
	full  bool
	nth   int16
}

// Explore takes every step in every order, until something is broken or nothing is new.
func (s *Scenario) Explore() (e Explored) {
	x := &explorer{Scenario: s, seen: map[world]int32{}}
	x.add(s.start(), -1, "")
	for x.now = 0; int(x.now) < len(x.queue) && x.bad == nil; x.now++ {
		x.from, x.full, x.nth = x.queue[x.now].world, false, 0
		x.edges = append(x.edges, nil)
		x.all()
		x.queue[x.now].full = x.full
	}
	if x.bad == nil {
		x.stuck()
	}
	return Explored{Worlds: len(x.queue), Steps: x.steps, Violation: x.bad}
}

func (s *Scenario) start() world {
	var w world
	w.row.owner = nobody
	for i := range w.workers {
		w.workers[i] = worker{copy: nobody, attempt: nobody, epoch: 1, seeks: seeker{attempt: nobody}}
	}
	return w
}

// all takes every step that is possible in x.from.
func (x *explorer) all() {
	defer func() {
		if v := recover(); v != nil { // the table allows two things at once
			what, _, _ := strings.Cut(fmt.Sprint(v), " for {")
			x.bad = &Violation{What: what, Trace: x.trace(x.now)}
		}
	}()
	for i := range x.from.workers {
		x.work(i)
		x.strays(i)
		x.seek(i)
		x.crash(i)
	}
	x.provide()
	x.pass()
	x.deliver()
	x.sweep()
	x.orders()
}

// step takes one, of worker i or of nobody's.
func (x *explorer) step(i int, label string, do func(*move)) {
	x.make(i, label, 0, func(m *move) bool { do(m); return true })
}

// try takes a step if do says that it is one.
func (x *explorer) try(i int, label string, do func(*move) bool) { x.make(i, label, 0, do) }

// fault takes a step that costs one of the faults.
func (x *explorer) fault(i int, label string, do func(*move)) {
	if x.from.faults < x.Faults && (!x.FreezesAlone || strings.Contains(label, "freezes")) {
		x.make(i, label, 1, func(m *move) bool { do(m); return true })
	}
}

// lost takes a step whose reply is lost: a fault.
func (x *explorer) lost(i int, label string, do func(*move)) { x.fault(i, label, do) }

func (x *explorer) make(i int, label string, faults uint8, do func(*move) bool) {
	if x.bad != nil {
		return
	}
	m := move{Scenario: x.Scenario, world: x.from}
	x.nth++
	if x.visit != nil || x.first != nil {
		x.heard = x.heard[:0]
		m.tells = &x.heard
	}
	verbs := m.verbs
	took := do(&m)
	if i != nobody {
		label = who[i] + " " + label
	}
	if x.first != nil {
		x.hear()
	}
	if took {
		m.faults += faults
		if m.row.state != x.from.row.state {
			m.truth.old = false
		}
		m.check()
	}
	switch {
	case x.visit != nil:
		x.show(label, took, &m)
	case took:
		x.reach(label, faults, &m, m.verbs != verbs)
	}
}

// reach adds the world of a step to the graph; person: a step of a person's.
func (x *explorer) reach(label string, faults uint8, m *move, person bool) {
	m.canon()
	if x.Budget == 0 {
		m.row.cost, m.row.reserved = 0, 0
	}
	if x.Calls == 0 {
		m.row.calls = 0
	}
	x.steps++
	if len(x.queue) > mostWorlds {
		x.bad = &Violation{What: "more worlds than this model can look at"}
		return
	}
	to, found := x.seen[m.world]
	if !found {
		to = x.add(m.world, x.now, label)
		x.queue[to].nth = x.nth
	}
	if faults == 0 && !person && to != x.now {
		x.edges[x.now] = append(x.edges[x.now], to)
	}
	switch {
	case m.guarantee != "":
		x.bad = &Violation{What: m.guarantee, Guarantee: true, Trace: append(x.trace(x.now), label)}
	case m.rule != "" && !x.GuaranteeAlone:
		x.bad = &Violation{What: m.rule, Trace: append(x.trace(x.now), label)}
	}
}

func (x *explorer) add(w world, from int32, label string) int32 {
	n := int32(len(x.queue))
	x.seen[w] = n
	x.queue = append(x.queue, node{world: w, from: from, label: label})
	return n
}

// trace is the history that led to a world.
func (x *explorer) trace(n int32) []string {
	var t []string
	for ; n > 0; n = x.queue[n].from {
		t = append(t, x.queue[n].label)
	}
	for i, j := 0, len(t)-1; i < j; i, j = i+1, j-1 {
		t[i], t[j] = t[j], t[i]
	}
	return t
}

// check asks what must hold in every world.
func (m *move) check() {
	r := &m.row
	if !r.exists {
		return
	}
	m.breach(m.truth.results[r.gen] > 0 && r.state != done, "a committed result was lost")
	open := uint8(0)
	for _, a := range m.attempts {
		if a.state == sent && !a.gone {
			open++
		}
	}
	m.offence(r.open != open, "open_calls is not the number of open calls")
	m.offence(r.state == unknown && r.open == 0, "a job is unknown with no call open")
	m.offence(r.state != unknown && r.state != running && r.open > 0, "a job is "+string(states[r.state])+" with a call open")
	m.offence(r.state == running && (r.owner == nobody || r.token == 0), "a job runs for nobody")
	m.offence(r.carried && !r.input, "the ledger carries a job whose input it has not")
	for i := range m.workers {
		w := &m.workers[i]
		m.offence(w.at >= looking && w.at < completing && !w.mayLose && (r.state != running || r.fence != w.fence),
			"a live owner lost its run")
	}
}

// stuck looks for worlds from which no way leads to an end or to a person.
func (x *explorer) stuck() {
	back := make([][]int32, len(x.queue))
	for from, to := range x.edges {
		for _, n := range to {
			back[n] = append(back[n], int32(from))
		}
	}
	good := make([]bool, len(x.queue))
	var todo []int32
	for n := range x.queue {
		if x.queue[n].full || x.ends(&x.queue[n].world) {
			good[n] = true
			todo = append(todo, int32(n))
		}
	}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, from := range back[n] {
			if !good[from] {
				good[from] = true
				todo = append(todo, from)
			}
		}
	}
	for n := range good {
		if !good[n] {
			x.bad = &Violation{What: "nothing leads on from here: " + fmt.Sprintf("%+v", x.queue[n].world.row), Guarantee: true, Trace: x.trace(int32(n))}
			return
		}
	}
}

// ends reports whether everything came to an end, or waits for a person.
func (x *explorer) ends(w *world) bool {
	r := &w.row
	if !r.exists {
		return w.submits == 0 && w.copies == [maxCopies]copyAt{} || w.truth.forgotten
	}
	heldByPolicy := r.state == unknown && (r.replays >= x.Replays || x.Budget > 0 && r.cost+r.reserved+r.open > x.Budget ||
		x.Calls > 0 && r.calls+r.open > x.Calls || r.lifetimeOver)
	if r.state < done && !heldByPolicy {
		return false
	}
	for i := range w.workers {
		if w.workers[i].at != idle {
			return false
		}
	}
	for i := range w.copies {
		if c := w.copies[i].at; c == queued && (r.carried || r.state >= done) || c == handed {
			return false
		}
	}
	return true
}

// Guards are the names of every guard of the table, as transition/guard; "state" is the state
// that a transition starts from.
func Guards() []string {
	var names []string
	for _, t := range ledger.Transitions() {
		if len(t.From) > 0 {
			names = append(names, t.ID+"/state")
		}
		for _, g := range t.Guards {
			names = append(names, t.ID+"/"+g.Name)
		}
	}
	return names
}

// Without takes one guard out of the table, and returns what puts it back.
func Without(name string) (restore func()) {
	table := ledger.Transitions()
	for i := range table {
		t := &table[i]
		if t.ID+"/state" == name {
			from := t.From
			t.From = nil
			return func() { t.From = from }
		}
		for g := range t.Guards {
			if t.ID+"/"+t.Guards[g].Name == name {
				holds := t.Guards[g].Holds
				t.Guards[g].Holds = func(ledger.Facts) bool { return true }
				return func() { t.Guards[g].Holds = holds }
			}
		}
	}
	panic("protocol: no guard " + name)
}
