package brokertest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/paidonce/paidonce/broker"
)

// deadLetterCases: looking through what was set aside.
var deadLetterCases = []testCase{
	{"review keeps", "whoever looks at the dead letters uses them up, or is not told why they are there", reviewKeeps},
	{"review at most n", "a look at the first few takes all of them away from others", reviewAtMost},
	{"review of none", "a look at no dead letters waits for one", reviewNone},
	{"drop a dead letter", "what is done with stays for ever, or takes a neighbour along", reviewDrops},
	{"redrive", "what is redriven is not what was sent, or stays a dead letter", reviewRedrives},
	{"redrive again and again", "what was redriven is lost when it waits or fails again (cycle detection)", redriveAgain},
	{"two reviews at once", "two people redrive the same dead letter", reviewTwice},
	{"review ends with its context", "a look that was broken off loses what it had seen", reviewCut},
}

// review looks through the dead letters with s, and returns what it was shown.
func (e *env) review(s broker.Source, n int, decide func(broker.DeadLetter) broker.Fate) []broker.DeadLetter {
	e.Helper()
	var shown []broker.DeadLetter
	err := e.reviewer(s).Review(e.patient(), n, func(d broker.DeadLetter) broker.Fate {
		shown = append(shown, d)
		return decide(d)
	})
	if err != nil {
		e.Fatalf("review of up to %d dead letters: %v", n, err)
	}
	return shown
}

func (e *env) reviewer(s broker.Source) broker.DeadLetters {
	e.Helper()
	r, ok := s.(broker.DeadLetters)
	if !ok {
		e.Fatalf("%T is no broker.DeadLetters", s)
	}
	return r
}

// setAside makes a dead letter of each body and returns what the queue's end state is
// with all of them.
func (e *env) setAside(bodies ...string) []DeadLetter {
	e.Helper()
	var all []DeadLetter
	for _, b := range bodies {
		m := broker.Message{Body: []byte(b), Attributes: map[string]string{"trace": "of " + b}}
		e.publish(m)
		if err := e.Source.DeadLetter(e.patient(), e.one(e.Source), "PO401 "+b); err != nil {
			e.Fatalf("dead-letter: %v", err)
		}
		all = append(all, DeadLetter{m, "PO401 " + b})
	}
	return all
}

func keep(broker.DeadLetter) broker.Fate { return broker.Keep }

// fate gives one to the dead letters with these bodies, and keeps the others.
func fate(f broker.Fate, bodies ...string) func(broker.DeadLetter) broker.Fate {
	return func(d broker.DeadLetter) broker.Fate {
		if slices.Contains(bodies, string(d.Body)) {
			return f
		}
		return broker.Keep
	}
}

// bodiesOf checks that each dead letter was shown once, and returns their bodies, those
// of an unordered broker sorted.
func (e *env) bodiesOf(shown []broker.DeadLetter) []string {
	e.Helper()
	var bodies []string
	for _, d := range shown {
		bodies = append(bodies, string(d.Body))
	}
	sorted := slices.Sorted(slices.Values(bodies))
	if len(slices.Compact(slices.Clone(sorted))) != len(bodies) {
		e.Errorf("a dead letter was shown twice in one review: %q", bodies)
	}
	if !e.Ordered {
		return sorted
	}
	return bodies
}

// shows checks which dead letters were shown.
func (e *env) shows(shown []broker.DeadLetter, want ...string) {
	e.Helper()
	if got := e.bodiesOf(shown); !slices.Equal(got, want) {
		e.Errorf("review showed %q, want %q", got, want)
	}
}

