package brokertest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/paidonce/paidonce/broker"
)

// giveBackCases: deliveries that are not done with.
var giveBackCases = []testCase{
	{"nack without delay", "a released job waits for a visibility timeout, or is lost", nackAtOnce},
	{"nack wakes who waits", "a released job lies there while a worker waits for one", nackWakes},
	{"nack with delay", "a job that should wait is tried at once and burns its receives", nackDelayed},
	{"nack keeps the message", "the copy that comes back has lost its attributes or carries the adapter's own", nackKeepsMessage},
	{"short delay behind a long one", "a job that waits long holds up all that wait less", nackNoHeadOfLine},
	{"delay outlives its source", "a job that waits is lost, or waits anew, when its worker stops", nackOutlivesSource},
	{"nack of an unused delivery", "a worker that gives back what it never started loses the message", nackUnused},
	{"extend", "a long job loses its delivery although its worker lives", extendHeld},
	{"extend past the limit", "a refused extension also loses the delivery, so it cannot be handed off", extendLimit},
	{"dead-letter", "people cannot see what was set aside, or why", deadLetterKept},
	{"dead-letter of a large message", "a message at the size limit is lost when it is set aside", deadLetterLarge},
}

// nack gives d back to e.Source and returns the time before it did.
func (e *env) nack(d broker.Delivery, delay time.Duration) time.Time {
	e.Helper()
	at := time.Now()
	if err := e.Source.Nack(e.patient(), d, delay); err != nil {
		e.Fatalf("nack with delay %v: %v", delay, err)
	}
	return at
}

// notBefore checks that d came no earlier than delay after at.
func (e *env) notBefore(at time.Time, delay time.Duration) {
	e.Helper()
	if early := delay - time.Since(at); early > 0 {
		e.Errorf("handed out %v before the delay of %v was over", early, delay)
	}
}

func nackAtOnce(e *env) {
	e.publishText("a")
	d := e.one(e.Source)
	e.nack(d, 0)
	e.total(1)
	again := e.one(e.Source)
	e.same(again.Message, d.Message)
	e.nack(again, 0)
	if err := e.Close(e.Source); err != nil {
		e.Fatalf("close: %v", err)
	}
	other := e.Second()
	e.ack(other, e.one(other))
	e.drained()
}

func nackWakes(e *env) {
	e.publishText("a")
	d := e.one(e.Source)
	// The broker may hand it to either.
	ctx, cancel := context.WithCancel(e.patient())
	defer cancel()
	other := e.Second()
	own, others := e.receiving(ctx, e.Source, 1), e.receiving(ctx, other, 1)
	time.Sleep(20 * time.Millisecond) // so that they wait; they may also come late
	e.nack(d, 0)
	var again []broker.Delivery
	by, left := e.Source, others
	select {
	case r := <-own:
		again = e.brought(r)
	case r := <-others:
		again, by, left = e.brought(r), other, own
	}
	e.same(again[0].Message, d.Message)
	e.ack(by, again...)
	cancel()
	if r := <-left; len(r.ds) > 0 || !errors.Is(r.err, context.Canceled) {
		e.Errorf("the receive that got nothing: %d deliveries and error %v", len(r.ds), r.err)
	}
	e.drained()
}

func nackDelayed(e *env) {
	const wanted = 40 * time.Millisecond
	if e.DelayStep(wanted) < wanted || e.DelayStep(0) != 0 {
		e.Fatalf("the harness rounds %v to %v and 0 to %v", wanted, e.DelayStep(wanted), e.DelayStep(0))
	}
	e.publishText("later")
	d := e.one(e.Source)
	at := e.nack(d, wanted)
	again := e.one(e.Source)
	e.notBefore(at, wanted)
	e.same(again.Message, d.Message)
	e.ack(e.Source, again)
	e.drained()
}

func nackKeepsMessage(e *env) {
	body := []byte("Grüße, 世界")
	if !e.TextOnly {
		body = []byte{0, 1, 0xff, '\n', 0x80}
	}
	want := broker.Message{Body: body, Attributes: map[string]string{"trace": "00-4bf9", "greeting": "世界"}}
	e.publish(want)
	d := e.one(e.Source)
	id := d.ID
	for _, delay := range []time.Duration{0, time.Millisecond, time.Millisecond, 0} {
		e.nack(d, delay)
		d = e.one(e.Source)
		e.same(d.Message, want)
		if d.ID != id {
			e.Errorf("after a nack with delay %v the id is %q, was %q", delay, d.ID, id)
		}
	}
	e.ack(e.Source, d)
	e.drained()
}

func nackNoHeadOfLine(e *env) {
	e.publishText("long", "short")
	held := map[string]broker.Delivery{}
	for _, d := range e.collect(e.Source, 2) {
		held[string(d.Body)] = d
	}
	e.nack(held["long"], 10*time.Minute)
	at := e.nack(held["short"], 20*time.Millisecond)
	d := e.one(e.Source)
	e.same(d.Message, held["short"].Message)
	e.notBefore(at, 20*time.Millisecond)
	e.ack(e.Source, d)
	e.depth(0, 1)
}

