package jobtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/internal/mortal"
	"github.com/paidonce/paidonce/ledger"
)

// watch is told of everything that a worker asks.
func (w *world) watch(n *mortal.Node, op mortal.Op, after bool) (lost bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return false
	}
	if n.Frozen() && !after {
		return false // it is not done before the worker wakes
	}
	switch arg := op.Arg.(type) {
	case []broker.Delivery:
		w.hand = append(w.hand, arg...)
		return false
	case ledger.Request:
		w.jobs[arg.Key] = arg.Action
		w.pass(n, Point{Op: Claim, After: after, Job: arg.Action})
	case ledger.CallRef:
		w.looked(ask{op.Fence, op.Key, arg}, after)
	case ledger.Attempt:
		w.unlooked(ask{op.Fence, op.Key, arg.Call})
		w.gated(op, arg, after)
		w.pass(n, Point{Op: Send, After: after, Job: w.jobs[op.Key], Call: arg.Call.Name})
	case mortal.Settling:
		w.settling(n, arg, op.Err, after)
	case ledger.ID: // of the attempt whose answer has rows of its own
		p := Point{Op: Apply, After: after, Job: w.jobs[op.Key]}
		if g := w.gate(arg.String()); g != nil {
			p.Call = g.Call.Name
		}
		w.pass(n, p)
	case ledger.Result:
		w.completing(op.Key, arg, after)
		w.pass(n, Point{Op: Complete, After: after, Job: w.jobs[op.Key]})
	case ledger.Outcome:
		w.pass(n, Point{Op: Release, After: after, Job: w.jobs[op.Key]})
	case broker.Delivery:
		if op.Verb == "ack" {
			return w.acking(n, after)
		}
	}
	return false
}

// gated notes an attempt that is on record as sent.
func (w *world) gated(op mortal.Op, a ledger.Attempt, after bool) {
	if after && op.Err == nil {
		w.gates = append(w.gates, &gate{Attempt: a, key: op.Key, job: w.jobs[op.Key], fence: op.Fence})
	}
}

// gate finds an attempt.
func (w *world) gate(id string) *gate {
	for _, g := range w.gates {
		if g.ClientRequestID == id || g.ID.String() == id {
			return g
		}
	}
	return nil
}

func (w *world) settling(n *mortal.Node, s mortal.Settling, err error, after bool) {
	g := w.gate(s.ID.ID.String())
	if g == nil || s.Evidence.By != ledger.BySender {
		return
	}
	if after && err == nil && s.Evidence.State != ledger.Sent {
		g.settled = true
	}
	w.pass(n, Point{Op: Settle, After: after, Job: g.job, Call: g.Call.Name})
}

// unlooked notes that a run asks for a call when it did not look: the first call of a job's first run does not.
func (w *world) unlooked(a ask) {
	if w.asked[a] == 0 {
		w.asked[a] = 1
	}
}

// looked notes that a run asks for a call. One that asks again for what it has been refused runs a loop of its own.
func (w *world) looked(a ask, after bool) {
	if !after {
		return
	}
	w.asked[a]++
	if n := w.asked[a]; n > 1 && n > w.answersOf(a)+1 {
		w.problems = append(w.problems, problem{kind: "loop " + a.call.Name, weight: n,
			what: fmt.Sprintf("one run asked for call %s %d times, though it had ended without an answer", a.call.Name, n),
			fix:  "the handler retries by a loop of its own: return the error; Call.Retry is for the same run, and an error without a class has the job run again, in time and within its limits"})
	}
}

// answersOf counts late answers: after each the call looks once more by itself.
func (w *world) answersOf(a ask) (n int) {
	j, err := w.Ledger.Job(context.Background(), a.key)
	if err != nil {
		return 0
	}
	for _, row := range j.Attempts {
		if row.Call == a.call && row.State == ledger.Received {
			n++
		}
	}
	return n
}

// completing compares what the commits of a job ask for.
func (w *world) completing(k ledger.Key, r ledger.Result, after bool) {
	if after || len(r.Steps) == 0 {
		return
	}
	var keys []string
	for _, s := range r.Steps {
		keys = append(keys, s.Key.Text)
	}
	slices.Sort(keys)
	all := w.steps[k]
	if all == nil {
		all = map[string]bool{}
		w.steps[k] = all
	}
	all[strings.Join(keys, ", ")] = true
	if len(all) > 1 {
		w.problems = append(w.problems, problem{kind: "step keys", what: "two runs of the job asked for different steps: first " + someKey(all, keys) + ", then " + strings.Join(keys, ", "),
			fix: "a step's key may depend on the message and on answers that were paid for alone: no clock, no random id"})
	}
}

func someKey(all map[string]bool, not []string) string {
	for k := range all {
		if k != strings.Join(not, ", ") {
			return k
		}
	}
	return ""
}

// acking wants the outcome to be durable, and may lose the ack.
func (w *world) acking(n *mortal.Node, after bool) (lost bool) {
	if !after {
		j, err := w.Ledger.Job(context.Background(), w.c.key.Ledger())
		if err == nil && !j.State.Terminal() && j.Carrier != ledger.CarriedByLedger && !w.Config.AckBusy {
			w.problems = append(w.problems, problem{kind: "ack", what: fmt.Sprintf("the message was acknowledged while the job was %s and nobody else would bring it back", j.State), fix: bugFix})
		}
		for _, f := range w.faults {
			if f.kind == dropAck && !f.done && !lost {
				f.done, lost = true, true
			}
		}
	}
	w.pass(n, Point{Op: Ack, After: after, Job: w.c.name})
	return lost
}

// pass notes that the run is at a point, and does what faults have for it.
func (w *world) pass(n *mortal.Node, p Point) {
	w.passed[p]++
	p.N = w.passed[Point{Op: p.Op, After: p.After, Job: p.Job, Call: p.Call}]
	if !w.rested {
		w.trail = append(w.trail, p)
	}
	for _, f := range w.faults {
		if f.kind == loseLease && f.node != nil && f.node != n && p.Op == Claim && p.After {
			f.node.Thaw()
			f.node = nil
		}
		if f.done || f.at.Op == "" || !f.at.matches(p) {
			continue
		}
		if f.met++; f.met == max(f.at.N, 1) {
			f.done = true
			w.strike(f, n)
		}
	}
}

func (w *world) strike(f *armed, n *mortal.Node) {
	if n == nil {
		return
	}
	switch f.kind {
	case crash:
		n.Freeze()
		w.fresh++
	case pause:
		n.Freeze()
		f.node, f.since = n, time.Now()
		w.fresh++
	case restart:
		n.Stop()
		w.fresh++
	case loseLease:
		n.Freeze() // until act has taken lease and message from it, and somebody else has them
		f.node, f.since = n, time.Now()
	case redeliver:
		w.redeliver(f)
	case submitAgain:
		w.again++
	}
}

// takeAway closes a worker's epoch and takes the message from it.
func (w *world) takeAway(n *mortal.Node) {
	if err := w.Ledger.LapseWorker(n.Worker()); err != nil {
		return // it has none
	}
	_, _ = w.Ledger.Sweep(context.Background(), 100)
	if len(w.hand) > 0 {
		_ = w.Queue.Lapse(w.hand[len(w.hand)-1]) // where it is settled there is nothing to take
	}
}
