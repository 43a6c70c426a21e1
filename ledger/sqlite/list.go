package sqlite

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/paidonce/paidonce/ledger"
)

// listing is the statement that lists the jobs of a filter, by an index that serves it. SQLite is told which: it has no
// statistics, and would fail rather than read all. Within a tenant ids grow with time, and else the time counts.
func listing(f ledger.Filter) string {
	var and strings.Builder
	index, first := "paidonce_job_created", "j.created_at desc,"
	switch {
	case f.Tenant != "":
		and.WriteString(" and j.tenant = ?1")
		index, first = "", "" // the primary key
	case f.Action != "":
		index = "paidonce_job_action"
	}
	if f.Action != "" {
		and.WriteString(" and j.action = ?2")
	}
	switch f.State {
	case "":
	case ledger.Done: // most jobs are: those that are not are passed over
		and.WriteString(" and j.state = 'done'")
	case ledger.Ready, ledger.Running, ledger.Unknown:
		and.WriteString(" and j.state in ('ready', 'running', 'unknown') and j.state = '" + string(f.State) + "'")
		index = "paidonce_job_open"
	case ledger.Failed, ledger.Cancelled:
		and.WriteString(" and j.state in ('failed', 'cancelled') and j.state = '" + string(f.State) + "'")
		switch {
		case f.Tenant != "":
			index = "paidonce_job_failed_tenant"
		case f.Action != "":
			index = "paidonce_job_failed_action"
		default:
			index = "paidonce_job_failed"
		}
	}
	text := strings.NewReplacer("/* and */", and.String(), "/* first */", first)
	if index != "" {
		return text.Replace(strings.Replace(statement("jobs"), "/* index */", "indexed by "+index, 1))
	}
	// Not by the action's index, which would have to be sorted.
	return strings.Replace(text.Replace(statement("jobs")), "and j.action", "and +j.action", 1)
}

// Jobs implements ledger.Reader.
func (l *Ledger) Jobs(ctx context.Context, f ledger.Filter) iter.Seq2[ledger.Job, error] {
	return func(yield func(ledger.Job, error) bool) {
		if f.State != "" && !slices.Contains(ledger.States(), f.State) {
			return // no row can match
		}
		limit := f.Limit
		if limit <= 0 {
			limit = 100
		}
		st, err := l.readers.statements.plain(listing(f))
		if err != nil {
			yield(ledger.Job{}, fmt.Errorf("list jobs: %w", explain(err)))
			return
		}
		rows, err := st.QueryContext(ctx, f.Tenant, f.Action, limit)
		if err != nil {
			yield(ledger.Job{}, fmt.Errorf("list jobs: %w", explain(err)))
			return
		}
		defer rows.Close()
		for rows.Next() {
			r, err := readRow(rows)
			if err != nil {
				yield(ledger.Job{}, fmt.Errorf("list jobs: %w", err))
				return
			}
			if !yield(r.Job, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(ledger.Job{}, fmt.Errorf("list jobs: %w", explain(err)))
		}
	}
}
