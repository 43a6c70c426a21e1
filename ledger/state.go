package ledger

import "slices"

// State is where a job stands.
//
//	ready ─────► running ─────► done | failed
//	  ▲             │ ▲
//	  │             ▼ │ (takeover of a lapsed run with nothing open)
//	  └────────── unknown ────► failed          ready|unknown ─► cancelled
type State string

// The states of a job.
const (
	// Ready: nobody owns the job; it may run once it is due.
	Ready State = "ready"
	// Running: a worker owns it and runs its handler.
	Running State = "running"
	// Unknown: at least one call was sent and its outcome is not recorded, and no
	// run waits for it. Nothing is sent until evidence, a policy or a person says so.
	Unknown State = "unknown"
	// Done: the result is committed. Final but for a re-run on purpose.
	Done State = "done"
	// Failed: there will be no result; the error says why.
	Failed State = "failed"
	// Cancelled: a person ended it before it had a result.
	Cancelled State = "cancelled"
)

// States lists every state of a job, in the order of its life.
func States() []State { return []State{Ready, Running, Unknown, Done, Failed, Cancelled} }

// Terminal reports whether nothing happens to the job without a person.
func (s State) Terminal() bool { return s == Done || s == Failed || s == Cancelled }

// AttemptState is where one wire request stands.
type AttemptState string

// The states of an attempt. It is born sent, by the send gate.
const (
	// Sent: it may have reached the provider; the job counts it as open.
	Sent AttemptState = "sent"
	// Received: the answer is captured. It never changes again.
	Received AttemptState = "received"
	// Rejected: the provider refused; there is no result.
	Rejected AttemptState = "rejected"
	// FailedAttempt: there definitely is no result; it may have been billed.
	FailedAttempt AttemptState = "failed"
	// NotSent: nothing reached the provider.
	NotSent AttemptState = "not_sent"
	// UnknownAttempt: closed without an outcome, by policy or by a person. A late
	// answer still turns it into received.
	UnknownAttempt AttemptState = "unknown"
)

// Actor says who makes a transition.
type Actor string

// The actors of the transition table.
const (
	ByClaim      Actor = "claim"      // whoever wants to run the job
	ByOwner      Actor = "owner"      // the run that holds the lease
	BySweeper    Actor = "sweeper"    // any worker's look after lapsed runs
	BySender     Actor = "sender"     // whoever sent the attempt, lease or not
	ByReconciler Actor = "reconciler" // asks the provider about unknown calls
	ByProducer   Actor = "producer"   // whoever submits jobs
	ByPerson     Actor = "person"     // somebody at the command line
	ByRetention  Actor = "retention"  // the purge of what nobody needs any more
)

// Carrier says who brings a job back when its run ends without a result.
type Carrier string

// The carriers of a job.
const (
	// CarriedByBroker: the job's message is still unsettled.
	CarriedByBroker Carrier = "broker"
	// CarriedByLedger: sweepers run the job from its stored input. It never goes
	// back to the broker.
	CarriedByLedger Carrier = "ledger"
)

// Facts is everything that a guard may look at: the locked job row and what the
// asker presents. Comparisons with the clock are made by the store, on its own
// clock, one reading a row.
type Facts struct {
	Exists     bool
	State      State
	OpenCalls  int
	Cancel     bool // a person flagged the running job
	InputKept  bool // the row holds its input
	FenceHeld  bool // the asker's fence is the row's
	TokenHeld  bool // the asker's claim token is the row's
	SameInput  bool // action and input hash are the row's
	Due        bool // next_at is over
	RunsLeft   bool // runs < max_runs
	Lapsed     bool // the owner's epoch is closed, or the run deadline is over; for the owner itself, the deadline alone
	LateSeen   bool // the run has seen every late answer
	InBudget   bool // cost + reserved + this call's reserve (of a replay: those of the open calls again) <= budget, or no budget
	OverDay    bool // a budget of the day has no room for this call
	CallsLeft  bool // calls of this generation + 1 (of a replay: + the open ones) <= the limit, or no limit
	InLifetime bool // the generation's lifetime is not over, or it has none
	ReplayLeft bool // replays < the policy's maximum
	Held       bool // unknown for longer than hold (an owner within its run need not wait)
	PastRoutes bool // every open attempt is past its route's timeout
	Owned      bool // a live reconciler owns the unknown job
	Attempt    AttemptState
	FirstIn    bool // the attempt's answer is its call's: the first that was captured, in this generation
	Applied    bool // the user's rows for the attempt's answer are committed
	Settleable bool // J9: the sender, a person, or a lookup issued after the settle window
	TokenUsed  bool // the person's token was used for this job before
	// UnknownCalls are the calls of this generation that have an attempt closed as unknown, and no answer.
	UnknownCalls int
	DoublePay    bool // a person allows paying these twice
	Past         bool // the job has not changed for longer than the retention that is asked about
}

