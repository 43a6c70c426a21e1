package job

import (
	"fmt"
	"math"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// Limits bound one job over all of its runs and deliveries. A call that would go over one is not sent: the job fails with a
// class of its own (budget, calls, lifetime), keeps every answer that it has, and goes on where it was once the limit is
// raised and a person retries it. Zero fields bound nothing.
type Limits struct {
	// USD is what all of its calls may cost together, in all generations: what is booked, what is held back for calls
	// without an outcome, and what the next one may cost.
	USD ledger.Nano
	// Calls is how many attempts may be sent in one generation: retries, fallbacks, replays, what a provider refused,
	// and what costs nothing, as tools do. One that certainly was not sent does not count.
	Calls int
	// Lifetime is how long after the job's creation, or after a person had it run again (a new generation), its calls may still be
	// sent. A call that was sent in time may end later. At least a millisecond.
	Lifetime time.Duration
}

// check says why nobody can keep to the limits.
func (l Limits) check() error {
	switch {
	case l.USD < 0:
		return fmt.Errorf("Limits.USD of %s is negative", l.USD)
	case l.Calls < 0 || l.Calls > math.MaxInt32:
		return fmt.Errorf("Limits.Calls of %d is out of range", l.Calls)
	case l.Lifetime != 0 && l.Lifetime < time.Millisecond:
		return fmt.Errorf("Limits.Lifetime of %s is shorter than a millisecond", l.Lifetime)
	}
	return nil
}
