package simulate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/ledger"
)

// settleTime is how long a worker must live on after it heard an answer for the answer to be on record: longer than any outage.
const settleTime = 12 * time.Minute

// check looks at the whole history when all is over.
func (w *world) check() {
	jobs := w.jobs()
	byKey := map[string]ledger.Job{}
	for _, j := range jobs {
		byKey[j.Key.Text] = j
		w.checkJob(j)
	}
	for _, k := range w.sentKeys() {
		if _, ok := byKey[k]; !ok {
			w.violate("lost", "%s was published, and has no row", k)
		}
	}
	for _, j := range jobs {
		if j.Action == "steps" && j.State == ledger.Done {
			w.checkFollowers(j, byKey)
		}
	}
	w.checkQueue()
	for _, j := range jobs { // the end is part of the history
		for _, e := range j.History {
			w.lines = append(w.lines, fmt.Sprintf("%s %s %s>%s %s %s", j.Key, e.At.Sub(w.began), e.From, e.To, e.Actor, e.Reason))
		}
	}
}

// checkQueue wants it empty, and none set aside but those whose key stands for something else.
func (w *world) checkQueue() {
	if d := w.Queue.Depth(); d != (memory.Depth{}) {
		w.violate("queue", "it holds %+v at the end", d)
	}
	for _, l := range w.Queue.DeadLetters() {
		if !strings.Contains(l.Reason, " stands for job ") {
			w.violate("queue", "a message was set aside: %s", l.Reason)
		}
	}
}

// checkFollowers wants the step and the messages of a result, in their order.
func (w *world) checkFollowers(j ledger.Job, byKey map[string]ledger.Job) {
	_, doc, _ := strings.Cut(j.Key.Text, ":steps:")
	first, second := j.Key.Tenant+":note:"+doc+"-1", j.Key.Tenant+":note:"+doc+"-2"
	for _, k := range []string{j.Key.Tenant + ":mail:" + doc, first, second} {
		if _, ok := byKey[k]; !ok {
			w.violate("outbox", "%s is done, and %s has no row", j.Key, k)
		}
	}
	if a, b := slices.Index(w.published, first), slices.Index(w.published, second); a < 0 || b < a {
		w.violate("outbox", "the messages of %s were published at places %d and %d", j.Key, a, b)
	}
}

// checkJob looks at one job.
func (w *world) checkJob(j ledger.Job) {
	if !j.State.Terminal() {
		w.violate("end", "%s is %s", j.Key, j.State)
	}
	open, cost, reserved := 0, ledger.Nano(0), ledger.Nano(0)
	ran := map[string]int{}
	for _, a := range j.Attempts {
		if a.State == ledger.Sent {
			open++
		}
		if a.State == ledger.Sent || a.State == ledger.UnknownAttempt {
			reserved += a.Reserve
		}
		if a.Evidence.Cost != nil {
			cost += *a.Evidence.Cost
		}
		if w.ranAny(a.ID.String()) != nil {
			call := fmt.Sprintf("%d %s", a.Generation, callName(a.Call))
			if ran[call]++; ran[call] > 1+leaves(j, a.Generation) {
				w.violate("2 paid", "call %s of %s was executed %d times with %d leaves to pay twice", callName(a.Call), j.Key, ran[call], leaves(j, a.Generation))
			}
		}
		w.checkAttempt(j, a)
	}
	booked := ledger.Nano(0)
	if j.Cost != nil {
		booked = *j.Cost
	}
	if open != j.OpenCalls || booked != cost || j.Reserved != reserved {
		w.violate("books", "%s counts %d open calls, %d cost and %d reserved; its attempts have %d, %d and %d", j.Key, j.OpenCalls, booked, j.Reserved, open, cost, reserved)
	}
	w.checkResult(j)
}

// checkAttempt compares what is on record of an attempt with what the provider did.
func (w *world) checkAttempt(j ledger.Job, a ledger.AttemptRow) {
	r, name := w.ranAny(a.ID.String()), w.nameOf(a.ID.String())
	switch a.State {
	case ledger.NotSent, ledger.Rejected, ledger.FailedAttempt:
		if r != nil {
			w.violate("truth", "%s is on record as %s, and was executed", name, a.State)
		}
	case ledger.Received:
		switch {
		case r == nil:
			w.violate("truth", "%s is on record as received, and was not executed", name)
		case a.Evidence.Cost == nil || *a.Evidence.Cost != r.cost:
			w.violate("books", "%s was billed %d and is booked otherwise", name, r.cost)
		}
		if j.State == ledger.Done && a.Generation == j.Generation && !a.Surplus && !slices.Contains(w.used[j.Result.ID], a.ID) {
			w.violate("3 kept", "%s is neither used nor surplus", name)
		}
	}
	if r == nil || r.heard.IsZero() || a.State == ledger.Received {
		return
	}
	if end, ok := w.ended[r.node]; !ok || end.Sub(r.heard) > settleTime {
		w.violate("3 kept", "the answer to %s reached %s, which lived on, and the attempt is %s", name, r.node.Name, a.State)
	}
}

// checkResult wants as many effects as results, made of the answers that were used.
func (w *world) checkResult(j ledger.Job) {
	results := len(j.Earlier)
	if j.Result != nil {
		results++
	}
	if j.Action != "mail" && w.effects[j.Key.Text] != results {
		w.violate("1 result", "%s has %d results, and %d effects of commits", j.Key, results, w.effects[j.Key.Text])
	}
	if j.Action == "mail" || j.Result == nil {
		return
	}
	var got string
	if err := json.Unmarshal(j.Result.Body, &got); err != nil {
		w.violate("1 result", "%s: %v", j.Key, err)
	}
	for part := range strings.SplitSeq(got, "; ") {
		made := part == "" || slices.ContainsFunc(w.used[j.Result.ID], func(id ledger.ID) bool {
			r := w.ranAny(id.String())
			return r != nil && r.text == part
		})
		if !made {
			w.violate("3 kept", "the result of %s has %q, which no answer that it used is", j.Key, part)
		}
	}
}

// ends counts what became of jobs, the rules by which it came, and what was done by a person.
func (w *world) ends() map[string]int {
	ends := map[string]int{"dead letter": len(w.Queue.DeadLetters()), "held": w.counts["held"]}
	for _, j := range w.jobs() {
		ends[string(j.State)]++
		ends["step"] += len(j.Steps)
		for _, e := range j.History {
			rule, _, _ := strings.Cut(e.Reason, " ")
			ends[strings.TrimSuffix(rule, ":")]++
		}
		for _, a := range j.Attempts {
			if a.Surplus {
				ends["surplus"]++
			}
		}
	}
	return ends
}
