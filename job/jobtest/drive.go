package jobtest

import (
	"time"

	"github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/internal/mortal"
	"github.com/paidonce/paidonce/ledger"
)

// longest is how long a run may take in all; what is not over then never is.
const longest = 10 * 24 * time.Hour

// drive lets time pass until nothing is left to happen, a day and one more delivery of the message included.
func (w *world) drive() {
	copies := 1
	for _, f := range w.faults {
		if f.kind == concurrent {
			copies, f.done = f.n, true
		}
	}
	for range copies {
		w.start()
		w.send()
	}
	begun := time.Now()
	var unknown time.Time // since when something is
	asked := false        // once more, a day later
	for time.Since(begun) < longest {
		time.Sleep(w.pace(begun))
		w.act()
		open, held := w.left()
		switch {
		case held && unknown.IsZero():
			unknown = time.Now()
		case !held:
			unknown = time.Time{}
		case time.Since(unknown) > w.patience():
			w.noteHeld()
			unknown = time.Time{}
			if !w.findOut() && !open && !w.busy() { // nobody ever will
				return
			}
			continue
		}
		if open || held || w.busy() {
			continue
		}
		if asked {
			return
		}
		asked = true
		w.rest(24 * time.Hour)
		w.start()
		w.send()
	}
}

// rest ends the workers and lets time pass without any.
func (w *world) rest(d time.Duration) {
	for _, n := range w.nodes {
		if !n.Frozen() { // the dead are dead
			n.Stop()
			n.Buried()
		}
	}
	w.mu.Lock()
	w.rested = true
	w.mu.Unlock()
	time.Sleep(d)
}

// pace is how long to wait for the next look.
func (w *world) pace(begun time.Time) time.Duration {
	switch d := time.Since(begun); {
	case d < 10*time.Minute:
		return 2 * time.Second
	case d < 6*time.Hour:
		return time.Minute
	}
	return 10 * time.Minute
}

// patience is how long an unknown outcome is left to the policy and to Reconcile.
func (w *world) patience() time.Duration {
	return 2*max(w.Config.Hold, 15*time.Minute, w.Config.SettleWindow) + time.Hour
}

// act does what faults ask for, outside of what they struck.
func (w *world) act() {
	w.mu.Lock()
	fresh, again := w.fresh, w.again
	w.fresh, w.again = 0, 0
	var wake []*mortal.Node
	for _, f := range w.faults {
		switch {
		case f.kind == pause && f.node != nil && f.wait > 0 && time.Since(f.since) >= f.wait:
			wake = append(wake, f.node)
			f.node = nil
		case f.kind == loseLease && f.node != nil && !f.taken:
			f.taken = true
			w.takeAway(f.node)
			fresh++
		case f.kind == loseLease && f.node != nil && time.Since(f.since) >= 2*time.Minute:
			wake = append(wake, f.node)
			f.node = nil
		case f.kind == redeliver && f.done && f.n > 0:
			w.redeliver(f)
		}
	}
	w.mu.Unlock()
	for range fresh {
		w.start()
	}
	for range again {
		w.send()
	}
	for _, n := range wake {
		n.Thaw()
	}
}

// redeliver has the broker take the message back, or sends it again where it is gone. While its next hand-out waits there is nothing to do.
func (w *world) redeliver(f *armed) {
	switch {
	case len(w.hand) > 0 && w.Queue.Lapse(w.hand[len(w.hand)-1]) == nil:
	case w.Queue.Depth() == (memory.Depth{}):
		w.again++
	default:
		return
	}
	f.n--
	if len(w.nodes) == 1 && w.fresh == 0 {
		w.fresh = 1
	}
}

// busy wakes zombies when all else is over, and reports whether anything is still to come.
func (w *world) busy() bool {
	w.mu.Lock()
	var wake *mortal.Node
	left := w.fresh + w.again
	for _, f := range w.faults {
		if f.kind == redeliver && f.done {
			left += f.n
		}
		if f.node != nil {
			left++
			wake, f.node = f.node, nil
		}
	}
	w.mu.Unlock()
	if wake != nil {
		wake.Thaw()
		time.Sleep(10 * time.Minute)
	}
	return left > 0
}

// left reports whether any job is under way, or any message, and whether any outcome is unknown.
func (w *world) left() (open, held bool) {
	if w.Queue.Depth() != (memory.Depth{}) {
		open = true
	}
	for _, j := range w.rows() {
		switch {
		case j.State == ledger.Unknown:
			held = true
		case !j.State.Terminal():
			open = true
		}
	}
	return open, held
}
