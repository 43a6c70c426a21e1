package postgres

import (
	"bytes"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger"
)

var (
	submitSQL    = statement("submit")
	submittedSQL = statement("submitted")
)

// Seal implements ledger.Submitter: bodies are stored as they are.
func (*Ledger) Seal(s ledger.Submission) ledger.Submission { return s }

// Submit implements ledger.Submitter.
func (l *Ledger) Submit(ctx context.Context, all ...ledger.Submission) ([]ledger.Submitted, error) {
	if err := ledger.CheckSubmissions(all); err != nil {
		return nil, err
	}
	return again(ctx, fmt.Sprintf("submit %d jobs", len(all)), func() ([]ledger.Submitted, error) { return submit(ctx, l.pool, all) })
}

// SubmitTx is Submit in the transaction of a program: the jobs are there when it commits, with its own rows or not at all.
// tx is one on the ledger's database, at READ COMMITTED, which is Postgres's default. A key that another transaction
// submits at the same time is waited for, so that of two that submit several, both in another order, one may end with a deadlock:
// submit them in one call. What State says of a job is of before the commit.
//
// Where the ledger's bodies are sealed, s must be sealed too (sealed.Store.Seal; package submit does).
func SubmitTx(ctx context.Context, tx pgx.Tx, s ...ledger.Submission) ([]ledger.Submitted, error) {
	if err := ledger.CheckSubmissions(s); err != nil {
		return nil, err
	}
	found, err := submit(ctx, tx, s)
	if err != nil {
		return nil, fmt.Errorf("submit %d jobs in a transaction: %w", len(s), err)
	}
	return found, nil
}

// submittedRow is a job that was submitted, by this call or before.
type submittedRow struct {
	place
	State     ledger.State
	Action    string
	InputHash []byte
}

// submit makes the rows and reads what is there, in a statement of its own: the first does not see what another was
// first with.
func submit(ctx context.Context, q querier, all []ledger.Submission) ([]ledger.Submitted, error) {
	if len(all) == 0 {
		return nil, nil
	}
	tenants := column(all, func(s ledger.Submission) string { return s.Key.Tenant })
	keys := column(all, func(s ledger.Submission) string { return s.Key.Text })
	b := &pgx.Batch{}
	found := make([]ledger.Submitted, len(all))
	b.Queue(submitSQL, tenants, keys,
		column(all, func(s ledger.Submission) string { return s.Action }),
		column(all, func(s ledger.Submission) []byte { return s.InputHash[:] }),
		column(all, func(s ledger.Submission) []byte { return s.Input }),
		column(all, func(s ledger.Submission) *string { return originText(s.Origin) }),
		column(all, ledger.Submission.Submitter),
	).Query(func(rows pgx.Rows) error {
		made, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		for _, item := range made {
			found[item-1].New = true
		}
		return err
	})
	now, err := end[submittedRow](ctx, q, b, submittedSQL, tenants, keys)
	if err != nil {
		return nil, err
	}
	for _, r := range now {
		f, s := &found[r.Item-1], all[r.Item-1]
		f.State, f.Other = r.State, r.Action != s.Action || !bytes.Equal(r.InputHash, s.InputHash[:])
	}
	return found, nil
}
