package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// Cases 26 and 32: ten copies of one message at once, to three workers. One call, one mail, nine avoided, no second one that slips through.
func TestTenCopiesAreOneEffect(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		p := posted(r)
		for range 10 {
			r.send("1")
		}
		ns := []*node{r.start("a", p.with), r.start("b", p.with), r.start("c", p.with)}
		time.Sleep(10 * time.Minute)
		r.end(ns...)
		r.want("1", done1)
		p.mails("1", mailDone, "about 1")
		r.avoids(map[string]int{"duplicate_message": 9})
		r.queue(memory.Depth{})
	})
}

// slow is a ledger whose every verb takes its time.
type slow struct{ ledger.Store }

const verbTakes = 300 * time.Millisecond

func (s slow) Claim(ctx context.Context, r ledger.Request) (ledger.Claimed, error) {
	time.Sleep(verbTakes)
	return s.Store.Claim(ctx, r)
}

func (s slow) Send(ctx context.Context, l ledger.Lease, a ledger.Attempt) error {
	time.Sleep(verbTakes)
	return s.Store.Send(ctx, l, a)
}

func (s slow) Settle(ctx context.Context, id ledger.AttemptID, e ledger.Evidence) (ledger.Settled, error) {
	d, err := s.Store.Settle(ctx, id, e)
	time.Sleep(verbTakes)
	return d, err
}

func (s slow) Complete(ctx context.Context, l ledger.Lease, r ledger.Result) error {
	time.Sleep(verbTakes)
	err := s.Store.Complete(ctx, l, r)
	time.Sleep(verbTakes)
	return err
}

// Case 53: 500 steps under load on a slow ledger, some of their workers killed meanwhile: each effect once, or held with its attempt; none twice and
// none lost.
func TestFiveHundredStepsOnASlowLedger(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		p := posted(r)
		slowly := func(c *consumer.Config) { c.Workers, c.Store = 20, slow{c.Store} }
		for i := range 500 {
			r.send(fmt.Sprint(i))
		}
		a, b := r.start("a", p.with, slowly), r.start("b", p.with, slowly)
		for i := range 3 {
			time.Sleep(20 * time.Second)
			a.kill()
			a = r.start(fmt.Sprint("a", i), p.with, slowly)
		}
		time.Sleep(3 * time.Hour)
		r.end(a, b)
		sent := map[string]int{}
		for _, m := range p.out {
			sent[m]++
		}
		done, held := 0, 0
		for j, err := range r.led.Jobs(t.Context(), ledger.Filter{Action: "mail", Limit: 1000}) {
			if err != nil {
				t.Fatal(err)
			}
			doc := j.Key.Text[strings.LastIndex(j.Key.Text, ":")+1:]
			switch n := sent["about "+doc]; {
			case j.State == ledger.Done && n == 1:
				done++
			case j.State == ledger.Unknown && n <= 1 && j.OpenCalls == 1:
				held++
			default:
				t.Errorf("the mail about %s is %s with %d open calls, and was sent %d times", doc, j.State, j.OpenCalls, n)
			}
		}
		asks := map[ledger.State]int{}
		for j, err := range r.led.Jobs(t.Context(), ledger.Filter{Action: "ask", Limit: 1000}) {
			if err != nil {
				t.Fatal(err)
			}
			asks[j.State]++
		}
		if done+held != asks[ledger.Done] || asks[ledger.Done]+asks[ledger.Unknown] != 500 || done < 400 || len(sent) != len(p.out) {
			t.Errorf("%d mails are done and %d held of %v jobs; %d were sent, of %d; the queue has %+v and set aside %v", done, held, asks, len(p.out), len(sent), r.q.Depth(), r.q.DeadLetters())
		}
	})
}

// lines collects a log.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(p))
	return len(p), nil
}

// count is how many lines have all of these in them.
func (l *lines) count(words ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			n++
		}
	}
	return n
}

