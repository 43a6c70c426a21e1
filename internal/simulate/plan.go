package simulate

import (
	"fmt"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
)

// How long the phases last, in simulated time.
const (
	chaos   = 4 * time.Minute  // things go wrong
	patient = 90 * time.Minute // until then everything must have come to rest
	workers = 3
)

// The workers' configuration.
const (
	lease      = 20 * time.Second
	visibility = 30 * time.Second
	routeTime  = 30 * time.Second // of a route
	window     = 4 * time.Minute  // the settle window; longer than any freeze, any lag and any answer's lateness together
	holdTime   = 5 * time.Minute
	maxRun     = 6 * time.Minute
)

// order is the message of all handlers: its kind is the job's name.
type order struct{ Tenant, Kind, Doc, Text string }

// sent is one message that producers publish.
type sent struct {
	id   string
	at   time.Duration
	what order
}

// event is something that happens to the world at a time, and not at a call.
type event struct {
	id   string
	at   time.Duration
	what string // crash, freeze, drain, lapse, duplicate, cancel, ledger_out, broker_out, cut, drop
	who  int    // a worker, or a message
	d    time.Duration
}

// plan is what a seed decides before anything runs. What happens at calls is decided when they are made.
type plan struct {
	chance chance
	off    map[string]bool // what is left out, by id: of a message, an event, a fault
	sent   []sent
	events []event
	rate   float64 // of faults at calls
	kinds  []faultKind
}

var kinds = []string{"one", "two", "fallback", "asked", "steps", "fan"}

// newPlan plans the seed.
func newPlan(seed uint64, off map[string]bool) *plan {
	p := &plan{chance: chance(seed), off: off}
	c := p.chance
	p.rate = []float64{0, 0.01, 0.03, 0.08, 0.15}[c.below(5, "rate")]
	for k := failBefore; k < faultKinds; k++ {
		if c.likely(0.5, "kind", k.String()) {
			p.kinds = append(p.kinds, k)
		}
	}
	p.planMessages()
	p.planEvents()
	return p
}

func (p *plan) planMessages() {
	c := p.chance
	var all []order
	for i := range 1 + c.below(7, "jobs") {
		n := fmt.Sprint(i)
		o := order{Tenant: []string{"acme", "other"}[c.below(2, "tenant", n)], Kind: kinds[c.below(len(kinds), "kind", n)], Doc: fmt.Sprint(c.below(5, "doc", n)), Text: "do it"}
		if c.likely(0.04, "mismatch", n) {
			o.Text = "do something else"
		}
		all = append(all, o)
	}
	for i, o := range all {
		for k := range 1 + c.below(4, "copies", fmt.Sprint(i))/2 {
			id := fmt.Sprintf("message %d.%d", i, k)
			if !p.off[id] {
				p.sent = append(p.sent, sent{id, c.between(0, 2*time.Minute, id), o})
			}
		}
	}
}

func (p *plan) planEvents() {
	c := p.chance
	whats := []string{"crash", "crash", "freeze", "freeze", "drain", "lapse", "lapse", "duplicate", "cancel", "ledger_out", "broker_out", "cut", "cut", "drop"}
	for i := range c.below(8, "events") {
		id := fmt.Sprintf("event %d", i)
		e := event{id: id, at: c.between(time.Second, chaos, id), what: whats[c.below(len(whats), id, "what")], who: c.below(1<<20, id, "who"), d: c.between(time.Second, 70*time.Second, id, "for")}
		if e.what == "cut" { // from the ledger alone, for longer than a hold: others go on
			e.d = holdTime + 4*e.d
		}
		if !p.off[id] {
			p.events = append(p.events, e)
		}
	}
}

// queue is the broker of the seed: one with a visibility timeout, one that holds nothing for long, or one that holds while connected.
func (p *plan) queue() memory.Options {
	switch p.chance.below(4, "broker") {
	case 0:
		return memory.Options{Visibility: visibility, MaxHold: 2 * time.Minute, CountAll: true}
	case 1:
		return memory.Options{NoDeadline: true, MaxHold: 4 * time.Minute}
	}
	return memory.Options{Visibility: visibility}
}

// faultKind is what goes wrong at a call.
type faultKind int

// The faults. slow and freeze may last longer than a lease and a visibility timeout.
const (
	none         faultKind = iota
	failBefore             // an error, and nothing was done
	failAfter              // an error, and it was done
	slowBefore             // it is done late
	slowAfter              // it is done, and the reply comes late
	lateCommit             // an error, and it is done later
	crashBefore            // the worker dies, and nothing was done
	crashAfter             // the worker dies, and it was done
	freezeBefore           // the worker stands still before it asks
	freezeAfter            // the worker stands still before it hears
	faultKinds
)

// String names it in traces.
func (k faultKind) String() string {
	return [...]string{"", "error before", "error after", "slow before", "slow after", "late commit", "crash before", "crash after", "freeze before", "freeze after"}[k]
}

// fault is what goes wrong at the call of that name.
func (p *plan) fault(name string) (faultKind, time.Duration) {
	if p.off[name] || len(p.kinds) == 0 || !p.chance.likely(p.rate, "fault", name) {
		return none, 0
	}
	k := p.kinds[p.chance.below(len(p.kinds), "which", name)]
	return k, p.long(k, name)
}

// long is how long a fault lasts. Few are longer than a hold: then what stood still finds that others went on without it.
func (p *plan) long(k faultKind, name string) time.Duration {
	longest := time.Minute
	switch {
	case k == lateCommit: // servers end what nobody waits for
		longest = 15 * time.Second
	case (k == freezeBefore || k == freezeAfter) && p.chance.likely(0.2, "long", name):
		longest = 2 * holdTime
	}
	return p.chance.between(100*time.Millisecond, longest, "for", name)
}
