package memory

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// Job implements ledger.Reader.
func (l *Ledger) Job(ctx context.Context, k ledger.Key) (ledger.Job, error) {
	_, unlock, err := l.begin(ctx)
	if err != nil {
		return ledger.Job{}, err
	}
	defer unlock()
	r := l.keys[k]
	if r == nil {
		return ledger.Job{}, ledger.ErrNotFound
	}
	j := r.show()
	j.Result = result(r.Result)
	for _, e := range r.earlier {
		j.Earlier = append(j.Earlier, ledger.Earlier{Generation: e.Generation, Result: *result(&e.Result)})
	}
	j.History = slices.Clone(r.history)
	for _, a := range r.attempts {
		j.Attempts = append(j.Attempts, a.show())
	}
	j.Steps, j.AskedBy = l.followed(r), l.askers(r)
	return j, nil
}

// Answer implements ledger.Reader.
func (l *Ledger) Answer(ctx context.Context, id ledger.AttemptID) (ledger.Response, error) {
	_, unlock, err := l.begin(ctx)
	if err != nil {
		return ledger.Response{}, err
	}
	defer unlock()
	a := l.row(id.Tenant, id.Job).attempt(id.ID)
	if a == nil || a.response == nil {
		return ledger.Response{}, ledger.ErrNotFound
	}
	return *response(a.response), nil
}

// show is the row as people see it in a list.
func (r *row) show() ledger.Job {
	j := r.Job
	j.Cost, j.Error, j.Result = clone(r.Cost), clone(r.Error), nil
	return j
}

func (a *attempt) show() ledger.AttemptRow {
	x := a.AttemptRow
	x.Evidence.State, x.AnswerKept = a.State, a.response != nil
	x.Evidence.Cost = clone(a.Evidence.Cost)
	x.Evidence.Usage = ledger.Usage{In: clone(a.Evidence.Usage.In), Cached: clone(a.Evidence.Usage.Cached), Out: clone(a.Evidence.Usage.Out)}
	return x
}

// Jobs implements ledger.Reader.
func (l *Ledger) Jobs(ctx context.Context, f ledger.Filter) iter.Seq2[ledger.Job, error] {
	return func(yield func(ledger.Job, error) bool) {
		found, err := l.list(ctx, f)
		if err != nil {
			yield(ledger.Job{}, err)
			return
		}
		for _, j := range found {
			if !yield(j, nil) {
				return
			}
		}
	}
}

// list copies what Jobs yields, so that no lock is held while a caller works on it.
func (l *Ledger) list(ctx context.Context, f ledger.Filter) ([]ledger.Job, error) {
	_, unlock, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var found []ledger.Job
	for _, r := range l.rows {
		if r != forgotten && (f.Tenant == "" || f.Tenant == r.Key.Tenant) && (f.Action == "" || f.Action == r.Action) && (f.State == "" || f.State == r.State) {
			found = append(found, r.show())
		}
	}
	slices.SortFunc(found, func(a, b ledger.Job) int {
		return cmp.Compare(b.ID, a.ID)
	})
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	return found[:min(limit, len(found))], nil
}

// Unknowns implements ledger.Reader.
func (l *Ledger) Unknowns(ctx context.Context) ([]ledger.UnknownCount, error) {
	now, unlock, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var counts []ledger.UnknownCount
	for _, r := range l.rows {
		if r.State != ledger.Unknown {
			continue
		}
		i, ok := slices.BinarySearchFunc(counts, r.Action, func(c ledger.UnknownCount, action string) int {
			return cmp.Compare(c.Action, action)
		})
		if !ok {
			counts = slices.Insert(counts, i, ledger.UnknownCount{Action: r.Action})
		}
		counts[i].Count++
		counts[i].Oldest = max(counts[i].Oldest, now.Sub(r.unknownAt))
	}
	return counts, nil
}

// Ping implements ledger.Reader.
func (l *Ledger) Ping(ctx context.Context) error { return context.Cause(ctx) }

// The methods below let time pass for tests that run outside a synctest bubble. Each
// returns ErrNotFound for a worker or job that is not there.

// LapseWorker ends a worker's lease now; its epoch stays open until a sweep closes it.
func (l *Ledger) LapseWorker(id ledger.WorkerID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open(id) {
		return ledger.ErrNotFound
	}
	l.workers[id.ID].lease = time.Now()
	return nil
}

// LapseRun ends the run deadline of a job now.
func (l *Ledger) LapseRun(k ledger.Key) error {
	return l.age(k, func(r *row) { r.runDeadline = time.Now() })
}

// MakeDue makes a job due from now on.
func (l *Ledger) MakeDue(k ledger.Key) error {
	return l.age(k, func(r *row) { r.NextAt = time.Now() })
}

// AgeUnknown lets a job have been unknown for d longer.
func (l *Ledger) AgeUnknown(k ledger.Key, d time.Duration) error {
	return l.age(k, func(r *row) { r.unknownAt = r.unknownAt.Add(-d) })
}

// AgeAttempts moves the time of sending of all the job's attempts back by d.
func (l *Ledger) AgeAttempts(k ledger.Key, d time.Duration) error {
	return l.age(k, func(r *row) {
		for _, a := range r.attempts {
			a.SentAt = a.SentAt.Add(-d)
		}
	})
}

// AgeRow moves the times at which a job was created, began its generation, last changed, due and done back by d.
func (l *Ledger) AgeRow(k ledger.Key, d time.Duration) error {
	return l.age(k, func(r *row) {
		r.CreatedAt, r.UpdatedAt, r.NextAt = r.CreatedAt.Add(-d), r.UpdatedAt.Add(-d), r.NextAt.Add(-d)
		r.BeganAt = r.BeganAt.Add(-d)
		if !r.DoneAt.IsZero() {
			r.DoneAt = r.DoneAt.Add(-d)
		}
	})
}

func (l *Ledger) age(k ledger.Key, fn func(*row)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.keys[k]
	if r == nil {
		return ledger.ErrNotFound
	}
	fn(r)
	return nil
}
