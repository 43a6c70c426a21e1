package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

func mailTo(name string) ledger.StepAsk {
	return ledger.StepAsk{Key: ledger.Key{Tenant: "acme", Text: "acme:email:" + name}, Action: "email", InputHash: ledger.Hash{2}, Input: []byte("{}")}
}

func writeMark(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "insert into mark values ('m')")
	return err
}

// mails counts steps, their inputs, their histories and their links: with fewer rows than one it is none of them.
func (f *fixture) mails() int {
	f.Helper()
	return scan[int](f, f.db, `select (select count(*) from paidonce.job where action = 'email' and state = 'ready' and carrier = 'ledger')
		+ 10 * (select count(*) from paidonce.step) + 100 * (select count(*) from paidonce.input i join paidonce.job j on j.id = i.job where j.action = 'email')
		+ 1000 * (select count(*) from paidonce.event e join paidonce.job j on j.id = e.job where j.action = 'email')`)
}

// TestStepsAndFaults: whatever happens to the commit of a result, its steps are there with it or not at all.
func TestStepsAndFaults(t *testing.T) {
	reset := func(f *fixture) { f.proxy.Reset() }
	for name, c := range map[string]struct {
		lose          string         // the reply to what has this in it; "": none
		before, after func(*fixture) // the user's work, the first time; both nil: there is none
		ran           int            // the user's work
	}{
		"the reply is lost":           {"acme:email:a", nil, nil, 0},
		"the reply to the commit":     {"commit\x00", func(*fixture) {}, nil, 1},
		"cut before the user's work":  {"", reset, nil, 2},
		"cut between work and result": {"", nil, reset, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, postgres.Options{})
			r := f.request("a")
			lease := f.run(r)
			res := ledger.Result{ID: ledger.NewID(), Body: []byte("1"), Steps: []ledger.StepAsk{mailTo("a")}}
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
			if c.ran > 0 {
				res.Hooks = []ledger.Hook{work}
			}
			if c.lose != "" {
				lost := f.proxy.DropReplyTo([]byte(c.lose))
				defer func() { <-lost }()
			}
			if err := f.Complete(t.Context(), lease, res); err != nil {
				t.Errorf("complete: %v", err)
			}
			if marks := scan[int](t, f.db, "select count(*) from mark"); ran != c.ran || marks != min(c.ran, 1) {
				t.Errorf("the user's work ran %d times, want %d, and is there %d times", ran, c.ran, marks)
			}
			if n := f.mails(); n != 1111 {
				t.Errorf("of the step there is %d", n)
			}
			if j, err := f.Job(t.Context(), r.Key); err != nil || j.State != ledger.Done || len(j.Steps) != 1 {
				t.Errorf("the job is %+v, %v", j, err)
			}
		})
	}
}

// TestStepThatIsRefused: the server refuses the step's row, so there is no result either.
func TestStepThatIsRefused(t *testing.T) {
	for name, hooks := range map[string][]ledger.Hook{"alone": nil, "with the user's work": {hook(writeMark)}} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, postgres.Options{})
			run(t, f.db, `create function refuse_mail() returns trigger language plpgsql as $$ begin raise exception 'no mail'; end $$`)
			run(t, f.db, `create trigger no_mail before insert on paidonce.job for each row when (new.action = 'email') execute function refuse_mail()`)
			r := f.request("a")
			lease := f.run(r)
			res := ledger.Result{ID: ledger.NewID(), Body: []byte("1"), Steps: []ledger.StepAsk{mailTo("a")}, Hooks: hooks}
			if err := f.Complete(t.Context(), lease, res); err == nil || errors.Is(err, ledger.ErrLost) {
				t.Errorf("complete: %v", err)
			}
			f.want(r.Key, "running runs 1 fence 1 open 0 attempts 0 reserved 0 events 1 result false marks 0")
			if n := f.mails(); n != 0 {
				t.Errorf("of the step there is %d", n)
			}
			run(t, f.db, `drop trigger no_mail on paidonce.job`)
			if err := f.Complete(t.Context(), lease, res); err != nil || f.mails() != 1111 {
				t.Errorf("complete again: %v, of the step there is %d", err, f.mails())
			}
		})
	}
}

// TestForgottenLinks: what a forgotten job asked for is forgotten with it, and the step is not.
func TestForgottenLinks(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	if err := f.Complete(t.Context(), f.run(f.request("a")), ledger.Result{ID: ledger.NewID(), Steps: []ledger.StepAsk{mailTo("a")}}); err != nil {
		t.Fatal(err)
	}
	run(t, f.db, "update paidonce.job set updated_at = updated_at - interval '500 days', part_on = part_on where state = 'done'")
	run(t, f.db, "alter table paidonce.job disable trigger guard")
	run(t, f.db, "update paidonce.job set part_on = part_on - 500 where state = 'done'")
	for s, err := range f.Purge(t.Context(), retention) {
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
	}
	if n := scan[int](t, f.db, "select count(*) from paidonce.step"); n != 0 {
		t.Errorf("%d links are left", n)
	}
	if j, err := f.Job(t.Context(), mailTo("a").Key); err != nil || j.State != ledger.Ready || len(j.AskedBy) != 0 {
		t.Errorf("the step is %+v, %v", j, err)
	}
}
