package protocol

import (
	"errors"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// do asks the ledger for what the model did, and compares what it answers.
func (v *rival) do(s step, d deed) error {
	switch d.verb {
	case claims:
		return v.claim(s, d)
	case looks:
		return v.look(d)
	case sends:
		return v.send(s, d)
	case settles:
		return v.settle(s, d)
	case applies:
		was := v.worked
		err := v.Apply(v, v.lease(d.fence), v.attempts[d.n], v.work())
		if worked := v.worked > was; worked != (d.guard == "") {
			return fmt.Errorf("the user's rows were written: %v", worked)
		}
		return answers(err, d.want)
	case completes:
		return answers(v.Complete(v, v.lease(d.fence), ledger.Result{ID: ledger.NewID(), Body: []byte("{}"), Used: []ledger.ID{v.attempts[d.n]}}), d.want)
	case releases:
		return v.release(s, d)
	case carries:
		return answers(v.Carry(v, v.lease(d.fence)), d.want)
	case replays:
		hold := v.over(v.since, func(w *world) bool { return w.row.held }, isUnknown)
		return answers(v.Replay(v, v.lease(d.fence), ledger.ReplayPolicy{Max: int(v.Replays), Hold: hold, Who: "policy", Reason: "replay"}), d.want)
	case submits:
		return v.submit(d)
	case sweeps:
		return v.sweep(d)
	case purges:
		return v.purge(s, d)
	case adopts:
		return v.adopt(s, d)
	case keeps, givesUp, cancels:
		return v.resolve(d)
	case reopens:
		return v.reopen(s, d)
	}
	return errors.New("the rival does not know it")
}

func isUnknown(w *world) bool { return w.row.state == unknown }

func (v *rival) claim(s step, d deed) error {
	other := v.Mismatch && d.copy == 1
	if d.copy == nobody {
		other = v.Mismatch && s.from.row.second
	}
	r := ledger.Request{Key: v.key, Action: "act", InputHash: v.input(other), Input: []byte("{}"), Worker: v.life(int(d.worker), d.epoch, false),
		MaxRuns: int(v.MaxRuns), Budget: ledger.Nano(v.Budget) * cent, MaxCalls: int(v.Calls), Carrier: ledger.CarriedByBroker}
	if d.copy == nobody {
		r.Carrier = ledger.CarriedByLedger
	} else if v.NoInput {
		r.Input = nil
	}
	if _, ok := v.tokens[d.token]; !ok {
		v.tokens[d.token] = ledger.NewID()
	}
	r.Token = v.tokens[d.token]
	fence := s.to.row.fence
	r.MaxRun = v.over(v.at, func(w *world) bool { return w.row.deadlineOver }, func(w *world) bool { return w.row.state == running && w.row.fence == fence })
	if v.Lifetime {
		gen := s.to.row.gen
		r.Lifetime = v.over(v.began, func(w *world) bool { return w.row.lifetimeOver }, func(w *world) bool { return w.row.exists && w.row.gen == gen })
	}
	c, err := v.Claim(v, r)
	if d.want != nil || err != nil {
		return answers(err, d.want)
	}
	if c.Verdict != d.verdict {
		return fmt.Errorf("the ledger says %s, the model %s", c.Verdict, d.verdict)
	}
	if v.job = max(v.job, c.Lease.Job); c.Verdict == ledger.Run && (c.Lease.Fence != int64(d.fence) || c.Run != int(s.to.row.runs)) {
		return fmt.Errorf("the ledger gives run %d under fence %d, the model %d under %d", c.Run, c.Lease.Fence, s.to.row.runs, d.fence)
	}
	return nil
}

// look looks for call d.call, as the run of d.fence does.
func (v *rival) look(d deed) error {
	k, err := v.Look(v, v.lease(d.fence), ledger.CallRef{Name: callNames[d.call]})
	if d.want != nil || err != nil {
		return answers(err, d.want)
	}
	var want ledger.ID
	if d.answer != nobody {
		want = v.attempts[d.answer]
	}
	var got ledger.ID
	if k.Answer != nil {
		got = k.Answer.Attempt
	}
	if got != want || k.Late != int64(d.late) || k.Open > 0 != d.open {
		return fmt.Errorf("the ledger finds %+v, the model the answer of attempt %d, late %d, open %v", k, d.answer+1, d.late, d.open)
	}
	return nil
}

func (v *rival) send(s step, d deed) error {
	a := ledger.Attempt{ID: ledger.NewID(), Call: ledger.CallRef{Name: callNames[d.call]}, Route: "main", Provider: "p", Model: "m", Reserve: cent,
		LateSeen: int64(d.late)}
	if n := d.n; n != nobody {
		v.attempts[n], v.sentAt[n] = a.ID, v.at
		a.Timeout = v.over(v.at, func(w *world) bool { return w.attempts[n].overdue }, func(w *world) bool { return w.attempts[n].state != none })
	}
	if a.Day.Tenant = 1000 * ledger.USD; s.from.dayFull {
		a.Day.Tenant = 1
	}
	if !v.Day {
		a.Day = ledger.DayLimits{}
	}
	if err := answers(v.Send(v, v.lease(d.fence), a), d.want); err != nil || d.want != nil {
		return err
	}
	return answers(v.Send(v, v.lease(d.fence), a), ledger.ErrRepeated)
}

func (v *rival) settle(s step, d deed) error {
	e := ledger.Evidence{State: attemptStates[d.end], By: d.by, Who: "somebody"}
	switch d.end {
	case received:
		e.Cost, e.Response = new(cent), &ledger.Response{Codec: "json", Body: []byte("{}")}
	case rejected:
		e.Cost = new(ledger.Nano(v.Refusal) * cent)
	}
	if d.by == ledger.ByReconciler {
		e.AskedAt = v.asked[whose(s.label)]
		e.SettleWindow = v.over(v.sentAt[d.n], func(w *world) bool { return w.attempts[d.n].settled }, func(w *world) bool { return w.attempts[d.n].state != none }) - 1
	}
	_, err := v.Settle(v, ledger.AttemptID{Tenant: v.key.Tenant, Job: v.job, ID: v.attempts[d.n]}, e)
	return answers(err, d.want)
}

func (v *rival) release(s step, d deed) error {
	fence := s.to.row.fence
	o := ledger.Outcome{Fail: d.fail, Error: ledger.JobError{Class: "retry", Text: "again"}, Who: "run"}
	o.RetryIn = v.over(v.at, func(w *world) bool { return w.row.due }, func(w *world) bool { return w.row.state == ready && w.row.fence == fence })
	got, err := v.Release(v, v.lease(d.fence), o)
	if err == nil && d.want == nil && got.State != states[s.to.row.state] {
		return fmt.Errorf("the ledger says that the job is %s, the model %s", got.State, states[s.to.row.state])
	}
	return answers(err, d.want)
}

func (v *rival) submit(d deed) error {
	if d.rule == "J1s" {
		all, err := v.Submit(v, ledger.Submission{Key: v.key, Action: "act", InputHash: v.input(false), Input: []byte("{}")})
		if err == nil && all[0].New != (d.guard == "") {
			return fmt.Errorf("a row was made: %v", all[0].New)
		}
		return err
	}
	v.mothers++
	r := ledger.Request{Key: ledger.Key{Tenant: "t", Text: fmt.Sprint("t:mother", v.mothers)}, Action: "mother", Token: ledger.NewID(), MaxRun: forever,
		Worker: v.life(0, 200, false), Carrier: ledger.CarriedByBroker}
	c, err := v.Claim(v, r)
	if err != nil {
		return err
	}
	return v.Complete(v, c.Lease, ledger.Result{ID: ledger.NewID(), Steps: []ledger.StepAsk{{Key: v.key, Action: "act", InputHash: v.input(false), Input: []byte("{}")}}})
}

func (v *rival) sweep(d deed) error {
	got, err := v.Sweep(v, 1000)
	if err != nil {
		return err
	}
	lapsed, cancelled := 0, 0
	switch d.got {
	case "J4":
		lapsed = 1
	case "J19c":
		cancelled = 1
	}
	if len(got.Lapsed) != lapsed || len(got.Cancelled) != cancelled || got.Epochs != 0 {
		return fmt.Errorf("the ledger ends %+v, the model makes %q", got, d.got)
	}
	return nil
}

// purge forgets results or keys: all that have ended, if the model says that the time has come.
func (v *rival) purge(s step, d deed) error {
	r := ledger.Retention{Result: forever, Key: forever}
	if s.from.truth.old {
		r.Result = 1
		if d.rule == "J20k" {
			r.Key = 1
		}
	}
	for _, err := range v.Purge(v, r) {
		if err != nil {
			return err
		}
	}
	return nil
}

func (v *rival) adopt(s step, d deed) error {
	all, err := v.Adopt(v, ledger.Adoption{Worker: v.life(int(d.worker), d.epoch, true), Token: ledger.NewID(), Max: 1})
	if err != nil {
		return err
	}
	if len(all) != map[bool]int{true: 1}[d.guard == ""] {
		return fmt.Errorf("the ledger gives %d jobs, the model is refused by %q", len(all), d.guard)
	}
	for _, a := range all {
		if a.Lease.Fence != int64(s.to.row.fence) || len(a.Open) != int(s.to.row.open) || a.Since != time.Duration(v.at-v.since)*minute {
			return fmt.Errorf("the ledger gives %+v, the model %+v, unknown for %d minutes", a, s.to.row, v.at-v.since)
		}
	}
	return nil
}

func (v *rival) resolve(d deed) error {
	r := ledger.Resolution{Key: v.key, Fence: int64(d.fence), Reason: "why", By: ledger.ByPerson, Who: "kim"}
	switch d.verb {
	case keeps:
		at := v.steps[v.at].to.row.fence
		r.Action, r.By = ledger.Keep, ledger.ByReconciler
		r.NextIn = v.over(v.at, func(w *world) bool { return w.row.due }, func(w *world) bool { return isUnknown(w) && w.row.fence == at })
	case givesUp:
		r.Action = ledger.GiveUp
	case cancels:
		r.Action = ledger.Cancel
	}
	_, err := v.Resolve(v, r)
	return answers(err, d.want)
}

func (v *rival) reopen(s step, d deed) error {
	o := ledger.Reopening{Key: v.key, Waiting: d.rule == "J18w", DoublePay: d.order.doublePay, Reason: "why", Who: "kim"}
	if d.rule == "J18" {
		if !d.order.again {
			v.orders++
		}
		o.Token = fmt.Sprint("order ", v.orders)
	}
	got, err := v.Reopen(v, o)
	if d.order.again {
		if err != nil || !got.Again {
			return fmt.Errorf("the ledger answers a repeated order with %+v, %v", got, err)
		}
		return nil
	}
	if d.want != nil || err != nil {
		if d.rule == "J18" {
			v.orders--
		}
		return answers(err, d.want)
	}
	if got.Generation != int(s.to.row.gen) || got.Again {
		return fmt.Errorf("the ledger answers %+v, the model is in generation %d", got, s.to.row.gen)
	}
	return nil
}
