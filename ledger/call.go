package ledger

import "time"

// CallRef names a call within a job: the same name and input key are paid once.
type CallRef struct {
	Name     string
	InputKey string // "" when the call is memoised by name alone
}

// AttemptID names an attempt. The tenant is part of it, as of every key.
type AttemptID struct {
	Tenant string
	Job    int64
	ID     ID
}

// Attempt is one wire request, as the send gate records it.
type Attempt struct {
	ID              ID // chosen by the worker before the gate
	Call            CallRef
	Route           string
	Provider        string
	Model           string
	Config          string        // the call's configuration, such as its prompt version
	ClientRequestID string        // the id sent to the provider, if it takes one
	Timeout         time.Duration // the route's: until then the attempt may still land
	Reserve         Nano          // upper bound of the cost, held until evidence; 0: unbounded calls reserve nothing
	LateSeen        int64         // Looked.Late of the look that found no answer
	// Day is what its tenant and action may spend in a day, this attempt included. It is the gate's alone: rows read
	// back have none.
	Day DayLimits
}

// Usage is tokens, normalised: In includes cached ones, Out includes reasoning. Nil
// is unknown, never zero.
type Usage struct {
	In, Cached, Out *int64
}

// Evidence is what is known of an attempt, from whoever saw it.
type Evidence struct {
	// State is the outcome: Received, Rejected, FailedAttempt or NotSent. Sent adds
	// evidence and leaves the attempt open.
	State AttemptState
	// Class is the finer reason, a word of the classification table ("timeout").
	Class string
	// By says who saw it. A reconciler's definite "no" (J9) needs AskedAt and
	// SettleWindow; senders and persons are believed at once.
	By Actor
	// Who names the actor in the history: a worker, a person.
	Who    string
	Reason string // a person's, for the history

	// AskedAt is a time at or before the lookup was issued, on the ledger's clock:
	// Adopted.Now.
	AskedAt      time.Time
	SettleWindow time.Duration

	Status            int // HTTP status, 0: none seen
	ProviderRequestID string
	ObjectID          string        // the provider's name for the answer: resp_…, chatcmpl-…, msg_…
	FirstByte         time.Duration // from the send; 0: none seen
	Usage             Usage
	Cost              *Nano  // nil: unknown
	CostSource        string // provider, computed, estimated or unknown
	Response          *Response
}

// Response is a captured answer.
type Response struct {
	Codec string // "http": status line, headers and body as received; "json": a value that user code made
	Body  []byte
}

// Captured is an answer together with the attempt it belongs to.
type Captured struct {
	Attempt  ID
	Route    string
	Response Response
	Panics   int // handler runs of this job that died of a panic so far
}

// Looked is what is known of one call.
type Looked struct {
	Answer   *Captured // the first captured answer of this generation, if any
	Attempts int       // gated so far in this generation, of this call
	Open     int       // of these, in state sent
	Late     int64     // the job's count of late answers; name it in the next Send
}

// Settled answers Settle.
type Settled struct {
	Job     State // the job's state afterwards
	Surplus bool  // the answer is kept, and its cost wasted: the job did not need it
	Known   bool  // another kind of actor had reported the same outcome before; nothing was booked
}

// Result is the end of a job that went well.
type Result struct {
	ID     ID // chosen by the worker, so that a repeated commit is recognised
	Body   []byte
	Schema string // name and version of Body's type, for readers
	// Used are the attempts whose answers the handler was given; the rest is surplus. Each has to be a received one of the job's own
	// generation: a ledger may take as many of them as there are attempts for all of these, and look for no surplus.
	Used  []ID
	Hooks []Hook    // the user's work, in order, inside the same transaction
	Steps []StepAsk // what follows it, in order; a key at most once
	// Messages are put into the outbox with it, in order.
	Messages []MessageAsk
}

// Hook is work of the user in the transaction of a result, or of an answer ([Ledger.Apply]). Its dynamic type belongs
// to one adapter (postgres.OnCommit and postgres.RunTx make the Postgres one), so that no driver's
// type appears here; another adapter refuses it with ErrHook.
type Hook any

// JobError says why a job failed, or why its last run ended without a result.
type JobError struct {
	Class string `json:"class"` // permanent, exhausted, poison, mismatch, retry, drain, panic, budget, held, encryption_key, ledger_full …
	Text  string `json:"text"`
}

// Outcome is how a run ends without a result.
type Outcome struct {
	Fail      bool          // permanently; else ready again
	Error     JobError      // kept on the row
	RetryIn   time.Duration // until the next run, when not failed
	GiveBack  bool          // the run does not count: an orderly drain
	Panicked  bool          // counted apart; MaxPanics of them fail the job as poison
	MaxPanics int           // 0: no limit
	Who       string        // for the history
}

// Released says what became of the job.
type Released struct {
	State   State
	Carrier Carrier
	RetryIn time.Duration // until it is due, when ready or unknown
}

// ReplayPolicy bounds replays.
type ReplayPolicy struct {
	Max    int           // replays of this job in all
	Hold   time.Duration // unknown at least this long; ignored for a run of its own
	Who    string
	Reason string
}

// Resolution is a verdict on an unknown job.
type Resolution struct {
	Key    Key
	Fence  int64 // the one that was read; somebody else's verdict in between is ErrLost. Cancel needs none
	Action Action
	Reason string
	By     Actor
	Who    string
	NextIn time.Duration // Keep: until the next look
}

// Action is what Resolve does.
type Action string

// The resolutions.
const (
	Keep   Action = "keep"   // nothing known yet; look again later (J14 undone, owner null)
	GiveUp Action = "fail"   // J17
	Cancel Action = "cancel" // J19, J19f; also for ready and running jobs
)

// Adoption asks for unknown jobs to look at.
type Adoption struct {
	Worker WorkerID
	Token  ID  // chosen by the worker, so that a repeated adoption is recognised
	Max    int // jobs that it may have at once under the token
}

// Adopted is an unknown job that a reconciler took.
type Adopted struct {
	Lease     Lease
	Action    string
	InputHash Hash
	Input     []byte        // nil: not kept
	Fault     error         // why Input cannot be read, as Stored.Fault
	Since     time.Duration // how long it has been unknown
	Replays   int
	Now       time.Time // the ledger's clock at adoption: use it as Evidence.AskedAt
	Open      []AttemptRow
}

// Swept is what a sweep did.
type Swept struct {
	Epochs    int   // workers found dead
	Lapsed    []Key // became unknown
	Cancelled []Key
}
