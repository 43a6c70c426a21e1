package consumer_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// letter is the message of the step: a mail about a document, whatever job asks for it.
type letter struct {
	Tenant, Doc string
	Text        string
}

func (l letter) JobKey() job.Key { return job.K(l.Tenant, "mail", l.Doc) }

// post stands for a mail server, and has the step that uses it.
type post struct {
	*rig
	step job.Step[letter, string]

	mu  sync.Mutex
	out []string // what was sent
	// script is what becomes of the n-th mail, from 1, after it was sent. nil: all is well.
	script func(n int) error
}

// posted is a rig whose handler asks for a mail about its document.
func posted(r *rig) *post {
	p := &post{rig: r}
	p.step = job.Step[letter, string]{Name: "mail", Timeout: time.Minute,
		Do: func(ctx context.Context, a *job.Attempt, in letter) (string, error) {
			if err := a.Sent(ctx); err != nil {
				return "", err
			}
			p.mu.Lock()
			p.out = append(p.out, in.Text)
			n := len(p.out)
			p.mu.Unlock()
			a.Object(fmt.Sprint("<", n, ">"))
			if p.script != nil {
				return "", p.script(n)
			}
			return "queued", nil
		}}
	r.after = func(_ context.Context, j *job.Run, in ask) error {
		return p.step.After(j, letter{Tenant: in.Tenant, Doc: strings.TrimRight(in.Doc, "'"), Text: "about " + in.Doc})
	}
	return p
}

// with gives a worker the step beside the job.
func (p *post) with(c *consumer.Config) {
	reg := new(job.Registry)
	job.RegisterStep(reg, p.step)
	job.Register(reg, job.Def[ask, string]{Name: "ask", Uses: job.Uses(p.call), Steps: job.Steps(p.step),
		Handle: func(ctx context.Context, j *job.Run, in ask) (string, error) {
			p.runs.Add(1)
			if p.before != nil {
				if err := p.before(ctx, j, in); err != nil {
					return "", err
				}
			}
			out, err := p.rig.call.Run(ctx, j, in)
			if err == nil {
				err = p.after(ctx, j, in)
			}
			return out, err
		}})
	c.Handlers = reg
}

func mailKey(doc string) ledger.Key { return letter{Tenant: "acme", Doc: doc}.JobKey().Ledger() }

// mails checks what was sent, and the whole row of the mail about one document: its state, runs and attempts.
func (p *post) mails(doc string, row string, sent ...string) {
	p.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if fmt.Sprint(p.out) != fmt.Sprint(sent) {
		p.Errorf("sent %q, want %q", p.out, sent)
	}
	j, err := p.led.Job(context.Background(), mailKey(doc))
	if err != nil {
		p.Fatalf("the mail about %s: %v", doc, err)
	}
	var got strings.Builder
	fmt.Fprintf(&got, "%s runs %d open %d", j.State, j.Runs, j.OpenCalls)
	for _, a := range j.Attempts {
		fmt.Fprintf(&got, " %s%s", a.State, a.Evidence.ObjectID)
	}
	if got.String() != row {
		p.Errorf("the mail about %s is %s, want %s", doc, got.String(), row)
	}
}

// steps prints the steps that a job's row shows.
func (r *rig) steps(doc string) string {
	r.Helper()
	var s []string
	for _, l := range r.job(doc).Steps {
		s = append(s, fmt.Sprintf("%s %s other %v %s", l.Key, l.State, l.Other, l.RemoteID))
	}
	return strings.Join(s, ", ")
}

func (r *rig) showsSteps(doc, want string) {
	r.Helper()
	if got := r.steps(doc); got != want {
		r.Errorf("%s shows the steps %s, want %s", doc, got, want)
	}
}

const mailDone = "done runs 1 open 0 received<1>"
