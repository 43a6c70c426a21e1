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

// outage is a ledger that answers nothing for a while, some of whose writes
// happen all the same.
type outage struct {
	ledger.Store
	until atomic.Int64 // Unix nanoseconds
	lossy bool         // the write happens and its reply is lost
}

var errDown = errors.New("connection refused")

func (o *outage) down(write func() error) error {
	if time.Now().UnixNano() > o.until.Load() {
		return write()
	}
	if o.lossy {
		_ = write() // nobody hears how it went
	}
	return errDown
}

func (o *outage) Claim(ctx context.Context, r ledger.Request) (c ledger.Claimed, err error) {
	err = o.down(func() (err error) { c, err = o.Store.Claim(ctx, r); return err })
	return c, err
}

func (o *outage) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (s ledger.Settled, err error) {
	err = o.down(func() (err error) { s, err = o.Store.Settle(ctx, id, e); return err })
	return s, err
}

func (o *outage) Complete(ctx context.Context, l ledger.Lease, res ledger.Result) error {
	return o.down(func() error { return o.Store.Complete(ctx, l, res) })
}

func (o *outage) Release(ctx context.Context, l ledger.Lease, out ledger.Outcome) (rel ledger.Released, err error) {
	err = o.down(func() (err error) { rel, err = o.Store.Release(ctx, l, out); return err })
	return rel, err
}

// The ledger goes away between the captured answer and the commit.
func TestOutageAtTheCommit(t *testing.T) {
	for _, lossy := range []bool{false, true} {
		t.Run(map[bool]string{false: "refused", true: "replies lost"}[lossy], func(t *testing.T) {
			bubble(t, memory.Options{}, func(r *rig) {
				o := &outage{Store: r.led, lossy: lossy}
				r.after = func(context.Context, *job.Run, ask) error {
					o.until.Store(time.Now().Add(10 * time.Minute).UnixNano())
					return nil
				}
				r.send("1")
				a := r.start("a", func(c *consumer.Config) { c.Store = o })
				time.Sleep(12 * time.Minute)
				r.want("1", done1)
				r.end(a)
				r.want("1", done1)
				r.queue(memory.Depth{})
				if n := r.runs.Load(); n != 1 {
					t.Errorf("%d runs, want the one whose result waited", n)
				}
			})
		})
	}
}

// The ledger is away from before the answer arrives until much later: the answer
// waits in memory, and nothing is sent twice.
func TestLedgerOutageLosesNothing(t *testing.T) {
	for _, lossy := range []bool{false, true} {
		t.Run(map[bool]string{false: "refused", true: "replies lost"}[lossy], func(t *testing.T) {
			bubble(t, memory.Options{}, func(r *rig) {
				r.prov.script = func(string, int) (time.Duration, error) { return 10 * time.Second, nil }
				o := &outage{Store: r.led, lossy: lossy}
				r.send("1", "2", "3")
				a := r.start("a", func(c *consumer.Config) { c.Store = o })
				time.Sleep(5 * time.Second)
				o.until.Store(time.Now().Add(20 * time.Minute).UnixNano())
				r.send("4")
				time.Sleep(time.Hour)
				r.end(a)
				for _, d := range []string{"1", "2", "3", "4"} {
					r.want(d, done1)
				}
				r.queue(memory.Depth{})
			})
		})
	}
}

// Two deliveries of one key claim it while every reply is lost. One of the claims was
// granted: whichever token a later delivery takes up, the job runs soon, not
// when the run deadline of a run that nobody knows of is over.
func TestLostClaimsOfOneKey(t *testing.T) {
	for range 4 { // which of the two is granted, and gives up last, is open
		bubble(t, memory.Options{}, func(r *rig) {
			o := &outage{Store: r.led, lossy: true}
			o.until.Store(time.Now().Add(3 * time.Minute).UnixNano())
			r.send("1", "1")
			a := r.start("a", func(c *consumer.Config) { c.Store = o })
			time.Sleep(20 * time.Minute)
			r.want("1", done1)
			r.end(a)
			r.queue(memory.Depth{})
		})
	}
}

// brimming is a ledger without room for another attempt.
type brimming struct {
	ledger.Store
	until time.Time
	asked atomic.Int32
}

func (f *brimming) Send(ctx context.Context, l ledger.Lease, a ledger.Attempt) error {
	f.asked.Add(1)
	if time.Now().Before(f.until) {
		return ledger.ErrFull
	}
	return f.Store.Send(ctx, l, a)
}

// The ledger's disk is full for an hour, while what it has can be read and changed: the calls cannot be put on record, so nothing is
// sent. No run and no hand-out is spent on that.
func TestFullDiskSpendsNoRun(t *testing.T) {
	bubble(t, memory.Options{MaxReceives: 2, CountAll: true}, func(r *rig) {
		f := &brimming{Store: r.led, until: time.Now().Add(time.Hour)}
		r.cfg.MaxRuns = 1
		r.send("1")
		a := r.start("a", func(c *consumer.Config) { c.Store = f })
		time.Sleep(time.Hour + 5*time.Second)
		r.want("1", done1)
		r.end(a)
		r.queue(memory.Depth{})
		if n := f.asked.Load(); n < 100 {
			t.Errorf("the gate was asked %d times in an hour, want one every few seconds", n)
		}
	})
}
