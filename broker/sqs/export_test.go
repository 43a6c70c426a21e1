package sqs

import (
	"time"

	"github.com/paidonce/paidonce/broker"
)

// Expire makes the deadline of d pass, as this process sees it, and returns SQS's
// handle of d.
func Expire(b *Broker, d broker.Delivery) (handle string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.holds[d.Receipt]
	h.deadline = time.Now()
	return h.handle
}

// Passed says whether t is over at now.
var Passed = passed
