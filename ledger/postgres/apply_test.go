package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// answered is a running job with one captured answer.
func (f *fixture) answered(name string) (ledger.Request, ledger.Lease, ledger.ID) {
	f.Helper()
	r := f.request(name)
	lease, a := f.run(r), attempt()
	if err := f.Send(f.Context(), lease, a); err != nil {
		f.Fatal(err)
	}
	if _, err := f.Settle(f.Context(), ledger.AttemptID{Tenant: "acme", Job: lease.Job, ID: a.ID}, answer()); err != nil {
		f.Fatal(err)
	}
	return r, lease, a.ID
}

// appliedOnce wants the user's row, the mark and its line of the history once each, or none of them.
func (f *fixture) appliedOnce(k ledger.Key, times int) {
	f.Helper()
	f.want(k, fmt.Sprintf("running runs 1 fence 1 open 0 attempts 1 reserved 0 events %d result false marks %d", 3+times, times))
	if n := scan[int](f, f.db, "select count(applied_at) from paidonce.attempt"); n != times {
		f.Errorf("%d answers are marked as applied, want %d", n, times)
	}
}

// TestApplyAndFaults: whatever happens to the commit of the user's rows for an answer, they are there with its mark, once.
func TestApplyAndFaults(t *testing.T) {
	reset := func(f *fixture) { f.proxy.Reset() }
	for name, c := range map[string]struct {
		lose          string         // the reply to what has this in it; "": none
		before, after func(*fixture) // the user's work, the first time
		ran           int            // the user's work
	}{
		"nothing":                     {"", nil, nil, 1},
		"the reply to the commit":     {"commit\x00", nil, nil, 1},
		"cut before the user's work":  {"", reset, nil, 2},
		"cut between work and result": {"", nil, reset, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, postgres.Options{})
			r, lease, id := f.answered("a")
			ran := 0
			work := hook(func(ctx context.Context, tx pgx.Tx) error {
				ran++
				if ran == 1 && c.before != nil {
					c.before(f)
				}
				err := writeMark(ctx, tx)
				if ran == 1 && c.after != nil {
					c.after(f)
				}
				return err
			})
			if c.lose != "" {
				lost := f.proxy.DropReplyTo([]byte(c.lose))
				defer func() { <-lost }()
			}
			for range 2 { // and once more
				if err := f.Apply(t.Context(), lease, id, work); err != nil {
					t.Errorf("apply: %v", err)
				}
			}
			if ran != c.ran {
				t.Errorf("the user's work ran %d times, want %d", ran, c.ran)
			}
			f.appliedOnce(r.Key, 1)
		})
	}
}

// TestApplyIsRepeated: what the server rolled back because of others is made again, and the user's work is not blamed.
func TestApplyIsRepeated(t *testing.T) {
	for name, fail := range map[string]string{
		"serialization failure": "do $$ begin raise exception 'again' using errcode = '40001'; end $$",
		"deadlock":              "do $$ begin raise exception 'again' using errcode = '40P01'; end $$",
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, postgres.Options{})
			r, lease, id := f.answered("a")
			ran := 0
			err := f.Apply(t.Context(), lease, id, hook(func(ctx context.Context, tx pgx.Tx) error {
				ran++
				if err := writeMark(ctx, tx); err != nil || ran > 4 {
					return err
				}
				_, err := tx.Exec(ctx, fail)
				return err
			})) // more often than after a lost reply
			if err != nil || ran != 5 {
				t.Errorf("apply: %v, the user's work ran %d times, want 5", err, ran)
			}
			f.appliedOnce(r.Key, 1)
		})
	}
}

