package ledger

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxText is the longest tenant, key text, action, worker id, or name in a call, in
// bytes: every store can index it.
const MaxText = 1024

// Check returns an error that wraps ErrRequest when the request cannot be
// stored or makes no sense. Every ledger calls it first.
func (r Request) Check() error {
	return refused("claim",
		name("tenant", r.Key.Tenant), name("key", r.Key.Text), name("action", r.Action), name("worker", r.Worker.ID),
		when(r.Token.IsZero(), "has no token"), positive("run deadline", r.MaxRun),
		when(r.Budget < 0, "has a negative budget"), when(r.MaxCalls < 0 || r.MaxCalls > math.MaxInt32, "has a limit of %d calls", r.MaxCalls),
		when(r.Lifetime != 0 && r.Lifetime < time.Millisecond, "has a lifetime of %s", r.Lifetime))
}

// Check returns an error that wraps ErrRequest when the gate cannot record the attempt.
// Nothing was sent yet, so refusing is safe.
func (a Attempt) Check() error {
	return refused("send",
		name("call", a.Call.Name), text("input key", a.Call.InputKey), text("route", a.Route), text("provider", a.Provider),
		text("model", a.Model), text("config", a.Config), text("client request id", a.ClientRequestID),
		when(a.ID.IsZero(), "has no attempt id"), when(a.Timeout < 0, "has a negative timeout"),
		when(a.Reserve < 0, "reserves a negative amount"))
}

// Check returns an error that wraps ErrRequest when the evidence is no evidence:
// it comes from nobody, or says received without an answer (a later run would
// find none and pay again).
func (e Evidence) Check() error {
	if e.Response != nil && len(e.Response.Body) > MaxBody {
		return fmt.Errorf("%w: settle: an answer of %d", ErrTooLarge, len(e.Response.Body))
	}
	return refused("settle",
		when(!slices.Contains([]AttemptState{Sent, Received, Rejected, FailedAttempt, NotSent}, e.State),
			"has the attempt state %q, which nobody can report", e.State),
		when(e.State == Received && e.Response == nil, "says received and has no answer"),
		when(!slices.Contains([]Actor{BySender, ByReconciler, ByPerson}, e.By), "is from %q, who reports nothing", e.By))
}

// Clean returns the evidence with all its texts made storable. Evidence is never
// refused for a stray byte: money was spent on it.
func (e Evidence) Clean() Evidence {
	for _, s := range []*string{&e.Class, &e.Who, &e.Reason, &e.ProviderRequestID, &e.ObjectID, &e.CostSource} {
		*s = Text(*s)
	}
	return e
}

// Check returns an error that wraps ErrRequest when the adoption could not be recognised.
func (a Adoption) Check() error {
	return refused("adopt", name("worker", a.Worker.ID), when(a.Token.IsZero(), "has no token"))
}

// Check returns an error that wraps ErrRequest when the worker cannot join.
func (w Worker) Check() error {
	return refused("join", name("worker", w.ID), text("host", w.Host), text("version", w.Version), text("config", w.Config),
		positive("lease", w.TTL))
}

// Check returns an error that wraps ErrRequest when the result cannot be committed; a result
// that is too large is ErrTooLarge.
func (r Result) Check() error {
	if len(r.Body) > MaxBody {
		return fmt.Errorf("%w: complete: a result of %d", ErrTooLarge, len(r.Body))
	}
	return refused("complete", text("schema", r.Schema), when(r.ID.IsZero(), "has no result id"))
}

// Clean returns the error with its texts made storable.
func (e JobError) Clean() JobError { return JobError{Class: Text(e.Class), Text: Text(e.Text)} }

// Text makes s storable everywhere: bytes that are not UTF-8, and zero bytes,
// become U+FFFD. It is for what people read; names and keys are refused instead.
func Text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

func refused(verb string, whys ...string) error {
	for _, why := range whys {
		if why != "" {
			return fmt.Errorf("%w: %s: it %s", ErrRequest, verb, why)
		}
	}
	return nil
}

func when(bad bool, format string, args ...any) string {
	if !bad {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

func name(what, s string) string {
	if s == "" {
		return "has no " + what
	}
	return text(what, s)
}

func text(what, s string) string {
	switch {
	case len(s) > MaxText:
		return fmt.Sprintf("has a %s of %d bytes, more than %d", what, len(s), MaxText)
	case !utf8.ValidString(s) || strings.ContainsRune(s, 0):
		return fmt.Sprintf("has a %s that is not UTF-8 without zero bytes: %q", what, s)
	}
	return ""
}

func positive(what string, d time.Duration) string {
	return when(d <= 0, "has a %s of %s", what, d)
}
