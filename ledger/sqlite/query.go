package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

//go:embed sql/*.sql
var files embed.FS

// statement returns the text of sql/<name>.sql without its comments.
func statement(name string) string {
	b, err := files.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err) // a programmer's mistake, seen at the first use
	}
	var s strings.Builder
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			s.WriteString(line)
		}
	}
	return s.String()
}

// preparer is a pool or a connection.
type preparer interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// statements are those of one pool or connection, each prepared at its first use: the
// schema may not be there before.
type statements struct {
	on   preparer
	mu   sync.Mutex
	made map[string]*sql.Stmt
}

func (s *statements) get(ctx context.Context, name string) (*sql.Stmt, error) {
	return s.prepare(ctx, name, "")
}

// prepare returns the statement of that name; an empty text is that of its file.
func (s *statements) prepare(ctx context.Context, name, text string) (*sql.Stmt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.made[name]; st != nil {
		return st, nil
	}
	if text == "" {
		text = statement(name)
	}
	st, err := s.on.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	if s.made == nil {
		s.made = map[string]*sql.Stmt{}
	}
	s.made[name] = st
	return st, nil
}

// plain is a statement that is no file: those on the transaction itself.
func (s *statements) plain(text string) (*sql.Stmt, error) {
	return s.prepare(context.Background(), text, text)
}

func (s *statements) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, st := range s.made {
		errs = append(errs, st.Close())
	}
	s.made = nil
	return errors.Join(errs...)
}

// querier runs a statement by its name: the writer's transaction, or a reader's pool or
// snapshot.
type querier interface {
	query(ctx context.Context, name string, args ...any) (*sql.Rows, error)
}

// scanner is what a row is read from.
type scanner interface{ Scan(dest ...any) error }

// many runs a statement and reads its rows.
func many[T any](ctx context.Context, q querier, read func(scanner) (T, error), name string, args ...any) ([]T, error) {
	rows, err := q.query(ctx, name, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		v, err := read(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

// one runs a statement and reads its first row; ErrNotFound when there is none.
func one[T any](ctx context.Context, q querier, read func(scanner) (T, error), name string, args ...any) (T, error) {
	var none T
	rows, err := q.query(ctx, name, args...)
	if err != nil {
		return none, err
	}
	defer rows.Close()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return none, err
		}
		return none, ledger.ErrNotFound
	}
	v, err := read(rows)
	if err != nil {
		return none, err
	}
	return v, rows.Close()
}

// scalar reads a row of one column.
func scalar[T any](s scanner) (v T, err error) { return v, s.Scan(&v) }

// Times are kept as microseconds since 1970.

func micros(t time.Time) int64 { return t.UnixMicro() }

// orNull is null for the zero time.
func orNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// at is the time of a column, zero for null.
func at(us *int64) (t time.Time) {
	if us != nil {
		t = time.UnixMicro(*us)
	}
	return t
}

// clock is the time of this process, as exact as it is kept.
func clock() time.Time { return time.UnixMicro(time.Now().UnixMicro()) }

// value is what p points to, or zero.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// null is v, or null when it is zero.
func null[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}

// nano is the column of an amount that may be unknown.
func nano(n *ledger.Nano) any {
	if n == nil {
		return nil
	}
	return int64(*n)
}
