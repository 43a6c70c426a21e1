package brokertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/paidonce/paidonce/broker"
)

// loadCases: many at once, and the ends of connections and sources.
var loadCases = []testCase{
	{"many goroutines settle", "settles of concurrent jobs are lost or mixed up", manySettle},
	{"many goroutines, every way to settle", "concurrent acks, nacks and dead letters disturb each other", manyWays},
	{"cut while deliveries are held", "a lost connection loses messages, or an old receipt settles a new hand-out", cutHeld},
	{"cut while a receive waits", "a worker must be restarted after its connection was lost", cutWaiting},
	{"close flushes acks", "jobs that were just acked come back when a worker stops", closeFlushes},
	{"close gives back", "what a stopped worker held waits for a visibility timeout", closeGivesBack},
	{"closed source", "a worker waits for ever on a source that its owner closed", closedSource},
}

// crowd runs goroutines that receive from s until n messages have been done
// with, while another one publishes those n. handle settles a delivery and says
// whether its message is done with.
func (e *env) crowd(s broker.Source, goroutines, n int, handle func(broker.Delivery) bool) {
	e.Helper()
	patient, cancel := context.WithTimeoutCause(e.Context(), 6*e.Patience, errors.New("the crowd is too slow"))
	defer cancel()
	finished := errors.New("all is done")
	ctx, finish := context.WithCancelCause(patient)
	defer finish(nil)
	room := make(chan struct{}, e.Backlog)
	var mu sync.Mutex
	done := 0
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for {
				ds, err := s.Receive(ctx, 1+g%4)
				if err != nil {
					if !errors.Is(err, finished) {
						e.Errorf("receive: %v", err)
						finish(err)
					}
					return
				}
				for _, d := range ds {
					if !handle(d) {
						continue
					}
					<-room
					mu.Lock()
					if done++; done == n {
						finish(finished)
					}
					mu.Unlock()
				}
			}
		})
	}
	for i := 0; i < n; {
		ms := e.batch(ctx, room, i, min(i+min(25, e.Backlog), n))
		if ctx.Err() != nil {
			break
		}
		// Not under ctx: the last message may be done with before its confirm arrives.
		if err := e.Publisher.Publish(patient, ms...); err != nil {
			e.Errorf("publish: %v", err)
			finish(err)
		}
		i += len(ms)
	}
	all.Wait()
}

// batch makes the messages from to to-1, each when there is room for it. It is
// short when ctx ends.
func (e *env) batch(ctx context.Context, room chan<- struct{}, from, to int) []broker.Message {
	var ms []broker.Message
	for i := from; i < to; i++ {
		select {
		case room <- struct{}{}:
			ms = append(ms, broker.Message{Body: fmt.Append(nil, i)})
		case <-ctx.Done():
			return ms
		}
	}
	return ms
}

func manySettle(e *env) {
	const n = 500
	var mu sync.Mutex
	seen := map[string]int{}
	e.crowd(e.Source, 16, n, func(d broker.Delivery) bool {
		mu.Lock()
		seen[string(d.Body)]++
		mu.Unlock()
		if err := e.Source.Ack(e.Context(), d); err != nil {
			e.Errorf("ack: %v", err)
		}
		return true
	})
	e.eachOnce(seen, n)
	e.drained()
}

func manyWays(e *env) {
	const n = 120
	const reason = "PO401 every tenth"
	var mu sync.Mutex
	acked, handed := map[string]int{}, map[string]int{}
	var dead []DeadLetter
	e.crowd(e.Source, 16, n, func(d broker.Delivery) bool {
		mu.Lock()
		handed[string(d.Body)]++
		first, kind := handed[string(d.Body)] == 1, int(d.Body[len(d.Body)-1]-'0')
		mu.Unlock()
		var err error
		switch {
		case kind == 0:
			err = e.Source.DeadLetter(e.Context(), d, reason)
		case first && kind < 4:
			err = e.Source.Nack(e.Context(), d, 0)
		case first && kind < 6:
			err = e.Source.Nack(e.Context(), d, time.Millisecond)
		default:
			err = e.Source.Ack(e.Context(), d)
		}
		if err != nil {
			e.Errorf("settle %q: %v", d.Body, err)
		}
		mu.Lock()
		defer mu.Unlock()
		if kind == 0 {
			dead = append(dead, DeadLetter{broker.Message{Body: d.Body}, reason})
		} else if first && kind < 6 {
			return false
		}
		acked[string(d.Body)]++
		return true
	})
	e.eachOnce(acked, n)
	e.drained(dead...)
}

