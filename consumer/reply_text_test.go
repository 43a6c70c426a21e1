package consumer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/ledger"
)

// An answer that was not sent in time is not one that nobody takes.
func TestAnswersThatAreLate(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		until := time.Now().Add(5 * time.Minute)
		p := &replier{Replier: r.q, says: func(int64) error {
			if time.Now().Before(until) {
				return fmt.Errorf("not sent: %w", context.DeadlineExceeded)
			}
			return nil
		}}
		a := r.start("a", func(c *consumer.Config) { c.Replies = p })
		r.askFor("1", "c1")
		time.Sleep(time.Hour)
		r.end(a)
		r.answered(`c1 done "answer to 1"`)
		r.want("1", done1)
		r.queue(memory.Depth{})
	})
}

// damaged is a ledger whose results cannot be read.
type damaged struct{ ledger.Store }

func (d damaged) Job(ctx context.Context, k ledger.Key) (ledger.Job, error) {
	return ledger.Job{}, fmt.Errorf("read %s: %w", k, ledger.ErrDamaged)
}

func (d damaged) Claim(ctx context.Context, r ledger.Request) (ledger.Claimed, error) {
	c, err := d.Store.Claim(ctx, r)
	if c.Result != nil {
		c.Result.Body = nil // as an encrypted ledger tells of it
	}
	return c, err
}

// A duplicate that asks for a result which nobody can read is told so, and does not come again for ever.
func TestAnswersOfADamagedResult(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		a := r.start("a", r.answering, func(c *consumer.Config) { c.Store = damaged{c.Store} })
		r.send("1")
		time.Sleep(time.Minute)
		r.askFor("1", "c1")
		time.Sleep(time.Hour)
		r.end(a)
		r.answered("c1 done damaged")
		r.want("1", done1)
		r.queue(memory.Depth{})
	})
}

// picky is a broker that refuses what SQS refuses.
func picky(m broker.Message) error {
	if i := strings.IndexAny(string(m.Body), "\uFFFE\uFFFF"); i >= 0 {
		return fmt.Errorf("character at position %d", i)
	}
	return nil
}

type pickyReplier struct{ broker.Replier }

func (p pickyReplier) Reply(ctx context.Context, to string, m broker.Message) error {
	return errors.Join(picky(m), p.Replier.Reply(ctx, to, m))
}

// Text that a broker does not carry reaches its reader all the same.
func TestCharactersThatSQSRefuses(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		const doc = "1\uFFFF\uFFFE\uFFFD"
		o := asking(r)
		o.refuse = func(ms []broker.Message) error { return picky(ms[0]) }
		a := r.start("a", o.with, func(c *consumer.Config) { c.Replies = pickyReplier{r.q} })
		r.askFor(doc, "c1")
		time.Sleep(time.Hour)
		r.end(a)
		o.wantSent(doc+".1", doc+".2")
		m := r.q.Replies("answers")
		var got consumer.Reply
		if len(m) != 1 || json.Unmarshal(m[0].Body, &got) != nil || picky(m[0]) != nil {
			t.Fatalf("answers %q", m)
		}
		var text string
		if err := json.Unmarshal(got.Result, &text); err != nil || text != "answer to "+doc {
			t.Errorf("the answer is %q (%v)", text, err)
		}
		r.outbox(0)
		r.queue(memory.Depth{})
	})
}

// full is a broker whose queues of answers are.
type full struct{ broker.Replier }

func (full) Reply(context.Context, string, broker.Message) error {
	return fmt.Errorf("not confirmed: %w", broker.ErrUnavailable)
}

// Answers that nobody makes room for do not keep the slots of those who want none.
func TestAnswersThatHaveNoRoom(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		a := r.start("a", func(c *consumer.Config) { c.Replies = full{r.q} })
		for i := range 40 {
			r.askFor(fmt.Sprint("asked ", i), "c")
		}
		time.Sleep(time.Minute)
		const n = 1100 // in five minutes four slots have 1200
		for i := range n {
			r.send(fmt.Sprint(i))
		}
		time.Sleep(5 * time.Minute)
		r.end(a)
		if billed := r.runs.Load() - 40; billed < n {
			t.Errorf("%d of %d jobs ran", billed, n)
		}
	})
}
