package simulate

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/internal/jitter"
	"github.com/paidonce/paidonce/internal/mortal"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/prices"
)

// world is one history: workers, what they share, and all that is known of what they did.
type world struct {
	*mortal.World
	plan   *plan
	mutant mutant
	began  time.Time
	turn   chan struct{} // of whoever waits for a message
	calm   time.Time     // nothing goes wrong from here
	conns  sync.WaitGroup

	effects map[string]int // of commits, by job; under the ledger's lock

	mu          sync.Mutex
	busy        int // goroutines of the world itself
	lines       []string
	violations  []string
	misfortunes []string       // ids of what went wrong, to be left out one by one
	counts      map[string]int // how often something was asked
	arrivals    map[string]int // of requests at the provider, by job and call
	bill        []*request
	attempts    map[string]string     // names, by id
	gates       map[string]ledger.Key // their jobs, by id
	slots       [workers]*mortal.Node
	lives       [workers]int
	nodes       []*mortal.Node
	sources     map[*mortal.Node]*memory.Source
	ended       map[*mortal.Node]time.Time // when it was killed or told to stop
	held        []broker.Delivery          // handed out and not settled, as far as the workers say
	ledgerOut   []span
	brokerOut   []span
	cut         map[*mortal.Node]time.Time    // until when a worker does not reach the ledger
	leases      map[ledger.WorkerID]time.Time // until when a worker is alive
	deadlines   map[string]time.Time          // of runs, by job and fence
	results     map[string][]ledger.ID        // that were committed, by job and generation
	used        map[ledger.ID][]ledger.ID     // answers, by result
	published   []string                      // notes, in order
}

type span struct{ from, to time.Time }

// outcome is what became of a seed.
type outcome struct {
	violations  []string
	misfortunes []string
	lines       []string
	plan        *plan
	requests    int
	ends        map[string]int // what became of jobs, and by which rules
}

// table prices the provider's one model: a dollar for a million tokens.
var table = sync.OnceValue(func() *prices.Table {
	t, err := prices.Read("simulate", strings.NewReader("provider,model,from,currency,input,output\nopenai,sim,1999-01-01,USD,1,1\n"))
	if err != nil {
		panic(err)
	}
	return t
})

// play plays a seed, without what is off, with a mutant.
func play(t *testing.T, seed uint64, off map[string]bool, m mutant) (o outcome) {
	t.Helper()
	p := newPlan(seed, off)
	defer jitter.Decide(p.chance.jitter)()
	if m.table != nil {
		defer m.table()()
	}
	mortal.Bubble(t, func(mw *mortal.World) {
		w := newWorld(mw, p, m)
		w.history()
		o = outcome{w.violations, w.misfortunes, w.lines, p, len(w.bill), w.ends()}
	})
	return o
}

func newWorld(mw *mortal.World, p *plan, m mutant) *world {
	w := &world{World: mw, plan: p, mutant: m, turn: make(chan struct{}, 1), began: time.Now(), calm: time.Now().Add(chaos), effects: map[string]int{}, counts: map[string]int{}, arrivals: map[string]int{},
		attempts: map[string]string{}, gates: map[string]ledger.Key{}, ended: map[*mortal.Node]time.Time{}, leases: map[ledger.WorkerID]time.Time{}, deadlines: map[string]time.Time{},
		cut: map[*mortal.Node]time.Time{}, sources: map[*mortal.Node]*memory.Source{}, results: map[string][]ledger.ID{}, used: map[ledger.ID][]ledger.ID{}}
	w.Queue = memory.New(p.queue())
	w.Level = slog.Level(100)
	w.Config = consumer.Config{Workers: 3, Lease: lease, SettleWindow: window, Hold: holdTime, MaxRun: maxRun, Retry: consumer.Backoff{First: 2 * time.Second, Ceil: 20 * time.Second},
		Grace: 4 * time.Minute, Tick: 10 * time.Second, Prices: table(), AckBusy: p.chance.likely(0.3, "ack busy")}
	w.Register = w.register
	w.Way = w.between
	return w
}

