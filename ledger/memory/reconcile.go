package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// Sweep implements ledger.Reconciler.
func (l *Ledger) Sweep(ctx context.Context, n int) (ledger.Swept, error) {
	now, unlock, err := l.begin(ctx)
	if err != nil {
		return ledger.Swept{}, err
	}
	defer unlock()
	var s ledger.Swept
	for _, w := range l.workers {
		if !w.closed && !now.Before(w.lease) {
			w.closed = true
			s.Epochs++
		}
	}
	for _, r := range l.rows {
		if len(s.Lapsed)+len(s.Cancelled) >= n {
			break
		}
		switch t, _ := ledger.Pick(l.facts(r, now), "J4", "J19c"); t.ID {
		case "J4":
			r.lapse(t, now, string(ledger.BySweeper))
			s.Lapsed = append(s.Lapsed, r.Key)
		case "J19c":
			r.cancel(t, now, string(ledger.BySweeper), "")
			s.Cancelled = append(s.Cancelled, r.Key)
		}
	}
	return s, nil
}

// Due implements ledger.Reconciler.
func (l *Ledger) Due(ctx context.Context, n int, grace time.Duration, actions ...string) ([]ledger.Stored, error) {
	now, unlock, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var due []ledger.Stored
	size := 0
	for _, r := range l.rows {
		if len(due) >= n || size >= ledger.MaxBody {
			break
		}
		if l.due(r, now, grace) && (len(actions) == 0 || slices.Contains(actions, r.Action)) {
			due = append(due, ledger.Stored{Key: r.Key, Action: r.Action, InputHash: r.InputHash, Input: bytes.Clone(r.input), Origin: r.Origin})
			size += len(r.input)
		}
	}
	return due, nil
}

func (l *Ledger) due(r *row, now time.Time, grace time.Duration) bool {
	f := l.facts(r, now)
	var since time.Time
	switch {
	case !f.InputKept:
		return false
	case r.State == ledger.Ready && f.Due:
		since = r.NextAt
	case r.State == ledger.Running && f.Lapsed && f.OpenCalls == 0:
		since = r.UpdatedAt
	default:
		return false
	}
	return r.Carrier == ledger.CarriedByLedger || now.Sub(since) > grace
}

// Adopt implements ledger.Reconciler.
func (l *Ledger) Adopt(ctx context.Context, a ledger.Adoption) ([]ledger.Adopted, error) {
	if err := a.Check(); err != nil {
		return nil, err
	}
	now, unlock, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if !l.open(a.Worker) {
		return nil, ledger.ErrClosed
	}
	var adopted []ledger.Adopted
	for _, r := range l.rows {
		if r.State == ledger.Unknown && r.Owner == a.Worker && r.adoption == a.Token {
			adopted = append(adopted, r.adopted(now))
		}
	}
	t := ledger.Row("J14")
	for _, r := range l.rows {
		if len(adopted) >= a.Max {
			break
		}
		if t.Allows(l.facts(r, now)) == "" {
			r.Owner, r.adoption = a.Worker, a.Token
			r.look(t, now, a.Worker.ID)
			adopted = append(adopted, r.adopted(now))
		}
	}
	return adopted, nil
}

// look takes a job for a look, on the line of the look before if nothing came between.
func (r *row) look(t ledger.Transition, now time.Time, actor string) {
	line := &r.history[len(r.history)-1]
	if line.Looks == 0 {
		r.move(t, now, actor, "")
		r.history[len(r.history)-1].Looks = 1
		return
	}
	line.Looks++
	r.Fence++
	r.UpdatedAt = now
}

// adopted is the row as its reconciler is told of it.
func (r *row) adopted(now time.Time) ledger.Adopted {
	a := ledger.Adopted{Lease: ledger.Lease{Key: r.Key, Job: r.ID, Fence: r.Fence}, Action: r.Action, InputHash: r.InputHash,
		Input: bytes.Clone(r.input), Since: now.Sub(r.unknownAt), Replays: r.Replays, Now: now}
	for _, b := range r.attempts {
		if b.State == ledger.Sent {
			a.Open = append(a.Open, b.show())
		}
	}
	return a
}

// Resolve implements ledger.Reconciler.
func (l *Ledger) Resolve(ctx context.Context, v ledger.Resolution) (ledger.Released, error) {
	now, unlock, err := l.begin(ctx)
	if err != nil {
		return ledger.Released{}, err
	}
	defer unlock()
	r := l.keys[v.Key]
	if r == nil {
		return ledger.Released{}, ledger.ErrNotFound
	}
	f := l.facts(r, now)
	f.FenceHeld = r.Fence == v.Fence
	who := cmp.Or(v.Who, string(v.By))
	switch v.Action {
	case ledger.Keep:
		err = r.keep(f, v, now, who)
	case ledger.GiveUp:
		err = r.giveUp(f, v, now, who)
	case ledger.Cancel:
		err = r.cancelled(f, v, now, who)
	default:
		err = fmt.Errorf("%w: resolve: no such action as %q", ledger.ErrRequest, v.Action)
	}
	if err != nil {
		return ledger.Released{}, err
	}
	return r.released(now), nil
}

// keep puts an unknown job back for a later look.
func (r *row) keep(f ledger.Facts, v ledger.Resolution, now time.Time, who string) error {
	if f.State != ledger.Unknown || !f.FenceHeld {
		return ledger.ErrLost
	}
	r.disown()
	r.NextAt = now.Add(v.NextIn)
	r.record(r.State, now, who, "kept: "+v.Reason)
	if line, before := len(r.history)-1, len(r.history)-2; r.history[before].Looks > 0 {
		r.history[line].Looks = r.history[before].Looks
		r.history = slices.Delete(r.history, before, line)
	}
	return nil
}

// giveUp ends an unknown job (J17).
func (r *row) giveUp(f ledger.Facts, v ledger.Resolution, now time.Time, who string) error {
	t := ledger.Row("J17")
	if err := ledger.Refusal(t.Allows(f)); err != nil {
		if f.State == ledger.Failed && f.FenceHeld { // its own effect, before a reply that was lost
			return nil
		}
		return err
	}
	r.closeOpen(now, all)
	r.Error = new(ledger.JobError{Class: "held", Text: v.Reason}.Clean())
	r.move(t, now, who, ": "+v.Reason)
	r.disown()
	return nil
}

// cancelled ends a job or flags a running one (J19, J19f).
func (r *row) cancelled(f ledger.Facts, v ledger.Resolution, now time.Time, who string) error {
	t, ok := ledger.Pick(f, "J19", "J19f")
	switch {
	case !ok && f.State == ledger.Cancelled: // its own effect, before a reply that was lost
	case !ok:
		return fmt.Errorf("%w: the job is %s", ledger.ErrState, f.State)
	case t.ID == "J19":
		r.cancel(t, now, who, ": "+v.Reason)
	case !f.Cancel:
		r.Cancel = true
		r.move(t, now, who, ": "+v.Reason)
	}
	return nil
}
