package ledgertest

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/paidonce/paidonce/ledger"
)

// row is a whole job row as a case expects it. What must hold of every row is
// checked beside it, by sound.
type row struct {
	State      ledger.State
	Runs       int
	Replays    int
	Fence      int64
	Open       int
	Cost       string // dollars; "": nil
	Reserved   string // dollars; "": none
	Carrier    ledger.Carrier
	Error      string // its class; "": none
	Result     string // its body; "": none
	Cancel     bool
	Adopted    bool   // unknown, and a reconciler owns it
	Receives   int    // 0: 1
	Generation int    // 0: 1
	Earlier    string // bodies of earlier generations' results, after each a space
	// Attempts in the order of their gates, separated by spaces: the state, then
	// $cost if one is known, then * if it is surplus, then + if its answer is applied.
	Attempts string
}

// row checks the whole row.
func (j *job) row(want row) {
	j.Helper()
	got := j.sound(j.key)
	want.Carrier = cmp.Or(want.Carrier, ledger.CarriedByBroker)
	want.Receives, want.Generation = cmp.Or(want.Receives, 1), cmp.Or(want.Generation, 1)
	have := row{State: got.State, Runs: got.Runs, Replays: got.Replays, Fence: got.Fence, Open: got.OpenCalls,
		Cost: dollars(got.Cost), Carrier: got.Carrier, Cancel: got.Cancel, Receives: got.Receives, Generation: got.Generation,
		Adopted: got.State == ledger.Unknown && got.Owner != ledger.WorkerID{}}
	if got.Reserved != 0 {
		have.Reserved = got.Reserved.String()
	}
	if got.Error != nil {
		have.Error = got.Error.Class
	}
	if got.Result != nil {
		have.Result = string(got.Result.Body)
	}
	for _, r := range got.Earlier {
		have.Earlier += string(r.Result.Body) + " "
	}
	var as []string
	for _, a := range got.Attempts {
		as = append(as, brief(a))
	}
	have.Attempts = strings.Join(as, " ")
	if have != want {
		j.Errorf("row of %s\n got %+v\nwant %+v", j.key, have, want)
	}
}

func brief(a ledger.AttemptRow) string {
	s := string(a.State)
	if a.Evidence.Cost != nil {
		s += "$" + a.Evidence.Cost.String()
	}
	if a.Surplus {
		s += "*"
	}
	if !a.Applied.IsZero() {
		s += "+"
	}
	return s
}

func dollars(n *ledger.Nano) string {
	if n == nil {
		return ""
	}
	return n.String()
}

// read reads a job that must be there.
func (e *env) read(k ledger.Key) ledger.Job {
	e.Helper()
	j, err := e.Store.Job(e.Context(), k)
	if err != nil {
		e.Fatalf("read %s: %v", k, err)
	}
	return j
}

// sound reads a job and checks what must hold of every row, whatever happened.
func (e *env) sound(k ledger.Key) ledger.Job {
	e.Helper()
	j := e.read(k)
	for _, wrong := range append(append(faults(j), moneyFaults(j)...), historyFaults(j)...) {
		e.Errorf("%s: %s", k, wrong)
	}
	return j
}

// faults lists what is wrong with the row itself.
func faults(j ledger.Job) []string {
	owned := j.Owner != ledger.WorkerID{}
	var wrong []string
	for _, c := range []struct {
		holds bool
		what  string
	}{
		{j.Generation >= 1, "its generation is not positive"},
		{j.Runs >= 0 && j.Fence >= 1, "runs or fence are negative"},
		{(j.State == ledger.Unknown) == (j.OpenCalls > 0 && j.State != ledger.Running), "calls are open in a state that does not say so, or unknown without one"},
		{j.State != ledger.Running || owned, "it runs without an owner"},
		{j.State == ledger.Running || j.State == ledger.Unknown || !owned, "it is owned and does not run"},
		{(j.State == ledger.Done) == (j.Result != nil || j.Purged), "it is done without a result, or has one and is not done"},
		{j.Result == nil || !j.Purged, "it has a result that is purged"},
		{(j.State == ledger.Done) == !j.DoneAt.IsZero(), "its time of being done does not fit its state"},
		{j.State != ledger.Done || j.Error == nil, "it is done with an error"},
		{j.State != ledger.Failed || j.Error != nil, "it failed without an error"},
		{j.Carrier == ledger.CarriedByBroker || j.InputKept, "the ledger carries it without its input"},
		{!j.CreatedAt.IsZero() && !j.UpdatedAt.Before(j.CreatedAt), "it was changed before it was created"},
	} {
		if !c.holds {
			wrong = append(wrong, c.what)
		}
	}
	return wrong
}

