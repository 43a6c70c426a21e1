package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/paidonce/paidonce/cmd/worker/config"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// commandTimeout bounds what a person waits for.
const commandTimeout = 30 * time.Second

// withLedger opens the ledger that the workers use for one command.
func (c *call) withLedger(do func(context.Context, *config.Config, ledger.Store) error) error {
	return c.withLedgerLong(func(ctx context.Context, cfg *config.Config, store ledger.Store) error {
		ctx, cancel := context.WithTimeout(ctx, commandTimeout)
		defer cancel()
		return do(ctx, cfg, store)
	})
}

// withLedgerLong is withLedger for a command of many steps, which bounds each of them itself.
func (c *call) withLedgerLong(do func(context.Context, *config.Config, ledger.Store) error) error {
	cfg, err := c.load(c.shared)
	if err != nil {
		return err
	}
	store, done, err := c.openLedger(cfg)
	if err != nil {
		return err
	}
	defer done()
	return do(c.ctx, cfg, store)
}

// find reads one job by its printed key.
func find(ctx context.Context, store ledger.Store, key string) (ledger.Job, error) {
	k, err := job.ParseKey(key)
	if err != nil {
		return ledger.Job{}, exitError{exitUsage, err}
	}
	j, err := store.Job(ctx, k)
	if errors.Is(err, ledger.ErrNotFound) {
		return j, exitError{exitFindings, fmt.Errorf("PO501 there is no job %s; worker jobs list shows what there is", key)}
	}
	if err != nil {
		return j, fmt.Errorf("reading job %s: %w", key, err)
	}
	return j, nil
}

// Run lists jobs.
func (l listCommand) Run(c *call) error {
	if l.State != "" && !slices.Contains(ledger.States(), ledger.State(l.State)) {
		return usagef("PO502 --state %s: there is no such state; there are %v", l.State, ledger.States())
	}
	if l.Limit < 1 {
		return usagef("PO502 --limit %d: ask for at least one job", l.Limit)
	}
	return c.withLedger(func(ctx context.Context, _ *config.Config, store ledger.Store) error {
		doc, state, most := listDocument{Jobs: []listed{}}, ledger.State(l.State), l.Limit
		if l.Class != "" {
			state, most = cmp.Or(state, ledger.Failed), math.MaxInt32
		}
		for j, err := range store.Jobs(ctx, ledger.Filter{Tenant: l.Tenant, Action: l.Job, State: state, Limit: most}) {
			if err != nil {
				return fmt.Errorf("listing jobs: %w", err)
			}
			x := inList(j)
			if l.Class != "" && (x.Why == nil || *x.Why != l.Class) {
				continue
			}
			if doc.Jobs = append(doc.Jobs, x); len(doc.Jobs) == l.Limit {
				break
			}
		}
		return show(c, l.asJSON, doc, func(w io.Writer) error { return printList(w, doc.Jobs) })
	})
}

// Run shows one job.
func (s showCommand) Run(c *call) error {
	switch {
	case s.Answer < 0:
		return usagef("PO502 --answer %d: write the number of an attempt", s.Answer)
	case s.Answer > 0 && s.JSON:
		return usagef("PO502 --answer %d with --json: an answer is printed as it came; leave one of them out", s.Answer)
	}
	return c.withLedger(func(ctx context.Context, cfg *config.Config, store ledger.Store) error {
		j, err := find(ctx, store, s.Key)
		if err != nil {
			return err
		}
		h, _ := registry(cfg).Lookup(j.Action) // nil, of a job of another program: all is shown
		if s.Answer != 0 {
			return s.answer(ctx, c, store, h, j)
		}
		doc := document(h, j)
		return show(c, s.asJSON, doc, func(w io.Writer) error { return printJob(w, doc) })
	})
}

// answer prints what was captured of an attempt.
func (s showCommand) answer(ctx context.Context, c *call, store ledger.Store, h *job.Handler, j ledger.Job) error {
	i := slices.IndexFunc(j.Attempts, func(a ledger.AttemptRow) bool { return a.N == s.Answer })
	if i < 0 || !j.Attempts[i].HasAnswer {
		return exitError{exitFindings, fmt.Errorf("PO501 attempt %d of job %s has no answer", s.Answer, s.Key)}
	}
	r, err := store.Answer(ctx, ledger.AttemptID{Tenant: j.Key.Tenant, Job: j.ID, ID: j.Attempts[i].ID})
	if errors.Is(err, ledger.ErrNotFound) {
		return exitError{exitFindings, fmt.Errorf("PO501 the answer to attempt %d of job %s is past its retention", s.Answer, s.Key)}
	}
	if err != nil {
		return fmt.Errorf("reading the answer to attempt %d of job %s: %w", s.Answer, s.Key, err)
	}
	_, err = c.Stdout.Write(h.Shown(job.PartAnswer, r.Body))
	return err
}

