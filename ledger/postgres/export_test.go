package postgres

import "context"

// Listing is the statement that lists the jobs of a filter.
var Listing = listing

// Migrations are the steps of the schema.
var Migrations = migrations

// MigrateTo makes the steps of the schema up to a version.
func MigrateTo(ctx context.Context, url string, version int64) error {
	db, p, err := provider(url)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "create schema paidonce"); err != nil {
		return err
	}
	_, err = p.UpTo(ctx, version)
	return err
}
