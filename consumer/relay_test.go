package consumer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// out is a publisher of the rig's queue that notes what it was given, and can refuse.
type out struct {
	*rig
	refuse func(ms []broker.Message) error // nil: nothing
	after  func() error                    // of what was stored; nil: it is confirmed

	mu    sync.Mutex
	sent  []string // the documents of what was stored, in order
	tries int
	most  int // messages at once
}

func (o *out) Publish(ctx context.Context, ms ...broker.Message) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tries++
	o.most = max(o.most, len(ms))
	if o.refuse != nil {
		if err := o.refuse(ms); err != nil {
			return err
		}
	}
	if err := o.q.Publish(ctx, ms...); err != nil {
		return err
	}
	for _, m := range ms {
		o.sent = append(o.sent, docOf(o.T, m))
	}
	if o.after != nil {
		return o.after()
	}
	return nil
}

func docOf(t *testing.T, m broker.Message) string {
	var in ask
	if err := json.Unmarshal(m.Body, &in); err != nil || m.Attributes[consumer.Attribute] != "ask" {
		t.Errorf("published %+v: %v", m, err)
	}
	return in.Doc
}

// asking is a rig whose jobs ask for others: 1 for 1.1 and 1.2.
func asking(r *rig) *out {
	o := &out{rig: r}
	r.after = func(_ context.Context, j *job.Run, in ask) error {
		if strings.Contains(in.Doc, ".") {
			return nil
		}
		for i := range 2 {
			if err := j.Publish("ask", ask{Tenant: in.Tenant, Doc: fmt.Sprintf("%s.%d", in.Doc, i+1)}); err != nil {
				return err
			}
		}
		return nil
	}
	return o
}

func (o *out) with(c *consumer.Config) { c.Publisher = o }

func (o *out) wantSent(want ...string) {
	o.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if fmt.Sprint(o.sent) != fmt.Sprint(want) {
		o.Errorf("published %v, want %v", o.sent, want)
	}
}

func (r *rig) outbox(want int) {
	r.Helper()
	if n, err := r.led.CountMessages(context.Background()); n != want || err != nil {
		r.Errorf("%d messages are in the outbox, want %d (%v)", n, want, err)
	}
}

// A result's messages go out at once, in order, and their jobs are done.
func TestPublishAtOnce(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		o := asking(r)
		r.send("1")
		n := r.start("a", o.with, func(c *consumer.Config) { c.Tick = time.Hour })
		time.Sleep(10 * time.Second)
		r.end(n)
		o.wantSent("1.1", "1.2")
		for _, doc := range []string{"1", "1.1", "1.2"} {
			r.want(doc, done1)
		}
		r.outbox(0)
		r.queue(memory.Depth{})
	})
}

// A worker dies when its result is on record, and before the broker was told, or heard. Another one tells it, and what comes
// twice is absorbed.
func TestPublishedByAnother(t *testing.T) {
	for name, twice := range map[string]bool{"before": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, memory.Options{}, func(r *rig) {
				o := asking(r)
				var a *node
				o.refuse = func([]broker.Message) error {
					if o.tries > 1 || twice {
						return nil
					}
					a.kill()
					return errGone
				}
				o.after = func() error {
					if o.tries > 1 {
						return nil
					}
					a.kill()
					return errGone
				}
				a = r.start("a", o.with)
				r.send("1")
				time.Sleep(10 * time.Second)
				b := r.start("b", o.with)
				time.Sleep(time.Hour)
				r.end(b)
				if twice {
					o.wantSent("1.1", "1.2", "1.1", "1.2")
				} else {
					o.wantSent("1.1", "1.2")
				}
				for _, doc := range []string{"1", "1.1", "1.2"} {
					r.want(doc, done1)
				}
				r.outbox(0)
				r.queue(memory.Depth{})
			})
		})
	}
}

// An hour in which the broker takes nothing: what is asked for is kept in the ledger, and little of it in memory; then all of it
// goes out, each job is done once, and the outbox is empty.
func TestHourWithoutABroker(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		o := asking(r)
		r.prov.script = func(string, int) (time.Duration, error) { return 10 * time.Millisecond, nil }
		begun := time.Now()
		o.refuse = func([]broker.Message) error {
			if time.Since(begun) < time.Hour {
				return broker.ErrUnavailable
			}
			return nil
		}
		const jobs = 500
		a, b := r.start("a", o.with), r.start("b", o.with)
		for i := range jobs {
			r.send(fmt.Sprint(i))
			time.Sleep(4 * time.Second)
		}
		time.Sleep(time.Minute)
		r.outbox(2 * jobs)
		o.mu.Lock()
		if o.tries > 300 {
			t.Errorf("%d tries in the first half hour", o.tries)
		}
		o.mu.Unlock()
		time.Sleep(time.Hour)
		r.end(a, b)
		r.outbox(0)
		if o.most > 2*64 { // the batch, and both messages of each
			t.Errorf("%d messages at once", o.most)
		}
		for i := range jobs {
			for _, doc := range []string{fmt.Sprint(i), fmt.Sprint(i, ".1"), fmt.Sprint(i, ".2")} {
				r.want(doc, done1)
			}
		}
		inOrder(t, o.sent)
		r.queue(memory.Depth{})
	})
}