// Run cancels a job.
func (k cancelCommand) Run(c *call) error {
	return c.withLedger(func(ctx context.Context, _ *config.Config, store ledger.Store) error {
		j, err := find(ctx, store, k.Key)
		if err != nil {
			return err
		}
		if j.State.Terminal() {
			return fmt.Errorf("PO503 job %s is %s; there is nothing to cancel", k.Key, j.State)
		}
		rel, err := store.Resolve(ctx, ledger.Resolution{Key: j.Key, Fence: j.Fence, Action: ledger.Cancel, Reason: k.Reason, By: ledger.ByPerson, Who: c.person()})
		if err != nil {
			return fmt.Errorf("cancelling job %s, which was %s: %w", k.Key, j.State, err)
		}
		if rel.State == ledger.Running {
			fmt.Fprintln(c.Stdout, "The job is running. It is flagged: it sends nothing more, and is cancelled when its run ends.")
			return nil
		}
		fmt.Fprintf(c.Stdout, "The job is %s.\n", rel.State)
		if j.OpenCalls > 0 {
			fmt.Fprintf(c.Stdout, "%d calls had been sent and their outcome stays unknown; they may be billed.\n", j.OpenCalls)
		}
		return nil
	})
}

// Run records a person's verdict on an unknown job.
func (r resolveCommand) Run(c *call) error {
	if strings.TrimSpace(r.Reason) == "" {
		return usagef("PO502 --reason is empty; whoever reads the history wants to know why")
	}
	switch {
	case r.Call != "" && r.Result == "":
		return usagef("PO502 --call says which call --result answers; a verdict without one is on all open calls")
	case r.some() || r.All:
		return r.many(c)
	case r.Key == "":
		return usagef("PO502 name a key, or say which unknown jobs with --job, --tenant, --older-than or --all")
	case r.DryRun:
		return usagef("PO502 --dry-run is for more than one job; worker jobs show %s says what there is", r.Key)
	}
	return c.withLedger(func(ctx context.Context, cfg *config.Config, store ledger.Store) error {
		j, err := find(ctx, store, r.Key)
		if err != nil {
			return err
		}
		return r.one(ctx, c, cfg, store, j)
	})
}

// one records the verdict on one job.
func (r resolveCommand) one(ctx context.Context, c *call, cfg *config.Config, store ledger.Store, j ledger.Job) error {
	if j.State != ledger.Unknown {
		return fmt.Errorf("PO503 job %s is %s, not unknown; there is nothing to resolve", r.Key, j.State)
	}
	open := slices.DeleteFunc(slices.Clone(j.Attempts), func(a ledger.AttemptRow) bool { return a.State != ledger.Sent })
	switch {
	case r.Fail:
		return r.giveUp(ctx, c, store, j)
	case r.Absent:
		return r.settle(ctx, c, store, j, open, ledger.Evidence{State: ledger.NotSent, Class: "absent"})
	}
	return r.answer(ctx, c, cfg, store, j, open)
}

// answer settles the open attempts of one call with the answer in a file.
func (r resolveCommand) answer(ctx context.Context, c *call, cfg *config.Config, store ledger.Store, j ledger.Job, open []ledger.AttemptRow) error {
	var calls []string
	for _, a := range open {
		if !slices.Contains(calls, a.Call.Name) {
			calls = append(calls, a.Call.Name)
		}
	}
	name := r.Call
	switch {
	case name == "" && len(calls) > 1:
		return usagef("PO510 calls %s are open: say with --call which one this answers", strings.Join(calls, ", "))
	case name == "" && len(calls) == 1:
		name = calls[0]
	case !slices.Contains(calls, name):
		return usagef("PO510 call %q is not open; open are %s", name, strings.Join(calls, ", "))
	}
	body, err := c.read(r.Result)
	if err != nil {
		return usagef("PO507 --result: %w", err)
	}
	if err := fits(cfg, j.Action, name, body); err != nil {
		return usagef("PO507 --result %s is no answer of call %s, and an answer cannot be taken back: %w", r.Result, name, err)
	}
	// The first one settled answers the call; the ledger closes its other attempts.
	open = slices.DeleteFunc(open, func(a ledger.AttemptRow) bool { return a.Call.Name != name })
	e := ledger.Evidence{State: ledger.Received, Class: "by_person", Response: &ledger.Response{Codec: "json", Body: body}}
	return r.settle(ctx, c, store, j, open[:1], e)
}

