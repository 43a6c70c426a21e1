package brokertest

import (
	"context"
	"time"

	"github.com/paidonce/paidonce/broker"
)

// settleCases: ending a delivery, once.
var settleCases = []testCase{
	{"ack removes", "finished jobs come back, or unfinished ones vanish", ackRemoves},
	{"settle twice", "a second settle of one hand-out passes as a success, or settles another", settleTwice},
	{"late ack", "a finished job is handed out again although the broker could have removed it, or its late ack hits a neighbour", lateAck},
	{"settle after lapse", "a worker believes it settled what the broker had taken back", settleAfterLapse},
	{"stale receipt", "the late settle of an old hand-out ends a new one: its message is lost or runs twice", staleReceipt},
	{"stale receipt beside another message", "the late settle of an old hand-out hits a neighbour (tags that start again at 1)", staleBesideOther},
	{"receipt of another source", "one process settles what another one holds", foreignReceipt},
	{"receives grow", "a message that kills its worker is never recognised", receivesGrow},
}

// settle is one way to use a delivery.
type settle struct {
	name string
	do   func(context.Context, broker.Source, broker.Delivery) error
}

func ack(ctx context.Context, s broker.Source, d broker.Delivery) error { return s.Ack(ctx, d) }
func nack(ctx context.Context, s broker.Source, d broker.Delivery) error {
	return s.Nack(ctx, d, 0)
}
func nackLater(ctx context.Context, s broker.Source, d broker.Delivery) error {
	return s.Nack(ctx, d, time.Millisecond)
}
func extend(ctx context.Context, s broker.Source, d broker.Delivery) error {
	_, err := s.Extend(ctx, d, time.Second)
	return err
}
func deadLetter(ctx context.Context, s broker.Source, d broker.Delivery) error {
	return s.DeadLetter(ctx, d, "PO401 must never be seen")
}

// settles are all methods that ErrNotHeld concerns.
var settles = []settle{
	{"ack", ack}, {"nack", nack}, {"nack with a delay", nackLater}, {"extend", extend}, {"dead-letter", deadLetter},
}

// notHeld checks that no method does anything for d.
func (e *env) notHeld(s broker.Source, what string, d broker.Delivery) {
	e.Helper()
	for _, op := range settles {
		e.is(op.name+" of a delivery that "+what, op.do(e.patient(), s, d), broker.ErrNotHeld)
	}
}

func ackRemoves(e *env) {
	e.publishText("done", "open")
	for _, d := range e.collect(e.Source, 2) {
		if string(d.Body) == "done" {
			e.ack(e.Source, d)
		}
	}
	e.depth(0, 1)
	e.nothing(e.Source)
	if err := e.Close(e.Source); err != nil {
		e.Fatalf("close: %v", err)
	}
	other := e.Second()
	d := e.one(other)
	e.same(d.Message, broker.Message{Body: []byte("open")})
	e.ack(other, d)
	e.drained()
}

func settleTwice(e *env) {
	e.publishText("acked")
	d := e.one(e.Source)
	e.ack(e.Source, d)
	e.notHeld(e.Source, "was acked", d)
	e.drained()

	e.publishText("nacked")
	d = e.one(e.Source)
	if err := e.Source.Nack(e.patient(), d, 0); err != nil {
		e.Fatalf("nack: %v", err)
	}
	e.notHeld(e.Source, "was nacked", d)
	e.total(1)
	e.ack(e.Source, e.one(e.Source))
	e.drained()

	e.publishText("set aside")
	d = e.one(e.Source)
	if err := e.Source.DeadLetter(e.patient(), d, "PO401 for good"); err != nil {
		e.Fatalf("dead-letter: %v", err)
	}
	e.notHeld(e.Source, "was dead-lettered", d)
	e.drained(DeadLetter{broker.Message{Body: []byte("set aside")}, "PO401 for good"})
}

