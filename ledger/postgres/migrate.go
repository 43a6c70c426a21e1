package postgres

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/paidonce/paidonce/ledger"
)

//go:embed migrations/*.sql
var migrations embed.FS

// schemaVersion is the newest schema that this program knows, and oldestSchema the
// oldest that it runs with: migrations only add, so that both versions of a program
// work during a rolling upgrade. No step has the number 15, and none may get it: it would be older than steps that ran.
const (
	schemaVersion = 18
	oldestSchema  = 18 // no program was released that makes an older one
)

// migrating is the advisory lock of whoever migrates. It belongs to a transaction:
// a lock of a session would stay on somebody's connection behind a pooler.
const migrating = 0x7061_6964 // "paid"

// Migration is one step of the schema.
type Migration struct {
	Version int64
	Name    string    // the file's
	Applied time.Time // zero: not yet
}

// Migrate makes the ledger's schema in the database that url names, or upgrades it.
// It may run many times and by many processes at once: one works, the others
// wait for it. The user needs the right to create a schema.
func Migrate(ctx context.Context, url string) error {
	db, p, err := provider(url)
	if err != nil {
		return err
	}
	defer db.Close()
	unlock, err := lockSchema(ctx, db)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := db.ExecContext(ctx, "create schema if not exists paidonce"); err != nil {
		return fmt.Errorf("create schema paidonce: %w", err)
	}
	// A lock that somebody else holds is waited for in short turns.
	for try := 1; ; try++ {
		_, err := p.Up(ctx)
		if err == nil {
			break
		}
		if sqlState(err) != "55P03" || try == 30 {
			return fmt.Errorf("migrate the ledger: %w", err)
		}
	}
	return ahead(ctx, db)
}

// ahead makes the partitions of the weeks to come. It waits for no lock: the next call
// makes what this one cannot.
func ahead(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, "select paidonce.ensure_partitions('45 days')"); err != nil {
		return fmt.Errorf("make partitions ahead: %w", err)
	}
	return nil
}

// lockSchema waits until nobody else migrates, and returns what ends that.
func lockSchema(ctx context.Context, db *sql.DB) (func(), error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("connect to migrate the ledger: %w", err)
	}
	for _, s := range []string{
		"set local idle_in_transaction_session_timeout = 0", "set local lock_timeout = '10min'",
		fmt.Sprintf("select pg_advisory_xact_lock(%d)", migrating),
	} {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			tx.Rollback()
			return nil, fmt.Errorf("wait for another migration: %w", err)
		}
	}
	return func() { tx.Rollback() }, nil
}

// MigrationStatus lists the steps of the schema, and which are applied.
func MigrationStatus(ctx context.Context, url string) ([]Migration, error) {
	db, _, err := provider(url)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	applied, err := appliedAt(ctx, db)
	if err != nil {
		return nil, err
	}
	var list []Migration
	for _, name := range names {
		name = strings.TrimPrefix(name, "migrations/")
		v, err := goose.NumericComponent(name)
		if err != nil {
			return nil, err
		}
		list = append(list, Migration{v, name, applied[v]})
	}
	return list, nil
}

func appliedAt(ctx context.Context, db *sql.DB) (map[int64]time.Time, error) {
	at := map[int64]time.Time{}
	rows, err := db.QueryContext(ctx, "select version_id, tstamp from paidonce.schema_version where is_applied")
	if err == nil {
		defer rows.Close()
		for rows.Next() {
			var v int64
			var t time.Time
			if err := rows.Scan(&v, &t); err != nil {
				return nil, err
			}
			at[v] = t
		}
		err = rows.Err()
	}
	if err != nil && !noSchema(err) {
		return nil, fmt.Errorf("read the ledger's schema version: %w", err)
	}
	return at, nil
}

// PrintMigrations returns the SQL of all steps, for those who apply it by other
// means.
func PrintMigrations() (string, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return "", err
	}
	var all strings.Builder
	all.WriteString("create schema if not exists paidonce;\n")
	for _, name := range names {
		b, err := migrations.ReadFile(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&all, "\n-- %s\n\n%s", name, b)
	}
	return all.String(), nil
}

//go:embed roles.sql
var rolesSQL string

// Roles returns the SQL of roles with no more rights than their work needs, for whoever owns the schema: paidonce_worker,
// paidonce_reader and paidonce_producer. It may run any number of times, and should again after each upgrade.
func Roles() string { return rolesSQL }

// provider opens the database for goose. Statements have no names, so that a pooler
// may be in between.
func provider(url string) (*sql.DB, *goose.Provider, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	db := stdlib.OpenDB(*cfg)
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, nil, err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, dir, goose.WithTableName("paidonce.schema_version"))
	if err != nil {
		db.Close()
		return nil, nil, fmt.Errorf("read the migrations: %w", err)
	}
	return db, p, nil
}

var versionSQL = statement("version")

// Ping implements ledger.Reader.
func (l *Ledger) Ping(ctx context.Context) error {
	v, err := one[struct{ Version int64 }](ctx, l.pool, versionSQL)
	switch {
	case noSchema(err):
		return fmt.Errorf("%w: there is none in this database; make it with: worker migrate up", ledger.ErrSchema)
	case err != nil:
		return fmt.Errorf("ping the ledger: %w", err)
	case v.Version > schemaVersion:
		return fmt.Errorf("%w: it is version %d and this program knows %d; run a newer program", ledger.ErrSchema, v.Version, schemaVersion)
	case v.Version < oldestSchema:
		return fmt.Errorf("%w: it is version %d and this program needs %d; upgrade it with: worker migrate up",
			ledger.ErrSchema, v.Version, oldestSchema)
	}
	return nil
}

// noSchema reports whether the server says that the table or its schema is not there.
func noSchema(err error) bool {
	code := sqlState(err)
	return code == "42P01" || code == "3F000"
}

// Maintain makes the partitions that will be needed. A worker calls it once a day;
// without it rows land in default partitions, where nothing is lost.
func (l *Ledger) Maintain(ctx context.Context) error {
	if _, err := l.pool.Exec(ctx, "select paidonce.ensure_partitions('45 days')"); err != nil {
		return fmt.Errorf("make partitions ahead: %w", err)
	}
	return nil
}