// TestApplyByAZombie: a run that loses the job while its work runs commits nothing, and the run that has it does.
func TestApplyByAZombie(t *testing.T) {
	for name, lose := range map[string]func(*fixture, ledger.Request, ledger.Lease){
		"taken over": func(f *fixture, _ ledger.Request, _ ledger.Lease) {
			run(f, f.db, "update paidonce.job set run_deadline = clock_timestamp()")
		},
		"given back": func(f *fixture, _ ledger.Request, l ledger.Lease) {
			if _, err := f.Release(f.Context(), l, ledger.Outcome{Error: ledger.JobError{Class: "retry"}, Who: "w1"}); err != nil {
				f.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, postgres.Options{})
			r, lease, id := f.answered("a")
			next := lease
			take := func() {
				r.Token = ledger.NewID()
				next = f.run(r)
			}
			err := f.Apply(t.Context(), lease, id, hook(func(ctx context.Context, tx pgx.Tx) error {
				if err := writeMark(ctx, tx); err != nil {
					return err
				}
				lose(f, r, lease)
				if name == "taken over" {
					take()
				}
				return nil
			}))
			marks := scan[int](t, f.db, "select count(*) from mark")
			if !errors.Is(err, ledger.ErrLost) || marks != 0 {
				t.Errorf("apply: %v, %d rows", err, marks)
			}
			if next == lease {
				take()
			}
			if err := f.Apply(t.Context(), next, id, hook(writeMark)); err != nil {
				t.Errorf("apply by the next run: %v", err)
			}
			if got := f.state(r.Key); !strings.HasPrefix(got, "running runs 2 fence 2 open 0 attempts 1 reserved 0") || !strings.HasSuffix(got, "result false marks 1") {
				t.Error(got)
			}
		})
	}
}

// TestApplyTwiceAtOnce: both run their work, one commits it, and both are told that it is there.
func TestApplyTwiceAtOnce(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	r, lease, id := f.answered("a")
	inner := 0
	err := f.Apply(t.Context(), lease, id, hook(func(ctx context.Context, tx pgx.Tx) error {
		if err := writeMark(ctx, tx); err != nil {
			return err
		}
		return f.Apply(t.Context(), lease, id, hook(func(ctx context.Context, tx pgx.Tx) error { inner++; return writeMark(ctx, tx) }))
	}))
	if err != nil || inner != 1 {
		t.Errorf("apply: %v, the other's work ran %d times", err, inner)
	}
	f.appliedOnce(r.Key, 1)
}

// TestApplyRefused: work that fails, or ends its transaction, leaves nothing, and the answer can be applied later.
func TestApplyRefused(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	run(t, f.db, "create table parent (id int primary key)")
	run(t, f.db, "create table child (id int references parent deferrable initially deferred)")
	r, lease, id := f.answered("a")
	for name, sql := range map[string]string{"committed": "commit", "rolled back": "rollback", "failed": "select 1/0",
		"a constraint at the commit": "insert into child values (1)"} {
		err := f.Apply(t.Context(), lease, id, hook(func(ctx context.Context, tx pgx.Tx) error {
			tx.Exec(ctx, "insert into parent values (2)")
			tx.Exec(ctx, sql) // its error is swallowed, as users do
			return nil
		}))
		if !errors.Is(err, ledger.ErrHook) {
			t.Errorf("%s: %v, want ErrHook", name, err)
		}
	}
	func() {
		defer func() {
			if v := recover(); v != "boom" {
				t.Errorf("recovered %v", v)
			}
		}()
		err := f.Apply(t.Context(), lease, id, hook(func(ctx context.Context, tx pgx.Tx) error { writeMark(ctx, tx); panic("boom") }))
		t.Errorf("work that panics: %v", err)
	}()
	f.appliedOnce(r.Key, 0)
	if err := f.Apply(t.Context(), lease, id, hook(writeMark)); err != nil {
		t.Errorf("apply: %v", err)
	}
	f.appliedOnce(r.Key, 1)
}

// TestApplyMoves: the mark goes with its job to another partition.
func TestApplyMoves(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	r, lease, id := f.answered("a")
	if err := f.Apply(t.Context(), lease, id, hook(writeMark)); err != nil {
		t.Fatal(err)
	}
	run(t, f.db, "alter table paidonce.job disable trigger guard")
	run(t, f.db, "update paidonce.job set part_on = part_on - 500, created_at = created_at - interval '500 days'")
	for child := range strings.FieldsSeq("attempt event response input") {
		run(t, f.db, "update paidonce."+child+" set part_on = part_on - 500")
	}
	run(t, f.db, "alter table paidonce.job enable trigger guard")
	for s, err := range f.Purge(t.Context(), retention) {
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
	}
	f.appliedOnce(r.Key, 1)
	if err := f.Apply(t.Context(), lease, id, hook(writeMark)); err != nil {
		t.Errorf("apply again: %v", err)
	}
	f.appliedOnce(r.Key, 1)
}
