package ledgertest

import (
	"fmt"
	"strings"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// The operations of workers, reconcilers, people and time.

// join lets a worker join on both ledgers.
func (w *world) join(n int) {
	w.Helper()
	var ids [2]ledger.WorkerID
	name := fmt.Sprintf("%s worker %d", w.tenant, n)
	w.both("join "+name, nil, func(i int, h *Harness) string {
		var err error
		ids[i], err = h.Store.Join(w.Context(), ledger.Worker{ID: name, TTL: ttl})
		return word(err)
	})
	if ids[0] != ids[1] { // all later answers are compared by it
		w.fail("joined as %v, want %v", ids[0], ids[1])
	}
	for id := range w.open {
		if id.ID == name {
			delete(w.open, id)
		}
	}
	w.workers = append(w.workers, ids[1])
	w.open[ids[1]] = true
}

func (w *world) opWorker(*played) {
	w.Helper()
	id := w.workers[w.IntN(len(w.workers))]
	switch w.IntN(4) {
	case 0:
		w.join(w.IntN(3))
	case 1:
		delete(w.open, id)
		w.both(fmt.Sprint("leave ", id), nil, func(_ int, h *Harness) string { return word(h.Store.Leave(w.Context(), id)) })
	case 2:
		delete(w.lapsed, id)
		w.both(fmt.Sprint("renew ", id), nil, func(_ int, h *Harness) string {
			r, err := h.Store.Renew(w.Context(), id, ttl)
			return word(err) + " cancelled " + keysText(r.Cancelled)
		})
	default:
		if w.open[id] {
			w.lapsed[id] = true
			w.both(fmt.Sprint("the lease is over of ", id), nil, func(_ int, h *Harness) string { h.LapseWorker(id); return "" })
		}
	}
}

func keysText(ks []ledger.Key) string {
	var s []string
	for _, k := range ks {
		s = append(s, k.Tenant+"/"+k.Text)
	}
	return strings.Join(sorted(s), ", ")
}

func (w *world) opLapseRun(j *played) {
	w.Helper()
	if j.made && w.state(j).State == ledger.Running {
		w.both("the run deadline is over of "+j.req.Key.Text, j, func(_ int, h *Harness) string { h.LapseRun(j.req.Key); return "" })
	}
}

func (w *world) opAge(j *played) {
	w.Helper()
	if !j.made {
		return
	}
	k := j.req.Key
	switch s := w.state(j).State; {
	case w.chance(2):
		w.both("time passes for the attempts of "+k.Text, j, func(_ int, h *Harness) string { h.AgeAttempts(k, 2*time.Hour); return "" })
	case s == ledger.Unknown:
		w.both("time passes for the unknown "+k.Text, j, func(_ int, h *Harness) string { h.AgeUnknown(k, 2*time.Hour); return "" })
	default:
		w.both("time passes for "+k.Text, j, func(_ int, h *Harness) string { h.AgeRow(k, 90*time.Minute); return "" })
	}
}

// opDue lets a job be due, or asks what is.
func (w *world) opDue(j *played) {
	w.Helper()
	if s := w.sides[1]; j.made && w.chance(2) {
		row, err := s.Store.Job(w.Context(), j.req.Key)
		if err == nil && (row.State == ledger.Ready || row.State == ledger.Unknown) {
			w.both("it is due: "+j.req.Key.Text, j, func(_ int, h *Harness) string { h.MakeDue(j.req.Key); return "" })
			return
		}
	}
	grace := pick(w, time.Hour, 5*time.Hour)
	actions := pick(w, nil, []string{j.req.Action})
	w.both(fmt.Sprint("due after ", grace, " of ", actions), nil, func(_ int, h *Harness) string {
		due, err := h.Store.Due(w.Context(), 1000, grace, actions...)
		var s []string
		for _, d := range due {
			s = append(s, fmt.Sprintf("%s/%s %s %s %q", d.Key.Tenant, d.Key.Text, d.Action, d.InputHash, d.Input))
		}
		return word(err) + " " + strings.Join(sorted(s), ", ")
	})
}

func (w *world) opSweep(*played) {
	w.Helper()
	for id := range w.lapsed {
		delete(w.open, id)
		delete(w.lapsed, id)
	}
	w.both("sweep", nil, func(_ int, h *Harness) string {
		s, err := h.Store.Sweep(w.Context(), 1000)
		return fmt.Sprintf("%s epochs %d lapsed %s cancelled %s", word(err), s.Epochs, keysText(s.Lapsed), keysText(s.Cancelled))
	})
	w.sameAll()
}

func (w *world) sameAll() {
	w.Helper()
	for _, j := range w.jobs {
		w.same(j)
	}
	w.both("budgets", nil, func(_ int, h *Harness) string {
		all, err := h.Store.Budgets(w.Context(), ledger.BudgetFilter{Day: time.Now(), Tenant: w.tenant})
		s := []string{word(err)}
		for _, b := range all {
			s = append(s, budgetText(b))
		}
		return strings.Join(s, "\n      ")
	})
}

// opList asks what people ask.
func (w *world) opList(*played) {
	w.Helper()
	f := ledger.Filter{Tenant: w.tenant, State: pick(w, append(ledger.States(), "", "")...), Limit: pick(w, 0, 1, 2)}
	w.both(fmt.Sprintf("jobs %+v", f), nil, func(_ int, h *Harness) string {
		var s []string
		for j, err := range h.Store.Jobs(w.Context(), f) {
			s = append(s, word(err)+" "+summary(j))
		}
		return strings.Join(s, "\n      ")
	})
	w.both("unknowns", nil, func(_ int, h *Harness) string {
		counts, err := h.Store.Unknowns(w.Context())
		var s strings.Builder
		s.WriteString(word(err))
		for _, c := range counts {
			fmt.Fprintf(&s, ", %s %d %s", c.Action, c.Count, later(c.Oldest))
		}
		return s.String()
	})
}

// opCosts compares a report. The two ledgers' clocks may stand on either side of a midnight, so it has no days.
func (w *world) opCosts(*played) {
	w.Helper()
	f := ledger.CostFilter{Tenant: w.tenant, By: pick(w, "", ledger.PerAction, ledger.PerTenant, ledger.PerModel), Action: pick(w, "", "", w.jobs[0].req.Action)}
	w.both(fmt.Sprintf("costs %+v", f), nil, func(_ int, h *Harness) string {
		c, err := h.Store.Costs(w.Context(), f)
		s := []string{word(err) + " " + costText(c.Total)}
		for _, g := range c.Groups {
			s = append(s, costText(g))
		}
		return strings.Join(s, "\n      ")
	})
}

// opCount counts avoided deliveries, twice now and then.
func (w *world) opCount(j *played) {
	w.Helper()
	id, batch := w.workers[w.IntN(len(w.workers))], ledger.NewID()
	n := w.Int64N(5) + 1
	a := ledger.Avoided{Day: time.Now(), Tenant: w.tenant, Action: j.req.Action, Cause: pick(w, ledger.Causes()...), Count: n, Saved: pick(w, 0, cent, 1), Unpriced: w.Int64N(n + 1)}
	for range pick(w, 1, 1, 2) {
		w.both(fmt.Sprintf("count by %v: %+v", id, a), nil, func(_ int, h *Harness) string {
			return word(h.Store.Count(w.Context(), id, batch, []ledger.Avoided{a, a}))
		})
	}
}

func (w *world) opAdopt(*played) {
	w.Helper()
	id := w.workers[w.IntN(len(w.workers))]
	if w.adoption.IsZero() || w.chance(2) {
		w.adoption = ledger.NewID()
	}
	a := ledger.Adoption{Worker: id, Token: w.adoption, Max: 1000}
	found := map[string]*[2]ledger.Lease{}
	w.both(fmt.Sprint("adopt by ", id, " with token ", a.Token), nil, func(i int, h *Harness) string {
		as, err := h.Store.Adopt(w.Context(), a)
		var s []string
		for _, a := range as {
			if found[a.Lease.Key.Text] == nil {
				found[a.Lease.Key.Text] = new([2]ledger.Lease)
			}
			found[a.Lease.Key.Text][i] = a.Lease
			s = append(s, adoptedText(a))
		}
		return word(err) + " " + strings.Join(sorted(s), ", ")
	})
	for _, j := range w.jobs {
		if l := found[j.req.Key.Text]; l != nil {
			j.leases = append(j.leases, *l)
		}
	}
	w.sameAll()
}

func adoptedText(a ledger.Adopted) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s/%s fence %d %s %s %q replays %d since %s", a.Lease.Key.Tenant, a.Lease.Key.Text, a.Lease.Fence, a.Action, a.InputHash, a.Input, a.Replays, later(a.Since))
	for _, o := range a.Open {
		s.WriteString(" open " + attemptText(o))
	}
	return s.String()
}