// history plays the whole of it.
func (w *world) history() {
	l := w.Net.Listen(mortal.Anywhere)
	w.conns.Go(func() { w.serve(l) })
	for i := range w.slots {
		time.Sleep(w.plan.chance.between(1, time.Second, "start", fmt.Sprint(i)))
		w.start(i)
	}
	for _, s := range w.plan.sent {
		w.goes(func() { time.Sleep(s.at); w.publish(s) })
	}
	for _, e := range w.plan.events {
		w.goes(func() { time.Sleep(e.at); w.happen(e) })
	}
	time.Sleep(time.Until(w.calm))
	w.settled() // what began still ends: freezes, restarts, late commits
	w.say("world", "nothing goes wrong any more")
	w.rest("after the faults")
	w.person()
	w.rest("after a person's decisions")
	for _, n := range w.nodes { // what sleepers still do, others have to deal with
		n.Thaw()
	}
	time.Sleep(lease)
	w.rest("after the last ones woke")
	for _, n := range w.nodes {
		n.Stop()
	}
	for _, n := range w.nodes {
		n.Buried()
	}
	w.settled()
	l.Close()
	w.conns.Wait()
	w.check()
}

// goes does something of the world's own beside all else.
func (w *world) goes(f func()) {
	w.mu.Lock()
	w.busy++
	w.mu.Unlock()
	go func() {
		f()
		w.mu.Lock()
		w.busy--
		w.mu.Unlock()
	}()
}

// settled waits until nothing of that is under way.
func (w *world) settled() {
	for busy := 1; busy > 0; {
		time.Sleep(time.Second)
		w.mu.Lock()
		busy = w.busy
		w.mu.Unlock()
	}
}