// Guard is one condition of a transition. Its name is used in audits and in
// tests that remove guards one by one.
type Guard struct {
	Name  string
	Holds func(Facts) bool
}

// Transition is one row of the table: who may take a job from where to where,
// and under which conditions. Guards that name no From state work on any.
type Transition struct {
	ID     string
	Name   string
	From   []State // empty: the row does not exist yet, or any state (see Guards)
	To     State   // empty: the state stays
	By     []Actor
	Guards []Guard
	Fence  bool   // the fence grows: ownership changes
	Sets   string // what else changes, for people
}

// Allows returns the first guard that does not hold, or "" when the transition
// may happen.
func (t Transition) Allows(f Facts) string {
	if len(t.From) > 0 && !t.from(f.State) {
		return "state"
	}
	for _, g := range t.Guards {
		if !g.Holds(f) {
			return g.Name
		}
	}
	return ""
}

func (t Transition) from(s State) bool {
	return slices.Contains(t.From, s)
}

var (
	absent     = Guard{"absent", func(f Facts) bool { return !f.Exists }}
	exists     = Guard{"exists", func(f Facts) bool { return f.Exists }}
	sameInput  = Guard{"same_input", func(f Facts) bool { return f.SameInput }}
	due        = Guard{"due", func(f Facts) bool { return f.Due }}
	runsLeft   = Guard{"runs_left", func(f Facts) bool { return f.RunsLeft }}
	runsSpent  = Guard{"runs_spent", func(f Facts) bool { return !f.RunsLeft }}
	lapsed     = Guard{"lapsed", func(f Facts) bool { return f.Lapsed }}
	live       = Guard{"run_deadline_ahead", func(f Facts) bool { return !f.Lapsed }}
	noneOpen   = Guard{"none_open", func(f Facts) bool { return f.OpenCalls == 0 }}
	someOpen   = Guard{"some_open", func(f Facts) bool { return f.OpenCalls > 0 }}
	token      = Guard{"claim_token", func(f Facts) bool { return f.TokenHeld }}
	fence      = Guard{"fence", func(f Facts) bool { return f.FenceHeld }}
	lateSeen   = Guard{"late_seen", func(f Facts) bool { return f.LateSeen }}
	inBudget   = Guard{"in_budget", func(f Facts) bool { return f.InBudget }}
	callsLeft  = Guard{"calls_left", func(f Facts) bool { return f.CallsLeft }}
	inLifetime = Guard{"in_lifetime", func(f Facts) bool { return f.InLifetime }}
	inDay      = Guard{"in_day_budget", func(f Facts) bool { return !f.OverDay }}
	uncancel   = Guard{"not_cancelled", func(f Facts) bool { return !f.Cancel }}
	cancelled  = Guard{"cancel_flag", func(f Facts) bool { return f.Cancel }}
	inputKept  = Guard{"input_kept", func(f Facts) bool { return f.InputKept }}
	unowned    = Guard{"no_live_reconciler", func(f Facts) bool { return !f.Owned }}
	replayLeft = Guard{"replay_left", func(f Facts) bool { return f.ReplayLeft }}
	held       = Guard{"held_long_enough", func(f Facts) bool { return f.Held }}
	pastRoutes = Guard{"past_route_timeouts", func(f Facts) bool { return f.PastRoutes }}
	unreceived = Guard{"not_received", func(f Facts) bool { return f.Attempt != Received }}
	received   = Guard{"received", func(f Facts) bool { return f.Attempt == Received }}
	firstIn    = Guard{"first_answer", func(f Facts) bool { return f.FirstIn }}
	unapplied  = Guard{"unapplied", func(f Facts) bool { return !f.Applied }}
	settleable = Guard{"definite", func(f Facts) bool { return f.Settleable }}
	past       = Guard{"past_retention", func(f Facts) bool { return f.Past }}
	tokenNew   = Guard{"token_unused", func(f Facts) bool { return !f.TokenUsed }}
	paidOnce   = Guard{"no_call_twice", func(f Facts) bool { return f.UnknownCalls == 0 || f.DoublePay }}
	openOrLeft = Guard{"sent_or_unknown", func(f Facts) bool { return f.Attempt == Sent || f.Attempt == UnknownAttempt }}
)