func reviewKeeps(e *env) {
	began := time.Now()
	all := e.setAside("a", "b", "c")
	for range 2 { // the second look sees the same
		shown := e.review(e.Source, 10, keep)
		e.shows(shown, "a", "b", "c")
		for _, d := range shown {
			e.same(d.Message, all[d.Body[0]-'a'].Message)
			if d.Reason != "PO401 "+string(d.Body) || d.ID == "" {
				e.Errorf("dead letter %q has id %q and reason %q", d.Body, d.ID, d.Reason)
			}
			if d.Receives != 0 && (d.Receives != 1 || !e.CountsReceives) {
				e.Errorf("dead letter %q was handed out once and has Receives %d", d.Body, d.Receives)
			}
			if !d.At.IsZero() && (d.At.Before(began.Add(-time.Minute)) || d.At.After(time.Now().Add(time.Minute))) {
				e.Errorf("dead letter %q was set aside at %v, at about %v", d.Body, d.At, began)
			}
		}
	}
	other := e.Second()
	e.shows(e.review(other, 10, keep), "a", "b", "c")
	e.nothing(other)
	e.drained(all...)
}

func reviewAtMost(e *env) {
	all := e.setAside("a", "b", "c")
	if shown := e.review(e.Source, 2, keep); len(e.bodiesOf(shown)) != 2 {
		e.Errorf("a review of up to 2 showed %q", e.bodiesOf(shown))
	}
	e.shows(e.review(e.Second(), 10, keep), "a", "b", "c")
	e.drained(all...)
}

func reviewNone(e *env) {
	e.shows(e.review(e.Source, 10, keep))
	e.publishText("in the queue")
	e.shows(e.review(e.Source, 10, fate(broker.Drop, "in the queue")))
	e.ack(e.Source, e.one(e.Source))
	e.drained()
}

func reviewDrops(e *env) {
	all := e.setAside("a", "b", "c")
	e.shows(e.review(e.Source, 10, fate(broker.Drop, "b")), "a", "b", "c")
	e.drained(all[0], all[2])
	e.shows(e.review(e.Second(), 10, fate(broker.Drop, "a", "c")), "a", "c")
	e.drained()
}

func reviewRedrives(e *env) {
	all := e.setAside("a", "b", "c")
	e.shows(e.review(e.Source, 10, fate(broker.Redrive, "b")), "a", "b", "c")
	d := e.one(e.Source)
	e.same(d.Message, all[1].Message)
	if e.CountsReceives && d.Receives != 1 {
		e.Errorf("redriven, it is handed out with Receives %d, want a new count", d.Receives)
	}
	e.ack(e.Source, d)
	e.nothing(e.Source)
	e.drained(all[0], all[2])
}

// Case 82: set aside, redriven and delayed again, a message arrives each time.
func redriveAgain(e *env) {
	all := e.setAside("a")
	for range 2 {
		e.shows(e.review(e.Source, 10, fate(broker.Redrive, "a")), "a")
		for range 2 {
			e.nack(e.one(e.Source), time.Millisecond)
		}
		d := e.one(e.Source)
		e.same(d.Message, all[0].Message)
		if err := e.Source.DeadLetter(e.patient(), d, all[0].Reason); err != nil {
			e.Fatalf("dead-letter: %v", err)
		}
		e.drained(all...)
	}
}

func reviewTwice(e *env) {
	all := e.setAside("a", "b", "c", "d")
	other := e.Second()
	first := ""
	shown := e.review(e.Source, 10, func(d broker.DeadLetter) broker.Fate {
		if first == "" {
			first = string(d.Body)
			if others := e.bodiesOf(e.review(other, 10, keep)); slices.Contains(others, first) {
				e.Errorf("both reviews have %q: the other one saw %q", first, others)
			}
		}
		return broker.Keep
	})
	e.shows(shown, "a", "b", "c", "d")
	e.drained(all...)
}

func reviewCut(e *env) {
	all := e.setAside("a", "b", "c")
	cause := errors.New("seen enough")
	ctx, cancel := context.WithCancelCause(e.patient())
	n := 0
	err := e.reviewer(e.Source).Review(ctx, 10, func(broker.DeadLetter) broker.Fate {
		n++
		cancel(cause)
		return broker.Keep
	})
	e.is("review whose context ended", err, cause)
	if n != 1 {
		e.Errorf("%d dead letters shown, the context ended at the first", n)
	}
	e.shows(e.review(e.Second(), 10, keep), "a", "b", "c")
	e.drained(all...)
}
