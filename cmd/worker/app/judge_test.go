package app

import (
	"testing"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/ledger"
)

// Each verdict, and the nearest job that gets another one.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	w := newWorldHere(t)
	h, in := w.decoded(letter("1", "x"))
	other := in.Hash
	other[0]++
	call := h.Calls()[0]
	answer := func(name string, generation int, has bool) ledger.AttemptRow {
		return ledger.AttemptRow{Attempt: ledger.Attempt{Call: ledger.CallRef{Name: name}}, Generation: generation, HasAnswer: has}
	}
	const none = -1 // no number of calls: it is not redriven
	for name, c := range map[string]struct {
		job     *ledger.Job // without what identifies it
		change  func(*ledger.Job)
		verdict string
		calls   int
		fate    broker.Fate
	}{
		"no job":                        {nil, nil, willRun, 1, broker.Redrive},
		"ready":                         {&ledger.Job{State: ledger.Ready}, nil, willRun, 1, broker.Redrive},
		"ready, input kept":             {&ledger.Job{State: ledger.Ready, InputKept: true}, nil, willRun, 1, broker.Redrive},
		"answered":                      {&ledger.Job{State: ledger.Ready, Attempts: []ledger.AttemptRow{answer(call, 0, true)}}, nil, willRun, 0, broker.Redrive},
		"answered, then failed":         {&ledger.Job{State: ledger.Ready, Attempts: []ledger.AttemptRow{answer(call, 0, true), answer(call, 0, false)}}, nil, willRun, 0, broker.Redrive},
		"not answered":                  {&ledger.Job{State: ledger.Ready, Attempts: []ledger.AttemptRow{answer(call, 0, false)}}, nil, willRun, 1, broker.Redrive},
		"answered before its re-run":    {&ledger.Job{State: ledger.Ready, Generation: 1, Attempts: []ledger.AttemptRow{answer(call, 0, true)}}, nil, willRun, 1, broker.Redrive},
		"another call answered":         {&ledger.Job{State: ledger.Ready, Attempts: []ledger.AttemptRow{answer("other", 0, true)}}, nil, willRun, 1, broker.Redrive},
		"done":                          {&ledger.Job{State: ledger.Done}, nil, saved, 0, broker.Drop},
		"unknown":                       {&ledger.Job{State: ledger.Unknown, OpenCalls: 1}, nil, isUnknown, none, broker.Keep},
		"running":                       {&ledger.Job{State: ledger.Running, InputKept: true}, nil, isRunning, none, broker.Keep},
		"running, input here alone":     {&ledger.Job{State: ledger.Running}, nil, willRun, 1, broker.Redrive},
		"the same with a call open":     {&ledger.Job{State: ledger.Running, OpenCalls: 1}, nil, isRunning, none, broker.Keep},
		"failed":                        {&ledger.Job{State: ledger.Failed}, nil, hasFailed, none, broker.Keep},
		"cancelled":                     {&ledger.Job{State: ledger.Cancelled}, nil, isOff, none, broker.Keep},
		"done with another input":       {&ledger.Job{State: ledger.Done}, func(j *ledger.Job) { j.InputHash = other }, mismatched, none, broker.Keep},
		"done, another job":             {&ledger.Job{State: ledger.Done}, func(j *ledger.Job) { j.Action = "invoice.extract" }, mismatched, none, broker.Keep},
		"ready, but with another input": {&ledger.Job{State: ledger.Ready}, func(j *ledger.Job) { j.InputHash = other }, mismatched, none, broker.Keep},
	} {
		if c.job != nil {
			c.job.Action, c.job.InputHash = h.Name(), in.Hash
		}
		if c.change != nil {
			c.change(c.job)
		}
		var l letterDocument
		l.judge(c.job, h, in)
		calls := none
		if l.Calls != nil {
			calls = *l.Calls
		}
		free := l.CostUSD != nil && *l.CostUSD == "0"
		if l.Verdict != c.verdict || calls != c.calls || fates[l.Verdict] != c.fate || free != (calls == 0) || (l.Fault != "") != (c.verdict == mismatched) {
			t.Errorf("%s: %+v and fate %d, want %s, %d calls and fate %d", name, l, fates[l.Verdict], c.verdict, c.calls, c.fate)
		}
	}
}
