package jobtest

import (
	"fmt"
	"strings"
)

// Op is one of the things that a worker does and that are on record, or gone out, afterwards.
type Op string

// The ops, in the order of a run.
const (
	Claim    Op = "claim"    // become the job's owner
	Send     Op = "send"     // the send gate: the mark before the request
	Wire     Op = "wire"     // the request itself: before it the provider has it, after it the provider has answered
	Settle   Op = "settle"   // put on record what came back
	Apply    Op = "apply"    // commit rows for an answer (RunTx)
	Complete Op = "complete" // commit the result
	Release  Op = "release"  // end a run without a result
	Ack      Op = "ack"      // tell the broker
)

// Point is a place in a run: before or after an op.
type Point struct {
	Op    Op
	After bool   // after it, and before the worker hears that it is done; false: before it
	Job   string // of the job or step of that name; "": of any
	Call  string // of the call of that name; for a request outside of calls its method and URL; "": of any
	N     int    // which of several, from 1; 0: the first
}

// Before is the point before the first op of that kind.
func Before(op Op) Point { return Point{Op: op} }

// After is the point after the first op of that kind.
func After(op Op) Point { return Point{Op: op, After: true} }

// Of is the point at that call.
func (p Point) Of(call string) Point { p.Call = call; return p }

// In is the point in the job or step of that name.
func (p Point) In(job string) Point { p.Job = job; return p }

// Nth is the point at the nth such op, from 1.
func (p Point) Nth(n int) Point { p.N = n; return p }

// phrases are the points before and after each op.
var phrases = map[Op][2]string{
	Claim:    {"before %s is claimed", "after %s is claimed, before its handler runs"},
	Send:     {"before the send gate of %s", "after the send gate of %s, before the request goes out"},
	Wire:     {"after the provider got the request of %s, before it answers", "after the provider answered %s, before settle"},
	Settle:   {"before the outcome of %s is settled", "after the outcome of %s is settled, before the handler hears of it"},
	Apply:    {"before the rows for the answer to %s are committed", "after the rows for the answer to %s are committed, before the handler goes on"},
	Complete: {"after the handler of %s returned, before the commit", "after the commit of %s, before the ack"},
	Release:  {"before %s is given back", "after %s is given back"},
	Ack:      {"before the ack of %s", "after the ack of %s"},
}

// String says it in words, such as "after the provider answered call extract, before settle".
func (p Point) String() string {
	i := 0
	if p.After {
		i = 1
	}
	s := fmt.Sprintf(phrases[p.Op][i], p.subject())
	if p.N > 1 {
		s += fmt.Sprintf(" (number %d)", p.N)
	}
	return s
}

func (p Point) subject() string {
	switch {
	case strings.Contains(p.Call, " "): // a method and a URL
		return p.Call
	case p.Call == stepCall && p.Job != "":
		return "step " + p.Job
	case p.Call != "":
		return "call " + p.Call
	case p.Job != "":
		return p.Job
	case p.Op == Send || p.Op == Wire || p.Op == Settle || p.Op == Apply:
		return "the first call"
	}
	return "the job"
}

// expr is the point in Go.
func (p Point) expr() string {
	when := "Before"
	if p.After {
		when = "After"
	}
	op := string(p.Op)
	s := "jobtest." + when + "(jobtest." + strings.ToUpper(op[:1]) + op[1:] + ")"
	if p.Call != "" && p.Call != stepCall {
		s += fmt.Sprintf(".Of(%q)", p.Call)
	}
	if p.Job != "" {
		s += fmt.Sprintf(".In(%q)", p.Job)
	}
	if p.N > 1 {
		s += fmt.Sprintf(".Nth(%d)", p.N)
	}
	return s
}

// matches reports whether q, which is complete, is of the kind of p, whatever the count.
func (p Point) matches(q Point) bool {
	return p.Op == q.Op && p.After == q.After && (p.Job == "" || p.Job == q.Job) && (p.Call == "" || p.Call == q.Call)
}

// stepCall is the name of the one call of a step's job.
const stepCall = "do"
