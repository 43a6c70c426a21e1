package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger"
)

var (
	purgeHoldSQL  = statement("purge_hold")
	reopenableSQL = statement("reopenable")
	reopenSQL     = statement("reopen")
	hastenSQL     = statement("hasten")
)

// reopenable is what reopening looks at beside the locked row.
type reopenable struct {
	Generation  int
	PartOn      time.Time
	Input, Used bool
	Unknown     int
}

// Reopen implements ledger.Reopener.
func (l *Ledger) Reopen(ctx context.Context, o ledger.Reopening) (ledger.Reopened, error) {
	if err := o.Check(); err != nil {
		return ledger.Reopened{}, err
	}
	if !storable(o.Key.Tenant, o.Key.Text) {
		return ledger.Reopened{}, ledger.ErrNotFound
	}
	return again(ctx, "reopen "+o.Key.Text, func() (x ledger.Reopened, err error) {
		id, err := one[struct{ ID int64 }](ctx, l.pool, findSQL, o.Key.Tenant, o.Key.Text)
		if err != nil {
			return x, err
		}
		err = pgx.BeginTxFunc(ctx, l.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
			x, err = reopen(ctx, tx, o, id.ID)
			return err
		})
		return x, err
	})
}

func reopen(ctx context.Context, tx pgx.Tx, o ledger.Reopening, job int64) (x ledger.Reopened, err error) {
	if _, err := tx.Exec(ctx, purgeHoldSQL); err != nil {
		return x, err
	}
	row, err := one[lockedRow](ctx, tx, factsSQL, []string{o.Key.Tenant}, []int64{job})
	if err != nil {
		return x, err
	}
	more, err := one[reopenable](ctx, tx, reopenableSQL, o.Key.Tenant, job, o.Token)
	if err != nil {
		return x, err
	}
	f := row.facts(row.Fence)
	f.InputKept, f.TokenUsed, f.UnknownCalls, f.DoublePay = more.Input, more.Used, more.Unknown, o.DoublePay
	t := o.Rule()
	guard := t.Allows(f)
	if f.TokenUsed && guard != "" {
		return ledger.Reopened{State: row.State, Generation: more.Generation, Again: true}, nil
	}
	if err := ledger.ReopenRefusal(f, guard); err != nil {
		return x, err
	}
	if o.Waiting {
		_, err := tx.Exec(ctx, hastenSQL, o.Key.Tenant, job, row.Now, ledger.Text(o.Who), reason(t, o.Told(f)))
		return ledger.Reopened{State: row.State, Generation: more.Generation}, err
	}
	// Its retention begins anew: what the next purge drops must not hold its children.
	if _, err := tx.Exec(ctx, purgeMoveSQL, more.PartOn, []string{o.Key.Tenant}, []int64{job}); err != nil {
		return x, err
	}
	var token any
	if o.Token != "" {
		token = o.Token
	}
	done, err := one[struct{ Generation int }](ctx, tx, reopenSQL, o.Key.Tenant, job, row.Now, token, ledger.Text(o.Who), reason(t, o.Told(f)))
	return ledger.Reopened{State: t.To, Generation: done.Generation}, err
}
