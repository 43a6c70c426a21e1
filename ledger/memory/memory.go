// Package memory is a ledger in the memory of one process: for tests, for the demo, and as
// the oracle that the other ledgers are compared with. Nothing survives the process.
//
// Every verb collects the facts of its row and asks ledger.Row(…).Allows: the table of
// package ledger is the code, not a description of it. Where several transitions
// could apply, all are asked, and a table that allows two at once is a panic.
//
// It works in a synctest bubble: time is time.Now, and its one mutex is never held
// while something waits. In tests outside a bubble the Lapse and Age methods let time pass.
package memory

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

var _ ledger.Store = (*Ledger)(nil)

// Ledger is a ledger.Store. Make one with New.
type Ledger struct {
	mu      sync.Mutex
	workers map[string]*worker
	keys    map[ledger.Key]*row
	rows    []*row // the row with id n is rows[n-1]
	counts  map[count]ledger.Avoided
	budgets map[spender]*ledger.Budget
	floor   map[string]time.Time // up to when something of a tenant was forgotten
	outbox  []*outgoing          // in the order of their results
}

// New returns an empty ledger.
func New() *Ledger {
	return &Ledger{workers: map[string]*worker{}, keys: map[ledger.Key]*row{}, counts: map[count]ledger.Avoided{}, budgets: map[spender]*ledger.Budget{}, floor: map[string]time.Time{}}
}

// worker is a row of the worker table.
type worker struct {
	epoch  int64
	lease  time.Time
	closed bool

	counted ledger.ID // its latest batch of counts, of whatever epoch
}

// row is a job. Attempts and History of the embedded Job stay empty; they
// are below, and are put together by show.
type row struct {
	ledger.Job
	input       []byte
	token       ledger.ID // of the claim that runs or ran; zero: none
	adoption    ledger.ID // token of the last one
	runDeadline time.Time
	unknownAt   time.Time
	late        int64 // answers that arrived under a fence that was not the row's
	panics      int
	captures    int // answers so far, to number them
	attempts    []*attempt
	history     []ledger.Event
	earlier     []ledger.Earlier // results of earlier generations
	reruns      []string         // tokens that were used
	steps       []link           // that its results asked for
}

// attempt is a row of the attempt table.
type attempt struct {
	ledger.AttemptRow
	response *ledger.Response
	captured int // number of its capture within the job; 0: none
	spends   []spender
}

func (r *row) attempt(id ledger.ID) *attempt {
	if r == nil {
		return nil
	}
	i := slices.IndexFunc(r.attempts, func(a *attempt) bool { return a.ID == id })
	if i < 0 {
		return nil
	}
	return r.attempts[i]
}

// row returns the row with that id if it belongs to the tenant, else nil.
func (l *Ledger) row(tenant string, id int64) *row {
	if id < 1 || id > int64(len(l.rows)) || l.rows[id-1].Key.Tenant != tenant {
		return nil
	}
	return l.rows[id-1]
}

// begin is how every verb starts: it refuses dead contexts and locks.
func (l *Ledger) begin(ctx context.Context) (time.Time, func(), error) {
	if ctx.Err() != nil {
		return time.Time{}, nil, context.Cause(ctx)
	}
	l.mu.Lock()
	return time.Now(), l.mu.Unlock, nil
}

// move makes transition t on r and writes it into the history.
func (r *row) move(t ledger.Transition, now time.Time, actor, reason string) {
	to := t.To
	if to == "" {
		to = r.State
	}
	r.moveTo(to, t, now, actor, reason)
}

// moveTo is move where a count decides about the state (J8, J9).
func (r *row) moveTo(to ledger.State, t ledger.Transition, now time.Time, actor, reason string) {
	r.record(to, now, actor, t.ID+" "+t.Name+reason)
	if t.Fence {
		r.Fence++
	}
}

// record changes the state and writes the history.
func (r *row) record(to ledger.State, now time.Time, actor, reason string) {
	r.history = append(r.history, ledger.Event{At: now, From: r.State, To: to, Actor: ledger.Text(actor), Reason: ledger.Text(reason)})
	r.State, r.UpdatedAt = to, now
}

// disown ends the run: nobody owns the job.
func (r *row) disown() { r.Owner, r.token = ledger.WorkerID{}, ledger.ID{} }

// end gives an attempt its outcome and takes it out of what the row counts. The
// reserve stays where the outcome is unknown.
func (r *row) end(a *attempt, to ledger.AttemptState, now time.Time) {
	if a.State == ledger.Sent {
		r.OpenCalls--
	}
	if to != ledger.UnknownAttempt && (a.State == ledger.Sent || a.State == ledger.UnknownAttempt) {
		r.Reserved -= a.Reserve
	}
	switch counted := a.State.Counts(); {
	case a.Generation != r.Generation || counted == to.Counts():
	case counted:
		r.Calls--
	default:
		r.Calls++
	}
	a.State, a.EndedAt = to, now
}

// closeOpen closes the open attempts that match as unknown, for good.
func (r *row) closeOpen(now time.Time, match func(*attempt) bool) {
	for _, a := range r.attempts {
		if a.State == ledger.Sent && match(a) {
			r.end(a, ledger.UnknownAttempt, now)
		}
	}
}

func all(*attempt) bool { return true }