// moneyFaults lists where the row and its attempts do not add up.
func moneyFaults(j ledger.Job) []string {
	var wrong []string
	var open, calls int
	var reserved ledger.Nano
	var cost *ledger.Nano
	for i, a := range j.Attempts {
		if a.State == ledger.Sent {
			open++
		}
		if a.State != ledger.NotSent && a.Generation == j.Generation {
			calls++
		}
		if a.State == ledger.Sent || a.State == ledger.UnknownAttempt {
			reserved += a.Reserve
		}
		if c := a.Evidence.Cost; c != nil {
			if cost == nil {
				cost = new(ledger.Nano)
			}
			*cost += *c
		}
		if a.N != i+1 || a.SentAt.IsZero() || a.EndedAt.IsZero() != (a.State == ledger.Sent) || a.HasAnswer != (a.State == ledger.Received) {
			wrong = append(wrong, fmt.Sprintf("attempt %d is %s: number %d, sent %v, ended %v, answer kept %v", i+1, a.State, a.N, a.SentAt, a.EndedAt, a.HasAnswer))
		}
		if !a.Applied.IsZero() && (a.State != ledger.Received || a.Applied.Before(a.EndedAt)) {
			wrong = append(wrong, fmt.Sprintf("attempt %d is %s, ended at %v, and its answer is applied at %v", i+1, a.State, a.EndedAt, a.Applied))
		}
		if a.Surplus && a.State != ledger.Received {
			wrong = append(wrong, fmt.Sprintf("attempt %d is surplus and %s", i+1, a.State))
		}
	}
	if open != j.OpenCalls {
		wrong = append(wrong, fmt.Sprintf("the row counts %d open calls, its attempts %d", j.OpenCalls, open))
	}
	if calls != j.Calls {
		wrong = append(wrong, fmt.Sprintf("the row counts %d calls, its attempts %d", j.Calls, calls))
	}
	if reserved != j.Reserved {
		wrong = append(wrong, fmt.Sprintf("the row reserves %s, its attempts %s", j.Reserved, reserved))
	}
	if dollars(cost) != dollars(j.Cost) {
		wrong = append(wrong, fmt.Sprintf("the row cost %q, its attempts %q", dollars(j.Cost), dollars(cost)))
	}
	return wrong
}

// historyFaults lists where the history does not lead to the row's state.
func historyFaults(j ledger.Job) []string {
	var wrong []string
	var at ledger.State
	for i, ev := range j.History {
		if ev.From != at {
			wrong = append(wrong, fmt.Sprintf("line %d of the history goes from %q, the one before to %q", i+1, ev.From, at))
		}
		if ev.At.IsZero() || ev.Actor == "" || i > 0 && ev.At.Before(j.History[i-1].At) {
			wrong = append(wrong, fmt.Sprintf("line %d of the history names no actor or no time, or is out of order: %+v", i+1, ev))
		}
		at = ev.To
	}
	if at != j.State {
		wrong = append(wrong, fmt.Sprintf("the history ends in %q, the job is %s", at, j.State))
	}
	return wrong
}

// dump prints everything about a job that a verb could have changed.
func (e *env) dump(k ledger.Key) string {
	e.Helper()
	j := e.sound(k)
	var b strings.Builder
	fmt.Fprintf(&b, "%s next %d updated %d\n", summary(j), j.NextAt.UnixMicro(), j.UpdatedAt.UnixMicro())
	for _, ev := range j.History {
		fmt.Fprintf(&b, "  %s -> %s by %s: %s (%d)\n", ev.From, ev.To, ev.Actor, ev.Reason, ev.Looks)
	}
	return b.String()
}

// summary prints all of a job that does not depend on the time or the ledger.
func summary(j ledger.Job) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s %s %s gen %d runs %d replays %d fence %d open %d receives %d carrier %s owner %v cancel %v hash %.8s kept %v cost %s reserved %s budget %s calls %d of %d lifetime %s",
		j.Key.Tenant, j.Key.Text, j.Action, j.State, j.Generation, j.Runs, j.Replays, j.Fence, j.OpenCalls, j.Receives, j.Carrier, j.Owner, j.Cancel,
		j.InputHash, j.InputKept, dollars(j.Cost), j.Reserved, j.Budget, j.Calls, j.MaxCalls, j.Lifetime)
	if j.Error != nil {
		fmt.Fprintf(&b, " error %s", j.Error.Class)
	}
	if j.Result != nil {
		fmt.Fprintf(&b, " result %s %s %q", j.Result.ID, j.Result.Schema, j.Result.Body)
	}
	for _, r := range j.Earlier {
		fmt.Fprintf(&b, " result of gen %d %s %s %q", r.Generation, r.Result.ID, r.Result.Schema, r.Result.Body)
	}
	for _, a := range j.Attempts {
		fmt.Fprintf(&b, "\n  %d gen %d fence %d %s surplus %v applied %v answer %v kept %v %s", a.N, a.Generation, a.Fence, a.State, a.Surplus, !a.Applied.IsZero(), a.HasAnswer, a.AnswerKept, attemptText(a))
	}
	return b.String()
}

// attemptText prints what was sent and what is known of it.
func attemptText(a ledger.AttemptRow) string {
	e := a.Evidence
	tokens := func(p *int64) string {
		if p == nil {
			return "?"
		}
		return fmt.Sprint(*p)
	}
	return fmt.Sprintf("%s call %q %q route %s %s %s %s %s timeout %s reserve %s: class %s status %d request %s object %s first %s in %s cached %s out %s cost %s %s",
		a.ID, a.Call.Name, a.Call.InputKey, a.Route, a.Provider, a.Model, a.Config, a.ClientRequestID, a.Timeout, a.Reserve,
		e.Class, e.Status, e.ProviderRequestID, e.ObjectID, e.FirstByte, tokens(e.Usage.In), tokens(e.Usage.Cached), tokens(e.Usage.Out),
		dollars(e.Cost), e.CostSource)
}
