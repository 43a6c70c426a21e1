package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	memledger "github.com/paidonce/paidonce/ledger/memory"
)

// A result's steps begin at once, and not with the next sweep.
func TestStepAtOnce(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		p := posted(r)
		r.send("1")
		n := r.start("a", p.with, func(c *consumer.Config) { c.Tick = time.Hour })
		time.Sleep(10 * time.Second)
		r.want("1", done1)
		p.mails("1", mailDone, "about 1")
		r.showsSteps("1", "acme:mail:1 done other false <1>")
		r.end(n)
		r.queue(memory.Depth{})
	})
}

// More steps than there are slots: all of them are made, each once, and the sweep finds what was left to it.
func TestManySteps(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		p := posted(r)
		r.after = func(_ context.Context, j *job.Run, in ask) error {
			for i := range 30 {
				if err := p.step.After(j, letter{Tenant: "acme", Doc: fmt.Sprint(in.Doc, "-", i), Text: "x"}); err != nil {
					return err
				}
			}
			return nil
		}
		r.send("1", "2")
		n := r.start("a", p.with, func(c *consumer.Config) { c.Workers = 2 })
		time.Sleep(10 * time.Minute)
		r.end(n)
		r.want("1", done1)
		r.want("2", done1)
		if len(p.out) != 60 {
			t.Errorf("%d mails, want 60", len(p.out))
		}
		for j, err := range r.led.Jobs(t.Context(), ledger.Filter{Action: "mail"}) {
			if err != nil || j.State != ledger.Done {
				t.Errorf("%s is %s, %v", j.Key, j.State, err)
			}
		}
	})
}

// The worker dies at each point between the model's answer and the end of the mail: the model is paid once, and one
// mail is sent, or it is held with its evidence.
func TestCrashBetweenAnswerAndStep(t *testing.T) {
	for name, c := range map[string]struct {
		die        func(r *rig, p *post, kill func())
		asks, mail string
		sent       []string
	}{
		"after the answer": {func(r *rig, _ *post, kill func()) {
			after := r.after
			r.after = func(ctx context.Context, j *job.Run, in ask) error {
				if r.runs.Load() == 1 {
					kill()
				}
				return after(ctx, j, in)
			}
		}, "done", mailDone, []string{"about 1"}},
		"after the result": {func(r *rig, _ *post, kill func()) {
			after := r.after
			r.after = func(ctx context.Context, j *job.Run, in ask) error {
				memledger.OnCommit(j, func(ctx context.Context) error {
					memledger.Then(ctx, kill) // it reaches nobody after this
					return nil
				})
				return after(ctx, j, in)
			}
		}, "done", mailDone, []string{"about 1"}},
		"before the mail": {func(r *rig, p *post, kill func()) {
			do, first := p.step.Do, true
			p.step.Do = func(ctx context.Context, a *job.Attempt, in letter) (string, error) {
				if first {
					first = false
					kill()
				}
				return do(ctx, a, in)
			}
		}, "done", "done runs 2 open 0 received<1>", []string{"about 1"}},
		"after the mail": {func(_ *rig, p *post, kill func()) {
			p.script = func(n int) error { kill(); return nil }
		}, "done", "unknown runs 1 open 1 sent", []string{"about 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, memory.Options{}, func(r *rig) {
				p := posted(r)
				var a *node
				c.die(r, p, func() { a.kill() })
				a = r.start("a", p.with)
				r.send("1")
				time.Sleep(time.Minute)
				b := r.start("b", p.with)
				time.Sleep(time.Hour)
				r.end(b)
				if j := r.job("1"); j.State != ledger.Done || r.prov.billed("1") != 1 || len(j.Attempts) != 1 {
					t.Errorf("the job is %s, and the model was paid %d times", j.State, r.prov.billed("1"))
				}
				p.mails("1", c.mail, c.sent...)
				r.queue(memory.Depth{})
			})
		})
	}
}

// Two jobs that ask for one mail send it once: what was asked for first.
func TestSharedStep(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		p := posted(r)
		n := r.start("a", p.with)
		r.send("1")
		time.Sleep(time.Minute)
		r.send("1'") // another job about the same, and another text
		time.Sleep(time.Minute)
		r.end(n)
		r.want("1", done1)
		r.want("1'", done1)
		p.mails("1", mailDone, "about 1")
		r.showsSteps("1", "acme:mail:1 done other false <1>")
		r.showsSteps("1'", "acme:mail:1 done other true <1>")
		if j, err := r.led.Job(t.Context(), mailKey("1")); err != nil || len(j.AskedBy) != 2 {
			t.Errorf("the mail was asked for by %v, %v", j.AskedBy, err)
		}
		r.queue(memory.Depth{})
	})
}

var errLostReply = errors.New("EOF")

