package memory

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// forgotten stands where a job was: ids are not used again.
var forgotten = &row{}

// Purge implements ledger.Purger: keys first, so that no job is gone through twice.
func (l *Ledger) Purge(ctx context.Context, r ledger.Retention) iter.Seq2[ledger.PurgeStep, error] {
	return func(yield func(ledger.PurgeStep, error) bool) {
		if err := r.Check(); err != nil {
			yield(ledger.PurgeStep{}, err)
			return
		}
		batch := cmp.Or(r.Batch, ledger.PurgeBatch)
		for _, step := range []func(context.Context, ledger.Retention, int) (ledger.PurgeStep, error){l.forget, l.strip, l.uncount, l.unbudget} {
			for {
				s, err := step(ctx, r, batch)
				if err == nil && s == (ledger.PurgeStep{}) {
					break
				}
				if !yield(s, err) || err != nil {
					return
				}
			}
		}
	}
}

// forget makes up to n jobs as if they had never been (J20k).
func (l *Ledger) forget(ctx context.Context, r ledger.Retention, n int) (s ledger.PurgeStep, err error) {
	now, unlock, err := l.begin(ctx)
	if err != nil {
		return s, fmt.Errorf("forget old keys: %w", err)
	}
	defer unlock()
	for i, j := range l.rows {
		if s.Keys < n && l.past("J20k", j, now, r.Key) {
			delete(l.keys, j.Key)
			l.rows[i] = forgotten
			l.gone(j.Key.Tenant, j.UpdatedAt)
			s.Keys++
		}
	}
	return s, nil
}

// strip takes the bodies off up to n jobs (J20).
func (l *Ledger) strip(ctx context.Context, r ledger.Retention, n int) (s ledger.PurgeStep, err error) {
	now, unlock, err := l.begin(ctx)
	if err != nil {
		return s, fmt.Errorf("purge results: %w", err)
	}
	defer unlock()
	for _, j := range l.rows {
		if n > 0 && l.past("J20", j, now, r.Result) {
			if bodies := j.strip(); bodies > 0 {
				s.Rows += bodies
				n--
			}
		}
	}
	return s, nil
}

// uncount deletes up to n counts of days that are past the retention of keys.
func (l *Ledger) uncount(ctx context.Context, r ledger.Retention, n int) (s ledger.PurgeStep, err error) {
	now, unlock, err := l.begin(ctx)
	if err != nil {
		return s, fmt.Errorf("purge counts: %w", err)
	}
	defer unlock()
	for k := range l.counts {
		if s.Rows < n && k.day.Before(ledger.DayOf(now.Add(-r.Key))) {
			delete(l.counts, k)
			l.gone(k.tenant, k.day.AddDate(0, 0, 1).Add(-time.Microsecond))
			s.Rows++
		}
	}
	return s, nil
}

// unbudget deletes up to n budgets of days that are past the retention of keys.
func (l *Ledger) unbudget(ctx context.Context, r ledger.Retention, n int) (s ledger.PurgeStep, err error) {
	now, unlock, err := l.begin(ctx)
	if err != nil {
		return s, fmt.Errorf("purge budgets: %w", err)
	}
	defer unlock()
	for k := range l.budgets {
		if s.Rows < n && k.day.Before(ledger.DayOf(now.Add(-r.Key))) {
			delete(l.budgets, k)
			s.Rows++
		}
	}
	return s, nil
}

// gone notes that something of a tenant is forgotten that is dated no later than until.
func (l *Ledger) gone(tenant string, until time.Time) {
	if until.After(l.floor[tenant]) {
		l.floor[tenant] = until
	}
}

// past reports whether the table allows transition id, with the retention that it is about.
func (l *Ledger) past(id string, r *row, now time.Time, keep time.Duration) bool {
	f := l.facts(r, now)
	f.Past = r.UpdatedAt.Before(now.Add(-keep))
	return r != forgotten && ledger.Row(id).Allows(f) == ""
}

// strip takes result, answers and input off the row, and returns how many there were.
func (r *row) strip() (n int) {
	if r.Result != nil {
		r.Result = nil
		n++
	}
	n += len(r.earlier)
	r.earlier = nil
	if r.State == ledger.Done {
		r.Purged = true
	}
	if r.input != nil {
		r.input = nil
		n++
	}
	for _, a := range r.attempts {
		if a.response != nil {
			a.response = nil
			n++
		}
	}
	return n
}
