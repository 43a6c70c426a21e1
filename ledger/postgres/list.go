package postgres

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger"
)

var (
	jobsSQL    = statement("jobs")
	jobsAllSQL = statement("jobs_all")
)

// listing is the statement that lists the jobs of a filter. Its conditions are spelled out, the state as a literal: a
// statement for all filters could use no index, and partial indexes are for literals.
func listing(f ledger.Filter) string {
	text, and, order := jobsSQL, "", ""
	tenant, action, state := " and tenant = $1", " and action = $2", " and state = '"+string(f.State)+"'"
	switch f.State {
	case "", ledger.Done:
		if f.Tenant == "" && f.Action == "" {
			text = jobsAllSQL
		}
		// Most jobs are done, and those that are not are passed over. A planner that knows nothing of the table takes them
		// for few, and would sort them; of this it says half.
		state = " and coalesce(state = 'done', false)"
	case ledger.Ready, ledger.Running, ledger.Unknown:
		// The index of open jobs, which are few beside the others: no other index fits a statement like this.
		tenant, action, order = ` and tenant = $1 collate "C"`, ` and action = $2 collate "C"`, "+ 0"
	}
	if f.Tenant != "" {
		and += tenant
	}
	if f.Action != "" {
		and += action
	}
	if f.State != "" {
		and += state
	}
	return strings.NewReplacer("/* and */", and, "/* order */", order).Replace(text)
}

// Jobs implements ledger.Reader.
func (l *Ledger) Jobs(ctx context.Context, f ledger.Filter) iter.Seq2[ledger.Job, error] {
	return func(yield func(ledger.Job, error) bool) {
		if !storable(f.Tenant, f.Action) || f.State != "" && !slices.Contains(ledger.States(), f.State) {
			return // no row can match
		}
		limit := f.Limit
		if limit <= 0 {
			limit = 100
		}
		rows, err := l.pool.Query(ctx, listing(f), f.Tenant, f.Action, limit)
		if err != nil {
			yield(ledger.Job{}, fmt.Errorf("list jobs: %w", err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			r, err := pgx.RowToStructByName[jobRow](rows)
			if !yield(r.job(), err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(ledger.Job{}, fmt.Errorf("list jobs: %w", err))
		}
	}
}
