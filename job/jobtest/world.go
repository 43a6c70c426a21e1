package jobtest

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/internal/mortal"
	"github.com/paidonce/paidonce/job"
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
	doubts   []doubt // whose effects it is not known
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
	taken bool // lease and message were taken from it
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
	handed   int
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
		defer w.serve()()
		current.Store(w)
		w.drive()
		o = w.outcome()
		w.stop()
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
	if given.MaxRun == 0 {
		given.MaxRun = 2 * longest // else the dead would see their run's deadline, and go on
	}
	if given.Publisher == nil {
		given.Publisher = outbox{w}
	}
	w.Config = given
}

// outbox takes the messages that the job asks for. Those to jobs that are not under test go nowhere.
type outbox struct{ w *world }

// Publish implements broker.Publisher.
func (o outbox) Publish(ctx context.Context, ms ...broker.Message) error {
	reg := new(job.Registry)
	o.w.c.register(reg)
	for _, m := range ms {
		if _, ok := reg.Lookup(m.Attributes[consumer.Attribute]); !ok {
			continue
		}
		if err := o.w.Queue.Publish(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// start starts one more worker.
func (w *world) start() {
	n := w.Start(fmt.Sprintf("worker-%d", len(w.nodes)+1), nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes = append(w.nodes, n)
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
	o := &outcome{when: w.when, rows: rows, sends: map[string]int{}, steps: map[string]ledger.State{}, did: maps.Clone(w.did), lines: slices.Clone(w.lines),
		dead: w.Queue.DeadLetters(), depth: w.Queue.Depth(), held: w.held, handed: len(w.hand), trail: slices.Clone(w.trail), problems: slices.Clone(w.problems)}
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

// keyFix is what is wrong with keys that change.
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
