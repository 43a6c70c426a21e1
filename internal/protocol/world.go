package protocol

import "github.com/paidonce/paidonce/ledger"

const (
	maxAttempts = 3
	maxCopies   = 2
	nobody      = -1
)

// world is everything that exists at one moment. It is compared and hashed by value.
type world struct {
	row      row
	attempts [maxAttempts]attempt
	workers  [2]worker
	copies   [maxCopies]copyAt
	dayFull  bool  // others spent the day's budget
	submits  uint8 // of the same key, so far
	verbs    uint8 // orders a person gave
	faults   uint8
	truth    truth
}

// truth is what no row knows.
type truth struct {
	permits   [4]uint8 // to pay again, on record, by generation
	results   [4]uint8 // committed, by generation
	applied   [4]uint8 // times that the user's rows for the call's answer were
	cancelled bool     // a person said so
	old       bool     // the job has not changed for as long as it is kept
	forgotten bool     // by retention, key and all
}

// row is the job in the ledger.
type row struct {
	exists       bool
	state        ledgerState
	gen          uint8
	fence        uint8
	owner        int8 // a worker, as the owner of the run or as a reconciler
	epoch        uint8
	token        uint8
	open         uint8
	runs         uint8
	calls        uint8 // sent in this generation
	replays      uint8
	late         uint8
	captures     uint8
	cost         uint8
	reserved     uint8
	cancel       bool
	carried      bool // by the ledger
	input        bool // kept
	second       bool // made by the second copy, whose input is another
	due          bool
	deadlineOver bool // of the run
	lifetimeOver bool // of the generation
	held         bool // unknown for longer than hold
	purged       bool
	orders       uint8 // of another run
}

// attempt is one wire request: its row, and what became of it in the world.
type attempt struct {
	state    attemptState
	call     uint8
	gone     bool // its job's row was forgotten or written over
	gen      uint8
	fence    uint8
	captured uint8 // which answer of the job it was; 0: none
	surplus  bool
	reserved bool
	applied  bool // the user's rows for its answer are committed
	overdue  bool // the route's timeout is over, and with it the send window
	settled  bool // the settle window is over
	cut      bool // the connection is
	wire     wire
}

// wire is where a request is.
type wire uint8

const (
	unsent   wire = iota
	flying        // on its way
	executed      // and billed; the answer exists
	declined      // certainly not executed
	vanished      // it never arrived, and nobody was told
)

// ledgerState and attemptState are small forms of the ledger's words.
type (
	ledgerState  uint8
	attemptState uint8
)

const (
	ready ledgerState = iota
	running
	unknown
	done
	failed
	cancelled
)

const (
	none attemptState = iota
	sent
	received
	rejected
	notSent
	closedUnknown
)

var (
	states        = [...]ledger.State{ledger.Ready, ledger.Running, ledger.Unknown, ledger.Done, ledger.Failed, ledger.Cancelled}
	attemptStates = [...]ledger.AttemptState{"", ledger.Sent, ledger.Received, ledger.Rejected, ledger.NotSent, ledger.UnknownAttempt}
)

func stateOf(s ledger.State) ledgerState {
	for i, t := range states {
		if s == t {
			return ledgerState(i)
		}
	}
	panic("protocol: no state " + string(s))
}

// copyAt is where one copy of the job's message is.
type copyAt struct {
	at     place
	holder int8 // a worker
}

type place uint8

const (
	unpublished place = iota
	queued
	handed // to its holder
	acked
	dead // set aside for people
)

// at is the next step of a worker.
type at uint8

const (
	idle       at = iota
	claiming      // has a delivery or a stored input, and asks for the job
	looking       // owns the run; looks for a captured answer
	gating        // asks the send gate
	repeated      // the gate's reply was lost, and its attempt is found present
	writing       // the gate is passed; the first byte comes next
	checked       // the same, past the last look at the send window (SlowSocket)
	waiting       // the request is out
	answered      // has the answer, in memory alone
	refused       // has a definite refusal, in memory alone
	unsure        // waits no longer, and does not know
	applying      // commits the user's rows for the answer (RunTx)
	completing    // has the value of the handler
	releasing     // ends its run without a result
	acking        // the outcome is durable
	nacking
)

// worker is one process: a consumer of one slot, and its reconciler.
type worker struct {
	at      at
	copy    int8 // the delivery in hand; nobody: it runs from the stored input
	fence   uint8
	token   uint8
	late    uint8
	attempt int8
	fail    bool // releases for good
	epoch   uint8
	closed  uint8 // epochs up to this one are closed
	mayLose bool  // others have the right to take its run
	stray   uint8 // the fence of a run of which a goroutine still makes calls; 0: none
	seeks   seeker
}

// seeker is the reconciler of a process.
type seeker struct {
	at      sought
	fence   uint8
	attempt int8
	proof   bool // it asked after the settle window
	says    verdict
	mayLose bool
}

type sought uint8

const (
	resting sought = iota
	adopted        // owns the unknown job, has not asked yet
	told           // the provider answered its question
	judging        // settled what could be; the policy is next
)

type verdict uint8

const (
	cannotTell verdict = iota
	happened
	absent
	stillRunning
	refusedIt
)

// open reports whether the epoch of a row's owner is not closed.
func (w *world) open() bool {
	return w.row.owner != nobody && w.row.epoch > w.workers[w.row.owner].closed
}

// disown takes the row from its owner.
func (r *row) disown() {
	r.owner, r.epoch, r.token, r.deadlineOver = nobody, 0, 0, false
}

// answer is the attempt whose answer to the call was captured first in this generation.
func (w *world) answer(call uint8) int8 {
	found := int8(nobody)
	for i := range w.attempts {
		a := &w.attempts[i]
		if w.row.purged || a.gone || a.gen != w.row.gen || a.call != call || a.captured == 0 {
			continue
		}
		if found == nobody || a.captured < w.attempts[found].captured {
			found = int8(i)
		}
	}
	return found
}

// free is the place of the next attempt; nobody: the model is full.
func (w *world) free() int8 {
	for i := range w.attempts {
		if w.attempts[i].state == none {
			return int8(i)
		}
	}
	return nobody
}
