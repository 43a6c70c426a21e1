package sqs

import (
	"errors"
	"maps"
	"time"

	"github.com/paidonce/paidonce/broker"
)

// State is how the adapter fares. Counters count from Open.
type State struct {
	// Connected says that the queue is known and that, while Receive is called, the
	// last receive was answered, no longer ago than Config.Wait and 30 s.
	Connected bool

	Receives    int64 // requests for messages that ended
	Empty       int64 // of them, those that brought none
	Messages    int64 // that they brought
	Redelivered int64 // of them, those that had been handed out before, to whomever
	Corrupt     int64 // of them, those that did not match their checksum

	Held   int           // deliveries received and not settled, within their deadline
	Parked int           // messages here that no caller has: behind others of their FIFO group, or waiting for a Receive
	Slack  time.Duration // until the earliest deadline of both; 0 when there is none
	Lost   int64         // deliveries that SQS took back while they were held

	AcksSent   int64            // messages deleted in time
	AcksFailed int64            // entries of deletes that did not succeed at first
	AckCodes   map[string]int64 // those, by the code that SQS gave ("": no answer)
	AcksLost   int64            // deletes given up: the message comes again
	LateAcks   int64            // deletes sent after the deadline, on a standard queue

	Extensions       int64 // deadlines pushed out for a caller
	ExtensionsFailed int64 // and those that were not
	Released         int64 // messages given back unused
	DeadLettered     int64 // messages set aside
	Stranded         int64 // polls that Close had to cut; each may have hidden messages

	PollAge     time.Duration // of the oldest open poll; 0 when none is open
	LastError   string        // of receiving, or of asking for the queue; "" if there was none
	LastErrorAt time.Time     // when
}

// status is what State shows and what it is made of.
type status struct {
	State
	failing    bool
	answeredAt time.Time
}

func (s *status) answered(at time.Time) { s.failing, s.answeredAt = false, at }

// State returns a copy of the state of now.
func (b *Broker) State() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	s := b.stats.State
	s.AckCodes = maps.Clone(s.AckCodes)
	for p := range b.polls {
		s.PollAge = max(s.PollAge, now.Sub(p.since))
	}
	for _, h := range b.holds {
		if h.lapsed(now) {
			continue
		}
		if h.out {
			s.Held++
		} else {
			s.Parked++
		}
		if left := h.deadline.Sub(now); s.Slack == 0 || left < s.Slack {
			s.Slack = left
		}
	}
	s.Connected = b.queue != nil && !b.closed && !b.stats.failing && s.PollAge <= b.cfg.Wait+30*time.Second
	return s
}

// note records and logs why nothing comes.
func (b *Broker) note(what string, err error, next time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.noteLocked(what, err, next)
}

func (b *Broker) noteLocked(what string, err error, next time.Duration) {
	if f, ok := errors.AsType[*failure](err); ok {
		err = f.wrap()
	}
	b.stats.failing = true
	b.stats.LastError, b.stats.LastErrorAt = err.Error(), time.Now()
	b.cfg.Logger.Warn(what, "queue", nameOf(b.cfg.Queue), "error", err, "next_in", next)
}

func isNotHeld(err error) bool { return errors.Is(err, broker.ErrNotHeld) }
