package ledger

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

// Key names a job: the tenant it belongs to and the printed idempotency key, which
// begins with the tenant and is unique within it. Package job makes keys.
type Key struct {
	Tenant string
	Text   string
}

// String is the printed key.
func (k Key) String() string { return k.Text }

// ID names attempts, claims and results. It is chosen by the worker, so that a
// repeated statement is recognised.
type ID [16]byte

// NewID returns a random id in the form of a version 4 UUID.
func NewID() ID {
	var id ID
	rand.Read(id[:]) // never fails
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}

// String prints the id as a UUID.
func (id ID) String() string {
	h := hex.EncodeToString(id[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// ParseID reads what String prints.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return id, fmt.Errorf("PO221 %q is no id", s)
	}
	b, err := hex.DecodeString(s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:])
	if err != nil {
		return id, fmt.Errorf("PO221 %q is no id: %w", s, err)
	}
	return ID(b), nil
}

// IsZero reports whether the id was never set.
func (id ID) IsZero() bool { return id == ID{} }

// Hash is the SHA-256 of a job's canonical input (package job says which bytes).
type Hash [sha256.Size]byte

// String prints the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// WorkerID names one life of a worker process.
type WorkerID struct {
	ID    string
	Epoch int64
}

// Worker is what a process says of itself when it joins.
type Worker struct {
	ID      string        // unique among live processes; required
	TTL     time.Duration // first lease; required, positive
	Host    string
	PID     int
	Version string
	Config  string // hash of the effective configuration
}

// Renewed answers a renewal.
type Renewed struct {
	Deadline  time.Time // of the worker's lease, on this process's clock, on the safe side
	Cancelled []Key     // running jobs of this worker that a person flagged
}

// Lease is the right of one run, or of one reconciler's look, to change its job.
// It is good while the worker's lease is, up to Deadline.
type Lease struct {
	Key      Key
	Job      int64 // the row's id
	Fence    int64
	Deadline time.Time // run deadline on this process's clock, on the safe side; zero for a look
}

// Request asks to run a job.
type Request struct {
	Key       Key
	Action    string // handler name
	InputHash Hash
	Input     []byte // kept if it has at most MaxBody bytes; nil: not offered
	Carrier   Carrier
	Worker    WorkerID
	Token     ID            // this claim; the same one when the request is repeated
	MaxRun    time.Duration // run deadline; required, longer than the longest route timeout
	MaxRuns   int           // 0: no limit
	Budget    Nano          // for all deliveries together; 0: none
	MaxCalls  int           // sent in one generation, over all runs; 0: no limit
	Lifetime  time.Duration // of one generation, from the row's creation or J18: calls are sent until then; 0: no limit, else at least a millisecond
	Receives  int           // as the broker counted; the greatest is kept, for people
	Origin    Origin        // kept by the claim that makes the row

	// VerdictOnly: nobody waits for the saved result, so Saved comes without it: a duplicate does not read it. False: it comes with Saved.
	VerdictOnly bool
}

// Verdict is what a claim finds.
type Verdict int

// The verdicts. Switch over all of them.
const (
	// Run: the job is this caller's.
	Run Verdict = iota + 1
	// Saved: done before; Claimed.Result holds the saved result, unless the verdict alone was asked for.
	Saved
	// Purged: done before, and the result is past its retention.
	Purged
	// Busy: another run owns it; ask again after Claimed.RetryIn.
	Busy
	// NotDue: it waits for its next run; ask again after Claimed.RetryIn.
	NotDue
	// HeldUnknown: unknown; nothing is sent until it is resolved.
	HeldUnknown
	// HasFailed: failed before; Claimed.Error holds the stored failure.
	HasFailed
	// IsCancelled: a person cancelled it.
	IsCancelled
	// Mismatch: the key exists with another action or another input. Claimed.Stored
	// says which. Never run, and never answered from the ledger.
	Mismatch
)

var verdicts = [...]string{"", "run", "saved", "purged", "busy", "not_due", "unknown", "failed", "cancelled", "mismatch"}

// String is the verdict's label in logs and metrics.
func (v Verdict) String() string {
	if v < Run || int(v) >= len(verdicts) {
		return "invalid"
	}
	return verdicts[v]
}

// Claimed answers a claim. Which fields are set depends on the verdict.
type Claimed struct {
	Verdict    Verdict
	Lease      Lease         // Run
	Run        int           // Run: number of this run, from 1
	Generation int           // always, once the row exists
	Carrier    Carrier       // always: an unknown job carried by the ledger may be acknowledged
	Result     *Result       // Saved, nil with Request.VerdictOnly; without a body of more than InlineBody bytes, which Job has: duplicates must be cheap
	Cost       *Nano         // Saved, Purged: what the job cost, if known
	Error      *JobError     // HasFailed
	RetryIn    time.Duration // Busy: the owner's remaining lease; NotDue, HeldUnknown: until it is due
	Stored     *Identity     // Mismatch
}

// Identity is what a key stands for.
type Identity struct {
	Action    string
	InputHash Hash
}

// Stored is a job that can be run from the ledger.
type Stored struct {
	Key       Key
	Action    string
	InputHash Hash
	Input     []byte
	Fault     error // why Input cannot be read: ErrDamaged, or it is not for this worker's keys; nil: it can
	Origin    Origin
}