// start begins the next life of a worker.
func (w *world) start(slot int) {
	w.mu.Lock()
	w.lives[slot]++
	name := fmt.Sprintf("w%d.%d", slot+1, w.lives[slot])
	w.mu.Unlock()
	n := w.Start(name, nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slots[slot] = n
	w.nodes = append(w.nodes, n)
	w.note(name, "starts")
}

// die kills a worker, and starts its next life after a while.
func (w *world) die(n *mortal.Node, after time.Duration) {
	w.mu.Lock()
	slot := slices.Index(w.slots[:], n)
	_, over := w.ended[n]
	if slot < 0 || over {
		w.mu.Unlock()
		return
	}
	w.ended[n] = time.Now()
	w.note(n.Name, "dies")
	w.mu.Unlock()
	n.Kill()
	w.drop(n)
	w.goes(func() { time.Sleep(after); w.start(slot) })
}

// freeze makes a worker stand still for d.
func (w *world) freeze(n *mortal.Node, d time.Duration) {
	w.say(n.Name, "stands still for %s", d)
	n.Freeze()
	w.goes(func() { time.Sleep(d); n.Thaw(); w.say(n.Name, "goes on") })
}

// drain stops a worker in order, and starts its next life when it has ended.
func (w *world) drain(slot int) {
	w.mu.Lock()
	n := w.slots[slot]
	_, over := w.ended[n]
	if !over {
		w.ended[n] = time.Now()
		w.note(n.Name, "drains")
	}
	w.mu.Unlock()
	if over {
		return
	}
	n.Stop()
	n.Buried()
	w.drop(n)
	w.start(slot)
}

// drop ends a worker's connection to the broker, which takes back all that it holds.
func (w *world) drop(n *mortal.Node) {
	w.mu.Lock()
	s := w.sources[n]
	w.mu.Unlock()
	s.Drop()
}

// happen makes an event happen.
func (w *world) happen(e event) {
	w.say("world", "%s: %s %d for %s", e.id, e.what, e.who, e.d)
	slot := e.who % workers
	w.mu.Lock()
	n := w.slots[slot]
	w.mu.Unlock()
	switch e.what {
	case "crash":
		w.die(n, e.d/2)
	case "freeze":
		w.freeze(n, e.d)
	case "drain":
		w.drain(slot)
	case "lapse":
		w.lapse(e.who)
	case "duplicate":
		w.publish(w.plan.any(e.who))
	case "cancel":
		k := w.plan.any(e.who).what.JobKey().Ledger()
		_, err := w.Ledger.Resolve(context.Background(), ledger.Resolution{Key: k, Action: ledger.Cancel, Reason: "nobody wants it", By: ledger.ByPerson, Who: "ann"})
		w.say("ann", "cancels %s: %v", k, err)
	case "drop":
		w.drop(n)
	default:
		w.away(e, n)
	}
}

// away has the ledger or the broker away, for all or, where the worker is cut off, for the one.
func (w *world) away(e event, n *mortal.Node) {
	w.mu.Lock()
	until := time.Now().Add(e.d)
	switch e.what {
	case "ledger_out":
		w.ledgerOut = append(w.ledgerOut, span{time.Now(), until})
	case "broker_out":
		w.brokerOut = append(w.brokerOut, span{time.Now(), until})
	case "cut":
		w.cut[n] = until
	}
	w.mu.Unlock()
	time.Sleep(e.d) // nothing rests before it is over
}

// any is one of the messages; without any, one of a job that nobody else asks for.
func (p *plan) any(n int) sent {
	if len(p.sent) == 0 {
		return sent{id: "another", what: order{"acme", "one", "another", "do it"}}
	}
	return p.sent[n%len(p.sent)]
}

func (w *world) publish(s sent) {
	body, _ := json.Marshal(s.what) // strings always encode
	m := broker.Message{ID: fmt.Sprintf("%s/%d", s.id, w.nth(s.id)), Body: body, Attributes: map[string]string{consumer.Attribute: s.what.Kind}}
	if err := w.Queue.Publish(context.Background(), m); err != nil {
		w.violate("publish", "%v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts["published "+s.what.JobKey().String()+" "+s.what.Text]++
	w.note("producer", "publishes %s (%s)", s.what.JobKey(), s.what.Text)
}

// lapse has the broker take a delivery back that somebody holds.
func (w *world) lapse(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.held) > 0 {
		d := w.held[n%len(w.held)]
		w.note("broker", "takes a delivery of %s back: %v", keyOf(d), w.Queue.Lapse(d))
	}
}

// keyOf is the key of the job that a delivery is for.
func keyOf(d broker.Delivery) ledger.Key {
	var o order
	_ = json.Unmarshal(d.Body, &o) // they are all ours
	return o.JobKey().Ledger()
}

// deliveryName is the same in every play of a seed.
func deliveryName(d broker.Delivery) string {
	if result, n, ok := strings.Cut(d.ID, "/"); ok && len(result) == 36 { // of the outbox: a random id
		return keyOf(d).Text + " asked " + n
	}
	return keyOf(d).Text + " " + d.ID
}

// say writes a line of the history.
func (w *world) say(who, format string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(who, format, a...)
}

// note is say for who holds the lock.
func (w *world) note(who, format string, a ...any) {
	w.lines = append(w.lines, fmt.Sprintf("%14s %-8s ", time.Since(w.began), who)+fmt.Sprintf(format, a...))
}

// violate notes that something is not as it must be.
func (w *world) violate(rule, format string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violated(rule, format, a...)
}

func (w *world) violated(rule, format string, a ...any) {
	v := rule + ": " + fmt.Sprintf(format, a...)
	w.violations = append(w.violations, v)
	w.note("CHECKER", "%s", v)
}

// nth counts how often something happens, from 1.
func (w *world) nth(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
	return w.counts[what]
}

func (w *world) nameOf(attempt string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.attempts[attempt]
}

// bad says whether the misfortune of that name strikes.
func (w *world) bad(id string) bool {
	if !time.Now().Before(w.calm) || w.plan.off[id] || !w.plan.chance.likely(0.2, id) {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.misfortunes = append(w.misfortunes, id)
	return true
}

// fails is bad for what is asked again and again.
func (w *world) fails(what string) bool { return w.bad(fmt.Sprintf("%s %d", what, w.nth(what))) }
