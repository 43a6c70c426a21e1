package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/paidonce/paidonce/ledger"
)

//go:embed sql/*.sql
var files embed.FS

// statement returns the text of sql/<name>.sql without its comments, which would
// travel with every statement through a pooler.
func statement(name string) string {
	b, err := files.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err) // a programmer's mistake, seen at the first start
	}
	var s strings.Builder
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			s.WriteString(line)
		}
	}
	return s.String()
}

// querier is a pool, a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// one runs a statement and returns its row; ErrNotFound when there is none.
func one[T any](ctx context.Context, q querier, sql string, args ...any) (T, error) {
	row, err := first(many[T](ctx, q, sql, args...))
	if err != nil {
		var none T
		return none, err
	}
	return *row, nil
}

// many runs a statement and returns its rows.
func many[T any](ctx context.Context, q querier, sql string, args ...any) ([]T, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return collect[T](rows)
}

// first is the first of rows; ErrNotFound when there is none.
func first[T any](rows []T, err error) (*T, error) {
	switch {
	case err != nil:
		return nil, err
	case len(rows) == 0:
		return nil, ledger.ErrNotFound
	}
	return &rows[0], nil
}

var (
	lockSQL     = statement("lock")
	lockWaitSQL = statement("lock_wait")
)

// jobRef names a job's row.
type jobRef struct {
	tenant string
	job    int64
}

func (j jobRef) of() string { return j.tenant }
func (j jobRef) id() int64  { return j.job }

// pipeline begins the statements for some asks, which are one round trip and one transaction.
// Those of many do not wait long for a row that one of them needs.
func pipeline(asks int) *pgx.Batch {
	b := &pgx.Batch{}
	if asks > 1 {
		b.Queue(lockWaitSQL, batchWait)
	}
	return b
}

// end ends a pipeline with a statement and returns its rows.
func end[T any](ctx context.Context, q querier, b *pgx.Batch, sql string, args ...any) ([]T, error) {
	var found []T
	b.Queue(sql, args...).Query(func(rows pgx.Rows) (err error) {
		found, err = collect[T](rows)
		return err
	})
	return found, q.SendBatch(ctx, b).Close()
}

// locked locks jobs and runs a statement whose first arguments they are, in one pipeline: the
// statement's snapshot is from after the lock.
func locked[T any](ctx context.Context, q querier, jobs []jobRef, sql string, args ...any) ([]T, error) {
	tenants, ids := column(jobs, jobRef.of), column(jobs, jobRef.id)
	b := pipeline(len(jobs))
	b.Queue(lockSQL, tenants, ids)
	return end[T](ctx, q, b, sql, append([]any{tenants, ids}, args...)...)
}

// again repeats a verb whose transaction the server rolled back because of
// others (a serialization failure, a deadlock): nothing of it happened. What it does is a string or a fmt.Stringer, which is
// asked when it does not succeed.
func again[T any](ctx context.Context, what any, fn func() (T, error)) (T, error) {
	for try := 1; ; try++ {
		v, err := fn()
		if err == nil {
			return v, nil
		}
		if try == 5 || !retriable(err) {
			return v, explain(what, err)
		}
		select {
		case <-ctx.Done():
			return v, fmt.Errorf("%s: %w", what, context.Cause(ctx))
		case <-time.After(time.Duration(try*try) * 5 * time.Millisecond):
		}
	}
}

// explain says what was tried, and names a fault of the server that people can do something about.
func explain(what any, err error) error {
	if full(err) && !errors.Is(err, ledger.ErrHook) { // of another database of the user's
		return fmt.Errorf("%s: %w: %w", what, ledger.ErrFull, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// full reports whether the server refused a statement for want of room on its disk, so that nothing of it happened.
func full(err error) bool { return sqlState(err) == "53100" }

func retriable(err error) bool {
	code := sqlState(err)
	return code == "40001" || code == "40P01"
}

// sqlState is the code of a server's error, or "".
func sqlState(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}