// A held mail blocks no result: not its own job's, whose duplicates are answered, and not that of the next job.
// It is decided about alone.
func TestHeldStep(t *testing.T) {
	for name, c := range map[string]struct {
		decide func(p *post, j ledger.Job) error
		mail   string
		sent   []string
	}{
		"nobody decides": {func(*post, ledger.Job) error { return nil }, "unknown runs 0 open 1 sent<1>", []string{"about 1"}},
		"it never happened": {func(p *post, j ledger.Job) error {
			return p.verdict(j, ledger.Evidence{State: ledger.NotSent})
		}, "done runs 1 open 0 not_sent<1> received<2>", []string{"about 1", "about 1"}},
		"it happened": {func(p *post, j ledger.Job) error {
			return p.verdict(j, ledger.Evidence{State: ledger.Received, Response: &ledger.Response{Codec: "json", Body: []byte(`"seen"`)}})
		}, "done runs 1 open 0 received<1>", []string{"about 1"}},
		"given up": {func(p *post, j ledger.Job) error {
			_, err := p.led.Resolve(context.Background(), ledger.Resolution{Key: j.Key, Fence: j.Fence, Action: ledger.GiveUp, Reason: "why", By: ledger.ByPerson, Who: "kim"})
			return err
		}, "failed runs 0 open 0 unknown<1>", []string{"about 1"}},
		"given up and retried": {func(p *post, j ledger.Job) error {
			_, err := p.led.Resolve(context.Background(), ledger.Resolution{Key: j.Key, Fence: j.Fence, Action: ledger.GiveUp, Reason: "why", By: ledger.ByPerson, Who: "kim"})
			if err == nil {
				_, err = p.led.Reopen(context.Background(), ledger.Reopening{Key: j.Key, DoublePay: true, Reason: "why", Who: "kim"})
			}
			return err
		}, "done runs 1 open 0 unknown<1> received<2>", []string{"about 1", "about 1"}},
		"cancelled": {func(p *post, j ledger.Job) error {
			_, err := p.led.Resolve(context.Background(), ledger.Resolution{Key: j.Key, Action: ledger.Cancel, Reason: "why", By: ledger.ByPerson, Who: "kim"})
			return err
		}, "cancelled runs 0 open 0 unknown<1>", []string{"about 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, memory.Options{}, func(r *rig) {
				p := posted(r)
				p.script = func(n int) error {
					if n == 1 {
						return errLostReply
					}
					return nil
				}
				n := r.start("a", p.with)
				r.send("1")
				time.Sleep(time.Hour)
				r.want("1", done1)
				r.send("1", "1'")
				time.Sleep(time.Hour)
				j, err := r.led.Job(t.Context(), mailKey("1"))
				if err == nil {
					err = c.decide(p, j)
				}
				if err != nil {
					t.Error(err)
				}
				time.Sleep(time.Hour)
				r.end(n)
				r.want("1", done1)
				r.want("1'", done1)
				p.mails("1", c.mail, c.sent...)
				r.avoids(map[string]int{"duplicate_message": 1})
				r.queue(memory.Depth{})
			})
		})
	}
}

// verdict is what a person knows of the mail that is held.
func (p *post) verdict(j ledger.Job, e ledger.Evidence) error {
	e.By, e.Who, e.Reason = ledger.ByPerson, "kim", "asked the server"
	_, err := p.led.Settle(context.Background(), ledger.AttemptID{Tenant: j.Key.Tenant, Job: j.ID, ID: j.Attempts[0].ID}, e)
	return err
}

// A refused mail is tried again, and the model is not; one that is refused for good fails alone.
func TestRefusedStep(t *testing.T) {
	for name, c := range map[string]struct {
		refuse func(error) error
		mail   string
	}{
		"for now":  {job.Retry, "done runs 3 open 0 rejected<1> rejected<2> received<3>"},
		"for good": {job.Fail, "failed runs 1 open 0 failed<1>"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, memory.Options{}, func(r *rig) {
				p := posted(r)
				p.script = func(n int) error {
					if n < 3 {
						return c.refuse(errLostReply)
					}
					return nil
				}
				r.send("1")
				n := r.start("a", p.with)
				time.Sleep(time.Hour)
				r.end(n)
				r.want("1", done1)
				sent := []string{"about 1", "about 1", "about 1"}
				if strings.HasPrefix(c.mail, "failed") {
					sent = sent[:1]
				}
				p.mails("1", c.mail, sent...)
			})
		})
	}
}

// A run that ends without a result asks for nothing, nor does one that lost its lease.
func TestStepsOfARunWithoutAResult(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		p := posted(r)
		after := r.after
		r.after = func(ctx context.Context, j *job.Run, in ask) error {
			if err := after(ctx, j, in); err != nil {
				t.Error(err)
			}
			return job.Fail(errors.New("no result"))
		}
		r.send("1")
		n := r.start("a", p.with)
		time.Sleep(time.Hour)
		r.end(n)
		if j := r.job("1"); j.State != ledger.Failed || len(j.Steps) != 0 {
			t.Errorf("the job is %s with the steps %v", j.State, j.Steps)
		}
		if _, err := r.led.Job(t.Context(), mailKey("1")); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("the mail: %v", err)
		}
	})
}

// A message that names a step as its job is that step: made once, whoever asks for it too.
func TestMessageOfAStep(t *testing.T) {
	bubble(t, memory.Options{}, func(r *rig) {
		p := posted(r)
		n := r.start("a", p.with)
		m := broker.Message{Body: []byte(`{"Tenant":"acme","Doc":"1","Text":"about 1"}`), Attributes: map[string]string{consumer.Attribute: "mail"}}
		if err := r.q.Publish(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		r.send("1")
		time.Sleep(time.Minute)
		r.end(n)
		r.want("1", done1)
		p.mails("1", mailDone, "about 1")
		r.showsSteps("1", "acme:mail:1 done other false <1>")
		r.queue(memory.Depth{})
	})
}

// A worker that would ask for a step that nobody makes does not start.
func TestUnregisteredStep(t *testing.T) {
	reg := new(job.Registry)
	job.Register(reg, job.Def[ask, string]{Name: "ask", Steps: job.Steps(job.Step[letter, string]{Name: "mail"}),
		Handle: func(context.Context, *job.Run, ask) (string, error) { return "", nil }})
	_, err := consumer.New(consumer.Config{Source: memory.New(memory.Options{}).Source(), Store: memledger.New(), Handlers: reg})
	if err == nil || !strings.Contains(err.Error(), `PO585 job ask asks for step "mail"`) {
		t.Errorf("new: %v", err)
	}
}
