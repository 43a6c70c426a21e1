package invoice

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger/postgres"
	"github.com/paidonce/paidonce/ledger/sqlite"
)

// Save keeps an invoice of a run together with its result.
type Save func(j *job.Run, d Document, inv Invoice)

//go:embed save.sql
var saveSQL string

// InPostgres writes the invoice's row in the transaction that commits the result: both
// are there or neither is. The callback may run twice, the row is one.
func InPostgres(j *job.Run, d Document, inv Invoice) {
	key := j.Key()
	postgres.OnCommit(j, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, saveSQL, key.Tenant, key.Text, d.Document, d.Revision,
			inv.Number, inv.Supplier, inv.Currency, inv.TotalCents, inv.Date)
		if err != nil {
			return fmt.Errorf("keeping the invoice: %w", err)
		}
		return nil
	})
}

//go:embed save_sqlite.sql
var saveSQLite string

// InSQLite is InPostgres for the embedded ledger.
func InSQLite(j *job.Run, d Document, inv Invoice) {
	key := j.Key()
	sqlite.OnCommit(j, func(ctx context.Context, tx sqlite.Tx) error {
		_, err := tx.ExecContext(ctx, saveSQLite, key.Tenant, key.Text, d.Document, d.Revision,
			inv.Number, inv.Supplier, inv.Currency, inv.TotalCents, inv.Date)
		if err != nil {
			return fmt.Errorf("keeping the invoice: %w", err)
		}
		return nil
	})
}

//go:embed table_sqlite.sql
var tableSQLite string

// TableSQLite is Table for the embedded ledger.
func TableSQLite() string { return tableSQLite }

// MigrateSQLite makes the table invoices in the embedded ledger's file, which is there.
func MigrateSQLite(ctx context.Context, path string) error {
	if err := sqlite.Exec(ctx, path, tableSQLite); err != nil {
		return fmt.Errorf("making the table invoices: %w", err)
	}
	return nil
}

//go:embed table.sql
var tableSQL string

// Table is the SQL that makes the table invoices; it may run any number of times.
func Table() string { return tableSQL }

// Grants is the SQL that gives the ledger's roles (postgres.Roles) their rights on the table invoices, which is there.
func Grants() string {
	return "grant select, insert, update on invoices to paidonce_worker;\ngrant select on invoices to paidonce_reader;\n"
}

// Migrate makes the table invoices in the database at url, in its search path.
// Two workers may do it at once.
func Migrate(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("making the table invoices: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	// Transactions wait for each other here: IF NOT EXISTS alone fails when
	// two run at the same time.
	const lock = "SELECT pg_advisory_xact_lock(hashtext('paidonce.invoices'))"
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lock); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, tableSQL)
		return err
	})
	if err != nil {
		return fmt.Errorf("making the table invoices: %w", err)
	}
	return nil
}
