package ledgertest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// outboxCases: messages that follow a result.
var outboxCases = []testCase{
	{"messages", "a message that a result asks for is never sent, or another one", messages},
	{"messages of a commit that is refused", "a message is sent for a result that is not there", refusedMessages},
	{"messages of the same commit again", "a commit whose reply was lost sends its messages twice, or never", repeatedMessages},
	{"messages are held", "two workers publish one message at the same time", heldMessages},
	{"messages in order", "a job's messages overtake each other", orderedMessages},
	{"messages taken at once", "two workers publish one message at the same time", crossedMessages},
	{"messages that cannot be", "a message that no broker takes waits for ever", wrongMessages},
	{"messages outlive their job", "a message is forgotten with the job that asked for it", keptMessages},
}

func saying(texts ...string) ledger.Result {
	r := ledger.Result{ID: ledger.NewID(), Body: []byte("1")}
	for _, s := range texts {
		r.Messages = append(r.Messages, ledger.MessageAsk{Action: "next", Body: []byte(s)})
	}
	return r
}

// due lets all messages be due and takes those of up to n.
func (e *env) due(n int) []ledger.Outgoing {
	e.Helper()
	e.AgeMessages(ledger.MessageHold)
	return e.take(n)
}

func (e *env) take(n int) []ledger.Outgoing {
	e.Helper()
	ms, err := e.Store.TakeMessages(e.Context(), n, time.Hour)
	if err != nil {
		e.Fatalf("take messages: %v", err)
	}
	return ms
}

func (e *env) outbox(want int) {
	e.Helper()
	if n, err := e.Store.CountMessages(e.Context()); n != want || err != nil {
		e.Errorf("%d messages in the outbox, want %d (%v)", n, want, err)
	}
}

func (e *env) drop(ms ...ledger.Outgoing) {
	e.Helper()
	var ids []ledger.OutgoingID
	for _, m := range ms {
		ids = append(ids, m.ID)
	}
	e.is("drop", e.Store.DropMessages(e.Context(), ids), nil)
}

// texts prints the bodies of messages.
func texts(ms []ledger.Outgoing) string {
	var s []string
	for _, m := range ms {
		s = append(s, string(m.Body))
	}
	return fmt.Sprint(s)
}

func messages(e *env) {
	q := e.request("a")
	q.Origin = ledger.Origin{Trace: "00-1"}
	j := e.start(q)
	r := saying("one", "two")
	r.Messages[1].Action = "other"
	e.is("complete", e.Store.Complete(e.Context(), j.lease, r), nil)
	j.row(row{State: ledger.Done, Runs: 1, Fence: 1, Result: "1"})
	e.outbox(2)
	ms := e.due(10)
	if len(ms) != 2 {
		e.Fatalf("took %+v", ms)
	}
	for i, m := range ms {
		want := ledger.Outgoing{ID: ledger.OutgoingID{Tenant: tenant, Job: j.lease.Job, Result: r.ID, N: i + 1}, Action: r.Messages[i].Action, Origin: q.Origin}
		if string(m.Body) != string(r.Messages[i].Body) || m.ID != want.ID || m.Action != want.Action || m.Origin != want.Origin || m.Fault != nil {
			e.Errorf("message %d is %+v, want %+v", i, m, want)
		}
	}
	e.drop(ms[0])
	e.outbox(1)
	e.AgeMessages(time.Hour)
	if left := e.take(10); texts(left) != "[two]" {
		e.Errorf("left are %s", texts(left))
	}
	e.drop(ms...)
	e.drop()
	e.outbox(0)
}

func refusedMessages(e *env) {
	j := e.run("open")
	id := j.send("extract")
	e.is("complete with a call open", e.Store.Complete(e.Context(), j.lease, saying("x")), ledger.ErrOpen)
	j.settle(id, no(ledger.Rejected))
	r := saying("x")
	r.Hooks = []ledger.Hook{e.FailingHook(errBoom)}
	e.is("complete with a failing hook", e.Store.Complete(e.Context(), j.lease, r), ledger.ErrHook)
	for name, lose := range e.losing() {
		j := e.run(name)
		old := j.lease
		lose(j)
		e.is("a commit after it was "+name, e.Store.Complete(e.Context(), old, saying("x")), ledger.ErrLost)
	}
	e.outbox(0)
}

