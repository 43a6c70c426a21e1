package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// Sweep implements ledger.Reconciler.
func (l *Ledger) Sweep(ctx context.Context, n int) (ledger.Swept, error) {
	return write(ctx, l, "sweep", func(t *tx) (ledger.Swept, error) { return t.sweep(n) })
}

func (t *tx) sweep(n int) (ledger.Swept, error) {
	var s ledger.Swept
	var err error
	if s.Epochs, err = t.exec("sweep_workers", micros(t.now)); err != nil {
		return s, err
	}
	rows, err := many(context.Background(), t, readRow, "sweepable", micros(t.now), n)
	if err != nil {
		return s, err
	}
	for _, r := range rows {
		rule, ok := ledger.Pick(r.facts(t.now), "J4", "J19c")
		if !ok {
			return s, fmt.Errorf("sweep: the statement lists job %s, which the table leaves alone", r.Key)
		}
		if rule.ID == "J4" {
			r.lapse(rule, t.now, string(ledger.BySweeper))
			s.Lapsed = append(s.Lapsed, r.Key)
		} else {
			if err := t.cancel(r, rule, string(ledger.BySweeper), ""); err != nil {
				return s, err
			}
			s.Cancelled = append(s.Cancelled, r.Key)
		}
		if err := t.save(r); err != nil {
			return s, err
		}
	}
	return s, nil
}

// Due implements ledger.Reconciler.
func (l *Ledger) Due(ctx context.Context, n int, grace time.Duration, actions ...string) ([]ledger.Stored, error) {
	now, any := clock(), len(actions) == 0
	names, err := json.Marshal(actions)
	if err != nil {
		return nil, err
	}
	found, err := many(ctx, l.readers, readStored, "due", micros(now), micros(now.Add(-grace)), n, any, string(names))
	var due []ledger.Stored
	for size := 0; err == nil && len(due) < len(found) && size < ledger.MaxBody; {
		j := found[len(due)]
		j.Input, j.Fault, err = input(join(ctx, l.readers, j.Key.Tenant, j.job, j.Input))
		due, size = append(due, j.Stored), size+len(j.Input)
	}
	if err != nil {
		return nil, fmt.Errorf("list the jobs to run from the ledger: %w", explain(err))
	}
	return due, nil
}

// stored is a job to run from the ledger, with what its input's row holds.
type stored struct {
	ledger.Stored
	job int64
}

func readStored(s scanner) (j stored, err error) {
	var hash []byte
	var origin *string
	if err := s.Scan(&j.job, &j.Key.Tenant, &j.Key.Text, &j.Action, &hash, &j.Input, &origin); err != nil {
		return j, err
	}
	copy(j.InputHash[:], hash)
	j.Origin, err = readOrigin(origin)
	return j, err
}

// Adopt implements ledger.Reconciler.
func (l *Ledger) Adopt(ctx context.Context, a ledger.Adoption) ([]ledger.Adopted, error) {
	if err := a.Check(); err != nil {
		return nil, err
	}
	return write(ctx, l, "adopt unknown jobs", func(t *tx) ([]ledger.Adopted, error) { return t.adopt(a) })
}

func (t *tx) adopt(a ledger.Adoption) ([]ledger.Adopted, error) {
	if open, err := t.open(a.Worker); err != nil || !open {
		return nil, orClosed(err)
	}
	rows, err := many(context.Background(), t, readRow, "adopted", a.Worker.ID, a.Worker.Epoch, a.Token[:])
	if err != nil {
		return nil, err
	}
	more, err := many(context.Background(), t, readRow, "adoptable", micros(t.now), max(0, a.Max-len(rows)))
	if err != nil {
		return nil, err
	}
	rule := ledger.Row("J14")
	for _, r := range more {
		if guard := rule.Allows(r.facts(t.now)); guard != "" {
			return nil, fmt.Errorf("adopt: the statement lists job %s, and %s does not hold", r.Key, guard)
		}
		r.Owner = a.Worker
		if err := t.look(r, rule, a.Worker.ID); err != nil {
			return nil, err
		}
		if err := t.save(r); err != nil {
			return nil, err
		}
		if _, err := t.exec("adopt", a.Token[:], r.Key.Tenant, r.ID); err != nil {
			return nil, err
		}
	}
	var adopted []ledger.Adopted
	for _, r := range append(rows, more...) {
		one, err := t.adopted(r)
		if err != nil {
			return nil, err
		}
		adopted = append(adopted, one)
	}
	return adopted, nil
}

// look takes a job for a look, on the line of the look before if nothing came between.
func (t *tx) look(r *row, rule ledger.Transition, actor string) error {
	same, err := t.exec("look_again", r.Key.Tenant, r.ID, r.events)
	r.move(rule, t.now, actor, "")
	if r.news[0].Looks = 1; same > 0 {
		r.news = nil
	}
	return err
}

// adopted is the row as its reconciler is told of it.
func (t *tx) adopted(r *row) (ledger.Adopted, error) {
	a := ledger.Adopted{Lease: ledger.Lease{Key: r.Key, Job: r.ID, Fence: r.Fence}, Action: r.Action, InputHash: r.InputHash,
		Since: t.now.Sub(r.unknownAt), Replays: r.Replays, Now: t.now}
	var err error
	if r.InputKept {
		if a.Input, err = one(context.Background(), t, scalar[[]byte], "input_read", r.Key.Tenant, r.ID); err != nil {
			return a, err
		}
		if a.Input, a.Fault, err = input(join(context.Background(), t, r.Key.Tenant, r.ID, a.Input)); err != nil {
			return a, err
		}
	}
	a.Open, err = attempts(context.Background(), t, r.Key.Tenant, r.ID, ledger.Sent)
	return a, err
}
