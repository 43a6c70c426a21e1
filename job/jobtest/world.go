package jobtest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/internal/mortal"
	"github.com/paidonce/paidonce/ledger"
)

// world is one run of the job and everybody that it meets.
type world struct {
	*mortal.World
	c      *subject
	when   string
	over   bool // nothing counts any more
	rested bool // the run itself is over: what comes is one more delivery, a day later
	nodes  []*mortal.Node
	ended  chan struct{}

	mu       sync.Mutex
	faults   []*armed
	trail    []Point       // that the run came by, each once
	passed   map[Point]int // how often
	jobs     map[ledger.Key]string
	gates    []*gate // in order
	asked    map[ask]int
	steps    map[ledger.Key]map[string]bool // keys of the steps that commits of a job asked for, by what they asked for
	lines    []*line
	did      map[string]int
	hand     []broker.Delivery // that the workers were given, in order
	fresh    int               // workers to start
	again    int               // messages to send
	held     bool
	problems []problem
}

// armed is a fault that waits for its point.
type armed struct {
	Fault
	met   int // how often its point was passed
	done  bool
	node  *mortal.Node // that it froze
	since time.Time
}

// gate is an attempt on record as sent.
type gate struct {
	ledger.Attempt
	key     ledger.Key
	job     string
	fence   int64
	wired   bool // a request went out for it
	settled bool
	did     bool // a fake told that its effect was made
}

// ask is a call that a run asked for.
type ask struct {
	fence int64
	key   ledger.Key
	call  ledger.CallRef
}

// outcome is what a world came to.
type outcome struct {
	when     string
	job      ledger.Job
	rows     []ledger.Job // of all jobs and steps, with attempts
	sends    map[string]int
	steps    map[string]ledger.State
	did      map[string]int
	lines    []*line
	dead     []broker.DeadLetter
	depth    memory.Depth
	held     bool
	trail    []Point
	problems []problem
}

// ended is the end in words.
func (o *outcome) ended() string {
	switch {
	case len(o.dead) > 0:
		return "the message is dead-lettered: " + o.dead[0].Reason
	case o.job.State == "":
		return "there is no job"
	case o.job.Error != nil && o.job.State != ledger.Done:
		return fmt.Sprintf("it is %s: %s", o.job.State, o.job.Error.Text)
	}
	return "it is " + string(o.job.State)
}

// simulate runs the job under faults, in a bubble.
func (c *subject) simulate(t *testing.T, faults []Fault) *outcome {
	t.Helper()
	leave := enter(t)
	defer leave()
	var o *outcome
	synctest.Test(t, func(t *testing.T) {
		w := &world{World: mortal.New(t), c: c, ended: make(chan struct{}), passed: map[Point]int{}, jobs: map[ledger.Key]string{}, asked: map[ask]int{},
			steps: map[ledger.Key]map[string]bool{}, did: map[string]int{}}
		for i, f := range faults {
			w.faults = append(w.faults, &armed{Fault: f})
			if i > 0 {
				w.when += ", and "
			}
			w.when += f.String()
		}
		w.configure()
		closeServer := w.serve()
		current.Store(w)
		w.drive()
		o = w.outcome()
		w.stop()
		current.Store(nil)
		closeServer()
	})
	return o
}

func (w *world) configure() {
	w.Register, w.Watch, w.Level = w.c.register, w.watch, slog.LevelWarn
	given := w.c.Options.Config
	if given.Workers == 0 {
		given.Workers = w.Config.Workers
	}
	if given.Lease == 0 {
		given.Lease = w.Config.Lease
	}
	if given.Publisher == nil {
		given.Publisher = w.Queue
	}
	w.Config = given
}

// start starts one more worker.
func (w *world) start() {
	w.nodes = append(w.nodes, w.Start(fmt.Sprintf("worker-%d", len(w.nodes)+1), nil))
}

// stop ends all workers: those that are alive in order, after the dead.
func (w *world) stop() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	close(w.ended)
	for _, n := range w.nodes {
		n.Kill()
		n.Buried()
	}
}

// send submits the message.
func (w *world) send() {
	m := broker.Message{Body: w.c.body, Attributes: map[string]string{consumer.Attribute: w.c.name}}
	if err := w.Queue.Publish(context.Background(), m); err != nil {
		w.Fatalf("jobtest: submitting the message: %v", err)
	}
}

// longest is how long a run may take in all; what is not over then never is.
const longest = 10 * 24 * time.Hour

// drive lets time pass until nothing is left to happen, a day and one more delivery of the message included.
func (w *world) drive() {
	copies := 1
	for _, f := range w.faults {
		if f.kind == concurrent {
			copies, f.done = f.n, true
		}
	}
	for range copies {
		w.start()
		w.send()
	}
	begun := time.Now()
	var unknown time.Time // since when something is
	asked := false        // once more, a day later
	for time.Since(begun) < longest {
		time.Sleep(w.pace(begun))
		w.act()
		open, held := w.left()
		switch {
		case held && unknown.IsZero():
			unknown = time.Now()
		case !held:
			unknown = time.Time{}
		case time.Since(unknown) > w.patience():
			w.noteHeld()
			unknown = time.Time{}
			if !w.findOut() && !open { // nobody ever will
				return
			}
			continue
		}
		if open || held || w.busy() {
			continue
		}
		if asked {
			return
		}
		asked = true
		w.rest(24 * time.Hour)
		w.sameKey()
		w.start()
		w.send()
	}
}