func (w *world) opResolve(j *played) {
	w.Helper()
	var fence int64
	if j.made {
		fence = w.state(j).Fence - int64(w.IntN(4)/3)
	}
	w.resolve(j, pick(w, ledger.Keep, ledger.Keep, ledger.GiveUp, ledger.Cancel), fence)
}

func (w *world) resolve(j *played, a ledger.Action, fence int64) {
	w.Helper()
	v := ledger.Resolution{Key: j.req.Key, Fence: fence, Action: a, Reason: "why", By: ledger.ByPerson, Who: "kim", NextIn: pick(w, 0, time.Hour)}
	w.both(fmt.Sprintf("%s %s under fence %d, next look in %s", a, j.req.Key.Text, fence, v.NextIn), j, func(_ int, h *Harness) string {
		return releasedText(h.Store.Resolve(w.Context(), v))
	})
}

func (w *world) opReopen(j *played) {
	w.Helper()
	o := ledger.Reopening{Key: j.req.Key, Token: pick(w, "", "", "t1", "t2", "t3"), DoublePay: w.chance(2), Reason: "why", Who: "kim"}
	w.both(fmt.Sprintf("reopen %s, token %q, paying twice allowed: %v", o.Key.Text, o.Token, o.DoublePay), j, func(_ int, h *Harness) string {
		r, err := h.Store.Reopen(w.Context(), o)
		return fmt.Sprintf("%s %+v", word(err), r)
	})
}