func nackOutlivesSource(e *env) {
	const wanted = 40 * time.Millisecond
	e.publishText("waits")
	at := e.nack(e.one(e.Source), wanted)
	if err := e.Close(e.Source); err != nil {
		e.Fatalf("close: %v", err)
	}
	other := e.Second()
	d := e.one(other)
	e.notBefore(at, wanted)
	e.ack(other, d)
	e.drained()
}

func nackUnused(e *env) {
	e.publishText("unused")
	for i, delay := range []time.Duration{time.Millisecond, 0, time.Millisecond, 0} {
		d := e.one(e.Source)
		if i == 0 && d.Again {
			e.Errorf("handed out for the first time with Again")
		}
		given := d.Receives
		if e.CountsReceives {
			d.Receives--
		}
		e.nack(d, delay)
		d = e.one(e.Source)
		if e.CountsReceives && d.Receives <= 1 && !d.Again {
			e.Errorf("given back unused after %v, it came back as if for the first time: Receives %d, and Again is not set", delay, d.Receives)
		}
		// A broker that gives back by itself has counted the hand-out all the same.
		if e.CountsReceives && d.Receives != given && d.Receives != given+1 {
			e.Errorf("given back unused with Receives %d, came back with %d", given, d.Receives)
		}
		e.nack(d, delay)
	}
	e.ack(e.Source, e.one(e.Source))
	e.drained()
}

func extendHeld(e *env) {
	e.publishText("long job")
	d := e.one(e.Source)
	if d.Deadline.IsZero() {
		due, err := e.Source.Extend(e.patient(), d, time.Hour)
		if err != nil || !due.IsZero() {
			e.Errorf("extend of a delivery without a deadline: %v and error %v", due, err)
		}
	} else {
		by := 2 * time.Until(d.Deadline)
		due, err := e.Source.Extend(e.patient(), d, by)
		switch {
		case errors.Is(err, broker.ErrLimit): // nothing is held longer by this broker
		case err != nil:
			e.Errorf("extend: %v", err)
		case !due.After(d.Deadline) || due.After(time.Now().Add(by)):
			e.Errorf("extended by %v from a deadline at %v to %v", by, d.Deadline, due)
		}
	}
	e.depth(0, 1)
	e.nothing(e.Second())
	e.ack(e.Source, d)
	e.drained()
}

func extendLimit(e *env) {
	if e.MaxHold == 0 {
		e.Skip("this broker has no limit, or none that its adapter knows")
	}
	e.publishText("very long job")
	d := e.one(e.Source)
	due, err := e.Source.Extend(e.patient(), d, e.MaxHold+time.Minute)
	if err == nil { // all that there is was given
		if due.After(time.Now().Add(e.MaxHold)) {
			e.Errorf("extended to %v, more than %v from now", due, e.MaxHold)
		}
		_, err = e.Source.Extend(e.patient(), d, e.MaxHold+time.Minute)
	}
	e.is("extend past the limit", err, broker.ErrLimit)
	e.depth(0, 1)
	e.nothing(e.Second())
	e.ack(e.Source, d)
	e.drained()
}

func deadLetterKept(e *env) {
	want := []DeadLetter{
		{broker.Message{Body: []byte("not json"), Attributes: map[string]string{"trace": "00-4bf9", "who": "世界"}},
			"PO401 body is not JSON: invalid character 'o' in literal null"},
		{broker.Message{Body: []byte("two")}, "PO402 Schlüssel fehlt: 世界 “tenant”\n" + strings.Repeat("detail ", 100)},
	}
	if !e.TextOnly {
		want = append(want, DeadLetter{broker.Message{Body: []byte{0, 0xff, 0x80}}, "PO401 binary"})
	}
	for _, w := range want {
		e.publish(w.Message)
		if err := e.Source.DeadLetter(e.patient(), e.one(e.Source), w.Reason); err != nil {
			e.Fatalf("dead-letter: %v", err)
		}
	}
	e.drained(want...)
	if err := e.Close(e.Source); err != nil {
		e.Fatalf("close: %v", err)
	}
	e.nothing(e.Second())
	e.drained(want...)
}

func deadLetterLarge(e *env) {
	if e.MaxBody == 0 {
		e.Skip("this broker has no limit that a reason could push a message over")
	}
	want := broker.Message{Body: []byte(strings.Repeat("x", e.MaxBody))}
	e.publish(want)
	d := e.one(e.Source)
	reason := "PO401 " + strings.Repeat("y", 1000)
	if err := e.Source.DeadLetter(e.patient(), d, reason); err != nil {
		// Refused is allowed, lost is not: it is still held.
		e.is("dead-letter", err, broker.ErrTooLarge)
		e.depth(0, 1)
		e.ack(e.Source, d)
		e.drained()
		return
	}
	e.drained(DeadLetter{want, reason})
}
