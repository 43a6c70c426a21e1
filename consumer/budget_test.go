package consumer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

const cent = ledger.USD / 100

// spent starts a worker whose tenant has used up the day's budget of a cent: by the call of job 1, whose outcome nobody
// knows. Job 2 comes after.
func (r *rig) spent(change ...func(*consumer.Config)) *node {
	r.Helper()
	r.call.Routes[0].Reserve = cent
	r.cfg.Budgets = consumer.Budgets{TenantDay: 50 * cent, Tenants: map[string]ledger.Nano{"acme": cent}}
	r.prov.script = func(doc string, _ int) (time.Duration, error) {
		if doc == "1" {
			return time.Second, errors.New("connection lost")
		}
		return time.Second, nil
	}
	r.send("1")
	a := r.start("a", change...)
	time.Sleep(time.Minute)
	r.send("2")
	time.Sleep(10 * time.Minute)
	r.waits()
	return a
}

// waits is what job 2 is meanwhile: kept by the ledger, with a reason, and no run of it counted.
func (r *rig) waits() {
	r.Helper()
	r.want("2", want{state: ledger.Ready, errClass: "day_budget"})
	if j := r.job("2"); j.Carrier != ledger.CarriedByLedger || len(j.Attempts) != 0 {
		r.Errorf("the job that waits is carried by the %s and has %d attempts", j.Carrier, len(j.Attempts))
	}
	r.queue(memory.Depth{})
}

// The next day has a budget of its own.
func TestTheNextDayReleases(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		var refused atomic.Int64
		a := r.spent(func(c *consumer.Config) { c.Trace.OverDay = func(string) { refused.Add(1) } })
		time.Sleep(23 * time.Hour)
		r.waits()
		if n := refused.Load(); n < 20 || n > 25 {
			t.Errorf("%d looks in 23 hours, want one an hour", n)
		}
		time.Sleep(time.Hour)
		r.want("2", done1)
		r.end(a)
		r.want("1", want{state: ledger.Unknown, open: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Sent}, errClass: "held"})
	})
}

// A raised limit is noticed within an hour or so.
func TestARaisedLimitReleases(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.end(r.spent())
		b := r.start("b", func(c *consumer.Config) { c.Budgets.Tenants = map[string]ledger.Nano{"acme": 2 * cent} })
		time.Sleep(30 * time.Minute)
		r.waits()
		time.Sleep(40 * time.Minute)
		r.want("2", done1)
		r.end(b)
	})
}

// A person need not wait for that.
func TestAPersonReleases(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		order := ledger.Reopening{Key: key("2"), Waiting: true, Reason: "the budget was raised", Who: "kim"}
		r.end(r.spent())
		b := r.start("b", func(c *consumer.Config) {
			c.Budgets.Tenants["globex"], c.Budgets.ActionDay = 9*cent, map[string]ledger.Nano{"ask": cent}
		})
		reopen := func() {
			if _, err := r.led.Reopen(t.Context(), order); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		reopen()
		r.waits() // there is no more room than before
		r.end(b)
		c := r.start("c", func(c *consumer.Config) { c.Budgets.Tenants = map[string]ledger.Nano{"acme": 0} })
		reopen()
		r.want("2", done1)
		r.end(c)
	})
}

// What a run paid for before the budget was used up is kept, and the run counts.
func TestARunThatPaidBeforeCounts(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.call.Routes[0].Reserve = cent
		second := r.second()
		second.Routes[0].Reserve = 5 * cent
		r.after = func(ctx context.Context, j *job.Run, in ask) error {
			_, err := second.Run(ctx, j, in)
			return err
		}
		r.send("1")
		a := r.start("a", func(c *consumer.Config) {
			c.Handlers, c.Budgets = r.handlers(second), consumer.Budgets{ActionDay: map[string]ledger.Nano{"ask": 4 * cent}}
		})
		time.Sleep(5*time.Hour + 30*time.Minute)
		r.want("1", want{state: ledger.Ready, runs: 1, bill: 1, attempts: []ledger.AttemptState{ledger.Received}, errClass: "day_budget"})
		r.end(a)
		r.queue(memory.Depth{})
	})
}
