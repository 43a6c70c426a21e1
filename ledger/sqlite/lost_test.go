package sqlite_test

import (
	"strings"
	"testing"

	"github.com/paidonce/paidonce/ledger"
)

// TestLostTransactionFailsAlone: an error that takes the whole transaction back, as one of the disk does, harms nobody but the verb that had it.
// What others write after it would be committed by itself, piece by piece.
func TestLostTransactionFailsAlone(t *testing.T) {
	f := newFixture(t)
	db := raw(t, f.path)
	run(t, db, `create trigger poison before insert on paidonce_job when new.key like '%:b'
		begin select raise(rollback, 'poisoned'); end`)
	a, c := f.run("a"), f.run("c")
	errs := f.together(
		func() error { return f.complete(t.Context(), a, "") },
		func() error { _, err := f.Claim(t.Context(), request(f.worker, "b")); return err },
		func() error { return f.Send(t.Context(), c, attempt()) },
	)
	if errs[0] != nil || errs[2] != nil || errs[1] == nil || !strings.Contains(errs[1].Error(), "poisoned") {
		t.Errorf("errors %v", errs)
	}
	if j, err := f.Job(t.Context(), request(f.worker, "c").Key); err != nil || j.OpenCalls != 1 || len(j.Attempts) != 1 || f.state("a") != ledger.Done {
		t.Errorf("the jobs are %s and %+v, %v", f.state("a"), j, err)
	}
}
