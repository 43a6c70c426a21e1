package jobtest

import (
	"testing"

	"github.com/paidonce/paidonce/job"
)

// SevenPaths takes the job down each of the seven ways on which paid work is commonly done twice, as subtests:
//
//   - a client retries after a slow response
//   - two workers receive the same job
//   - a worker restarts during execution
//   - the model's answer arrives after the timeout
//   - a tool succeeds but its callback is lost
//   - a fallback begins while the primary is uncertain
//   - a user submits twice
//
// The rules are those of [Run]. Faults among the options happen on each way.
func SevenPaths[In job.Keyed, Out any](t *testing.T, def job.Def[In, Out], in In, opts ...Option) {
	t.Helper()
	sevenPaths(t, t, def, in, opts)
}

// sevenPaths reports to tb.
func sevenPaths[In job.Keyed, Out any](t *testing.T, tb testing.TB, def job.Def[In, Out], in In, opts []Option) {
	t.Helper()
	c := newSubject(t, def, in, opts)
	base := c.clean(t)
	var all findings
	all.add(nil, base.problems)
	for _, p := range c.paths(base) {
		t.Run(p.name, func(t *testing.T) {
			for _, faults := range p.ways {
				faults = append(faults, c.faults...)
				o := c.simulate(t, faults)
				all.add(faults, judge(base, o))
			}
		})
	}
	all.report(tb, c.name)
}

// path is one of the seven, and the ways to go down it.
type path struct {
	name string
	ways [][]Fault
}

// paths are the seven for a job that came by these points.
func (c *subject) paths(base *outcome) []path {
	sent := c.first(base, Send, true)
	lost := [][]Fault{}
	for _, p := range base.trail { // every effect and every call, each in its turn
		if p.Op == Settle && !p.After {
			lost = append(lost, []Fault{CrashAt(p)})
		}
	}
	if c.overWire(base) {
		lost = append(lost, []Fault{LoseAnswer()})
	}
	paths := []path{
		{"a client retries after a slow response", [][]Fault{{slow(), SubmitAgain(sent)}}},
		{"two workers receive the same job", [][]Fault{{Concurrent(2)}, {slow(), Redeliver(3)}}},
		{"a worker restarts during execution", [][]Fault{{slow(), Restart(sent)}, {slow(), CrashAt(sent)}, {Pause(sent)}, {LoseLease(sent)}}},
		{"the model's answer arrives after the timeout", [][]Fault{{CrashAt(c.first(base, Settle, false))}}},
		{"a tool succeeds but its callback is lost", lost},
		{"a fallback begins while the primary is uncertain", [][]Fault{{CrashAt(sent)}}},
		{"a user submits twice", [][]Fault{{SubmitAgain(c.first(base, Claim, true))}, {SubmitAgain(c.first(base, Ack, true))}, {DropAck()}}},
	}
	if c.overWire(base) {
		paths[3].ways = [][]Fault{{LateAnswer()}, {LateAnswer(), Redeliver(2)}}
		paths[5].ways = [][]Fault{{LoseAnswer()}, {LoseAnswer(), Concurrent(2)}}
	}
	return paths
}

// slow is SlowAnswer where there is an answer to wait for.
func slow() Fault { return Fault{kind: slowAnswer, may: true} }

// overWire reports whether a call or step went over HTTP.
func (c *subject) overWire(o *outcome) bool {
	for _, l := range o.lines {
		if l.gate != nil && l.paid {
			return true
		}
	}
	return false
}

// first is the first such point of the run; where it has none, as of a job without calls, the commit.
func (c *subject) first(o *outcome, op Op, after bool) Point {
	for _, p := range o.trail {
		if p.Op == op && p.After == after {
			return p
		}
	}
	return Before(Complete)
}
