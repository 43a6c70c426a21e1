// Package doctor judges how a worker is set up: what its parts say of themselves, and
// whether the windows fit each other and the queue.
//
// It looks at nothing itself. [Findings] is a function of described facts, so that every
// judgement can be tested without the part that it is about.
package doctor

import (
	"fmt"
	"strings"
	"time"

	"github.com/paidonce/paidonce/broker/rabbitmq"
	"github.com/paidonce/paidonce/broker/sqs"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// Level says how much a finding matters.
type Level string

// The levels.
const (
	Error   Level = "error"   // it does not work like this, or it can pay twice
	Warning Level = "warning" // it works until something happens
	Info    Level = "info"    // what cannot be found out from here, or is worth knowing
)

// Finding is one thing that is not as it should be.
type Finding struct {
	Code  string `json:"code"` // a row of docs/errors.md
	Level Level  `json:"level"`
	Part  string `json:"part"` // ledger, broker, windows, prices, providers, steps, http
	Text  string `json:"text"` // what is so, with its values
	Fix   string `json:"fix"`
}

// String is the finding in a line.
func (f Finding) String() string {
	return fmt.Sprintf("%s %s %s: %s; fix: %s", f.Level, f.Code, f.Part, f.Text, f.Fix)
}

// Facts are what the parts say of themselves, and the settings that they are judged by.
type Facts struct {
	Windows  Windows
	Ledger   Ledger
	Broker   Broker
	Unpriced []Unpriced
	Links    []Link
}

// Windows are the settings that have to fit each other.
type Windows struct {
	Lease        time.Duration
	Visibility   time.Duration // 0: the queue's own
	Drain        time.Duration
	LongestRun   time.Duration // max_run, of the job that has the longest
	LongestRoute time.Duration
	MaxRuns      int           // of the job that has the most
	KeyRetention time.Duration // how long a key is remembered
	Brief        []Brief       // jobs with a lifetime that a call may outlive
}

// Brief is a job whose lifetime is shorter than the timeout of one of its routes.
type Brief struct {
	Job, Route        string
	Lifetime, Timeout time.Duration
}

// Ledger is what is known of the ledger.
type Ledger struct {
	Memory bool
	Err    error                 // it cannot be reached
	Schema error                 // its schema is missing or of another version
	Server *postgres.Description // nil: not asked
	// Unhandled are jobs that wait in it and that this configuration has no handler for; Registered are those it has.
	Unhandled  []ledger.WaitingCount
	Registered []string
}

// Broker is what is known of the broker. Of the descriptions at most one is set.
type Broker struct {
	Memory   bool
	Declare  bool  // the worker creates what is missing
	Err      error // it cannot be reached, or does not answer
	RabbitMQ *rabbitmq.Description
	SQS      *sqs.Description
}

// Findings are all that there is to say, in the order of the parts.
func Findings(f Facts) []Finding {
	all := f.Ledger.Findings()
	all = append(all, Queue(f.Broker, f.Windows)...)
	all = append(all, f.Windows.findings()...)
	for _, u := range f.Unpriced {
		all = append(all, u.finding())
	}
	for _, l := range f.Links {
		all = append(all, l.finding()...)
	}
	return all
}

// Findings are what there is to say of the ledger.
func (l Ledger) Findings() (fs []Finding) {
	say := func(code string, level Level, fix, text string, a ...any) {
		fs = append(fs, Finding{code, level, "ledger", fmt.Sprintf(text, a...), fix})
	}
	if l.Memory {
		say("PO017", Warning, "use it to try things out; set ledger.url to sqlite:FILE or postgres://…", "memory: forgets every job when its process ends; what is delivered again then is paid again")
	}
	if l.Err != nil {
		say("PO530", Error, "check ledger.url, the network, and that the server runs", "it cannot be reached: %v", l.Err)
	}
	if l.Schema != nil {
		say("PO531", Error, "run worker migrate up with the newest program", "%v", l.Schema)
	}
	for _, u := range l.Unhandled {
		say("PO634", Warning, "run a worker that has the handler beside this one (of a step: set steps.email or steps.slack); or end them with worker jobs cancel",
			"no handler for %q; registered: %s. %d jobs of it wait in the ledger, the oldest for %s", u.Action, strings.Join(l.Registered, ", "), u.Count, u.Oldest.Round(time.Second))
	}
	d := l.Server
	if d == nil {
		return fs
	}
	if d.Replica {
		say("PO532", Error, "set ledger.url to the primary", "the server is a replica and takes no writes")
	}
	if d.Owner {
		say("PO654", Info, "run worker migrate print --roles as the owner, and give the worker a login with paidonce_worker",
			"its login may drop and delete everything, which no worker needs")
	}
	if !d.Fsync {
		say("PO533", Error, "set fsync = on", "fsync is off: a crash of the server forgets calls that were sent, and they are paid again")
	}
	if d.SynchronousCommit == "off" || d.SynchronousCommit == "local" && d.Waits {
		level := map[bool]Level{true: Error, false: Warning}[d.SynchronousCommit == "off"]
		say("PO534", level, "set synchronous_commit = on for the ledger's role", "synchronous_commit is %s: a crash, or a failover, forgets calls that were sent", d.SynchronousCommit)
	}
	if d.Standbys > 0 && !d.Waits {
		say("PO535", Warning, "set synchronous_standby_names, or never promote without reconciling with the provider first",
			"%d replicas follow asynchronously: one that is promoted may lack calls that were sent, and they are paid again", d.Standbys)
	}
	return fs
}

// graceMargin is what a worker needs after its drain to end in order.
const graceMargin = 5 * time.Second

// usualGrace is what platforms give a process between SIGTERM and SIGKILL by default.
const usualGrace = 30 * time.Second

func (w Windows) findings() (fs []Finding) {
	say := func(code, fix, text string, a ...any) {
		fs = append(fs, Finding{code, Info, "windows", fmt.Sprintf(text, a...), fix})
	}
	if w.Drain < w.LongestRoute {
		say("PO550", "raise consumer.drain and the platform's grace period, or accept it: such calls are kept as unknown and looked for",
			"drain %s is shorter than the longest route %s: calls under way at a deploy may be cut", w.Drain, w.LongestRoute)
	}
	if w.Drain+graceMargin > usualGrace {
		say("PO551", fmt.Sprintf("make the platform's grace period at least %s (Kubernetes: terminationGracePeriodSeconds)", w.Drain+graceMargin),
			"drain %s is longer than the usual grace period of %s allows", w.Drain, usualGrace)
	}
	for _, b := range w.Brief {
		fs = append(fs, Finding{"PO635", Warning, "windows",
			fmt.Sprintf("job %s: lifetime %s is shorter than the timeout %s of its route %s: when such a call fails late, nothing more may be sent for the job, no retry and no fallback", b.Job, b.Lifetime, b.Timeout, b.Route),
			fmt.Sprintf("raise jobs.%s.lifetime above the timeouts of its routes together, or shorten them", b.Job)})
	}
	return fs
}
