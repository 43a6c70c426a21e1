package postgres_test

import (
	"testing"

	"github.com/paidonce/paidonce/internal/pgtest"
	"github.com/paidonce/paidonce/ledger/postgres"
)

// The settings are those of the ledger's own connections, and no schema is needed.
func TestDescribe(t *testing.T) {
	url := pgtest.URL(t)
	l := open(t, url, postgres.Options{})
	db := raw(t, url)
	var want postgres.Description
	err := db.QueryRow(t.Context(), "select current_setting('server_version'), current_setting('fsync') = 'on'").Scan(&want.Version, &want.Fsync)
	if err != nil {
		t.Fatal(err)
	}
	want.SynchronousCommit = "on"
	got, err := l.Describe(t.Context())
	if err != nil || got != want {
		t.Errorf("described as %+v (%v), want %+v", got, err, want)
	}
	var name string
	if err := db.QueryRow(t.Context(), "select current_database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	run(t, db, "alter database "+name+" set synchronous_commit = local")
	if got, err = open(t, url, postgres.Options{}).Describe(t.Context()); err != nil || got.SynchronousCommit != "local" {
		t.Errorf("with another setting of the database: %+v (%v)", got, err)
	}
}
