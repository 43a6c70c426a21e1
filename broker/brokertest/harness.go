// Package brokertest holds the suite that every broker adapter passes, and the
// faults that tests of everything above a broker inject.
//
// An adapter's test describes its broker in a [Harness] and calls [Run]. The
// suite knows no broker: what differs between brokers is data on the harness.
package brokertest

import (
	"context"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
)

// DeadLetter is one message that was set aside for people.
type DeadLetter struct {
	Message broker.Message // as it was published: body and the sender's own attributes
	Reason  string         // what DeadLetter was called with
}

// Harness is one empty queue of one broker, the means to look at it from
// outside, and the facts in which brokers differ. Every case gets its own.
//
// The queue's visibility timeout, where it has one, must be longer than three
// times Patience, so that a stranded message is seen as missing and not as
// late. A receive limit, where it has one, must be 100 or more.
//
// Whoever makes the harness closes what it opened (t.Cleanup), the sources that
// Second made included. Close may have been called on any of them before.
type Harness struct {
	// Source is the consumer under test. It and those that Second opens are
	// broker.DeadLetters too.
	Source broker.Source

	// Second opens another consumer of the same queue, as another process would:
	// it shares nothing with Source but the broker. It may be called more than
	// once. Never nil.
	Second func() broker.Source

	// Publisher sends to the queue that Source reads.
	Publisher broker.Publisher

	// MissingQueue is a publisher whose queue does not exist.
	MissingQueue func() broker.Publisher

	// Answers makes one more queue, empty, and returns what a message calls it that wants its answer there, and how to
	// take the next message from it. Source is a broker.Replier too.
	Answers func() (name string, next func(context.Context) (broker.Message, error))

	// NoAnswers are names that no answer may go to: the queue's own and that of its dead letters.
	NoAnswers []string

	// Close closes a source in the orderly way, with the adapter's own Close:
	// acks are flushed and deliveries still held go back to the queue. It returns
	// when that is done. A source is closed once.
	Close func(broker.Source) error

	// DeadLetters lists what was set aside, without using it up: a second call
	// lists the same again. Any order.
	DeadLetters func(ctx context.Context) ([]DeadLetter, error)

	// Depth counts the messages of the queue: ready could be handed out now, held
	// are handed out or wait out the delay of a Nack. Dead letters are in neither.
	// It may be late; the suite asks again until Patience is over.
	Depth func(ctx context.Context) (ready, held int, err error)

	// Lapse makes the broker take d back now, by whatever means is quickest
	// (expiry, a closed channel), and returns when the source that handed it out
	// knows: from then on it answers ErrNotHeld. Other deliveries of the same
	// source may be taken back with it.
	Lapse func(d broker.Delivery)

	// Cut drops every connection of Source once, without a goodbye. Deliveries
	// Source holds are taken back. Nil: the broker has no connection.
	Cut func()

	// CountsReceives says that Delivery.Receives counts hand-outs. If false it is
	// always 0.
	CountsReceives bool

	// LateAck says that an Ack after the broker took the delivery back removes the
	// message all the same (it returns ErrNotHeld in any case).
	LateAck bool

	// Ordered says that messages published one after the other are handed out in
	// that order to a single consumer that gives none back.
	Ordered bool

	// MinBody is the size in bytes of the smallest body the broker takes: 0 where
	// an empty body is one.
	MinBody int

	// MaxBody is the size in bytes of the largest body, with no attributes, that
	// Publish takes; one byte more is ErrTooLarge. An adapter whose limit can be
	// set is best tested with a few MiB: the suite publishes such a body.
	// 0: there is no limit.
	MaxBody int

	// TextOnly says that a body must be UTF-8 without control characters other
	// than tab, line feed and carriage return.
	TextOnly bool

	// MaxHold is the longest a delivery is held from its hand-out on: Extend past
	// it returns ErrLimit, at once or when all that there is has been given. 0: there is
	// no limit, or it is not known.
	MaxHold time.Duration

	// Backlog is the largest number of messages that the suite may have in the
	// queue at once. 0: 500.
	Backlog int

	// DelayStep returns what the broker makes of a wanted Nack delay: never less
	// than it, and 0 for 0. Nil: exactly what was wanted.
	DelayStep func(time.Duration) time.Duration

	// Patience is how long a message that is there may take to be handed out, on
	// a loaded machine, a reconnect included. Only a failing case waits it out.
	// 0: 10 s.
	Patience time.Duration
}

// Run puts an adapter through the suite. It calls newHarness once per case, for
// an empty queue each time. A case that fails says what is broken.
func Run(t *testing.T, newHarness func(t *testing.T) *Harness) {
	for _, group := range [][]testCase{roundTripCases, replyCases, receiveCases, settleCases, giveBackCases, deadLetterCases, loadCases} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				t.Cleanup(func() {
					if t.Failed() {
						t.Logf("broken: %s", c.broken)
					}
				})
				c.run(&env{T: t, Harness: newHarness(t).withDefaults()})
			})
		}
	}
}

// testCase is one property of a Source. broken says, for whoever reads the
// failure, what would go wrong in production.
type testCase struct {
	name   string
	broken string
	run    func(*env)
}

// withDefaults returns a copy with every zero field that has a default filled.
func (h *Harness) withDefaults() *Harness {
	c := *h
	if c.Backlog == 0 {
		c.Backlog = 500
	}
	if c.DelayStep == nil {
		c.DelayStep = func(d time.Duration) time.Duration { return d }
	}
	if c.Patience == 0 {
		c.Patience = 10 * time.Second
	}
	return &c
}
