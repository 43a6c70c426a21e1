package postgres_test

import (
	"bytes"
	"testing"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// TestChunksOfAJobThatMoves: chunks are written to the partition that their job is in when they
// are there, though it moves while they are on their way.
func TestChunksOfAJobThatMoves(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	lease := f.run(f.request("moves"))
	a := attempt()
	if err := f.Send(t.Context(), lease, a); err != nil {
		t.Fatal(err)
	}
	mover, err := f.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer mover.Rollback(t.Context())
	for _, sql := range []string{
		"update paidonce.job set part_on = part_on + 1",
		"update paidonce.attempt set part_on = part_on + 1",
		"update paidonce.event set part_on = part_on + 1",
		"update paidonce.input set part_on = part_on + 1",
		"update paidonce.chunk set part_on = part_on + 1",
	} {
		if _, err := mover.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	id := ledger.AttemptID{Tenant: lease.Key.Tenant, Job: lease.Job, ID: a.ID}
	e := answer()
	e.Response = &ledger.Response{Codec: "http", Body: bytes.Repeat([]byte("0123456789"), 60_000)}
	settled := make(chan error, 1)
	go func() {
		_, err := f.Settle(t.Context(), id, e)
		settled <- err
	}()
	waitForLocks(t, f.db, 1)
	if err := mover.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-settled; err != nil {
		t.Fatal(err)
	}
	got, err := f.Answer(t.Context(), id)
	if err != nil || !bytes.Equal(got.Body, e.Response.Body) {
		t.Errorf("the answer has %d bytes, %v", len(got.Body), err)
	}
}
