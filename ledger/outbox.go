package ledger

import (
	"context"
	"time"
)

// Outbox keeps messages that results asked for until a broker has them. They are put in with the result
// (Result.Messages), and belong to no job's retention: each stays until it is dropped.
type Outbox interface {
	// TakeMessages lists messages that are due, those of up to n of them and of all others of their jobs, job by job in the order in
	// which they were asked for, and leaves them to the caller for as long as hold: nobody else is given one of the
	// job before that is over. None of a job of which any is not due yet. Whoever could not publish does nothing: they are
	// due again then. A new message is its worker's for MessageHold.
	TakeMessages(ctx context.Context, n int, hold time.Duration) ([]Outgoing, error)
	// DropMessages forgets messages that a broker has confirmed. Those that are not there are no error.
	DropMessages(ctx context.Context, ids []OutgoingID) error
	// CountMessages is how many there are, of all tenants.
	CountMessages(ctx context.Context) (int, error)
}

// MessageAsk asks for a message once there is a result.
type MessageAsk struct {
	Action string // the job that it is for
	Body   []byte // its input; not empty
}

// OutgoingID names a message in the outbox.
type OutgoingID struct {
	Tenant string
	Job    int64 // that asked
	Result ID    // with which it asked
	N      int   // place among what that result asked for, from 1
}

// Outgoing is a message in the outbox.
type Outgoing struct {
	ID     OutgoingID
	Action string
	Body   []byte
	Fault  error  // why Body cannot be read, as Stored.Fault
	Origin Origin // of the job that asked
}

const (
	// MessageHold is how long the worker whose result asks for messages has for publishing them, before any other
	// may. It bounds a try of any worker.
	MessageHold = 30 * time.Second
	// MaxMessages bounds the messages of one result.
	MaxMessages = 100
	// MaxMessageBytes bounds the bodies of the messages of one result together, in bytes: less than what every broker takes
	// as one message.
	MaxMessageBytes = 256 << 10
)

// CheckMessages returns an error that wraps ErrRequest when the messages of the result cannot be stored. Every
// ledger calls it after Check.
func (r Result) CheckMessages() error {
	if len(r.Messages) == 0 {
		return nil
	}
	size := 0
	for _, m := range r.Messages {
		size += len(m.Body)
		if err := refused("ask for a message", name("action", m.Action), when(len(m.Body) == 0, "has no body")); err != nil {
			return err
		}
	}
	return refused("complete", when(len(r.Messages) > MaxMessages, "asks for %d messages, more than %d", len(r.Messages), MaxMessages),
		when(size > MaxMessageBytes, "asks for messages of %d bytes together, more than %d", size, MaxMessageBytes))
}
