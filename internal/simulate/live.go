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
	for old := range w.leases { // a newer life, be it of a join that was given up and came late, ends those before
		if old.ID == id.ID && old.Epoch < id.Epoch {
			delete(w.leases, old)
		}
	}
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

// gated notes the name of an attempt whose gate opened, which may be after its sender gave it up.
func (w *world) gated(l ledger.Lease, a ledger.Attempt) {
	j, _ := w.row(l.Key)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempts[a.ID.String()] = fmt.Sprintf("%s/%s#%d", l.Key, callName(a.Call), len(j.Attempts))
	w.gates[a.ID.String()] = l.Key
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

// wired looks at a request that reached the provider: its mark is on record, it is the only one of its attempt, and of what was sent
// before for the same call nothing is open or answered, nor closed as unknown without a leave on record. w.mu is held.
func (w *world) wired(r *request) {
	key, ok := w.gates[r.attempt]
	if !ok {
		w.violated("2 gate", "a request of %s/%s is sent without a mark on record", r.key, r.call)
		return
	}
	j, _ := w.row(key)
	i := slices.IndexFunc(j.Attempts, func(a ledger.AttemptRow) bool { return a.ID.String() == r.attempt })
	if i < 0 || j.Attempts[i].State != ledger.Sent {
		w.violated("2 gate", "%s is sent, and is not on record as such", r.name)
		return
	}
	a := j.Attempts[i]
	for _, b := range j.Attempts {
		if b.Call == a.Call && b.Generation == a.Generation && w.reached(b.ID.String(), r) {
			w.again(r.name, j, a, b)
		}
	}
}

// reached says that another request of the attempt than r, or of another attempt, reached the provider; w.mu is held.
func (w *world) reached(attempt string, r *request) bool {
	return slices.ContainsFunc(w.bill, func(b *request) bool { return b != r && b.attempt == attempt })
}

// again looks at a call that is sent though it was before, as attempt b; w.mu is held.
func (w *world) again(name string, j ledger.Job, a, b ledger.AttemptRow) {
	switch {
	case a.ID == b.ID:
		w.violated("2 gate", "%s is sent twice", name)
	case b.State == ledger.Sent:
		w.violated("5 unknown", "%s is sent while attempt %d is open", name, b.N)
	case b.State == ledger.Received:
		w.violated("3 kept", "%s is sent although attempt %d has an answer", name, b.N)
	case b.State == ledger.UnknownAttempt && leaves(j, j.Generation) == 0:
		w.violated("5 unknown", "%s is sent although attempt %d is unknown, and nobody allowed it", name, b.N)
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
	busy := w.Config.AckBusy && j.InputKept // duplicates of a running job, as whoever sets it wants: the sweep brings it back, after the grace time
	if !ok || !j.State.Terminal() && j.Carrier != ledger.CarriedByLedger && !busy {
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
