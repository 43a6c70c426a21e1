package sqs

import (
	"time"
	"unsafe"

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

// Monotonic moves the monotonic reading of t and leaves the wall clock's, as nothing does but
// a machine that sleeps and a clock that is set.
func Monotonic(t time.Time, d time.Duration) time.Time {
	(*struct {
		wall uint64
		ext  int64 // nanoseconds of the monotonic clock
		loc  *time.Location
	})(unsafe.Pointer(&t)).ext += int64(d)
	return t
}

// Passed says whether t is over at now.
var Passed = passed