func settleAfterLapse(e *env) {
	e.publishText("a")
	d := e.one(e.Source)
	e.Lapse(d)
	for _, op := range settles {
		if op.name == "ack" && e.LateAck {
			continue // it removes the message: lateAck
		}
		e.is(op.name+" of a delivery that lapsed", op.do(e.patient(), e.Source, d), broker.ErrNotHeld)
	}
	again := e.one(e.Source)
	e.same(again.Message, d.Message)
	e.ack(e.Source, again)
	e.drained()
}

func lateAck(e *env) {
	if !e.LateAck {
		e.Skip("this broker cannot; settle after lapse has it")
	}
	e.publishText("late", "neighbour")
	var late, neighbour broker.Delivery
	for _, d := range e.collect(e.Source, 2) {
		if string(d.Body) == "late" {
			late = d
		} else {
			neighbour = d
		}
	}
	e.Lapse(late)
	e.is("late ack", e.Source.Ack(e.patient(), late), broker.ErrNotHeld)
	e.depth(0, 1)
	e.notHeld(e.Source, "was acked late", late)
	e.ack(e.Source, neighbour)
	e.drained()
}

func staleReceipt(e *env) {
	for _, op := range settles {
		body := "stale " + op.name
		e.publishText(body)
		old := e.one(e.Source)
		e.Lapse(old)
		held := e.one(e.Source)
		e.same(held.Message, broker.Message{Body: []byte(body)})
		e.is("stale "+op.name, op.do(e.patient(), e.Source, old), broker.ErrNotHeld)

		if op.name == "ack" && e.LateAck {
			// The message is gone, and so whoever holds it may say that it is done.
			e.ack(e.Source, held)
			e.drained()
			continue
		}

		// The second hand-out is untouched: the queue still counts it as held, and
		// when it lapses too its message is there.
		e.depth(0, 1)
		e.Lapse(held)
		d := e.one(e.Source)
		e.same(d.Message, held.Message)
		e.is("stale "+op.name+" by the first of three", op.do(e.patient(), e.Source, old), broker.ErrNotHeld)
		e.ack(e.Source, d)
		e.drained()
	}
}

func staleBesideOther(e *env) {
	e.publishText("a", "b")
	held := e.collect(e.Source, 2)
	e.Lapse(held[0])
	again := e.one(e.Source)
	e.is("late ack", e.Source.Ack(e.patient(), held[0]), broker.ErrNotHeld)
	e.is("late dead-letter", deadLetter(e.patient(), e.Source, held[0]), broker.ErrNotHeld)

	// Lapse may have taken back the other delivery too; then it is handed out
	// again. Either way nothing was lost and each message can be acked once.
	left := map[string]bool{"a": true, "b": true}
	finish := func(d broker.Delivery) {
		e.ack(e.Source, d)
		delete(left, string(d.Body))
	}
	finish(again)
	if err := e.Source.Ack(e.patient(), held[1]); err == nil {
		delete(left, string(held[1].Body))
	} else {
		e.is("ack of the neighbour", err, broker.ErrNotHeld)
	}
	for len(left) > 0 {
		finish(e.one(e.Source))
	}
	e.drained()
}

func foreignReceipt(e *env) {
	e.publishText("mine")
	d := e.one(e.Source)
	e.notHeld(e.Second(), "another source holds", d)
	e.depth(0, 1)
	e.ack(e.Source, d)
	e.drained()
}

func receivesGrow(e *env) {
	if !e.CountsReceives {
		e.Skip("this broker does not count; every receive of the suite checks that Receives is 0")
	}
	e.publishText("counted")
	counts := func(want int) broker.Delivery {
		d := e.one(e.Source)
		if d.Receives != want {
			e.Errorf("hand-out %d has Receives %d", want, d.Receives)
		}
		return d
	}
	e.Lapse(counts(1))
	for i, delay := range []time.Duration{0, time.Millisecond, 0} {
		if err := e.Source.Nack(e.patient(), counts(2+i), delay); err != nil {
			e.Fatalf("nack with delay %v: %v", delay, err)
		}
	}
	e.ack(e.Source, counts(5))
	e.drained()
}
