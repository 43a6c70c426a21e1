package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

func submission(name string) ledger.Submission {
	return ledger.Submission{Key: ledger.Key{Tenant: "acme", Text: "acme:order:" + name}, Action: "order", InputHash: ledger.Hash{3}, Input: []byte(`{}`)}
}

// TestSubmitTx: a job that is submitted in a program's own transaction is there with its rows or not at all.
func TestSubmitTx(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	run(t, f.db, "create table orders (id text)")
	errAway := errors.New("changed my mind")
	order := func(id string, end error) ([]ledger.Submitted, error) {
		tx, err := f.db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.Background())
		if _, err := tx.Exec(t.Context(), "insert into orders values ($1)", id); err != nil {
			t.Fatal(err)
		}
		found, err := postgres.SubmitTx(t.Context(), tx, submission(id), submission(id+" receipt"))
		if err != nil || end != nil {
			return found, errors.Join(err, end)
		}
		return found, tx.Commit(t.Context())
	}
	there := func() string {
		return scan[string](t, f.db, `select (select count(*) from orders) || ' orders, ' || (select count(*) from paidonce.job where action = 'order' and state = 'ready' and carrier = 'ledger')
			|| ' jobs, ' || (select count(*) from paidonce.input) || ' inputs, ' || (select count(*) from paidonce.event) || ' events'`)
	}
	if _, err := order("1", errAway); !errors.Is(err, errAway) {
		t.Fatal(err)
	}
	if got := there(); got != "0 orders, 0 jobs, 0 inputs, 0 events" {
		t.Errorf("after a rollback there are %s", got)
	}
	for i, want := range []bool{true, false} { // the second is a double click
		found, err := order("1", nil)
		if err != nil || len(found) != 2 || found[0].New != want || found[1].New != want || found[0].State != ledger.Ready {
			t.Errorf("order %d: %+v, %v", i, found, err)
		}
	}
	if got := there(); got != "2 orders, 2 jobs, 2 inputs, 2 events" {
		t.Errorf("after both there are %s", got)
	}
	if due, err := f.Due(t.Context(), 10, time.Hour); err != nil || len(due) != 2 {
		t.Errorf("the workers would run %+v, %v", due, err)
	}
	bad := submission("2")
	bad.Input = nil
	tx, err := f.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := postgres.SubmitTx(t.Context(), tx, bad); !errors.Is(err, ledger.ErrRequest) {
		t.Errorf("without an input: %v", err)
	}
}

// TestSubmitWaits: a key that another transaction is submitting is waited for, and is then found or made.
func TestSubmitWaits(t *testing.T) {
	for name, commits := range map[string]bool{"it commits": true, "it rolls back": false} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, postgres.Options{})
			tx, err := f.db.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(context.Background())
			if _, err := postgres.SubmitTx(t.Context(), tx, submission("1")); err != nil {
				t.Fatal(err)
			}
			type outcome struct {
				found []ledger.Submitted
				err   error
			}
			done := make(chan outcome, 1)
			go func() {
				found, err := f.Submit(t.Context(), submission("1"))
				done <- outcome{found, err}
			}()
			for scan[int](t, f.db, "select count(*) from pg_locks where not granted") == 0 && len(done) == 0 {
				time.Sleep(time.Millisecond)
			}
			end := tx.Rollback
			if commits {
				end = tx.Commit
			}
			if err := end(t.Context()); err != nil {
				t.Fatal(err)
			}
			if o := <-done; o.err != nil || len(o.found) != 1 || o.found[0].New == commits || o.found[0].State != ledger.Ready {
				t.Errorf("%+v", o)
			}
		})
	}
}
