package sqlite_test

import (
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// TestPurgeLeavesNoBody: also none of an answer that came after the first purge.
func TestPurgeLeavesNoBody(t *testing.T) {
	path := file(t)
	l, db := open(t, path), raw(t, path)
	w, err := l.Join(t.Context(), ledger.Worker{ID: "w1", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Claim(t.Context(), ledger.Request{Key: ledger.Key{Tenant: "acme", Text: "acme:a:1"}, Action: "a", Input: []byte("{}"),
		Worker: w, Token: ledger.NewID(), MaxRun: time.Hour})
	if err != nil || c.Verdict != ledger.Run {
		t.Fatalf("claim: %s %v", c.Verdict, err)
	}
	late := ledger.AttemptID{Tenant: "acme", Job: c.Lease.Job, ID: ledger.NewID()}
	if err := l.Send(t.Context(), c.Lease, ledger.Attempt{ID: late.ID, Call: ledger.CallRef{Name: "c"}, Timeout: time.Nanosecond}); err != nil {
		t.Fatal(err)
	}
	if err := l.Replay(t.Context(), c.Lease, ledger.ReplayPolicy{Max: 1, Who: "w1"}); err != nil {
		t.Fatal(err)
	}
	if err := l.Complete(t.Context(), c.Lease, ledger.Result{ID: ledger.NewID(), Body: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	bodies := func() int {
		return scan[int](t, db, `select (select count(*) from paidonce_result) + (select count(*) from paidonce_response) + (select count(*) from paidonce_input)`)
	}
	purge := func(want int) {
		t.Helper()
		run(t, db, "update paidonce_job set updated_at = updated_at - ?", (60 * 24 * time.Hour).Microseconds())
		rows := 0
		for s, err := range l.Purge(t.Context(), ledger.Retention{Result: 30 * 24 * time.Hour, Key: 400 * 24 * time.Hour}) {
			if err != nil {
				t.Fatal(err)
			}
			rows += s.Rows
		}
		if n := bodies(); rows != want || n != 0 {
			t.Errorf("purged %d bodies, %d are left; want %d and none", rows, n, want)
		}
	}
	purge(2)
	if _, err := l.Settle(t.Context(), late, ledger.Evidence{State: ledger.Received, By: ledger.BySender, Response: &ledger.Response{Codec: "c", Body: []byte("{}")}}); err != nil {
		t.Fatal(err)
	}
	if n := bodies(); n != 1 {
		t.Errorf("%d bodies after the late answer", n)
	}
	purge(1)
	purge(0)
}
