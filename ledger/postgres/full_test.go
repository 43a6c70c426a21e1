package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// TestFullDisk: a verb that finds no room has a code of its own, and nothing of it happened. So has a result whose rows of the user find
// none, and the user's work runs once for it.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	s := pgtest.StartWithDisk(t)
	direct := s.URL(t)
	if err := prepare(t.Context(), direct); err != nil {
		t.Fatal(err)
	}
	f := fixtureAt(t, direct, postgres.Options{})
	full := func(what string, do func() error) {
		t.Helper()
		s.SetDisk(t, pgtest.Disk{Full: true})
		if err := do(); !errors.Is(err, ledger.ErrFull) || errors.Is(err, ledger.ErrHook) {
			t.Errorf("%s without room: %v, want ErrFull", what, err)
		}
		s.SetDisk(t, pgtest.Disk{})
		if err := do(); err != nil {
			t.Errorf("%s with room: %v", what, err)
		}
	}
	r := f.request("a")
	var lease ledger.Lease
	full("claim", func() error {
		c, err := f.Claim(t.Context(), r)
		lease = c.Lease
		return err
	})
	a := attempt()
	full("gate", func() error { return f.Send(t.Context(), lease, a) })
	full("settle", func() error {
		_, err := f.Settle(t.Context(), ledger.AttemptID{Tenant: "acme", Job: lease.Job, ID: a.ID}, answer())
		return err
	})
	ran := 0
	mark := hook(func(ctx context.Context, tx pgx.Tx) error {
		ran++
		_, err := tx.Exec(ctx, "insert into mark values ('a')")
		return err
	})
	result := ledger.Result{ID: ledger.NewID(), Body: []byte("1"), Hooks: []ledger.Hook{mark}}
	full("complete", func() error { return f.Complete(t.Context(), lease, result) })
	if ran != 2 {
		t.Errorf("the user's work ran %d times for two commits", ran)
	}
	f.want(r.Key, "done runs 1 fence 1 open 0 attempts 1 reserved 0 events 4 result true marks 1")
}

// TestFullDiskElsewhere: that another database of the user's has no room is an error of their work, and is not repeated by the ledger.
func TestFullDiskElsewhere(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	r := f.request("a")
	elsewhere := hook(func(context.Context, pgx.Tx) error { return &pgconn.PgError{Severity: "ERROR", Code: "53100"} })
	err := f.Complete(t.Context(), f.run(r), ledger.Result{ID: ledger.NewID(), Body: []byte("1"), Hooks: []ledger.Hook{elsewhere}})
	if !errors.Is(err, ledger.ErrHook) || errors.Is(err, ledger.ErrFull) {
		t.Errorf("complete: %v, want ErrHook alone", err)
	}
	f.want(r.Key, "running runs 1 fence 1 open 0 attempts 0 reserved 0 events 1 result false marks 0")
}
