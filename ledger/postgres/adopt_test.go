package postgres_test

import (
	"context"
	"sync"
	"testing"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// unknown makes a job whose one call has no outcome on record.
func (f *fixture) unknown(name string) ledger.Key {
	f.Helper()
	r := f.request(name)
	lease := f.run(r)
	if err := f.Send(f.Context(), lease, attempt()); err != nil {
		f.Fatalf("gate: %v", err)
	}
	if x, err := f.Release(f.Context(), lease, ledger.Outcome{}); err != nil || x.State != ledger.Unknown {
		f.Fatalf("release: %+v %v", x, err)
	}
	return r.Key
}

const adopted = "unknown runs 0 fence 3 open 1 attempts 1 reserved 5 events 4 result false marks 0"

func TestLostReplyToAdopt(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	k := f.unknown("a")
	a := ledger.Adoption{Worker: f.worker, Token: ledger.NewID(), Max: 10}
	lost := f.proxy.DropReplyTo([]byte("commit\x00"))
	if as, err := f.Adopt(t.Context(), a); err == nil {
		t.Fatalf("the reply came: %+v", as)
	}
	<-lost
	f.want(k, adopted)
	other := ledger.Adoption{Worker: f.worker, Token: ledger.NewID(), Max: 10}
	if as, err := f.Adopt(t.Context(), other); err != nil || len(as) != 0 {
		t.Errorf("another adoption: %+v %v", as, err)
	}
	if as, err := f.Adopt(t.Context(), a); err != nil || len(as) != 1 || as[0].Lease.Key != k || as[0].Lease.Fence != 3 || len(as[0].Open) != 1 {
		t.Errorf("the same adoption again: %+v %v", as, err)
	}
	f.want(k, adopted)
}

// TestAdoptBesideItself repeats an adoption that the server is still at: both are told the
// same, where a repeat that does not wait would be told of none.
func TestAdoptBesideItself(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	k := f.unknown("a")
	tx, err := f.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	if _, err := tx.Exec(t.Context(), "lock table paidonce.attempt in access exclusive mode"); err != nil { // it comes after the adoption
		t.Fatal(err)
	}
	a := ledger.Adoption{Worker: f.worker, Token: ledger.NewID(), Max: 10}
	var wg sync.WaitGroup
	for n := range 2 {
		wg.Go(func() {
			if as, err := f.Adopt(t.Context(), a); err != nil || len(as) != 1 || as[0].Lease.Fence != 3 {
				t.Errorf("the adoption: %+v %v", as, err)
			}
		})
		waitForLocks(t, f.db, n+1)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	f.want(k, adopted)
}
