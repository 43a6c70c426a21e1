package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger"
)

var (
	releaseSQL = statement("release")
	carrySQL   = statement("carry")
)

// releasing is a run that ends without a result.
type releasing struct {
	lease   ledger.Lease
	outcome ledger.Outcome
}

func (r *releasing) job() jobRef { return jobRef{r.lease.Key.Tenant, r.lease.Job} }

// releasedRow says what became of it; none: somebody else decided already.
type releasedRow struct {
	place
	ledger.Released
}

// ending is how a run ends: what release.sql writes.
type ending struct {
	job      jobRef
	now      time.Time
	rule     ledger.Transition
	carrier  ledger.Carrier
	nextAt   time.Time
	err      ledger.JobError
	fence    int
	runsBack int
	panics   int
	who      string
}

// Release implements ledger.Ledger.
func (l *Ledger) Release(ctx context.Context, lease ledger.Lease, o ledger.Outcome) (ledger.Released, error) {
	x, err := again(ctx, "release "+lease.Key.Text, func() (*releasedRow, error) {
		return l.releases.do(ctx, &releasing{lease, o})
	})
	if err != nil {
		return ledger.Released{}, lost(err)
	}
	return x.Released, nil
}

func (l *Ledger) release(ctx context.Context, rs []*releasing) (out []releasedRow, err error) {
	err = l.underAll(ctx, column(rs, (*releasing).job), func(tx pgx.Tx, rows []lockedRow) error {
		var ends []ending
		for _, row := range rows {
			r := rs[row.at()]
			if row.Fence == r.lease.Fence && (row.State == ledger.Ready || row.State == ledger.Failed || row.State == ledger.Cancelled) {
				// Its own effect, before a reply that was lost.
				out = append(out, releasedRow{row.place, row.released(row.State, row.Carrier, row.NextAt)})
			} else if e, ok := row.end(r.lease, r.outcome); ok {
				e.job, e.now = r.job(), row.Now
				ends = append(ends, e)
				out = append(out, releasedRow{row.place, row.released(e.rule.To, e.carrier, e.nextAt)})
			}
		}
		return writeEnds(ctx, tx, ends)
	})
	return out, err
}

func writeEnds(ctx context.Context, tx pgx.Tx, ends []ending) error {
	if len(ends) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, releaseSQL,
		column(ends, func(e ending) string { return e.job.tenant }),
		column(ends, func(e ending) int64 { return e.job.job }),
		column(ends, func(e ending) time.Time { return e.now }),
		column(ends, func(e ending) string { return string(e.rule.To) }),
		column(ends, func(e ending) int { return e.fence }),
		column(ends, func(e ending) string { return string(e.carrier) }),
		column(ends, func(e ending) time.Time { return e.nextAt }),
		column(ends, func(e ending) string { return e.err.Class }),
		column(ends, func(e ending) string { return e.err.Text }),
		column(ends, func(e ending) int { return e.runsBack }),
		column(ends, func(e ending) int { return e.panics }),
		column(ends, func(e ending) string { return e.who }),
		column(ends, func(e ending) string { return reason(e.rule, ": "+e.err.Class) }))
	return err
}

// end chooses how the run ends from the locked row: J13, J19b, J12 or J11.
func (r lockedRow) end(lease ledger.Lease, o ledger.Outcome) (ending, bool) {
	e := ending{carrier: r.Carrier, nextAt: r.NextAt, who: ledger.Text(o.Who)}
	if o.Panicked {
		e.panics = 1
	}
	var ok bool
	e.rule, e.err, ok = ledger.PickRelease(r.facts(lease.Fence), o, r.Panics)
	if e.rule.Fence {
		e.fence = 1
	}
	switch e.rule.ID {
	case "J11":
		e.nextAt = r.Now.Add(o.RetryIn)
		if o.GiveBack {
			e.runsBack = 1
		}
	case "J13":
		e.nextAt, e.runsBack = r.Now, 1
		if r.InputKept {
			e.carrier = ledger.CarriedByLedger
		}
	}
	return e, ok
}

// Carry implements ledger.Ledger.
func (l *Ledger) Carry(ctx context.Context, lease ledger.Lease) error {
	_, err := again(ctx, "carry "+lease.Key.Text, func() (struct{}, error) {
		return struct{}{}, l.under(ctx, lease.Key.Tenant, lease.Job, func(tx pgx.Tx, row lockedRow) error {
			if guard := ledger.Row("JC").Allows(row.facts(lease.Fence)); guard != "" {
				return ledger.Refusal(guard)
			}
			if row.Carrier == ledger.CarriedByLedger {
				return nil
			}
			_, err := tx.Exec(ctx, carrySQL, lease.Key.Tenant, lease.Job, row.Now, *row.Owner, reason(ledger.Row("JC"), ""))
			return err
		})
	})
	return lost(err)
}

// lost turns a job that is not there into a lease that is not good.
func lost(err error) error {
	if errors.Is(err, ledger.ErrNotFound) {
		return ledger.ErrLost
	}
	return err
}

// reason is the line of a transition in the history.
func reason(t ledger.Transition, more string) string {
	return ledger.Text(fmt.Sprintf("%s %s%s", t.ID, t.Name, more))
}