// fits checks that the answer reads as what the call returns.
func fits(cfg *config.Config, action, name string, body []byte) error {
	if !json.Valid(body) {
		return errors.New("it is not JSON")
	}
	h, ok := registry(cfg).Lookup(action)
	if !ok {
		return fmt.Errorf("this program has no job %s and cannot check it; use the worker that runs the job", action)
	}
	info, ok := h.Call(name)
	if !ok {
		return fmt.Errorf("job %s has no call %s any more", action, name)
	}
	return info.Reads(body)
}

// settle gives attempts their outcome, and says what happens next.
func (r resolveCommand) settle(ctx context.Context, c *call, store ledger.Store, j ledger.Job, open []ledger.AttemptRow, e ledger.Evidence) error {
	e.By, e.Who, e.Reason = ledger.ByPerson, c.person(), r.Reason
	state := j.State
	for _, a := range open {
		s, err := store.Settle(ctx, ledger.AttemptID{Tenant: j.Key.Tenant, Job: j.ID, ID: a.ID}, e)
		switch {
		case errors.Is(err, ledger.ErrState):
			fmt.Fprintf(c.Stdout, "Attempt %d was settled by somebody else meanwhile.\n", a.N)
			continue
		case err != nil:
			return fmt.Errorf("settling attempt %d of job %s: %w", a.N, r.Key, err)
		}
		state = s.Job
		fmt.Fprintf(c.Stdout, "Attempt %d (call %s, %s, sent %s) is %s now.\n", a.N, a.Call.Name, target(a.Provider, a.Model), clock(instant(a.SentAt)), e.State)
	}
	switch {
	case state == ledger.Unknown:
		fmt.Fprintln(c.Stdout, "The job is still unknown: other calls are open.")
	case state != ledger.Ready:
		fmt.Fprintf(c.Stdout, "The job is %s.\n", state)
	case e.State == ledger.Received:
		fmt.Fprintln(c.Stdout, "The job is ready: the next worker finishes it with this answer and does not send the call again.")
	default:
		fmt.Fprintln(c.Stdout, "The job is ready: the next worker sends the call again, and it is paid then.")
	}
	return nil
}

// giveUp ends the job as failed. That a reconciler took it up meanwhile, to look for evidence,
// is nothing that a person would decide otherwise for.
func (r resolveCommand) giveUp(ctx context.Context, c *call, store ledger.Store, j ledger.Job) error {
	resolve := func() (ledger.Released, error) {
		return store.Resolve(ctx, ledger.Resolution{Key: j.Key, Fence: j.Fence, Action: ledger.GiveUp, Reason: r.Reason, By: ledger.ByPerson, Who: c.person()})
	}
	rel, err := resolve()
	for try := 1; errors.Is(err, ledger.ErrLost) && try < 5; try++ {
		now, ferr := find(ctx, store, r.Key)
		if ferr != nil {
			return ferr
		}
		if !slices.Equal(openCalls(now), openCalls(j)) {
			break
		}
		j = now
		rel, err = resolve()
	}
	if errors.Is(err, ledger.ErrLost) {
		return fmt.Errorf("PO503 job %s changed meanwhile (evidence, a policy or another person was faster); look at it again: %w", r.Key, err)
	}
	if err != nil {
		return fmt.Errorf("giving up job %s: %w", r.Key, err)
	}
	fmt.Fprintf(c.Stdout, "The job is %s. %d calls stay unknown and may be billed; an answer that still arrives is kept.\n", rel.State, j.OpenCalls)
	return nil
}

// read is the content of a file; "-" is stdin. What is larger than a ledger keeps is not read on.
func (c *call) read(name string) ([]byte, error) {
	in := c.Stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, ledger.MaxBody+1))
	if err == nil && len(text) > ledger.MaxBody {
		err = fmt.Errorf("it is larger than the %d bytes that a ledger keeps", ledger.MaxBody)
	}
	return text, err
}

// openCalls are the attempts that nothing is known of.
func openCalls(j ledger.Job) (ids []ledger.ID) {
	for _, a := range j.Attempts {
		if a.State == ledger.Sent {
			ids = append(ids, a.ID)
		}
	}
	return ids
}
