package jobtest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/ledger"
)

// problem is a rule that a run broke.
type problem struct {
	kind   string // problems of one kind are told once
	weight int    // of several, the heaviest is told
	what   string
	fix    string
}

const bugFix = "this should not be possible for any handler: please report it"

// judge compares a run with the one without faults.
func judge(base, o *outcome) []problem {
	j := &judgement{base: base, o: o, problems: slices.Clone(o.problems)}
	j.ends()
	j.outside()
	j.effects()
	j.payments()
	j.thrownAway()
	return j.problems
}

type judgement struct {
	base, o  *outcome
	problems []problem
}

func (j *judgement) add(kind string, weight int, fix, what string, args ...any) {
	j.problems = append(j.problems, problem{kind: kind, weight: weight, fix: fix, what: fmt.Sprintf(what, args...)})
}

// ends judges what is left: one job with one result, and an empty queue.
func (j *judgement) ends() {
	o := j.o
	for _, d := range o.dead {
		fix := "see docs/errors.md for the code"
		switch {
		case strings.HasPrefix(d.Reason, "PO405"):
			fix = keyFix
		case strings.HasPrefix(d.Reason, "PO406"):
			fix = "two messages of one key differ: name the fields that may differ in Def.Volatile, or put what differs into the key"
		}
		j.add("dead letter", 0, fix, "the message was dead-lettered: %s", d.Reason)
	}
	if o.depth != (memory.Depth{}) {
		j.add("queue", 0, bugFix, "the message is still in the queue: %+v", o.depth)
	}
	var keys []string
	for _, r := range o.rows {
		if r.Action == o.job.Action {
			keys = append(keys, r.Key.Text)
		}
	}
	if len(keys) > 1 {
		j.add("key", len(keys), keyFix, "one message became %d jobs: %s", len(keys), strings.Join(keys, ", "))
	}
	commits := 0
	for _, e := range o.job.History {
		if strings.HasPrefix(e.Reason, "J10 ") {
			commits++
		}
	}
	if commits > 1 {
		j.add("results", commits, bugFix, "the job has %d results", commits)
	}
	if o.job.State != ledger.Done && !j.mayEnd() && len(o.dead) == 0 && j.base != o { // of a run without faults clean says it
		j.add("end", 0, "the job must be done whoever dies: what one run leaves behind in the process or elsewhere must not stop the next one", "the job does not end well: %s", o.ended())
	}
}

// mayEnd reports whether the job may end without a result: nobody can find out about a call without a log, and a policy may give up.
func (j *judgement) mayEnd() bool {
	switch j.o.job.State {
	case ledger.Unknown:
		return true
	case ledger.Failed:
		return j.o.job.Error != nil && j.o.job.Error.Class == "held"
	}
	return false
}

// outside judges what was sent by the handler itself.
func (j *judgement) outside() {
	sent := map[string]int{}
	for _, l := range j.o.lines {
		if l.gate == nil && l.paid {
			sent[l.what]++
		}
	}
	for what, n := range sent {
		j.add("outside "+what, n, "the handler calls the provider outside of job.Call: make the request in a route's Do, with a.HTTP() as the SDK's HTTP client; http.DefaultClient is outside of it even there. An effect, such as a post, is a job.Step with a.Effect(). Of what costs nothing say so by Options.Free",
			"%s was sent by the handler itself, outside of any call or step%s", what, times(n, ", and paid %d times"))
	}
}

// times is empty for once.
func times(n int, format string) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf(format, n)
}

// effects judges what fakes told.
func (j *judgement) effects() {
	for what, n := range j.o.did {
		if n > max(j.base.did[what], 1) {
			j.add("effect "+what, n, "make it a job.Step whose Do asks a.Sent immediately before it, once", "%s was done %d times", what, n)
		}
	}
}

// calls sums up what was billed, by the call's name in its job. Calls that are never the same are left out.
func (o *outcome) calls() map[string][]*line {
	all := map[string][]*line{}
	for _, l := range o.lines {
		if l.gate != nil && l.billed() && len(l.gate.Call.InputKey) != len(ledger.ID{}.String()) {
			name := l.gate.job + " " + l.gate.Call.Name
			all[name] = append(all[name], l)
		}
	}
	return all
}

// allowed is how many calls of a job a policy permitted beyond the first of each.
func (o *outcome) allowed(action string) (n int) {
	for _, r := range o.rows {
		if r.Action == action {
			n += r.Replays
		}
	}
	return n
}

const inputFix = "the input of the call differs from run to run (a clock, a random id, the order of a map in it makes another input key): give it the message, and answers that were paid for, alone"

// payments wants what was billed to be billed once.
func (j *judgement) payments() {
	base := j.base.calls()
	for name, lines := range j.o.calls() {
		refs := map[ask]int{}
		most := 0
		for _, l := range lines {
			ref := ask{key: l.gate.key, call: l.gate.Call}
			refs[ref]++
			most = max(most, refs[ref])
		}
		g, allowed := lines[0].gate, j.o.allowed(lines[0].gate.job)
		switch {
		case most > 1+allowed:
			j.add("paid "+name, most, "Reconcile said of a call that was made that it was not: CannotTell is right where the provider does not know for certain",
				"%s was paid %d times for one input", Point{Op: Wire, Job: g.job, Call: g.Call.Name}.subject(), most)
		case len(lines) > max(len(base[name]), 1)+allowed && len(refs) > len(base[name]) && jobs(lines) == 1: // of several jobs the key is at fault
			j.add("input "+name, len(lines), inputFix, "%s was paid %d times, and %d times when nothing happened; its inputs were %s",
				Point{Op: Wire, Job: g.job, Call: g.Call.Name}.subject(), len(lines), len(base[name]), inputs(lines))
		}
	}
}

// jobs is how many jobs made the calls.
func jobs(lines []*line) int {
	keys := map[string]bool{}
	for _, l := range lines {
		keys[fmt.Sprint(l.gate.key)] = true
	}
	return len(keys)
}

func inputs(lines []*line) string {
	var all []string
	for _, l := range lines {
		all = append(all, cmp.Or(l.gate.Call.InputKey, "(by name)"))
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

// thrownAway wants every answer that was paid for to be used by the result.
func (j *judgement) thrownAway() {
	if j.o.job.State != ledger.Done {
		return
	}
	for _, r := range j.o.rows {
		for _, a := range r.Attempts {
			if !a.Surplus || r.Replays > 0 || len(a.Call.InputKey) == len(ledger.ID{}.String()) || a.Call.Name == stepCall {
				continue
			}
			kind := "input " + r.Action + " " + a.Call.Name
			if slices.ContainsFunc(j.problems, func(p problem) bool { return p.kind == kind }) {
				continue
			}
			fix := "the run that ended the job did not ask for a call that an earlier one had paid for: which calls a handler makes may depend on the message and on answers alone"
			if a.Call.InputKey != "" {
				fix = inputFix
			}
			j.add(kind, 0, fix, "an answer of call %s was paid for and thrown away", a.Call.Name)
		}
	}
}
