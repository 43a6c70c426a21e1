package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
)

// reconcileBatch bounds the unknown jobs looked at in one round, and with it the
// replays of one process: a provider that lost everything must not be sent
// everything again at once.
const reconcileBatch = 10

// lookTimeout bounds one question to a provider.
const lookTimeout = 30 * time.Second

// reconcile looks for evidence of calls whose outcome is unknown, and applies the
// policy where none turned up for as long as Config.Hold. Its adoptions are one that is
// repeated: a job whose adoption was not heard of, or that was not put back, is told again.
// Nobody else looks at what a live worker owns.
func (c *Consumer) reconcile(ctx context.Context) {
	token := ledger.NewID()
	for c.tick(ctx) {
		actx, cancel := settling(ctx)
		jobs, err := c.store.Adopt(actx, ledger.Adoption{Worker: *c.worker.Load(), Token: token, Max: reconcileBatch})
		cancel()
		if err != nil {
			c.log.WarnContext(ctx, "unknown jobs not adopted", "error", err)
			if errors.Is(err, ledger.ErrClosed) {
				c.renewSoon()
			}
			continue
		}
		for _, a := range jobs {
			c.decide(ctx, a)
		}
	}
}

// decide asks about every open attempt of a job; if some stay open, the policy or
// a later look decides.
func (c *Consumer) decide(ctx context.Context, a ledger.Adopted) {
	log := c.log.With("job", a.Action, "key", a.Lease.Key.Text)
	h, known := c.cfg.Handlers.Lookup(a.Action)
	policy, open, answer := job.Hold(), 0, "no handler"
	switch {
	case a.Fault != nil:
		answer = a.Fault.Error()
	case !known:
		c.noHandler(ctx, a.Action)
	default:
		policy, open, answer = c.ask(ctx, h, a)
		if open == 0 {
			log.InfoContext(ctx, "unknown calls reconciled")
			return
		}
	}
	sctx, cancel := settling(ctx)
	defer cancel()
	finding, err := "hold", error(nil)
	switch {
	case a.Since >= c.cfg.Hold && policy.Replays() > a.Replays:
		finding = "replay"
		err = c.store.Replay(sctx, a.Lease, ledger.ReplayPolicy{Max: policy.Replays(), Hold: c.cfg.Hold, Who: c.cfg.Name, Reason: "policy " + policy.String()})
	case a.Since >= c.cfg.Hold && policy.Fails():
		finding = "fail"
		_, err = c.store.Resolve(sctx, c.resolution(a.Lease.Key, a.Lease.Fence, ledger.GiveUp, "policy fail: no evidence of the call", 0))
	default:
		_, err = c.store.Resolve(sctx, c.resolution(a.Lease.Key, a.Lease.Fence, ledger.Keep, answer, c.nextLook(a.Since)))
	}
	c.trace.reconciled(a.Action, "", finding)
	if errors.Is(err, ledger.ErrState) { // a guard of the replay does not hold yet
		log.InfoContext(ctx, "replay not allowed yet", "error", err)
		finding = "hold"
		_, err = c.store.Resolve(sctx, c.resolution(a.Lease.Key, a.Lease.Fence, ledger.Keep, answer+"; "+err.Error(), c.nextLook(a.Since)))
	}
	switch {
	case err == nil:
		log.InfoContext(ctx, "unknown job looked at", "decision", finding, "policy", policy.String(), "open_calls", open, "unknown_for", a.Since)
	case errors.Is(err, ledger.ErrLost): // evidence or a person came first
	default:
		log.WarnContext(ctx, "decision on an unknown job not recorded", "decision", finding, "error", err)
	}
}

func (c *Consumer) resolution(k ledger.Key, fence int64, what ledger.Action, reason string, next time.Duration) ledger.Resolution {
	return ledger.Resolution{Key: k, Fence: fence, Action: what, Reason: c.cfg.Scrub(reason), By: ledger.ByReconciler, Who: c.cfg.Name, NextIn: next}
}

// nextLook is soon while evidence is likely, then rarely.
func (c *Consumer) nextLook(since time.Duration) time.Duration {
	if left := c.cfg.Hold - since; left > 0 {
		return min(max(since/2, c.cfg.Tick), left)
	}
	return max(c.cfg.Hold/2, c.cfg.Tick)
}

