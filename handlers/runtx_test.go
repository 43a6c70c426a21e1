package handlers_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/memory"
	"github.com/paidonce/paidonce/ledger/sqlite"
)

// outline is a message whose job has rows of one answer.
type outline struct{ Tenant, Doc string }

func (o outline) JobKey() job.Key { return job.K(o.Tenant, "outline", o.Doc) }

// runOutline runs the job once under a lease of its own, and returns the error of its handler, which fails once it has got the answer's rows committed:
// the job is ready again.
func runOutline(t *testing.T, store ledger.Store, sent *int) error {
	t.Helper()
	plan := job.Call[outline, string]{Name: "plan", Routes: []job.Route[outline, string]{{Name: "only", Provider: "fake", Timeout: time.Minute,
		Do: func(ctx context.Context, a *job.Attempt, in outline) (string, error) {
			*sent++
			return "one, two, three", a.Sent(ctx)
		}}}}
	var reg job.Registry
	job.Register(&reg, job.Def[outline, string]{Name: "outline", Uses: job.Uses(plan), Handle: func(ctx context.Context, j *job.Run, in outline) (string, error) {
		text, err := sqlite.RunTx(ctx, j, plan, in, func(ctx context.Context, tx sqlite.Tx, text string) error {
			_, err := tx.ExecContext(ctx, "insert into outlines values (?, ?)", in.Doc, text)
			return err
		})
		if err == nil && text == "one, two, three" {
			err = errAfter
		}
		return text, err
	}})
	h, _ := reg.Lookup("outline")
	in, err := h.Decode([]byte(`{"Tenant":"acme","Doc":"1"}`))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	w, err := store.Join(ctx, ledger.Worker{ID: "w", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	c, err := store.Claim(ctx, ledger.Request{Key: in.Key.Ledger(), Action: "outline", InputHash: in.Hash, Input: in.Body, Worker: w, Token: ledger.NewID(), MaxRun: time.Hour})
	if err != nil || c.Verdict != ledger.Run {
		t.Fatalf("claim: %s, %v", c.Verdict, err)
	}
	_, err = h.Run(ctx, job.NewRun(job.RunConfig{Worker: job.NewWorker(job.Worker{Ledger: store, Who: "w", Paid: context.WithoutCancel(ctx)}), Lease: &c.Lease, Number: c.Run}), &in.Content)
	if _, rerr := store.Release(ctx, c.Lease, ledger.Outcome{Error: ledger.JobError{Class: "retry"}, Who: "w"}); rerr != nil {
		t.Fatal(rerr)
	}
	return err
}

var errAfter = errors.New("after the rows")

// TestRunTxInSQLite: three runs of a job pay once, and have the rows of the answer once. Work of one kind of ledger is refused by another.
func TestRunTxInSQLite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	if err := errors.Join(sqlite.Migrate(t.Context(), path), sqlite.Exec(t.Context(), path, "create table outlines (doc text, outline text)")); err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	sent := 0
	for range 3 {
		if err := runOutline(t, store, &sent); !errors.Is(err, errAfter) {
			t.Errorf("run: %v", err)
		}
	}
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var rows int
	var text string
	if err := db.QueryRow("select count(*), max(outline) from outlines where doc = '1'").Scan(&rows, &text); err != nil || rows != 1 || text != "one, two, three" || sent != 1 {
		t.Errorf("%v: %d rows, %q; the call was made %d times", err, rows, text, sent)
	}
	sent = 0
	mem := memory.New()
	for range 2 {
		if err := runOutline(t, mem, &sent); !errors.Is(err, ledger.ErrHook) || !strings.Contains(err.Error(), "PO212") || sent != 1 {
			t.Errorf("on another kind of ledger: %v; the call was made %d times", err, sent)
		}
	}
}
