package memory

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// outgoing is a row of the outbox.
type outgoing struct {
	ledger.Outgoing
	nextAt time.Time // nobody is given it before
}

// put puts what a result asks for into the outbox.
func (l *Ledger) put(r *row, res ledger.Result, now time.Time) {
	for i, m := range res.Messages {
		id := ledger.OutgoingID{Tenant: r.Key.Tenant, Job: r.ID, Result: res.ID, N: i + 1}
		l.outbox = append(l.outbox, &outgoing{ledger.Outgoing{ID: id, Action: m.Action, Body: bytes.Clone(m.Body), Origin: r.Origin}, now.Add(ledger.MessageHold)})
	}
}

// asker is the job that asked for a message.
type asker struct {
	tenant string
	job    int64
}

func (o *outgoing) asker() asker { return asker{o.ID.Tenant, o.ID.Job} }

// TakeMessages implements ledger.Outbox.
func (l *Ledger) TakeMessages(ctx context.Context, n int, hold time.Duration) ([]ledger.Outgoing, error) {
	now, unlock, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	waiting := map[asker]bool{}
	for _, o := range l.outbox {
		if o.nextAt.After(now) {
			waiting[o.asker()] = true
		}
	}
	oldest := slices.DeleteFunc(slices.Clone(l.outbox), func(o *outgoing) bool { return o.nextAt.After(now) })
	slices.SortStableFunc(oldest, func(a, b *outgoing) int { return a.nextAt.Compare(b.nextAt) })
	var all []ledger.Outgoing
	taken := map[asker]bool{}
	for _, due := range oldest[:min(n, len(oldest))] {
		of := due.asker()
		if waiting[of] || taken[of] {
			continue
		}
		taken[of] = true
		for _, o := range l.outbox {
			if o.asker() == of {
				o.nextAt = now.Add(hold)
				all = append(all, o.show())
			}
		}
	}
	return all, nil
}

func (o *outgoing) show() ledger.Outgoing {
	m := o.Outgoing
	m.Body = bytes.Clone(m.Body)
	return m
}

// DropMessages implements ledger.Outbox.
func (l *Ledger) DropMessages(ctx context.Context, ids []ledger.OutgoingID) error {
	_, unlock, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	l.outbox = slices.DeleteFunc(l.outbox, func(o *outgoing) bool { return slices.Contains(ids, o.ID) })
	return nil
}

// CountMessages implements ledger.Outbox.
func (l *Ledger) CountMessages(ctx context.Context) (int, error) {
	_, unlock, err := l.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	return len(l.outbox), nil
}

// AgeMessages lets every message have been in the outbox for d longer.
func (l *Ledger) AgeMessages(d time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.outbox {
		o.nextAt = o.nextAt.Add(-d)
	}
	return nil
}