// A look that finds nothing to take says nothing of the broker: what is asked for meanwhile waits in the outbox and is not tried.
func TestAnEmptyTakeIsNoBroker(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		o := asking(r)
		away := true
		o.refuse = func([]broker.Message) error {
			if away {
				return broker.ErrUnavailable
			}
			return nil
		}
		a := r.start("a", o.with)
		time.Sleep(5 * time.Second) // its first look is over
		r.send("1")
		time.Sleep(10 * time.Second) // the messages are its own for longer, so its looks find none to take
		r.send("2")
		time.Sleep(5 * time.Second)
		o.mu.Lock()
		if o.tries != 1 {
			t.Errorf("%d tries, want the first alone", o.tries)
		}
		away = false
		o.mu.Unlock()
		time.Sleep(10 * time.Minute)
		r.end(a)
		r.outbox(0)
		r.queue(memory.Depth{})
	})
}

// inOrder checks that no second message of a job came before its first one.
func inOrder(t *testing.T, sent []string) {
	t.Helper()
	seen := map[string]bool{}
	for _, doc := range sent {
		if job, second := strings.CutSuffix(doc, ".2"); second && !seen[job+".1"] {
			t.Errorf("%s was published before %s.1", doc, job)
		}
		seen[doc] = true
	}
}

// A message that the broker never takes keeps no other from being sent, and is not lost.
func TestPoisonedMessage(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		o := asking(r)
		o.refuse = func(ms []broker.Message) error {
			for _, m := range ms {
				if docOf(t, m) == "1.2" {
					return broker.ErrTooLarge
				}
			}
			return nil
		}
		r.send("1", "2", "3")
		n := r.start("a", o.with)
		time.Sleep(time.Hour)
		r.end(n)
		for _, doc := range []string{"1", "2", "3", "2.1", "2.2", "3.1", "3.2"} {
			r.want(doc, done1)
		}
		r.outbox(2) // of the job's, in order
		r.queue(memory.Depth{})
	})
}

// A worker without a publisher refuses to be asked, and no result is committed that promises a message.
func TestPublishWithoutABroker(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		asking(r)
		r.send("1")
		n := r.start("a")
		time.Sleep(time.Hour)
		r.end(n)
		if j := r.job("1"); j.State != ledger.Failed || !strings.Contains(j.Error.Text, "PO588") {
			t.Errorf("the job is %s, %+v", j.State, j.Error)
		}
		r.outbox(0)
	})
}

// A run without a result asks for nothing.
func TestMessagesOfARunWithoutAResult(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		o := asking(r)
		after := r.after
		r.after = func(ctx context.Context, j *job.Run, in ask) error {
			return errors.Join(after(ctx, j, in), job.Fail(errors.New("no result")))
		}
		r.send("1")
		n := r.start("a", o.with)
		time.Sleep(time.Hour)
		r.end(n)
		o.wantSent()
		r.outbox(0)
	})
}

// The messages of a job that is run again do not overtake those of its earlier result, which no broker took.
func TestMessagesOfARerun(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		o := asking(r)
		r.after = func(_ context.Context, j *job.Run, in ask) error {
			if strings.Contains(in.Doc, ".") {
				return nil
			}
			return j.Publish("ask", ask{Tenant: in.Tenant, Doc: fmt.Sprintf("%s.%d", in.Doc, r.runs.Load())})
		}
		begun := time.Now()
		o.refuse = func(ms []broker.Message) error {
			for _, m := range ms {
				if docOf(t, m) == "1.1" && time.Since(begun) < time.Hour {
					return broker.ErrTooLarge
				}
			}
			return nil
		}
		r.send("1")
		n := r.start("a", o.with)
		time.Sleep(10 * time.Minute)
		if _, err := r.led.Reopen(t.Context(), ledger.Reopening{Key: key("1"), Token: "t", Reason: "why", Who: "kim"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		r.end(n)
		o.wantSent("1.1", "1.2")
		r.outbox(0)
	})
}