// Cases 56 and 57: the handler runs twice, and its message comes twice. The effect is made once, a line of the log says in which run it was written, and
// the end of the job and that of its step are written once.
func TestAHandlerThatRunsTwice(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		p := posted(r)
		asks := r.after
		r.after = func(ctx context.Context, j *job.Run, in ask) error {
			j.Log().Info("asking")
			if err := asks(ctx, j, in); err != nil || j.Number() > 1 {
				return err
			}
			return job.Retry(errors.New("not yet"))
		}
		var log lines
		r.send("1", "1")
		n := r.start("a", p.with, func(c *consumer.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		time.Sleep(time.Hour)
		r.end(n)
		r.want("1", want{state: ledger.Done, runs: 2, bill: 1, attempts: []ledger.AttemptState{ledger.Received}})
		p.mails("1", mailDone, "about 1")
		for _, c := range []struct {
			want  int
			words []string
		}{
			{1, []string{"msg=asking", "job=ask", "run=1 "}}, {1, []string{"msg=asking", "job=ask", "run=2 "}}, {2, []string{"msg=asking"}},
			{1, []string{`msg="job done"`, "job=ask", "run=2 "}}, {1, []string{`msg="job done"`, "job=mail", "run=1 "}}, {2, []string{`msg="job done"`}},
		} {
			if got := log.count(c.words...); got != c.want {
				t.Errorf("%d lines with %q, want %d\n%s", got, c.words, c.want, strings.Join(log.all, ""))
			}
		}
		r.queue(memory.Depth{})
	})
}

// Case 58: whoever sends the mail is killed right after it, three workers in a row. It is one mail; it is held, with its attempt.
func TestKilledAfterTheMailThreeTimes(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		p := posted(r)
		kills := make(chan func(), 3)
		p.script = func(int) error { (<-kills)(); return nil }
		r.send("1")
		for _, name := range []string{"a", "b", "c"} {
			n := r.start(name, p.with)
			kills <- n.kill
			time.Sleep(24 * time.Hour)
			n.kill()
			r.send("1")
		}
		r.end(r.start("d", p.with)) // it drains at once
		r.want("1", done1)
		p.mails("1", "unknown runs 1 open 1 sent", "about 1")
	})
}

// Case 55: a deploy puts a call before one that is answered, while its job is under way. The job goes on, and the answered one is not paid again.
func TestACallIsPutBeforeAnAnsweredOne(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		r.send("1")
		r.after = func(context.Context, *job.Run, ask) error { return job.RetryIn(10*time.Minute, errors.New("not yet")) }
		a := r.start("a")
		time.Sleep(time.Minute)
		r.end(a)
		r.after = nil
		inserted := r.call
		inserted.Name = "inserted"
		r.before = func(ctx context.Context, j *job.Run, in ask) error {
			in.Doc += ", before"
			_, err := inserted.Run(ctx, j, in)
			return err
		}
		b := r.start("b", func(c *consumer.Config) { c.Handlers = r.handlers(inserted) })
		time.Sleep(time.Hour)
		r.end(b)
		r.want("1", want{state: ledger.Done, runs: 2, bill: 1, attempts: []ledger.AttemptState{ledger.Received, ledger.Received}})
		if n := r.prov.billed("1, before"); n != 1 {
			t.Errorf("the call that was put before it is on the bill %d times", n)
		}
		r.queue(memory.Depth{})
	})
}

// Case 61: a person orders the second of two steps anew. The first is not made again, nor is the call paid again, and an order that is repeated counts once.
func TestOneStepIsOrderedAnew(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		p := posted(r)
		r.after = func(_ context.Context, j *job.Run, in ask) error {
			for _, which := range []string{"first", "second"} {
				if err := p.step.After(j, letter{Tenant: "acme", Doc: in.Doc + "-" + which, Text: which}); err != nil {
					return err
				}
			}
			return nil
		}
		n := r.start("a", p.with, func(c *consumer.Config) { c.Workers = 1 })
		r.send("1")
		time.Sleep(time.Minute)
		for range 2 {
			if _, err := r.led.Reopen(t.Context(), ledger.Reopening{Key: mailKey("1-second"), Token: "t", Reason: "it was lost", Who: "kim"}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Hour)
		}
		r.end(n)
		r.want("1", done1)
		if fmt.Sprint(p.out) != "[first second second]" {
			t.Errorf("sent %q", p.out)
		}
		for doc, generation := range map[string]int{"1-first": 1, "1-second": 2} {
			if j, err := r.led.Job(t.Context(), mailKey(doc)); err != nil || j.State != ledger.Done || j.Generation != generation || j.OpenCalls != 0 {
				t.Errorf("the mail %s is %+v, %v", doc, j, err)
			}
		}
	})
}
