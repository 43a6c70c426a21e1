package ledger

import "time"

// Job is a row as people see it.
type Job struct {
	Key        Key
	ID         int64
	Action     string
	State      State
	Generation int
	Runs       int
	Replays    int
	Fence      int64
	OpenCalls  int
	Receives   int
	Carrier    Carrier
	Owner      WorkerID // zero: nobody
	Cancel     bool
	InputHash  Hash
	InputKept  bool  // until the job is past its retention
	Cost       *Nano // nil: nothing known was spent on it yet, or a call's cost is unknown
	Reserved   Nano
	Budget     Nano
	Calls      int           // attempts of this generation that were sent or may have been
	MaxCalls   int           // of the latest claim, as Lifetime; 0: no limit
	Lifetime   time.Duration // 0: no limit
	BeganAt    time.Time     // when this generation began: CreatedAt, or the time of J18
	Error      *JobError
	Origin     Origin // of the message that asked for it first
	CreatedAt  time.Time
	UpdatedAt  time.Time
	NextAt     time.Time
	DoneAt     time.Time // zero: not done

	Result   *Result      // Job only; nil: none, or purged
	Purged   bool         // done, and the result is past its retention
	Earlier  []Earlier    // Job only: what is kept of earlier generations, oldest first
	Attempts []AttemptRow // Job only, in the order of their gates
	Steps    []StepRow    // Job only: what its results asked for, oldest first
	AskedBy  []Key        // Job only: the jobs whose results asked for it as a step, oldest first, AskersShown at most
	History  []Event      // Job only, oldest first
}

// Earlier is the result of a generation before the job's present one.
type Earlier struct {
	Generation int
	Result     Result
}

// AttemptRow is an attempt as people and reconcilers see it.
type AttemptRow struct {
	Attempt
	N          int // within the job, from 1
	Generation int
	Fence      int64
	State      AttemptState
	SentAt     time.Time
	EndedAt    time.Time // zero: open
	Evidence   Evidence  // as far as known, without the response body
	Surplus    bool
	Applied    time.Time // when the user's rows for its answer were committed ([Ledger.Apply]); zero: they were not
	HasAnswer  bool      // its answer was captured; the body is kept until the job is past its retention
	AnswerKept bool      // and is there still: Reader.Answer has it
}

// Event is one line of a job's history.
type Event struct {
	At       time.Time
	From, To State // equal when something other than the state changed
	Actor    string
	Reason   string
	// Looks is how many looks at an unknown job the line stands for, with nothing
	// else between them; 0: it is no look. At, Actor and Reason are those of the last one that
	// came to an end, or else of the first.
	Looks int
}

// Filter selects jobs. Zero fields do not filter.
type Filter struct {
	Tenant string
	Action string
	State  State
	Limit  int // 0: 100
}

// WaitingCount is the jobs of one action that wait for a worker that can run them: they are ready, due or not yet, or unknown.
type WaitingCount struct {
	Action string
	Count  int
	Oldest time.Duration // since the oldest was asked for
}

// UnknownCount is the unknown jobs of one action.
type UnknownCount struct {
	Action string
	Count  int
	Oldest time.Duration // since the oldest became unknown
}
