package rabbitmq

import (
	"errors"
	"fmt"
	"maps"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Loss is a reason why a session ended and another one had to begin.
type Loss string

// The reasons, as keys of State.Reconnects.
const (
	LostConnection Loss = "connection"  // the connection broke, was closed by the broker, or fell silent
	LostChannel    Loss = "channel"     // the broker closed the channel only
	LostAckTimeout Loss = "ack_timeout" // a delivery was held for longer than the broker's consumer_timeout
	LostQueue      Loss = "queue"       // the queue was deleted
	NotConnected   Loss = "connect"     // an attempt to connect or to prepare the queues did not succeed
)

// State is how the adapter fares. Counters count from Open.
type State struct {
	Connected  bool   // Publish has its connection, and Receive too once it has been called
	Generation int64  // sessions of the consumer so far; a delivery does not outlive its own
	Version    string // the broker's, "" before the first connection

	Blocked       bool          // the broker takes no messages (memory or disk alarm)
	BlockedReason string        // what the broker said, of the last time
	BlockedFor    time.Duration // in all, without the time since it last began

	Held       int           // deliveries received and not settled
	Prefetched int           // deliveries here that wait for a Receive
	OldestHeld time.Duration // age of the oldest of both; compare with AckBudget
	AckBudget  time.Duration // how long a delivery may be held (four fifths of AckTimeout)

	Reconnects map[Loss]int64 // sessions lost and attempts that did not succeed, of both connections
	TakenBack  int64          // deliveries lost with their session while held
	Overdue    int64          // deliveries given back because they were held for too long
	Copies     int64          // copies stored: delayed nacks and dead letters
	Doubled    int64          // copies whose original could not be acknowledged: both are there
	Returned   int64          // messages that no queue took
	Unstored   int64          // calls of Publish, Nack, DeadLetter whose message was not stored for certain

	LastError   string    // of the connections, without passwords; "" if there was none
	LastErrorAt time.Time // when
}

// status is what State shows and what it is made of.
type status struct {
	State
	publisherUp bool
	consumerUp  bool
	prepared    bool // the queues were right once
}

// State returns a copy of the state of now.
func (b *Broker) State() State {
	c := b.consumer
	c.mu.Lock()
	started, held, prefetched, oldest := c.started, c.held(), len(c.buffer), c.oldest()
	c.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.status.State
	s.Connected = b.status.publisherUp && (!started || b.status.consumerUp) && !b.closed
	s.Held, s.Prefetched, s.OldestHeld = held-prefetched, prefetched, oldest
	s.AckBudget = b.cfg.budget()
	s.Reconnects = maps.Clone(s.Reconnects)
	return s
}

// count changes the state.
func (b *Broker) count(change func(*status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.status)
}

// note records and logs why a connection is not there.
func (b *Broker) note(role string, err error, next time.Duration) {
	why := NotConnected
	if l, ok := errors.AsType[*lostError](err); ok {
		why = l.why
	}
	text := b.cfg.secrets.text(err.Error())
	b.count(func(s *status) {
		if s.Reconnects == nil {
			s.Reconnects = map[Loss]int64{}
		}
		s.Reconnects[why]++
		s.LastError, s.LastErrorAt = text, time.Now()
	})
	args := []any{"connection", role, "reason", string(why), "error", text, "next_in", next}
	if why == LostAckTimeout {
		args = append(args, "fix", "set ack_timeout to the broker's consumer_timeout or lower", "ack_timeout", b.cfg.AckTimeout)
	}
	b.cfg.Logger.Warn("broker connection lost or not made", args...)
}

// lastError is for a caller whose time ran out while there was no connection.
func (b *Broker) lastError() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.status.publisherUp || b.status.LastError == "" {
		return ""
	}
	return " (" + b.status.LastError + ")"
}

// lostError is why a session ended.
type lostError struct {
	why Loss
	err error
}

// lost makes the error for an end that the driver told us about; err may be nil.
func lost(why Loss, err *amqp.Error) error {
	if err == nil {
		return &lostError{why, errors.New("closed without a reason")}
	}
	return &lostError{why, err}
}

func (e *lostError) Error() string { return fmt.Sprintf("lost by %s: %v", e.why, e.err) }
func (e *lostError) Unwrap() error { return e.err }
