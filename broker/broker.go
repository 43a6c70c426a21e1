// Package broker says what a message broker must do for paidonce. It holds
// interfaces and plain values only; adapters live in sub-packages and pass
// [github.com/paidonce/paidonce/broker/brokertest].
//
// Every rule that holds for all brokers (when to acknowledge, how long to wait,
// what to extend) is written once, in package consumer. An adapter translates
// one call into one broker operation, keeps its own connections alive, and
// reports plainly what it could not do.
package broker

import (
	"context"
	"errors"
	"time"
)

// Message is what was sent.
type Message struct {
	ID         string            // the broker's or publisher's id: for logs, never an idempotency key
	Body       []byte            // as published; adapters do not look inside
	Attributes map[string]string // SQS message attributes, AMQP headers: the sender's own, never the broker's
}

// Delivery is one hand-out of a message.
type Delivery struct {
	Message

	// Receipt names this hand-out to the Source that made it. It is good until
	// the delivery is settled or taken back, and for that Source only.
	Receipt string

	// Receives counts the hand-outs so far, this one included; 0 says that the
	// broker does not count. It guards against crashes on receipt; it is no
	// attempt budget, since a lost connection raises it too.
	Receives int

	// Again says that the adapter knows of an earlier hand-out that Receives need not show: one that was given
	// back unused is not counted. False: Receives tells what is known.
	Again bool

	// Deadline is when the broker takes the delivery back unless it is extended,
	// on this process's clock. Zero: held while connected, never extended.
	Deadline time.Time

	Facts Facts // what else the broker says of the message
}

// Facts are what a broker says of a message beside its content: evidence for people
// and reports, never a key. A broker that does not say leaves a field zero.
type Facts struct {
	Group string    // SQS MessageGroupId: what is in order on a FIFO queue, who is treated fairly on a standard one
	Sent  time.Time // when it was sent, by the broker's clock
	First time.Time // when it was handed out first, by the broker's clock
	Trace string    // AWSTraceHeader, as "Root=1-…;Parent=…;Sampled=1"
}

// Source hands out messages and takes them back.
//
// All methods may be called at the same time. None retries by itself beyond
// keeping its connection: an error says that this one call did not succeed, and
// package consumer decides. A Source is closed by whoever opened it, by the
// adapter's own Close; it must flush what was acknowledged before it returns.
//
// Settling (Ack, Nack, DeadLetter) ends a delivery. A second settle of the same
// hand-out, or one after the broker took it back, returns ErrNotHeld and
// does nothing to any other hand-out of the message. One exception: where a late
// Ack can still remove the message (SQS standard queues), it does, and returns
// ErrNotHeld all the same. Acks come after the outcome is durable, so whoever holds the
// message by then would only find it finished.
type Source interface {
	// Receive blocks until at least one message is there, and returns 1 to n
	// deliveries; it never returns an empty slice with a nil error. It waits out
	// reconnects. When ctx ends it returns ctx's cause and strands nothing: a
	// delivery that could not be returned is given back to the broker. Other
	// errors wrap ErrUnavailable (try again) or are final (wrong configuration).
	Receive(ctx context.Context, n int) ([]Delivery, error)

	// Ack says that the delivery is done with for good. A nil error says that the
	// broker was told, not that it has heard: a redelivery is still possible.
	Ack(ctx context.Context, d Delivery) error

	// Nack gives the delivery back, to be handed out again after delay (0: at
	// once; adapters round up to what their broker can do). The message is never
	// lost: when the broker cannot be told, the error says so and the delivery
	// stays held. An adapter that gives back by publishing a copy continues to
	// count from d.Receives, so a caller that gives a delivery back unused
	// lowers it by one first.
	Nack(ctx context.Context, d Delivery, delay time.Duration) error

	// Extend pushes the deadline out to now+by and returns the new one. ErrLimit
	// says that the broker holds no delivery longer than d.Deadline: hand it off
	// before then. Deliveries with a zero Deadline need no Extend.
	Extend(ctx context.Context, d Delivery, by time.Duration) (time.Time, error)

	// DeadLetter sets the message aside for people, with a reason ("PO401 body is
	// not JSON: …") that a reader of the dead letters sees. It is durable
	// when it returns nil; only then is the original gone.
	DeadLetter(ctx context.Context, d Delivery, reason string) error
}

// Publisher sends messages. Publish returns nil only when the broker has stored
// every one of ms; after an error any of them may have been stored or not, and
// publishing again is safe because keys, not messages, are unique.
type Publisher interface {
	Publish(ctx context.Context, ms ...Message) error
}

// The attributes by which a sender asks for an answer. RabbitMQ has properties for them, reply_to and
// correlation_id, and its adapter makes the one of the other.
const (
	ReplyTo       = "reply_to"       // the queue that the answer goes to
	CorrelationID = "correlation_id" // what the answer carries, so that its reader knows what it answers
)

// Replier sends an answer to the queue that a message named. An adapter implements it on the same type
// as Source. Reply returns nil only when the broker has stored m in that queue.
//
// Errors are those of Publisher. ErrUnroutable, which is final: there is no such queue (any more), or it is one that no
// answer may go to: that of the messages themselves, that of the dead letters, one of another server.
type Replier interface {
	Reply(ctx context.Context, to string, m Message) error
}

// DeadLetter is a message that was set aside for people.
type DeadLetter struct {
	Message
	Reason   string    // what DeadLetter was called with, or the broker's own word (delivery_limit); "": it does not say
	Receives int       // hand-outs before it was set aside; 0: not known
	At       time.Time // when it was set aside; zero: not known
}

// Fate is what becomes of a dead letter that was looked at.
type Fate int

// The fates. The zero value changes nothing.
const (
	Keep    Fate = iota // it stays where it is
	Drop                // it is removed for good: what it asked for is done
	Redrive             // back into the queue, as its sender published it; stored there before it is removed here
)

// DeadLetters looks through what was set aside. An adapter implements it on the same
// type as Source.
type DeadLetters interface {
	// Review shows up to n dead letters to decide, each once and oldest first where
	// the broker keeps an order, and does with each what decide says. What is kept can
	// be seen again when Review returns; two reviews at the same time see different
	// ones. After an error, and after a crash, a dead letter that was being redriven
	// may be in both places and is lost from neither.
	Review(ctx context.Context, n int, decide func(DeadLetter) Fate) error
}

// The errors of every adapter; compare with errors.Is.
var (
	// ErrNotHeld: the delivery was settled already or the broker took it back.
	ErrNotHeld = errors.New("PO101 delivery is not held any more")
	// ErrLimit: the broker does not hold a delivery past its Deadline.
	ErrLimit = errors.New("PO102 delivery cannot be held longer")
	// ErrUnavailable: the broker cannot be reached or refuses work just now.
	ErrUnavailable = errors.New("PO103 broker is unavailable")
	// ErrTooLarge: the message is larger than the broker takes.
	ErrTooLarge = errors.New("PO104 message is too large for the broker")
	// ErrUnroutable: the queue that should take the message does not exist.
	ErrUnroutable = errors.New("PO105 no queue took the message")
	// ErrClosed: the adapter was closed by its owner.
	ErrClosed = errors.New("PO106 broker adapter is closed")
)
