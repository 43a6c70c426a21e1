package simulate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/ledger"
)

// The checker's look at the moment when something is done.

// row reads a job as it is.
func (w *world) row(k ledger.Key) (ledger.Job, bool) {
	j, err := w.Ledger.Job(context.Background(), k)
	return j, err == nil
}

// alive notes for how long a worker is.
func (w *world) alive(id ledger.WorkerID, ttl time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leases[id] = time.Now().Add(ttl)
}

func runID(k ledger.Key, fence int64) string { return fmt.Sprintf("%s#%d", k, fence) }

// claimed looks at a claim that was granted: nobody is taken over from who lives and has time left.
func (w *world) claimed(before ledger.Job, r ledger.Request, c ledger.Claimed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if before.State == ledger.Running && before.Fence != c.Lease.Fence {
		now := time.Now()
		if now.Before(w.leases[before.Owner]) && now.Before(w.deadlines[runID(r.Key, before.Fence)]) {
			w.violated("owner", "%s is taken over from %s, which lives", r.Key, before.Owner.ID)
		}
		if before.OpenCalls > 0 {
			w.violated("5 unknown", "%s is run with %d calls open", r.Key, before.OpenCalls)
		}
	}
	if before.State == ledger.Unknown {
		w.violated("5 unknown", "%s is run and unknown", r.Key)
	}
	w.deadlines[runID(r.Key, c.Lease.Fence)] = time.Now().Add(r.MaxRun)
	w.note(r.Worker.ID, "runs %s, fence %d", r.Key, c.Lease.Fence)
}

// gated looks at a gate that opened: no attempt of the call before it is open or answered, and none is closed as unknown without
// a leave on record.
func (w *world) gated(l ledger.Lease, a ledger.Attempt) {
	j, _ := w.row(l.Key)
	w.mu.Lock()
	defer w.mu.Unlock()
	name := fmt.Sprintf("%s/%s#%d", l.Key, callName(a.Call), len(j.Attempts))
	w.attempts[a.ID.String()] = name
	for _, b := range j.Attempts {
		if b.ID == a.ID || b.Call != a.Call || b.Generation != j.Generation {
			continue
		}
		switch {
		case b.State == ledger.Sent:
			w.violated("5 unknown", "%s is sent while attempt %d is open", name, b.N)
		case b.State == ledger.Received:
			w.violated("3 kept", "%s is sent although attempt %d has an answer", name, b.N)
		case b.State == ledger.UnknownAttempt && leaves(j, j.Generation) == 0:
			w.violated("5 unknown", "%s is sent although attempt %d is unknown, and nobody allowed it", name, b.N)
		}
	}
}

func callName(c ledger.CallRef) string {
	if c.InputKey == "" {
		return c.Name
	}
	return c.Name + "." + c.InputKey[:min(4, len(c.InputKey))]
}

// leaves counts the leaves to pay twice that are on record for a generation: replays, and retries by a person who accepts it.
func leaves(j ledger.Job, generation int) (n int) {
	g := 1
	for _, e := range j.History {
		rule, _, _ := strings.Cut(e.Reason, " ")
		switch {
		case rule == "J18":
			g++
		case g != generation:
		case rule == "J16", rule == "J16o", rule == "J18r" && strings.Contains(e.Reason, "may be paid twice"):
			n++
		}
	}
	return n
}

// wired looks at a request that reached the provider; w.mu is held.
func (w *world) wired(r *request) {
	if r.name == "" {
		w.violated("2 gate", "a request of %s/%s is sent without a mark on record", r.key, r.call)
	}
	for _, b := range w.bill {
		if b != r && b.attempt == r.attempt {
			w.violated("2 gate", "%s is sent twice", r.name)
		}
	}
}

// completed looks at a result: it is the only one of its generation.
func (w *world) completed(k ledger.Key, r ledger.Result) {
	j, _ := w.row(k)
	w.mu.Lock()
	defer w.mu.Unlock()
	id := fmt.Sprintf("%s/%d", k, j.Generation)
	if !slices.Contains(w.results[id], r.ID) {
		w.results[id] = append(w.results[id], r.ID)
	}
	if len(w.results[id]) > 1 {
		w.violated("1 result", "%s has %d results in generation %d", k, len(w.results[id]), j.Generation)
	}
	w.used[r.ID] = r.Used
}

// took notes what was handed out.
func (w *world) took(ds []broker.Delivery) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = append(w.held, ds...)
}

// acks looks at a message that is about to be acknowledged: its outcome is durable, or the ledger brings it back.
func (w *world) acks(d broker.Delivery) {
	j, ok := w.row(keyOf(d))
	if !ok || !j.State.Terminal() && j.Carrier != ledger.CarriedByLedger {
		w.violate("4 ack", "the message of %s is acknowledged, and the job is %q, carried by %q", keyOf(d), j.State, j.Carrier)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = slices.DeleteFunc(w.held, func(h broker.Delivery) bool { return h.Receipt == d.Receipt })
}

// publishes notes messages that the broker has.
func (w *world) publishes(ms []broker.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range ms {
		w.published = append(w.published, keyOf(broker.Delivery{Message: m}).Text)
	}
}
