package ledgertest

import (
	"fmt"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// The operations of runs.

func (w *world) opClaim(j *played) {
	w.Helper()
	r := j.req
	r.Worker, r.Token = w.workers[w.IntN(len(w.workers))], ledger.NewID()
	r.MaxRuns, r.Budget, r.Receives = pick(w, 0, 0, 1, 2), pick(w, 0, 2*cent, 8*cent), w.IntN(5)
	r.MaxCalls, r.Lifetime = pick(w, 0, 0, 1, 3), pick(w, 0, 0, time.Hour, 4*time.Hour)
	if w.chance(4) && len(j.tokens) > 0 {
		r.Token = j.tokens[w.IntN(len(j.tokens))]
	}
	if w.chance(5) {
		r.Carrier = ledger.CarriedByLedger
	}
	if j.made && w.chance(12) {
		r.InputHash[0]++
	}
	j.tokens = append(j.tokens, r.Token)
	var lease [2]ledger.Lease
	what := fmt.Sprintf("claim %s by %v, token %d of %d, at most %d runs, budget %s, %d calls, lifetime %s, carrier %s, other input %v", r.Key.Text, r.Worker,
		len(j.tokens), len(j.tokens), r.MaxRuns, r.Budget, r.MaxCalls, r.Lifetime, r.Carrier, r.InputHash != j.req.InputHash)
	w.both(what, j, func(i int, h *Harness) string {
		c, err := h.Store.Claim(w.Context(), r)
		if err != nil {
			return word(err)
		}
		j.made = true
		if c.Verdict == ledger.Run {
			lease[i], j.ids[i] = c.Lease, c.Lease.Job
		}
		return claimText(c)
	})
	if lease[1].Fence > 0 {
		j.leases = append(j.leases, lease)
	}
}

func claimText(c ledger.Claimed) string {
	s := fmt.Sprintf("%s run %d generation %d carrier %s fence %d %s", c.Verdict, c.Run, c.Generation, c.Carrier, c.Lease.Fence, later(c.RetryIn))
	if c.Result != nil {
		s += fmt.Sprintf(" result %s %s %s cost %s", c.Result.ID, c.Result.Schema, c.Result.Body, dollars(c.Cost))
	}
	if c.Error != nil {
		s += " error " + c.Error.Class
	}
	if c.Stored != nil {
		s += fmt.Sprintf(" stored %s %s", c.Stored.Action, c.Stored.InputHash)
	}
	return s
}

// lease is one of the job's leases, mostly the last one. Without any it is one of no row.
func (w *world) lease(j *played) [2]ledger.Lease {
	switch n := len(j.leases); {
	case n == 0:
		l := ledger.Lease{Key: j.req.Key, Job: 1 << 40, Fence: 1}
		return [2]ledger.Lease{l, l}
	case w.chance(6):
		return j.leases[w.IntN(n)]
	default:
		return j.leases[n-1]
	}
}

func (w *world) opSend(j *played) {
	w.Helper()
	lease := w.lease(j)
	a := call(pick(w, "one", "two"))
	a.Call.InputKey, a.Reserve, a.Model = pick(w, "", "", "k"), pick(w, 0, cent, 2*cent), pick(w, "m1", "m2")
	if k, err := w.sides[1].Store.Look(w.Context(), lease[1], a.Call); err == nil {
		a.LateSeen = k.Late
	}
	a.Day = ledger.DayLimits{Tenant: pick(w, 0, 0, 10*cent), Action: pick(w, 0, 0, 8*cent)}
	if w.chance(10) {
		a.LateSeen = w.Int64N(3)
	}
	if w.chance(8) && len(j.attempts) > 0 {
		a.ID = j.attempts[w.IntN(len(j.attempts))].ID
	}
	what := fmt.Sprintf("send %s under fence %d: %s of call %s %q reserving %s, late seen %d, day %v", j.req.Key.Text, lease[1].Fence, a.ID, a.Call.Name, a.Call.InputKey, a.Reserve, a.LateSeen, a.Day)
	if w.both(what, j, func(i int, h *Harness) string { return word(h.Store.Send(w.Context(), lease[i], a)) }) == "ok" {
		j.attempts = append(j.attempts, a)
	}
}

func (w *world) opLook(j *played) {
	w.Helper()
	lease := w.lease(j)
	ref := ledger.CallRef{Name: pick(w, "one", "two"), InputKey: pick(w, "", "k")}
	w.both(fmt.Sprintf("look %s under fence %d for %v", j.req.Key.Text, lease[1].Fence, ref), nil, func(i int, h *Harness) string {
		k, err := h.Store.Look(w.Context(), lease[i], ref)
		s := fmt.Sprintf("%s attempts %d open %d late %d", word(err), k.Attempts, k.Open, k.Late)
		if k.Answer != nil {
			s += fmt.Sprintf(" answer %s %s %q panics %d", k.Answer.Attempt, k.Answer.Route, k.Answer.Response.Body, k.Answer.Panics)
		}
		return s
	})
}

func (w *world) opSettle(j *played) {
	w.Helper()
	if len(j.attempts) == 0 && !w.chance(10) {
		w.opSend(j)
		return
	}
	id := ledger.NewID()
	if len(j.attempts) > 0 && !w.chance(30) {
		id = j.attempts[len(j.attempts)-1-min(len(j.attempts)-1, w.IntN(4))].ID
	}
	ev := ledger.Evidence{State: pick(w, ledger.Received, ledger.Received, ledger.Received, ledger.NotSent, ledger.Rejected, ledger.FailedAttempt, ledger.Sent),
		By: pick(w, ledger.BySender, ledger.BySender, ledger.ByReconciler, ledger.ByPerson), Who: "w1", Class: pick(w, "", "timeout", "ok"),
		Status: pick(w, 0, 200), ProviderRequestID: pick(w, "", "req"), CostSource: "computed"}
	if !w.chance(3) {
		ev.Cost = new(pick(w, 0, cent/2, cent, 2*cent))
	}
	if w.chance(2) {
		ev.Usage.In = new(w.Int64N(100))
	}
	if ev.State == ledger.Received {
		ev.Response = &ledger.Response{Codec: "json", Body: fmt.Appendf(nil, "%d", w.IntN(1000))}
	}
	if ev.By == ledger.ByReconciler {
		ev.AskedAt, ev.SettleWindow = time.Now(), pick(w, window, window, 0)
	}
	w.both(fmt.Sprintf("settle %s: %s as %s by the %s at %q, cost %s, window %s", j.req.Key.Text, id, ev.State, ev.By, ev.Class, dollars(ev.Cost), ev.SettleWindow), j, func(i int, h *Harness) string {
		s, err := h.Store.Settle(w.Context(), ledger.AttemptID{Tenant: w.tenant, Job: j.ids[i], ID: id}, ev)
		return fmt.Sprintf("%s %s surplus %v", word(err), s.Job, s.Surplus)
	})
}

func (w *world) opComplete(j *played) {
	w.Helper()
	lease := w.lease(j)
	r := ledger.Result{ID: ledger.NewID(), Body: fmt.Appendf(nil, "%d", w.IntN(1000)), Schema: "s/1"}
	for _, a := range j.attempts {
		if !w.chance(3) {
			r.Used = append(r.Used, a.ID)
		}
	}
	for w.chance(2) && len(r.Steps) < len(w.jobs) {
		s := w.jobs[w.IntN(len(w.jobs))].req
		ask := ledger.StepAsk{Key: s.Key, Action: s.Action, InputHash: s.InputHash, Input: s.Input}
		if ask.Input == nil {
			ask.Input = []byte("{}")
		}
		if w.chance(6) {
			ask.InputHash[0]++
		}
		r.Steps = append(r.Steps, ask) // the job itself, or one twice, is refused
	}
	if w.chance(4) && len(j.results) > 0 {
		r = j.results[w.IntN(len(j.results))]
	}
	j.results = append(j.results, r)
	mark, failing := fmt.Sprintf("%s %s", w.tenant, r.ID), w.chance(5)
	var asked []string
	for _, s := range r.Steps {
		asked = append(asked, fmt.Sprintf("%s %x", s.Key.Text, s.InputHash[:1]))
	}
	w.both(fmt.Sprintf("complete %s under fence %d: %s, failing hook %v, steps %v", j.req.Key.Text, lease[1].Fence, r.ID, failing, asked), j, func(i int, h *Harness) string {
		r := r
		r.Hooks = []ledger.Hook{h.Hook(mark)}
		if failing {
			r.Hooks = append(r.Hooks, h.FailingHook(errBoom))
		}
		return word(h.Store.Complete(w.Context(), lease[i], r))
	})
	for _, s := range w.jobs {
		_, err := w.sides[1].Store.Job(w.Context(), s.req.Key)
		s.made = err == nil
	}
	w.sameAll()
}

func (w *world) opApply(j *played) {
	w.Helper()
	lease, id, failing := w.lease(j), ledger.NewID(), w.chance(5)
	if len(j.attempts) > 0 && !w.chance(10) {
		id = j.attempts[len(j.attempts)-1-min(len(j.attempts)-1, w.IntN(4))].ID
	}
	mark := fmt.Sprintf("%s %s", w.tenant, id)
	w.both(fmt.Sprintf("apply %s under fence %d: %s, failing %v", j.req.Key.Text, lease[1].Fence, id, failing), j, func(i int, h *Harness) string {
		work := h.Hook(mark)
		if failing {
			work = h.FailingHook(errBoom)
		}
		return word(h.Store.Apply(w.Context(), lease[i], id, work))
	})
}

func (w *world) opRelease(j *played) {
	w.Helper()
	lease := w.lease(j)
	o := outcome()
	o.Fail, o.GiveBack, o.Panicked, o.MaxPanics = w.chance(8), w.chance(3), w.chance(4), pick(w, 0, 1, 2)
	o.RetryIn = pick(w, 0, 0, time.Hour)
	o.Error.Class = pick(w, "retry", "drain", "panic")
	w.both(fmt.Sprintf("release %s under fence %d: %+v", j.req.Key.Text, lease[1].Fence, o), j, func(i int, h *Harness) string {
		r, err := h.Store.Release(w.Context(), lease[i], o)
		return releasedText(r, err)
	})
}

func releasedText(r ledger.Released, err error) string {
	return fmt.Sprintf("%s %s carrier %s %s", word(err), r.State, r.Carrier, later(r.RetryIn))
}

func (w *world) opCarry(j *played) {
	w.Helper()
	lease := w.lease(j)
	w.both(fmt.Sprintf("carry %s under fence %d", j.req.Key.Text, lease[1].Fence), j, func(i int, h *Harness) string {
		return word(h.Store.Carry(w.Context(), lease[i]))
	})
}

func (w *world) opReplay(j *played) {
	w.Helper()
	if j.made && w.chance(2) { // else it hardly ever may
		w.both("time passes for the attempts of "+j.req.Key.Text, nil, func(_ int, h *Harness) string { h.AgeAttempts(j.req.Key, 2*time.Hour); return "" })
	}
	lease := w.lease(j)
	p := ledger.ReplayPolicy{Max: pick(w, 0, 1, 2, 3), Hold: pick(w, 0, time.Hour), Who: "w1", Reason: "policy"}
	w.both(fmt.Sprintf("replay %s under fence %d: %+v", j.req.Key.Text, lease[1].Fence, p), j, func(i int, h *Harness) string {
		return word(h.Store.Replay(w.Context(), lease[i], p))
	})
}
