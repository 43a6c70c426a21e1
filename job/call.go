package job

import (
	"context"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// Call is a paid request with a name. Within one job it is answered once: asked
// again, in this run or a later one, it returns the saved answer without sending.
//
// A call that was sent and whose outcome is not known makes the job unknown; what
// happens then is OnUnknown's to say, and its zero value is to hold.
type Call[In, Out any] struct {
	// Name is the call's name within its job. Required.
	Name string
	// Config is the version of what shapes the answer beside In, such as the
	// prompt; it is recorded with each attempt.
	Config string
	// Routes are tried in order; all belong to this one call. Required.
	Routes []Route[In, Out]
	// Retry bounds attempts on one route after a definite failure. The zero value does
	// not retry within a run.
	Retry Backoff
	// OnUnknown is the policy for an unknown outcome. Zero: Hold.
	OnUnknown Policy
	// Reconcile looks for evidence of an attempt whose outcome is unknown. nil: none
	// can be had, the policy decides.
	Reconcile func(ctx context.Context, o Open) (Out, Finding, error)
	// Memo says what makes two calls the same. Zero: the name.
	Memo Memo

	gratis bool // a step's: it costs nothing, over HTTP neither
}

// Route is one way to make a call.
type Route[In, Out any] struct {
	Name     string // required, unique within the call
	Provider string // "openai", "anthropic", …: a bounded set, it is a metric label
	Model    string
	// Timeout bounds one attempt, from the connection to the last byte. Required.
	Timeout time.Duration
	// AtOnce bounds the attempts that this process has under way on the route, of all jobs of the name;
	// whoever comes later waits, in order, without having sent anything. 0: no bound.
	AtOnce int
	// PerMinute bounds how many attempts this process begins on it a minute, evenly spaced. 0: no bound.
	PerMinute int
	// Reserve is an upper bound of one attempt's cost, held against the job's budget and those of the day until the
	// attempt has an outcome. What it cost counts then, if anybody knows it, and else nothing. 0: reckoned by the model's price for a request through HTTP, from its size and the output that it
	// allows; nothing is held where no price is known, nor for what goes through Sent.
	Reserve ledger.Nano
	// Traced says that the provider can be asked about an attempt by Attempt.ID alone, such as by metadata that it keeps: the call's
	// Reconcile does, and no policy pays again within the run that lost the answer, though the provider has not named it.
	Traced bool
	// Free says that what is done under Attempt.Sent costs nothing: its cost is on record as 0. Else
	// nobody knows it. It changes nothing for requests by Attempt.HTTP, which are priced by their answers.
	Free bool
	// Do makes the request through a, with a.HTTP() as the SDK's HTTP client, and turns
	// the answer into Out. It also runs on saved answers, so it must not depend on
	// anything but the answer.
	Do func(ctx context.Context, a *Attempt, in In) (Out, error)
}

// Backoff is the waiting time between attempts: First, doubling up to Ceil, each
// with up to a quarter of jitter.
type Backoff struct {
	Max   int           // attempts after the first one; 0: none
	First time.Duration // 0: 1 s
	Ceil  time.Duration // 0: 30 s. A provider that asks for more ends the run instead
}

// Policy is what to do about an unknown outcome for which no evidence turns up.
type Policy struct {
	kind    policyKind
	replays int
}

type policyKind int8

const (
	holds policyKind = iota
	replays
	fails
)

// Hold keeps the job unknown until a person decides. It is the zero value.
func Hold() Policy { return Policy{} }

// Replay sends again, at most n times a job: when the hold time is over, or within the run that lost the
// answer, by Retry or on the next route, once the attempt is past its timeout (rule J16o) and there is nothing to ask the provider by. It accepts paying
// twice. Each replay is on record.
func Replay(n int) Policy { return Policy{kind: replays, replays: n} }

// FailUnknown gives the job up when the hold time is over.
func FailUnknown() Policy { return Policy{kind: fails} }

// Replays is the n of Replay(n), else 0.
func (p Policy) Replays() int { return p.replays }

// Fails reports whether the policy is FailUnknown.
func (p Policy) Fails() bool { return p.kind == fails }

// String prints the policy as configuration writes it: hold, replay:N, fail.
func (p Policy) String() string {
	switch p.kind {
	case replays:
		return fmt.Sprintf("replay:%d", p.replays)
	case fails:
		return "fail"
	}
	return "hold"
}

// ParsePolicy reads what String prints; "" is hold.
func ParsePolicy(s string) (Policy, error) {
	var n int
	switch {
	case s == "" || s == "hold":
		return Hold(), nil
	case s == "fail":
		return FailUnknown(), nil
	}
	if c, err := fmt.Sscanf(s, "replay:%d", &n); c == 1 && err == nil && n > 0 && s == fmt.Sprintf("replay:%d", n) {
		return Replay(n), nil
	}
	return Policy{}, fmt.Errorf("PO324 policy %q is none of hold, replay:N (N at least 1), fail", s)
}

// Memo says what makes two calls of one job the same call.
type Memo int

// The memos.
const (
	ByName   Memo = iota // one answer a job
	ByInput              // one answer for each input: agent tools, fan-out
	EachCall             // never the same: polling. It is paid at every run
)

// Run returns the call's answer: the saved one if there is one, else what a route
// got. Its errors are sticky where going on would be unsafe (ErrHeld, ErrLost, …);
// others say why there is no answer, with a class.
func (c Call[In, Out]) Run(ctx context.Context, j *Run, in In) (Out, error) {
	var none Out
	q, err := newQuestion(&c, j, in)
	if err != nil {
		return none, err
	}
	out, _, err := q.once(ctx)
	return out, err
}
