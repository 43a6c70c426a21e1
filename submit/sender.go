package submit

import (
	"context"
	"fmt"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// Sender submits jobs of one kind from a program that has no ledger: all it knows is the message and the queue. In is the handler's
// message. It may be used by many goroutines at once. What became of a job only those with the ledger can tell, or an answer
// (docs/operations.md, "Answers").
type Sender[In job.Keyed] struct {
	Job    string           // the handler's name. Required
	Broker broker.Publisher // of the workers' queue. Required
	// Volatile is the Def's: both sides must hash a message alike.
	Volatile []string
}

// Send publishes the job's message, and returns its key when the broker has confirmed it. After an error it may be in the queue or
// not, and sending again is safe: however many messages a key has, workers run its job once, and a message whose input is another
// one's is set aside by them (PO406).
func (s Sender[In]) Send(ctx context.Context, in In) (ledger.Key, error) {
	m, err := job.Encode(s.Job, in, s.Volatile...)
	if err != nil {
		return ledger.Key{}, fmt.Errorf("send to %s: %w", s.Job, err)
	}
	k := m.Key.Ledger()
	if err := s.Broker.Publish(ctx, message(s.Job, m.Body)); err != nil {
		return k, fmt.Errorf("publish the message of %s: %w", k, err)
	}
	return k, nil
}

// message is what a worker is sent of a job.
func message(name string, input []byte) broker.Message {
	return broker.Message{Body: input, Attributes: map[string]string{"job": name}}
}
