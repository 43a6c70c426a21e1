package consumer_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// submitted puts a job on record that the ledger carries, of somebody who wants no answer.
func (r *rig) submitted(doc string) {
	r.Helper()
	body, err := json.Marshal(ask{Tenant: "acme", Doc: doc})
	if err != nil {
		r.Fatal(err)
	}
	m, err := job.Encode("ask", ask{Tenant: "acme", Doc: doc}, "Pad")
	if err != nil {
		r.Fatal(err)
	}
	if _, err := r.led.Submit(r.Context(), ledger.Submission{Key: key(doc), Action: "ask", InputHash: m.Hash, Input: body}); err != nil {
		r.Fatal(err)
	}
}

// Who asks for the answer of a job that the ledger carries for somebody else is told its end, also when the run that his
// message began has none.
func TestAnswersOfAJobThatTheLedgerCarries(t *testing.T) {
	for name, once := range map[string]error{
		"a retry": errors.New("not now"),
		"a wait":  job.Later(time.Hour, errors.New("waits for others")),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, memory.Options{}, func(r *rig) {
				r.before = func(context.Context, *job.Run, ask) error {
					if r.runs.Load() == 1 {
						return once
					}
					return nil
				}
				r.submitted("1")
				r.askFor("1", "c1")
				a := r.start("a", r.answering, func(c *consumer.Config) { c.Tick = time.Hour })
				time.Sleep(6 * time.Hour)
				r.end(a)
				r.answered(`c1 done "answer to 1"`)
				r.want("1", want{state: ledger.Done, runs: r.job("1").Runs, bill: 1, attempts: []ledger.AttemptState{ledger.Received}})
				r.queue(memory.Depth{})
			})
		})
	}
}

// The same when the broker can hold the message no longer, and when a drain gives the run up.
func TestAnswersOfAJobThatIsHandedOff(t *testing.T) {
	for name, longest := range map[string]time.Duration{"handed off": time.Minute, "abandoned": 0} {
		t.Run(name, func(t *testing.T) {
			bubble(t, memory.Options{MaxHold: longest}, func(r *rig) {
				r.before = func(context.Context, *job.Run, ask) error {
					if r.runs.Load() > 1 {
						return nil
					}
					time.Sleep(5 * time.Minute) // whatever its context says
					return errors.New("not now")
				}
				r.submitted("1")
				r.askFor("1", "c1")
				a := r.start("a", r.answering)
				if longest == 0 {
					time.Sleep(10 * time.Second)
					r.end(a)
					a = r.start("b", r.answering)
				}
				time.Sleep(2 * time.Hour)
				r.end(a)
				r.answered(`c1 done "answer to 1"`)
				r.want("1", want{state: ledger.Done, runs: r.job("1").Runs, bill: 1, attempts: []ledger.AttemptState{ledger.Received}})
				r.queue(memory.Depth{})
			})
		})
	}
}
