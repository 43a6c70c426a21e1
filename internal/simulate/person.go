package simulate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/ledger"
)

// jobs reads all of them, by key.
func (w *world) jobs() (all []ledger.Job) {
	for j, err := range w.Ledger.Jobs(context.Background(), ledger.Filter{Limit: 1000}) {
		if err != nil {
			w.violate("reader", "%v", err)
			return nil
		}
		if j, ok := w.row(j.Key); ok {
			all = append(all, j)
		}
	}
	slices.SortFunc(all, func(a, b ledger.Job) int { return strings.Compare(a.Key.Text, b.Key.Text) })
	return all
}

// rest waits until nothing moves any more. What breaks a rule is not waited for.
func (w *world) rest(when string) {
	for range int(patient / (20 * time.Second)) {
		if len(w.moving()) == 0 || w.broken() {
			return
		}
		time.Sleep(20 * time.Second)
	}
	for _, m := range w.moving() {
		w.violate("stuck", "%s: %s", when, m)
	}
}

func (w *world) broken() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.violations) > 0
}

// moving is what should still come to an end by itself.
func (w *world) moving() (all []string) {
	if d := w.Queue.Depth(); d != (memory.Depth{}) {
		all = append(all, fmt.Sprintf("the queue holds %+v", d))
	}
	if n, _ := w.Ledger.CountMessages(context.Background()); n > 0 {
		all = append(all, fmt.Sprintf("%d messages are in the outbox", n))
	}
	for _, j := range w.jobs() {
		if !j.State.Terminal() && !w.isHeld(j) {
			all = append(all, fmt.Sprintf("%s is %s, owned by %q, due in %s", j.Key, j.State, j.Owner.ID, time.Until(j.NextAt)))
		}
	}
	return all
}

// isHeld says whether an unknown job waits for a person, as its policy has it.
func (w *world) isHeld(j ledger.Job) bool {
	if j.State != ledger.Unknown {
		return false
	}
	var since time.Time
	for _, e := range j.History {
		if e.From != e.To && e.To == ledger.Unknown {
			since = e.At
		}
	}
	if time.Since(since) < 3*holdTime {
		return false
	}
	switch j.Action {
	case "one":
		return true
	case "two", "fallback":
		return j.Replays > 0
	}
	return false // the provider tells the truth, or the policy is to fail
}

// person decides about what is held, and orders some jobs to be run again.
func (w *world) person() {
	for _, j := range w.jobs() {
		c, key := w.plan.chance, j.Key.Text
		switch {
		case j.State == ledger.Unknown:
			w.nth("held")
			w.decides(j, c.below(4, "person", key))
		case j.State == ledger.Done && j.Action != "mail" && c.likely(0.1, "again", key):
			w.reopens(j.Key, "once more", false)
		case j.State == ledger.Failed && c.likely(0.3, "retry", key):
			w.reopens(j.Key, "", true)
		}
	}
}

func (w *world) reopens(k ledger.Key, token string, twice bool) {
	_, err := w.Ledger.Reopen(context.Background(), ledger.Reopening{Key: k, Token: token, DoublePay: twice, Reason: "it is wanted", Who: "ann"})
	w.say("ann", "reopens %s (token %q): %v", k, token, err)
}

func (w *world) decides(j ledger.Job, how int) {
	switch how {
	case 0, 1:
		w.settles(j)
	case 2:
		w.resolves(j, ledger.GiveUp)
		w.reopens(j.Key, "", true)
	case 3:
		w.resolves(j, ledger.Cancel)
	}
}

func (w *world) resolves(j ledger.Job, what ledger.Action) {
	_, err := w.Ledger.Resolve(context.Background(), ledger.Resolution{Key: j.Key, Fence: w.fence(j.Key), Action: what, Reason: "decided", By: ledger.ByPerson, Who: "ann"})
	w.say("ann", "resolves %s: %s: %v", j.Key, what, err)
}

func (w *world) fence(k ledger.Key) int64 {
	j, _ := w.row(k)
	return j.Fence
}

// settles tells of each open attempt what the provider's bill says.
func (w *world) settles(j ledger.Job) {
	for _, a := range j.Attempts {
		if a.State != ledger.Sent {
			continue
		}
		e := ledger.Evidence{State: ledger.NotSent, By: ledger.ByPerson, Who: "ann", Reason: "it is not on the bill"}
		if r := w.ranAny(a.ID.String()); r != nil {
			body, _ := json.Marshal(r.text) // a string always encodes
			e = ledger.Evidence{State: ledger.Received, By: ledger.ByPerson, Who: "ann", Reason: "it is on the bill", Cost: &r.cost, CostSource: "provider",
				Response: &ledger.Response{Codec: "json", Body: body}}
		}
		_, err := w.Ledger.Settle(context.Background(), ledger.AttemptID{Tenant: j.Key.Tenant, Job: j.ID, ID: a.ID}, e)
		w.say("ann", "settles %s: %s: %v", w.nameOf(a.ID.String()), e.State, err)
	}
}

// sentKeys are the keys of all messages of producers.
func (w *world) sentKeys() []string {
	keys := map[string]bool{}
	for _, s := range w.plan.sent {
		keys[s.what.JobKey().String()] = true
	}
	return slices.Sorted(maps.Keys(keys))
}
