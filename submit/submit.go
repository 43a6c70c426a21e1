// Package submit is the side of those who want jobs run: a web server, a script, another service. It puts a job on record
// once however often it is asked, and tells what became of it. It links no consumer and no SDK.
//
//	orders := submit.Client[summarize.Ticket, summarize.Summary]{Job: summarize.Name, Ledger: store}
//	ticket, err := orders.Submit(ctx, summarize.Ticket{Tenant: "acme", Ticket: "48213", Revision: 3, Thread: text})
//	…
//	done, err := orders.Wait(ctx, ticket.Key)
//
// The row that it makes is the message: every worker on the ledger finds it. In a transaction of the program's own
// the job is one with the program's rows:
//
//	s, err := orders.Prepare(ctx, msg)
//	…
//	_, err = postgres.SubmitTx(ctx, tx, s)
package submit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// ErrOther: the key stands for another job or another input already. The job that is there is kept.
var ErrOther = errors.New("PO590 the key stands for another input already")

// Ledger is what a Client needs of a ledger. Every ledger.Store is one.
type Ledger interface {
	ledger.Submitter
	// Job is that of ledger.Reader.
	Job(ctx context.Context, k ledger.Key) (ledger.Job, error)
}

// Client submits jobs of one kind. In is their message and Out their result, as in the handler's Def. It may be used by
// many goroutines at once.
type Client[In job.Keyed, Out any] struct {
	Job    string // the handler's name. Required
	Ledger Ledger // Required
	// Broker sends a message for each job that Submit finds or makes and that has not begun, so that a worker has it at once. nil, or one
	// that takes none just now: the workers' next sweep finds it (after Config.Tick, 15 s at most by default).
	Broker broker.Publisher
	// Volatile is the Def's: both sides must hash a message alike.
	Volatile []string
	Who      string // names this program in the histories of jobs; "": producer
}

// Ticket says what a submission found.
type Ticket struct {
	Key   ledger.Key
	New   bool         // this call made the job; else it was there
	State ledger.State // as it was found
	Sent  bool         // Broker was given a message
}

// Prepare makes of a message what SubmitTx of a ledger takes. It writes nothing. Its errors say what is wrong with the message.
func (c Client[In, Out]) Prepare(_ context.Context, in In) (ledger.Submission, error) {
	s, err := c.submission(in)
	if err != nil {
		return s, err
	}
	return c.Ledger.Seal(s), nil
}

func (c Client[In, Out]) submission(in In) (ledger.Submission, error) {
	m, err := job.Encode(c.Job, in, c.Volatile...)
	if err != nil {
		return ledger.Submission{}, fmt.Errorf("submit to %s: %w", c.Job, err)
	}
	return ledger.Submission{Key: m.Key.Ledger(), Action: c.Job, InputHash: m.Hash, Input: m.Body, Who: c.Who}, nil
}

// Submit puts the job on record, or finds it there. After nil it will be run, whatever becomes of this program; after an error it may
// be on record or not, and submitting again is safe. A second submission of a job that is there, whatever its state, does
// nothing. ErrOther: it is there with another input. ledger.ErrRequest: it cannot be stored, as an input of more than 63 KiB.
func (c Client[In, Out]) Submit(ctx context.Context, in In) (Ticket, error) {
	s, err := c.submission(in)
	if err != nil {
		return Ticket{}, err
	}
	found, err := c.Ledger.Submit(ctx, s)
	if err != nil {
		return Ticket{Key: s.Key}, err
	}
	t := Ticket{Key: s.Key, New: found[0].New, State: found[0].State}
	if found[0].Other {
		return t, fmt.Errorf("submit %s: %w; it is %s", s.Key, ErrOther, t.State)
	}
	if c.Broker != nil && t.State == ledger.Ready {
		t.Sent = c.Broker.Publish(ctx, message(c.Job, s.Input)) == nil // it is on record: a message is but quicker
	}
	return t, nil
}

// Status is what is known of a job.
type Status[Out any] struct {
	Key    ledger.Key
	State  ledger.State
	Result Out              // when State is Done, unless Purged
	Purged bool             // it was done, and its result is past its retention
	Error  *ledger.JobError // why it failed, or what its last run ended with
	Cost   *ledger.Nano     // of its calls so far; nil: not known
}

// Get tells what became of a job. ledger.ErrNotFound: nobody has submitted it, or no worker has seen its message yet.
func (c Client[In, Out]) Get(ctx context.Context, k ledger.Key) (Status[Out], error) {
	j, err := c.Ledger.Job(ctx, k)
	if err != nil {
		return Status[Out]{Key: k}, err
	}
	return c.status(j)
}

func (c Client[In, Out]) status(j ledger.Job) (Status[Out], error) {
	s := Status[Out]{Key: j.Key, State: j.State, Error: j.Error, Cost: j.Cost}
	switch {
	case j.Action != c.Job:
		return s, fmt.Errorf("read %s: %w: it is a job %s, not %s", j.Key, ErrOther, j.Action, c.Job)
	case j.State != ledger.Done:
		return s, nil
	case j.Result == nil:
		s.Purged = true
		return s, nil
	}
	if err := json.Unmarshal(j.Result.Body, &s.Result); err != nil {
		return s, fmt.Errorf("PO591 result of %s does not read as %T: %w", j.Key, s.Result, err)
	}
	return s, nil
}

// Wait waits until the job has ended, or is held: done, failed, cancelled or unknown. Whoever waits for one key waits for the same
// job, whoever submitted it. An unknown job may go on later: wait again for that. It ends with ctx, and says then how the job was.
func (c Client[In, Out]) Wait(ctx context.Context, k ledger.Key) (Status[Out], error) {
	j, err := Wait(ctx, c.Ledger, k)
	if err != nil {
		return Status[Out]{Key: k, State: j.State}, err
	}
	return c.status(j)
}

// The pauses between two looks of Wait.
const firstLook, lastLook = 50 * time.Millisecond, 2 * time.Second

// Wait waits for a job of any kind, as Client.Wait does; a job that is not there yet is waited for.
func Wait(ctx context.Context, l Ledger, k ledger.Key) (j ledger.Job, err error) {
	for pause := firstLook; ; pause = min(pause*3/2, lastLook) {
		j, err = l.Job(ctx, k)
		switch {
		case errors.Is(err, ledger.ErrNotFound), ctx.Err() != nil:
		case err != nil:
			return j, fmt.Errorf("wait for %s: %w", k, err)
		case j.State.Terminal(), j.State == ledger.Unknown:
			return j, nil
		}
		select {
		case <-ctx.Done():
			state := string(j.State)
			if err != nil {
				state = "not on record yet"
			}
			return j, fmt.Errorf("wait for %s, which is %s: %w", k, state, context.Cause(ctx))
		case <-time.After(pause*3/4 + rand.N(pause/2)):
		}
	}
}
