package postgres_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// TestHabit: after many new keys a claim tries its insert first, and is told what it would be told otherwise.
func TestHabit(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	done := f.request("done")
	lease := f.run(done)
	if err := f.Complete(t.Context(), lease, ledger.Result{ID: ledger.NewID(), Body: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	running := f.request("running")
	lease = f.run(running)
	for i := range 40 {
		f.run(f.request(fmt.Sprint("new ", i)))
	}
	claim := func(name string, change func(*ledger.Request)) (ledger.Claimed, error) {
		r := f.request(name)
		if change != nil {
			change(&r)
		}
		return f.Claim(t.Context(), r)
	}
	if c, err := claim("done", nil); err != nil || c.Verdict != ledger.Saved {
		t.Errorf("a job that is done: %s, %v", c.Verdict, err)
	}
	if c, err := claim("running", nil); err != nil || c.Verdict != ledger.Busy {
		t.Errorf("a job that runs: %s, %v", c.Verdict, err)
	}
	if c, err := claim("running", func(r *ledger.Request) { r.Token = running.Token }); err != nil || c.Verdict != ledger.Run || c.Lease.Fence != lease.Fence {
		t.Errorf("the same claim again: %s, %+v, %v", c.Verdict, c.Lease, err)
	}
	run(t, f.db, `create function no_room() returns trigger language plpgsql as $$ begin raise exception 'no room' using errcode = 'disk_full'; end $$;
		create trigger no_room before insert on paidonce.job for each row execute function no_room()`)
	if c, err := claim("done", nil); err != nil || c.Verdict != ledger.Saved {
		t.Errorf("a job that is done, of a server that makes no rows: %s, %v", c.Verdict, err)
	}
	if c, err := claim("never seen", nil); !errors.Is(err, ledger.ErrFull) {
		t.Errorf("a new key, of a server that makes no rows: %s, %v", c.Verdict, err)
	}
	run(t, f.db, "drop trigger no_room on paidonce.job")
	if err := f.Leave(t.Context(), f.worker); err != nil {
		t.Fatal(err)
	}
	if c, err := claim("done", nil); err != nil || c.Verdict != ledger.Saved {
		t.Errorf("a job that is done, of a worker whose epoch is closed: %s, %v", c.Verdict, err)
	}
	if c, err := claim("never seen", nil); !errors.Is(err, ledger.ErrClosed) {
		t.Errorf("a new key, of a worker whose epoch is closed: %s, %v", c.Verdict, err)
	}
}
