package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// pool runs statements on any of its connections.
type pool struct{ statements statements }

func (p *pool) query(ctx context.Context, name string, args ...any) (*sql.Rows, error) {
	st, err := p.statements.get(ctx, name)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(ctx, args...)
}

// readers are connections that only read. In WAL mode each statement sees what was
// committed when it began, and waits for nobody.
type readers struct {
	pool
	db *sql.DB
}

// snapshot runs fn, whose statements all see the same commits.
func (r *readers) snapshot(ctx context.Context, fn func(querier) error) error {
	tx, err := r.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("begin to read: %w", err)
	}
	return errors.Join(fn(&snapshot{tx, r}), tx.Rollback())
}

type snapshot struct {
	tx      *sql.Tx
	readers *readers
}

func (s *snapshot) query(ctx context.Context, name string, args ...any) (*sql.Rows, error) {
	st, err := s.readers.statements.get(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.tx.StmtContext(ctx, st).QueryContext(ctx, args...)
}
