package sqlite_test

import (
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

func mailTo(name string) ledger.StepAsk {
	return ledger.StepAsk{Key: ledger.Key{Tenant: "acme", Text: "acme:email:" + name}, Action: "email", InputHash: ledger.Hash{2}, Input: []byte("{}")}
}

// TestStepThatIsRefused: the file refuses a row of the step, whichever, so there is no result either, and who is committed in
// the same group is.
func TestStepThatIsRefused(t *testing.T) {
	for table, when := range map[string]string{"job": "new.action = 'email'", "input": "true", "event": "new.from_state = '' and new.to_state = 'ready'", "step": "true"} {
		for name, hooks := range map[string][]ledger.Hook{"alone": nil, "with the user's work": {hook(mark("m"))}} {
			t.Run(table+" "+name, func(t *testing.T) {
				f := newFixture(t)
				db := raw(t, f.path)
				lease, other := f.run("a"), f.run("b")
				run(t, db, "create trigger refuse before insert on paidonce_"+table+" when "+when+" begin select raise(abort, 'no mail'); end")
				res := ledger.Result{ID: ledger.NewID(), Body: []byte("1"), Steps: []ledger.StepAsk{mailTo("a")}, Hooks: hooks}
				errs := []error{f.Complete(t.Context(), lease, res), f.complete(t.Context(), other, "")}
				if errs[0] == nil || errs[1] != nil {
					t.Errorf("complete: %v, and the other %v", errs[0], errs[1])
				}
				if s := f.state("a"); s != ledger.Running || f.state("b") != ledger.Done {
					t.Errorf("the job is %s, the other %s", s, f.state("b"))
				}
				left := scan[int](t, db, `select (select count(*) from paidonce_job where action = 'email') + (select count(*) from paidonce_step) + (select count(*) from mark)
					+ (select count(*) from paidonce_result) - 1 + (select count(*) from paidonce_input) - 2`)
				if left != 0 {
					t.Errorf("%d rows are left", left)
				}
				run(t, db, "drop trigger refuse")
				if err := f.Complete(t.Context(), lease, res); err != nil {
					t.Errorf("complete again: %v", err)
				}
				if j, err := f.Job(t.Context(), mailTo("a").Key); err != nil || j.State != ledger.Ready || len(j.AskedBy) != 1 {
					t.Errorf("the step is %+v, %v", j, err)
				}
			})
		}
	}
}

// TestForgottenLinks: what a forgotten job asked for is forgotten with it, and the step is not.
func TestForgottenLinks(t *testing.T) {
	f := newFixture(t)
	db := raw(t, f.path)
	if err := f.Complete(t.Context(), f.run("a"), ledger.Result{ID: ledger.NewID(), Body: []byte("1"), Steps: []ledger.StepAsk{mailTo("a")}}); err != nil {
		t.Fatal(err)
	}
	run(t, db, "update paidonce_job set updated_at = 0 where state = 'done'")
	for s, err := range f.Purge(t.Context(), ledger.Retention{Result: time.Hour, Key: time.Hour}) {
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
	}
	if n := scan[int](t, db, "select count(*) from paidonce_step"); n != 0 {
		t.Errorf("%d links are left", n)
	}
	if j, err := f.Job(t.Context(), mailTo("a").Key); err != nil || j.State != ledger.Ready || len(j.AskedBy) != 0 {
		t.Errorf("the step is %+v, %v", j, err)
	}
}
