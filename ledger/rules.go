package ledger

import (
	"fmt"
	"time"
)

// What every ledger derives from the table and from the row it has locked.

// Pick returns the one transition of ids that f allows. The guards of the table
// exclude each other; that it allows two is a mistake in the table, and a panic.
func Pick(f Facts, ids ...string) (Transition, bool) {
	var found Transition
	for _, id := range ids {
		t := Row(id)
		if t.Allows(f) != "" {
			continue
		}
		if found.ID != "" {
			panic(fmt.Sprintf("ledger: the table allows %s and %s for %+v", found.ID, id, f))
		}
		found = t
	}
	return found, found.ID != ""
}

// PickClaim returns the transition that a claim makes. A mismatch writes nothing, whatever
// else is due, and the claim that owns the run goes before a take over: its own run
// may go on.
func PickClaim(f Facts) (Transition, bool) {
	ids := []string{"J1", "J2", "J2x", "J3", "J3x"}
	if f.SameInput {
		if t, ok := Pick(f, "J5"); ok {
			return t, true
		}
		ids = append(ids, "J4", "J19c")
	}
	return Pick(f, ids...)
}

// PickRelease returns the transition that ends a run without a result, and the error that
// is kept with it. panics is how many the job has seen before this run.
func PickRelease(f Facts, o Outcome, panics int) (Transition, JobError, bool) {
	poison := o.Panicked && o.MaxPanics > 0 && panics+1 >= o.MaxPanics
	end := "J11"
	if o.Fail || poison {
		end = "J12"
	}
	t, ok := Pick(f, "J13", "J19b", end)
	e := o.Error.Clean()
	if t.ID == "J12" && !o.Fail {
		e.Class = "poison"
	}
	return t, e, ok
}

// Exhausted is the error of a job whose runs are spent; last is that of its last run, if any.
func Exhausted(runs, maxRuns int, last *JobError) JobError {
	text := fmt.Sprintf("%d of %d runs ended without a result", runs, maxRuns)
	if last != nil {
		text += "; the last one: " + last.Class + ": " + last.Text
	}
	return JobError{Class: "exhausted", Text: text}
}

// Refusal is the error for a guard that does not hold, nil for "".
func Refusal(guard string) error {
	switch guard {
	case "":
		return nil
	case "state", "fence", "run_deadline_ahead":
		return ErrLost
	case "none_open":
		return ErrOpen
	case "not_cancelled":
		return ErrCancelled
	case "in_budget":
		return ErrBudget
	case "in_day_budget":
		return ErrDayBudget
	case "calls_left":
		return ErrCalls
	case "in_lifetime":
		return ErrLifetime
	case "late_seen", "first_answer":
		return ErrLate
	case "input_kept":
		return ErrNoInput
	}
	return fmt.Errorf("%w: %s does not hold", ErrState, guard)
}

// ReplayRefusal is the error for a replay (J16, J16o) that f forbids.
func ReplayRefusal(f Facts) error {
	t := Row("J16o")
	if f.State == Unknown {
		t = Row("J16")
	}
	guard := t.Allows(f)
	switch guard {
	case "in_budget", "calls_left", "in_lifetime": // nothing is sent here, so it is no call that is over a limit
		return fmt.Errorf("%w: %s does not hold", ErrState, guard)
	}
	return Refusal(guard)
}

// InBudget reports whether a job that has spent cost (nil: nothing that is known) and holds
// reserved may spend more. A budget of 0 is none. It does not overflow.
func InBudget(budget Nano, cost *Nano, reserved, more Nano) bool {
	var spent Nano
	if cost != nil {
		spent = *cost
	}
	return budget == 0 || more <= budget-spent-reserved
}

// CallsLeft reports whether a job that has sent so many calls in its generation may send so many more. A limit of 0 is none.
func CallsLeft(limit, sent, more int) bool { return limit == 0 || more <= limit-sent }

// InLifetime reports whether a generation that began at began may still send calls at now. A lifetime of 0 does not end.
func InLifetime(lifetime time.Duration, began, now time.Time) bool {
	return lifetime == 0 || now.Sub(began) < lifetime
}

// Counts reports whether an attempt in that state is one of its job's calls: it was sent, or may have been.
func (s AttemptState) Counts() bool { return s != NotSent }

// Settleable says whether a definite "no" about an attempt that was sent at sentAt proves
// anything at now, both on the ledger's clock. A request that was sent just before
// the lookup may still land; the sender and a person know better.
func (e Evidence) Settleable(sentAt, now time.Time) bool {
	if e.By != ByReconciler {
		return true
	}
	asked := e.AskedAt
	if asked.After(now) {
		asked = now
	}
	return e.SettleWindow > 0 && asked.After(sentAt.Add(e.SettleWindow))
}