// eachOnce checks that the bodies 0 to n-1 were seen once each.
func (e *env) eachOnce(seen map[string]int, n int) {
	e.Helper()
	for i := range n {
		if c := seen[fmt.Sprint(i)]; c != 1 {
			e.Errorf("message %d was done with %d times, want once", i, c)
		}
	}
	if len(seen) > n {
		e.Errorf("%d different messages, %d were published", len(seen), n)
	}
}

// Case 87: nothing is acknowledged by being handed out.
func cutHeld(e *env) {
	if e.Cut == nil {
		e.Skip("this broker has no connection to cut")
	}
	e.publishText("a", "b", "c")
	old := e.collect(e.Source, 3)
	e.ack(e.Source, old[0])
	e.depth(0, 2) // the ack has arrived before the cut
	e.Cut()
	held := e.collect(e.Source, 2)
	for _, d := range old {
		e.notHeld(e.Source, "was lost with its connection", d)
	}
	want := map[string]bool{string(old[1].Body): true, string(old[2].Body): true}
	for _, d := range held {
		delete(want, string(d.Body))
	}
	if len(want) > 0 {
		e.Errorf("held when the connection was cut and not handed out again: %v", want)
	}
	e.depth(0, 2)
	e.ack(e.Source, held...)
	e.publishText("after")
	e.ack(e.Source, e.one(e.Source))
	e.drained()
}

func cutWaiting(e *env) {
	if e.Cut == nil {
		e.Skip("this broker has no connection to cut")
	}
	e.nothing(e.Source)
	for i := range 2 {
		waiting := e.receiving(e.patient(), e.Source, 1)
		time.Sleep(20 * time.Millisecond) // so that it waits; it may also come late
		e.Cut()
		e.publishText(fmt.Sprint("after cut ", i))
		e.ack(e.Source, e.answer(waiting)...)
	}
	e.drained()
}

func closeFlushes(e *env) {
	n := min(200, e.Backlog)
	for i := range n {
		e.publishText(fmt.Sprint(i))
	}
	// Hold all, then ack all in one burst: acks on their way are what gets lost.
	held := e.collect(e.Source, n)
	e.ack(e.Source, held...)
	if err := e.Close(e.Source); err != nil {
		e.Fatalf("close: %v", err)
	}
	e.drained()
	e.nothing(e.Second())
}

func closeGivesBack(e *env) {
	e.publishText("a", "b", "c")
	held := e.collect(e.Source, 3)
	e.ack(e.Source, held[1])
	if err := e.Close(e.Source); err != nil {
		e.Fatalf("close: %v", err)
	}
	other := e.Second()
	got := map[string]bool{}
	for _, d := range e.collect(other, 2) {
		got[string(d.Body)] = true
		e.ack(other, d)
	}
	if !got[string(held[0].Body)] || !got[string(held[2].Body)] {
		e.Errorf("came back: %v, want %q and %q", got, held[0].Body, held[2].Body)
	}
	e.drained()
}

func closedSource(e *env) {
	e.publishText("a")
	held := e.one(e.Source)
	waiting := e.receiving(e.patient(), e.Source, 1)
	time.Sleep(20 * time.Millisecond) // so that it waits; it may also come late
	if err := e.Close(e.Source); err != nil {
		e.Fatalf("close: %v", err)
	}
	r := <-waiting
	e.is("receive that waited", r.err, broker.ErrClosed)
	more, err := e.Source.Receive(e.patient(), 1)
	e.is("receive", err, broker.ErrClosed)
	if len(r.ds)+len(more) > 0 {
		e.Error("deliveries beside an error")
	}
	for _, op := range settles {
		if err := op.do(e.patient(), e.Source, held); !errors.Is(err, broker.ErrClosed) && !errors.Is(err, broker.ErrNotHeld) {
			e.Errorf("%s after close: got error %v, want %v or %v", op.name, err, broker.ErrClosed, broker.ErrNotHeld)
		}
	}
	other := e.Second()
	e.ack(other, e.one(other))
	e.drained()
}
