package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

//go:embed migrations/*.sql
var migrations embed.FS

// schemaVersion is the newest schema that this program knows, and oldestSchema the
// oldest that it runs with: migrations only add.
const (
	schemaVersion = 11
	oldestSchema  = 11 // no program was released that makes an older one
)

// schemaTable records what was applied.
const schemaTable = `create table if not exists paidonce_schema (
  version integer primary key,
  name text not null,
  applied_at integer not null
) strict`

// Migration is one step of the schema.
type Migration struct {
	Version int64
	Name    string    // the file's
	Applied time.Time // zero: not yet
}

// steps are all that this program knows, in order.
func steps() ([]Migration, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	var all []Migration
	for _, name := range names {
		name = strings.TrimPrefix(name, "migrations/")
		number, _, _ := strings.Cut(name, "_")
		v, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the migration %s has no number: %w", name, err)
		}
		all = append(all, Migration{Version: v, Name: name})
	}
	return all, nil
}

// Migrate makes the ledger in the file at path, which need not be there (its folder does),
// or upgrades it. It may run many times and by many processes at once: one works, the
// others wait for it. All steps are one transaction. Errors are those of Open.
func Migrate(ctx context.Context, path string) error {
	if err := checkFolder(path); err != nil {
		return err
	}
	all, err := steps()
	if err != nil {
		return err
	}
	return alone(ctx, path, "rwc", func(conn *sql.Conn) error { return apply(ctx, conn, all) })
}

// Exec runs statements in one transaction on the file at path, which is there: it makes the
// user's own tables beside the ledger's. Like Migrate it may be called by many processes.
func Exec(ctx context.Context, path, statements string) error {
	if err := check(path); err != nil {
		return err
	}
	return alone(ctx, path, "rw", func(conn *sql.Conn) error { return exec(ctx, conn, statements) })
}

// alone runs fn in a transaction of its own.
func alone(ctx context.Context, path, mode string, fn func(*sql.Conn) error) error {
	db, conn, err := connect(ctx, path, mode)
	if err != nil {
		return err
	}
	defer db.Close()
	defer conn.Close()
	if err := retry(func() error { return exec(ctx, conn, "begin immediate") }); err != nil {
		return refuse(path, err)
	}
	err = fn(conn)
	if err == nil {
		err = exec(ctx, conn, "commit")
	}
	if err != nil {
		_ = exec(context.WithoutCancel(ctx), conn, "rollback") // the engine may have done it, as when the disk is full; else the connection's end does
		return fmt.Errorf("migrate the ledger %s: %w", path, explain(err))
	}
	return nil
}

// apply makes the steps that are missing.
func apply(ctx context.Context, conn *sql.Conn, all []Migration) error {
	if err := exec(ctx, conn, schemaTable); err != nil {
		return err
	}
	var version int64
	if err := conn.QueryRowContext(ctx, statement("version")).Scan(&version); err != nil {
		return err
	}
	for _, m := range all {
		if m.Version <= version {
			continue
		}
		text, err := migrations.ReadFile("migrations/" + m.Name)
		if err != nil {
			return err
		}
		if err := exec(ctx, conn, string(text)); err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		if _, err := conn.ExecContext(ctx, "insert into paidonce_schema (version, name, applied_at) values (?, ?, ?)", m.Version, m.Name, micros(clock())); err != nil {
			return err
		}
	}
	return nil
}

func exec(ctx context.Context, conn *sql.Conn, statement string) error {
	_, err := conn.ExecContext(ctx, statement)
	return err
}

// retry repeats what another process's lock kept from happening, often: a busy process
// leaves its lock for moments only.
func retry(fn func() error) error {
	for until := time.Now().Add(lockWait); ; {
		err := fn()
		if err == nil || !busy(err) || time.Now().After(until) {
			return err
		}
		time.Sleep(time.Duration(200+rand.IntN(1800)) * time.Microsecond)
	}
}

// MigrationStatus lists the steps of the schema, and which are applied. A file that is not
// there has none.
func MigrationStatus(ctx context.Context, path string) ([]Migration, error) {
	all, err := steps()
	if err != nil {
		return nil, err
	}
	if err := checkFolder(path); err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	db, conn, err := connect(ctx, path, "rw")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	defer conn.Close()
	for i, m := range all {
		var us int64
		err := conn.QueryRowContext(ctx, "select applied_at from paidonce_schema where version = ?", m.Version).Scan(&us)
		switch {
		case err == nil:
			all[i].Applied = time.UnixMicro(us)
		case !errors.Is(err, sql.ErrNoRows) && !noSchema(err):
			return nil, fmt.Errorf("read the ledger's schema version: %w", err)
		}
	}
	return all, nil
}

// PrintMigrations returns the SQL of all steps, for those who want to read it. Apply them
// with Migrate, which records them.
func PrintMigrations() (string, error) {
	all, err := steps()
	if err != nil {
		return "", err
	}
	var text strings.Builder
	text.WriteString(schemaTable + ";\n")
	for _, m := range all {
		b, err := migrations.ReadFile("migrations/" + m.Name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&text, "\n-- %s\n\n%s", m.Name, b)
	}
	return text.String(), nil
}

// Ping implements ledger.Reader.
func (l *Ledger) Ping(ctx context.Context) error {
	version, err := one(ctx, l.readers, scalar[int64], "version")
	switch {
	case noSchema(err):
		return fmt.Errorf("%w: there is none in %s; make it with: worker migrate up", ledger.ErrSchema, l.path)
	case err != nil:
		return fmt.Errorf("ping the ledger: %w", explain(err))
	case version > schemaVersion:
		return fmt.Errorf("%w: it is version %d and this program knows %d; run a newer program", ledger.ErrSchema, version, schemaVersion)
	case version < oldestSchema:
		return fmt.Errorf("%w: it is version %d and this program needs %d; upgrade it with: worker migrate up", ledger.ErrSchema, version, oldestSchema)
	}
	return nil
}

// noSchema reports whether the table of versions is not there.
func noSchema(err error) bool {
	return err != nil && strings.Contains(err.Error(), "no such table: paidonce_schema")
}