func repeatedMessages(e *env) {
	for name, hook := range map[string]bool{"with the user's work": true, "without": false} {
		j := e.run(name)
		r := saying("one")
		if hook {
			r.Hooks = []ledger.Hook{e.Hook(name)}
		}
		again := func() {
			e.Helper()
			e.is("complete "+name, e.Store.Complete(e.Context(), j.lease, r), nil)
		}
		again()
		again()
		e.outbox(1)
		e.drop(e.due(10)...)
		again()
		e.outbox(0)
	}
}

func heldMessages(e *env) {
	j := e.run("a")
	e.is("complete", e.Store.Complete(e.Context(), j.lease, saying("one", "two")), nil)
	if ms := e.take(10); len(ms) != 0 {
		e.Errorf("another worker is given %s while the result's own publishes", texts(ms))
	}
	if ms := e.due(10); len(ms) != 2 {
		e.Errorf("when they are due there are %s", texts(ms))
	}
	if ms := e.take(10); len(ms) != 0 {
		e.Errorf("%s is given twice", texts(ms))
	}
	e.AgeMessages(time.Hour)
	ms := e.take(1) // of one, and so of its job
	if texts(ms) != "[one two]" {
		e.Errorf("after the hold there are %s", texts(ms))
	}
	e.drop(ms...)
}

func orderedMessages(e *env) {
	j, other := e.run("a"), e.run("b")
	e.is("complete", e.Store.Complete(e.Context(), j.lease, saying("1", "2", "3")), nil)
	e.is("complete", e.Store.Complete(e.Context(), other.lease, saying("x")), nil)
	e.AgeMessages(ledger.MessageHold)
	if _, err := e.Store.Reopen(e.Context(), ledger.Reopening{Key: j.key, Token: "t", Reason: "why", Who: "kim"}); err != nil {
		e.Fatal(err)
	}
	j.again()
	e.is("complete", e.Store.Complete(e.Context(), j.lease, saying("4", "5")), nil)
	if ms := e.take(10); texts(ms) != "[x]" { // those of the first wait for those of the second
		e.Errorf("took %s", texts(ms))
	}
	e.AgeMessages(ledger.MessageHold)
	if ms := e.take(10); texts(ms) != "[1 2 3 4 5]" {
		e.Errorf("took %s", texts(ms))
	}
	e.outbox(6)
}

func crossedMessages(e *env) {
	const jobs, takers = 20, 4
	for i := range jobs {
		j := e.run(fmt.Sprint(i))
		e.is("complete", e.Store.Complete(e.Context(), j.lease, saying("one", "two")), nil)
	}
	e.AgeMessages(ledger.MessageHold)
	var mu sync.Mutex
	taken := map[ledger.OutgoingID]int{}
	at(takers, func(int) {
		for range jobs {
			ms, err := e.Store.TakeMessages(e.Context(), 3, time.Hour)
			e.is("take", err, nil)
			mu.Lock()
			for _, m := range ms {
				taken[m.ID]++
			}
			mu.Unlock()
		}
	})
	for id, n := range taken {
		if n != 1 {
			e.Errorf("%+v was given to %d", id, n)
		}
	}
	if len(taken) != 2*jobs {
		e.Errorf("%d messages were taken, want %d", len(taken), 2*jobs)
	}
}

func wrongMessages(e *env) {
	j := e.run("a")
	many := saying(slices.Repeat([]string{"x"}, ledger.MaxMessages+1)...)
	for name, r := range map[string]ledger.Result{"no body": saying("x", ""), "too many": many, "too large": saying("x", string(make([]byte, ledger.MaxMessageBytes)))} {
		j.unchanged(name, func() { e.is(name, e.Store.Complete(e.Context(), j.lease, r), ledger.ErrRequest) })
	}
	r := saying("x")
	r.Messages[0].Action = ""
	e.is("no action", e.Store.Complete(e.Context(), j.lease, r), ledger.ErrRequest)
	e.outbox(0)
	large := saying(string(make([]byte, ledger.MaxMessageBytes-e.Room)))
	e.is("the largest", e.Store.Complete(e.Context(), j.lease, large), nil)
	if ms := e.due(1); len(ms) != 1 || string(ms[0].Body) != string(large.Messages[0].Body) {
		e.Errorf("the largest message does not come as it was asked for")
	}
}

func keptMessages(e *env) {
	j := e.run("a")
	e.is("complete", e.Store.Complete(e.Context(), j.lease, saying("one")), nil)
	e.AgeRow(j.key, pastKey)
	if s := e.purge(kept); s.Keys != 1 {
		e.Errorf("purged %+v", s)
	}
	if ms := e.due(10); texts(ms) != "[one]" {
		e.Errorf("of a forgotten job there are %s", texts(ms))
	}
}