// ask looks for evidence of each open attempt. It returns the strictest policy of
// those that stay open, their number, and what was found of each.
func (c *Consumer) ask(ctx context.Context, h *job.Handler, a ledger.Adopted) (policy job.Policy, open int, answer string) {
	var found []string
	for _, at := range a.Open {
		call, ok := h.Call(at.Call.Name)
		finding := "no_reconcile"
		if ok && call.Reconcile != nil {
			finding = c.find(ctx, h, call, a, at)
		}
		c.trace.reconciled(a.Action, at.Provider, finding)
		if finding == job.Happened.String() || finding == job.Absent.String() || finding == job.Failed.String() {
			continue
		}
		found = append(found, fmt.Sprintf("attempt %d %s", at.N, finding))
		own := call.Policy
		if finding == job.StillRunning.String() || ctx.Err() != nil {
			own = job.Hold() // there is evidence, or nobody could ask to the end
		}
		if open++; open == 1 {
			policy = own
		} else {
			policy = stricter(policy, own)
		}
	}
	return policy, open, strings.Join(found, ", ")
}

// find asks the provider about one attempt and records what it says.
func (c *Consumer) find(ctx context.Context, h *job.Handler, call job.CallInfo, a ledger.Adopted, at ledger.AttemptRow) string {
	lctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	found, err := lookup(lctx, call, job.Open{
		Key: a.Lease.Key, Input: a.Input, Attempt: at.ID, ClientRequestID: at.ClientRequestID, ProviderRequestID: at.Evidence.ProviderRequestID,
		ObjectID: at.Evidence.ObjectID, Route: at.Route, Provider: at.Provider, Model: at.Model, SentAt: at.SentAt})
	if err != nil {
		c.log.WarnContext(ctx, "provider gave no evidence", "key", a.Lease.Key.Text, "call", at.Call.Name, "error", c.shown(h, err.Error()))
		return "error"
	}
	e := ledger.Evidence{By: ledger.ByReconciler, Who: c.cfg.Name, AskedAt: a.Now, SettleWindow: c.cfg.SettleWindow, Class: "reconciled"}
	switch found.Finding {
	case job.Happened:
		e.State, e.Response = ledger.Received, found.Response
		c.booked(&e, found, at)
	case job.Failed:
		e.State, e.Reason = ledger.FailedAttempt, "the provider says that it ended without an answer"
		c.booked(&e, found, at)
	case job.Absent:
		e.State, e.Reason = ledger.NotSent, "the provider does not know it"
	default:
		return found.Finding.String()
	}
	sctx, cancel := settling(ctx)
	defer cancel()
	settled, err := c.store.Settle(sctx, ledger.AttemptID{Tenant: a.Lease.Key.Tenant, Job: a.Lease.Job, ID: at.ID}, e)
	switch {
	case err == nil && (e.State == ledger.Received || e.Cost != nil) && !settled.Known:
		c.trace.found(a.Action, job.Seen{Call: at.Call.Name, Route: at.Route, Provider: at.Provider, Model: at.Model, State: e.State, Class: e.Class,
			Usage: e.Usage, Cost: e.Cost, Surplus: settled.Surplus})
		return found.Finding.String()
	case err == nil || errors.Is(err, ledger.ErrState): // settled meanwhile, at least as well
		return found.Finding.String()
	case errors.Is(err, ledger.ErrTooEarly):
		return "too_early"
	}
	c.log.WarnContext(ctx, "evidence not recorded", "key", a.Lease.Key.Text, "call", at.Call.Name, "error", err)
	return "error"
}

// booked puts into the evidence what was found of the usage and the cost.
func (c *Consumer) booked(e *ledger.Evidence, found job.Found, at ledger.AttemptRow) {
	e.ObjectID, e.Usage = found.ObjectID, found.Usage
	if found.Call.NoUsage && found.Finding == job.Failed && !found.Free {
		return // nobody knows whether a failure was billed
	}
	if found.Free {
		e.Cost, e.CostSource = new(ledger.Nano(0)), job.Computed
		return
	}
	found.Call.Provider, found.Call.Model, found.Call.At = at.Provider, at.Model, at.SentAt
	if e.Cost = c.price(found.Call); e.Cost != nil {
		e.CostSource = job.Computed
	}
}

// lookup runs the user's Reconcile; a panic of it is an error.
func lookup(ctx context.Context, call job.CallInfo, o job.Open) (f job.Found, err error) {
	defer func() {
		if v := recover(); v != nil {
			f, err = job.Found{}, job.Panicked(v)
		}
	}()
	if f, err = call.Reconcile(ctx, o); f.Finding < job.CannotTell || f.Finding > job.Failed {
		return job.Found{}, fmt.Errorf("PO343 there is no finding %d", f.Finding)
	}
	return f, err
}

// stricter of two policies: hold before fail before replay, and fewer replays.
func stricter(a, b job.Policy) job.Policy {
	rank := func(p job.Policy) int {
		switch {
		case p.Replays() > 0:
			return p.Replays() + 1
		case p.Fails():
			return 1
		}
		return 0
	}
	if rank(b) < rank(a) {
		return b
	}
	return a
}