// Transitions is the table that every ledger obeys: the memory ledger evaluates
// it, the SQL ledgers repeat it and are compared with the memory one.
func Transitions() []Transition { return table }

// Row returns the transition with that id; it panics on an unknown one, which is
// a programmer's mistake.
func Row(id string) Transition {
	for _, t := range table {
		if t.ID == id {
			return t
		}
	}
	panic("ledger: no transition " + id)
}

var table = []Transition{
	{ID: "J1", Name: "first claim", To: Running, By: []Actor{ByClaim}, Fence: true, Guards: []Guard{absent},
		Sets: "fence 1, runs 1, claim token, owner, run deadline"},
	{ID: "J2", Name: "claim", From: []State{Ready}, To: Running, By: []Actor{ByClaim}, Fence: true,
		Guards: []Guard{sameInput, due, runsLeft}, Sets: "claim token, owner, run deadline, runs+1"},
	{ID: "J2x", Name: "runs exhausted", From: []State{Ready}, To: Failed, By: []Actor{ByClaim},
		Guards: []Guard{sameInput, due, runsSpent}, Sets: "error exhausted"},
	{ID: "J3", Name: "take over", From: []State{Running}, To: Running, By: []Actor{ByClaim}, Fence: true,
		Guards: []Guard{sameInput, lapsed, noneOpen, uncancel, runsLeft}, Sets: "as J2"},
	{ID: "J3x", Name: "runs exhausted by deaths", From: []State{Running}, To: Failed, By: []Actor{ByClaim}, Fence: true,
		Guards: []Guard{sameInput, lapsed, noneOpen, uncancel, runsSpent}, Sets: "error exhausted, owner and token null"},
	{ID: "J4", Name: "lapse", From: []State{Running}, To: Unknown, By: []Actor{ByClaim, BySweeper}, Fence: true,
		Guards: []Guard{lapsed, someOpen}, Sets: "owner and token null, carrier ledger where the input is kept"},
	{ID: "J5", Name: "same claim again", From: []State{Running}, By: []Actor{ByClaim},
		Guards: []Guard{token}, Sets: "nothing: answers a lost reply"},
	{ID: "J7", Name: "send gate", From: []State{Running}, By: []Actor{ByOwner},
		Guards: []Guard{fence, live, uncancel, inBudget, lateSeen, callsLeft, inLifetime, inDay},
		Sets:   "open_calls+1, calls+1, reserved, of the job and of the day's budgets; the attempt is inserted as sent"},
	{ID: "J8", Name: "answer captured", By: []Actor{BySender, ByReconciler, ByPerson}, Guards: []Guard{exists, unreceived},
		Sets: "attempt received, cost booked, reserve freed; open_calls-1 if it was sent; other open attempts of the call closed as unknown; surplus if the job is done or the generation older; late+1 if the attempt's fence is not the job's, or it was closed before; an unknown job with none open becomes ready"},
	{ID: "J9", Name: "definitely no answer", By: []Actor{BySender, ByReconciler, ByPerson}, Guards: []Guard{exists, openOrLeft, settleable},
		Sets: "attempt not_sent (it is no call of the job then), rejected or failed, billed cost booked, reserve freed; open_calls-1 if it was sent; an unknown job with none open becomes ready"},
	{ID: "J10", Name: "complete", From: []State{Running}, To: Done, By: []Actor{ByOwner},
		Guards: []Guard{fence, noneOpen}, Sets: "result, done_at; unused received attempts become surplus; each step that was asked for: J10s, and its link"},
	{ID: "J10s", Name: "step", To: Ready, By: []Actor{ByOwner}, Fence: true, Guards: []Guard{absent},
		Sets: "fence 1, the input, carrier ledger, due at once; a key that exists is kept"},
	{ID: "J1s", Name: "submit", To: Ready, By: []Actor{ByProducer}, Fence: true, Guards: []Guard{absent},
		Sets: "as J10s"},
	{ID: "J10a", Name: "apply an answer", From: []State{Running}, By: []Actor{ByOwner},
		Guards: []Guard{fence, received, firstIn, unapplied}, Sets: "the attempt is marked as applied, in the user's transaction"},
	{ID: "J11", Name: "give back", From: []State{Running}, To: Ready, By: []Actor{ByOwner},
		Guards: []Guard{fence, noneOpen, uncancel}, Sets: "owner and token null, next_at, class; a drain gives the run back"},
	{ID: "J12", Name: "fail", From: []State{Running}, To: Failed, By: []Actor{ByOwner},
		Guards: []Guard{fence, noneOpen, uncancel}, Sets: "owner and token null, error"},
	{ID: "J13", Name: "give back with open calls", From: []State{Running}, To: Unknown, By: []Actor{ByOwner}, Fence: true,
		Guards: []Guard{fence, someOpen}, Sets: "owner and token null, the run given back, carrier ledger where the input is kept"},
	{ID: "J14", Name: "adopt", From: []State{Unknown}, By: []Actor{ByReconciler}, Fence: true,
		Guards: []Guard{due, unowned}, Sets: "owner, adoption token"},
	{ID: "J16", Name: "replay by policy", From: []State{Unknown}, To: Ready, By: []Actor{ByReconciler},
		Guards: []Guard{fence, replayLeft, held, pastRoutes, inBudget, callsLeft, inLifetime},
		Sets:   "open attempts closed as unknown, open_calls 0, replays+1; the reserve stays"},
	{ID: "J16o", Name: "replay by policy within a run", From: []State{Running}, By: []Actor{ByOwner},
		Guards: []Guard{fence, someOpen, live, uncancel, replayLeft, pastRoutes, inBudget, callsLeft, inLifetime},
		Sets:   "as J16; the run goes on"},
	{ID: "J17", Name: "give up", From: []State{Unknown}, To: Failed, By: []Actor{ByReconciler, ByPerson},
		Guards: []Guard{fence}, Sets: "reason; open attempts closed as unknown, open_calls 0; the reserve stays"},
	{ID: "J18", Name: "run again", From: []State{Done, Failed, Cancelled}, To: Ready, By: []Actor{ByPerson}, Guards: []Guard{tokenNew, inputKept},
		Sets: "generation+1, runs, panics, replays and calls 0, the lifetime begins anew, carrier ledger, error, result and flag null, the token used; the old result is kept, answers that no result used become surplus"},
	{ID: "J18r", Name: "retry", From: []State{Failed}, To: Ready, By: []Actor{ByPerson}, Guards: []Guard{inputKept, paidOnce},
		Sets: "runs and panics 0, carrier ledger, error and flag null; captured answers are used"},
	{ID: "J18w", Name: "do not wait", From: []State{Ready}, To: Ready, By: []Actor{ByPerson}, Guards: []Guard{inputKept},
		Sets: "carrier ledger, due now"},
	{ID: "J19", Name: "cancel", From: []State{Ready, Unknown}, To: Cancelled, By: []Actor{ByPerson},
		Sets: "reason; open attempts closed as unknown, open_calls 0"},
	{ID: "J19f", Name: "flag a running job", From: []State{Running}, By: []Actor{ByPerson}, Sets: "cancel flag"},
	{ID: "J19b", Name: "cancel a flagged job", From: []State{Running}, To: Cancelled, By: []Actor{ByOwner},
		Guards: []Guard{fence, cancelled, noneOpen}, Sets: "owner and token null"},
	{ID: "J19c", Name: "cancel a flagged job that lapsed", From: []State{Running}, To: Cancelled, By: []Actor{ByClaim, BySweeper}, Fence: true,
		Guards: []Guard{lapsed, cancelled, noneOpen}, Sets: "owner and token null"},
	{ID: "J20", Name: "purge", From: []State{Done, Failed, Cancelled}, By: []Actor{ByRetention},
		Guards: []Guard{past}, Sets: "result, answers and input gone; the key stays, and the history as it is"},
	{ID: "J20k", Name: "forget", From: []State{Done, Failed, Cancelled}, By: []Actor{ByRetention},
		Guards: []Guard{past}, Sets: "the row and all that is left of its children gone"},
	{ID: "JC", Name: "carry", From: []State{Running}, By: []Actor{ByOwner},
		Guards: []Guard{fence, inputKept}, Sets: "carrier ledger"},
}
