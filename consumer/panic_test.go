package consumer_test

import (
	"context"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	memledger "github.com/paidonce/paidonce/ledger/memory"
)

// The user's work in the commit panics, and so does a trace: the job is given
// back, not left to its run deadline, and ends as poison.
func TestPanicOutsideTheHandler(t *testing.T) {
	t.Run("hook", func(t *testing.T) {
		bubble(t, memory.Options{}, func(r *rig) {
			r.after = func(_ context.Context, j *job.Run, _ ask) error {
				memledger.OnCommit(j, func(context.Context) error { panic("boom") })
				return nil
			}
			r.send("1")
			a := r.start("a")
			time.Sleep(10 * time.Minute)
			r.end(a)
			r.want("1", want{state: ledger.Failed, runs: 3, bill: 1, attempts: []ledger.AttemptState{ledger.Received}, errClass: "poison"})
			r.queue(memory.Depth{})
		})
	})
	t.Run("trace", func(t *testing.T) {
		bubble(t, memory.Options{}, func(r *rig) {
			n := 0
			r.send("1")
			a := r.start("a", func(c *consumer.Config) {
				c.Trace.Claimed = func(string, ledger.Verdict) {
					if n++; n == 1 {
						panic("boom")
					}
				}
			})
			time.Sleep(10 * time.Minute)
			r.end(a)
			r.want("1", want{state: ledger.Done, runs: 2, bill: 1, attempts: []ledger.AttemptState{ledger.Received}})
			r.queue(memory.Depth{})
		})
	})
}

// deafSource extends nothing while its broker is out of reach.
type deafSource struct {
	broker.Source
	asked *int
}

func (s deafSource) Extend(context.Context, broker.Delivery, time.Duration) (time.Time, error) {
	if *s.asked++; *s.asked > 10000 {
		panic("the keeper asks without end")
	}
	return time.Time{}, broker.ErrUnavailable
}

// A broker that is out of reach until long after a deadline is asked at a steady pace.
func TestKeeperDoesNotSpinPastADeadline(t *testing.T) {
	bubble(t, memory.Options{Visibility: time.Minute}, func(r *rig) {
		r.prov.script = func(string, int) (time.Duration, error) { return 110 * time.Second, nil }
		asked := 0
		r.send("1")
		a := r.start("a", func(c *consumer.Config) { c.Source = deafSource{c.Source, &asked} })
		time.Sleep(5 * time.Minute)
		r.end(a)
		r.want("1", done1)
		if asked > 120 {
			t.Errorf("asked %d times in 110 s", asked)
		}
	})
}
