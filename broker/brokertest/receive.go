package brokertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/broker"
)

// receiveCases: taking messages, and not taking them.
var receiveCases = []testCase{
	{"receive blocks", "an idle worker spins, or misses the message that comes later", receiveBlocks},
	{"receive returns at most n", "a worker gets more jobs than it has free slots", receiveAtMost},
	{"receive returns the cause", "a worker that stops cannot tell why its receive ended", receiveCause},
	{"cancelled receive strands nothing", "after a worker stopped, the next message waits for a visibility timeout", cancelStrandsNothing},
	{"receive cancelled as a message comes", "a message that met a cancel is neither returned nor given back", cancelRace},
	{"several receives wait", "a message wakes nobody, or two", receiveTogether},
}

// received is the answer of a Receive that ran in a goroutine.
type received struct {
	ds  []broker.Delivery
	err error
}

// receiving starts a Receive and returns where its answer will be.
func (e *env) receiving(ctx context.Context, s broker.Source, n int) <-chan received {
	answer := make(chan received, 1)
	go func() {
		ds, err := s.Receive(ctx, n)
		answer <- received{ds, err}
	}()
	return answer
}

// answer waits for a Receive that was started with receiving and must have
// brought deliveries.
func (e *env) answer(from <-chan received) []broker.Delivery {
	e.Helper()
	return e.brought(<-from)
}

// brought checks that a Receive has brought deliveries.
func (e *env) brought(r received) []broker.Delivery {
	e.Helper()
	if r.err != nil {
		e.Fatalf("waiting receive: %v", r.err)
	}
	if len(r.ds) == 0 {
		e.Fatal("waiting receive: no delivery and no error")
	}
	return r.ds
}

// nothing checks that s has nothing to hand out for a moment.
func (e *env) nothing(s broker.Source) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), 50*time.Millisecond)
	defer cancel()
	ds, err := s.Receive(ctx, 10)
	if len(ds) > 0 || !errors.Is(err, context.DeadlineExceeded) {
		e.Fatalf("receive from a queue with nothing ready: %d deliveries and error %v", len(ds), err)
	}
}

func receiveBlocks(e *env) {
	e.nothing(e.Source)
	waiting := e.receiving(e.patient(), e.Source, 5)
	select {
	case r := <-waiting:
		e.Fatalf("receive from an empty queue returned %d deliveries and error %v", len(r.ds), r.err)
	case <-time.After(50 * time.Millisecond):
	}
	e.publishText("late")
	e.ack(e.Source, e.answer(waiting)...)
	e.drained()
}

func receiveAtMost(e *env) {
	e.publishText("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
	seen := map[string]bool{}
	for _, n := range []int{1, 3, 1, 2, 10} {
		for _, d := range e.receive(e.Source, n) { // checks 1..n
			seen[string(d.Body)] = true
		}
		if len(seen) == 10 {
			break
		}
	}
	for len(seen) < 10 {
		for _, d := range e.receive(e.Source, 10) {
			if seen[string(d.Body)] {
				e.Fatalf("%q is held and was handed out again", d.Body)
			}
			seen[string(d.Body)] = true
		}
	}
	e.depth(0, 10)
}

func receiveCause(e *env) {
	cause := errors.New("worker stops")
	ended, cancel := context.WithCancelCause(e.Context())
	cancel(cause)
	ds, err := e.Source.Receive(ended, 1)
	e.is("receive with a context that has ended", err, cause)

	ctx, stop := context.WithTimeoutCause(e.Context(), 30*time.Millisecond, cause)
	defer stop()
	more, err := e.Source.Receive(ctx, 1)
	e.is("receive whose context ends meanwhile", err, cause)

	e.publishText("a")
	again, err := e.Source.Receive(ended, 1)
	e.is("receive with a context that has ended, from a queue with a message", err, cause)
	if len(ds)+len(more)+len(again) > 0 {
		e.Error("deliveries beside an error")
	}
	e.ack(e.Source, e.one(e.Source))
	e.drained()
}

func cancelStrandsNothing(e *env) {
	other := e.Second()
	for i := range 4 {
		cause := errors.New("worker stops")
		ctx, cancel := context.WithTimeoutCause(e.Context(), time.Duration(5+15*i)*time.Millisecond, cause)
		_, err := e.Source.Receive(ctx, 1)
		cancel()
		e.is("receive that is cancelled while it waits", err, cause)

		body := fmt.Sprint("after cancel ", i)
		e.publishText(body)
		d := e.one(other)
		e.same(d.Message, broker.Message{Body: []byte(body)})
		e.ack(other, d)
	}
	e.drained()
}

func cancelRace(e *env) {
	other := e.Second()
	for i := range 20 {
		ctx, cancel := context.WithCancel(e.Context())
		waiting := e.receiving(ctx, e.Source, 1)
		// Spread over the time a message needs, so that some cancels come before it
		// and some after.
		stop := time.AfterFunc(time.Duration(i)*200*time.Microsecond, cancel)
		e.publishText(fmt.Sprint(i))
		r := <-waiting
		stop.Stop()
		cancel()
		switch {
		case r.err == nil && len(r.ds) == 1:
			e.ack(e.Source, r.ds...)
		case errors.Is(r.err, context.Canceled) && len(r.ds) == 0:
			e.ack(other, e.one(other))
		default:
			e.Fatalf("cancelled receive: %d deliveries and error %v", len(r.ds), r.err)
		}
	}
	e.drained()
}

func receiveTogether(e *env) {
	const n = 5
	var waiting []<-chan received
	for range n {
		waiting = append(waiting, e.receiving(e.patient(), e.Source, 1))
	}
	for i := range n {
		e.publishText(fmt.Sprint(i))
	}
	seen := map[string]bool{}
	for _, w := range waiting {
		for _, d := range e.answer(w) {
			seen[string(d.Body)] = true
			e.ack(e.Source, d)
		}
	}
	if len(seen) != n {
		e.Errorf("%d waiting receives got %v, want each message once", n, seen)
	}
	e.drained()
}