// rest ends the workers and lets time pass without any.
func (w *world) rest(d time.Duration) {
	for _, n := range w.nodes {
		if !n.Frozen() { // the dead are dead
			n.Stop()
			n.Buried()
		}
	}
	w.mu.Lock()
	w.rested = true
	w.mu.Unlock()
	time.Sleep(d)
}

// pace is how long to wait for the next look.
func (w *world) pace(begun time.Time) time.Duration {
	switch d := time.Since(begun); {
	case d < 10*time.Minute:
		return 2 * time.Second
	case d < 6*time.Hour:
		return time.Minute
	}
	return 10 * time.Minute
}

// patience is how long an unknown outcome is left to the policy and to Reconcile.
func (w *world) patience() time.Duration {
	return 2*max(w.Config.Hold, 15*time.Minute, w.Config.SettleWindow) + time.Hour
}

// act does what faults ask for, outside of what they struck.
func (w *world) act() {
	w.mu.Lock()
	fresh, again := w.fresh, w.again
	w.fresh, w.again = 0, 0
	var wake []*mortal.Node
	for _, f := range w.faults {
		switch {
		case f.kind == pause && f.node != nil && f.wait > 0 && time.Since(f.since) >= f.wait:
			wake = append(wake, f.node)
			f.node = nil
		case f.kind == redeliver && w.passed[Point{Op: Claim, After: true, Job: w.c.name}] > 0 && f.n > 0:
			w.redeliver(f)
		}
	}
	w.mu.Unlock()
	for range fresh {
		w.start()
	}
	for range again {
		w.send()
	}
	for _, n := range wake {
		n.Thaw()
	}
}

// redeliver has the broker take the message back, or send it again where it is gone.
func (w *world) redeliver(f *armed) {
	f.done = true
	f.n--
	if len(w.nodes) == 1 {
		w.fresh = 1
	}
	if len(w.hand) > 0 && w.Queue.Lapse(w.hand[len(w.hand)-1]) == nil {
		return
	}
	if w.Queue.Depth() == (memory.Depth{}) {
		w.again++
	}
}

// busy wakes zombies when all else is over, and reports whether anything is still to come.
func (w *world) busy() bool {
	w.mu.Lock()
	var wake *mortal.Node
	left := w.fresh + w.again
	for _, f := range w.faults {
		if f.kind == redeliver && f.done {
			left += f.n
		}
		if f.node != nil {
			left++
			wake, f.node = f.node, nil
		}
	}
	w.mu.Unlock()
	if wake != nil {
		wake.Thaw()
		time.Sleep(10 * time.Minute)
	}
	return left > 0
}

// left reports whether any job is under way, or any message, and whether any outcome is unknown.
func (w *world) left() (open, held bool) {
	if w.Queue.Depth() != (memory.Depth{}) {
		open = true
	}
	for _, j := range w.rows() {
		switch {
		case j.State == ledger.Unknown:
			held = true
		case !j.State.Terminal():
			open = true
		}
	}
	return open, held
}

// rows are all jobs and steps, oldest first.
func (w *world) rows() []ledger.Job {
	var rows []ledger.Job
	for j, err := range w.Ledger.Jobs(context.Background(), ledger.Filter{Limit: 1000}) {
		if err != nil {
			w.Fatalf("jobtest: reading the ledger: %v", err)
		}
		whole, err := w.Ledger.Job(context.Background(), j.Key)
		if err != nil {
			w.Fatalf("jobtest: reading the ledger: %v", err)
		}
		rows = append([]ledger.Job{whole}, rows...)
	}
	return rows
}

// outcome is the end.
func (w *world) outcome() *outcome {
	rows := w.rows()
	w.mu.Lock()
	defer w.mu.Unlock()
	o := &outcome{when: w.when, rows: rows, sends: map[string]int{}, steps: map[string]ledger.State{}, did: w.did, lines: w.lines,
		dead: w.Queue.DeadLetters(), depth: w.Queue.Depth(), held: w.held, trail: w.trail, problems: w.problems}
	for _, j := range rows {
		main := j.Action == w.c.name
		if main && o.job.State == "" {
			o.job = j
		}
		if !main {
			o.steps[j.Key.Text] = j.State
		}
		for _, a := range j.Attempts {
			if a.State != ledger.NotSent {
				o.sends[callName(j.Action, a.Call.Name)]++
			}
		}
	}
	for _, f := range w.faults {
		if !f.done && !f.may {
			o.problems = append(o.problems, problem{kind: "no such point", what: "it did not happen: the run has no such point", fix: "the points of a run are the subtests of CrashEverywhere"})
		}
	}
	return o
}

// callName is what the calls of a job and its steps are counted by.
func callName(job, call string) string {
	if call == stepCall {
		return job
	}
	return call
}

// sameKey wants the key that the message had at first.
func (w *world) sameKey() {
	in, err := w.c.handler.Decode(w.c.body)
	if err != nil || in.Key.String() == w.c.key.String() {
		return // what does not decode is dead-lettered, which is told
	}
	w.note(problem{kind: "key", what: fmt.Sprintf("the key of the same message was %s and is %s", w.c.key, in.Key), fix: keyFix})
}

const keyFix = "JobKey may depend on the message alone: no clock, no random id, no state of the process"

func (w *world) note(p problem) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.problems = append(w.problems, p)
	}
}

func (w *world) noteHeld() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = true
}

// overHTTP are the calls that went over HTTP, by job and name.
func (o *outcome) overHTTP() map[string]bool {
	all := map[string]bool{}
	for _, l := range o.lines {
		if l.gate != nil {
			all[l.gate.job+" "+l.gate.Call.Name] = true
		}
	}
	return all
}
