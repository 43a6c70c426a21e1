package sqlite

import (
	"cmp"
	"context"
	"iter"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// Purge implements ledger.Purger. A step is a part of the writer's next transaction. The file
// does not shrink: what is freed is used again.
func (l *Ledger) Purge(ctx context.Context, r ledger.Retention) iter.Seq2[ledger.PurgeStep, error] {
	return func(yield func(ledger.PurgeStep, error) bool) {
		if err := r.Check(); err != nil {
			yield(ledger.PurgeStep{}, err)
			return
		}
		batch := cmp.Or(r.Batch, ledger.PurgeBatch)
		for _, p := range []struct {
			what string
			step func(t *tx, keep time.Duration, n int) (ledger.PurgeStep, int, error)
			keep time.Duration
		}{{"purge results", (*tx).purge, r.Result}, {"forget old keys", (*tx).forget, r.Key}, {"purge counts", (*tx).uncount, r.Key}} {
			for jobs := batch; jobs == batch; {
				s, err := write(ctx, l, p.what, func(t *tx) (s ledger.PurgeStep, err error) {
					s, jobs, err = p.step(t, p.keep, batch)
					return s, err
				})
				if (err != nil || jobs > 0) && !yield(s, err) || err != nil {
					return
				}
			}
		}
	}
}

// purge takes the bodies off up to n jobs that have not changed for keep (J20), and returns
// off how many.
func (t *tx) purge(keep time.Duration, n int) (s ledger.PurgeStep, jobs int, err error) {
	if s.Rows, err = t.past(keep, n, "purge_result", "purge_response", "purge_input", "purge_chunk"); err != nil {
		return s, 0, err
	}
	jobs, err = t.past(keep, n, "purge_mark")
	return s, jobs, err
}

// forget deletes up to n jobs that have not changed for keep (J20k): their bodies are gone.
func (t *tx) forget(keep time.Duration, n int) (s ledger.PurgeStep, jobs int, err error) {
	if s.Rows, err = t.past(keep, n, "forget_attempt", "forget_event", "forget_rerun", "forget_step"); err != nil {
		return s, 0, err
	}
	if _, err = t.past(keep, n, "forget_floor"); err != nil {
		return s, 0, err
	}
	s.Keys, err = t.past(keep, n, "forget_job")
	return s, s.Keys, err
}

// uncount deletes up to n counts of days that are past keep.
func (t *tx) uncount(keep time.Duration, n int) (s ledger.PurgeStep, rows int, err error) {
	day := micros(ledger.DayOf(t.now.Add(-keep)))
	if _, err = t.exec("uncount_floor", day, n); err == nil {
		s.Rows, err = t.exec("uncount", day, n)
	}
	return s, s.Rows, err
}

// past runs statements on up to n jobs that have not changed for keep, and returns how many
// rows they changed.
func (t *tx) past(keep time.Duration, n int, statements ...string) (rows int, err error) {
	for _, name := range statements {
		changed, err := t.exec(name, micros(t.now.Add(-keep)), n)
		if err != nil {
			return rows, err
		}
		rows += changed
	}
	return rows, nil
}
