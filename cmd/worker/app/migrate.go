package app

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/paidonce/paidonce/cmd/worker/config"
	"github.com/paidonce/paidonce/handlers/invoice"
	"github.com/paidonce/paidonce/ledger/postgres"
	"github.com/paidonce/paidonce/ledger/sqlite"
)

// migrateTimeout is long: an upgrade may wait for locks and build indexes.
const migrateTimeout = time.Hour

// schema is what a kind of ledger has of one, the tables of bundled handlers included.
type schema struct {
	up     func(context.Context) error
	status func(context.Context) ([]step, error)
	print  func() (string, error)
}

// step is a migration of any ledger.
type step struct {
	Version int64
	Name    string
	Applied time.Time // zero: not yet
}

func schemaOf(cfg *config.Config) schema {
	if path, ok := cfg.LedgerFile(); ok {
		return sqliteSchema(path)
	}
	return postgresSchema(cfg.Ledger.URL.Reveal())
}

func postgresSchema(url string) schema {
	return schema{
		up: func(ctx context.Context) error {
			if err := postgres.Migrate(ctx, url); err != nil {
				return err
			}
			return invoice.Migrate(ctx, url)
		},
		status: func(ctx context.Context) (steps []step, err error) {
			all, err := postgres.MigrationStatus(ctx, url)
			for _, m := range all {
				steps = append(steps, step(m))
			}
			return steps, err
		},
		print: func() (string, error) {
			sql, err := postgres.PrintMigrations()
			return fmt.Sprintf("%s\n-- table of job %s\n\n%s", sql, invoice.Name, invoice.Table()), err
		},
	}
}

// roles is the SQL of the roles, with their rights on the tables of bundled handlers.
func roles() string {
	return fmt.Sprintf("%s\n-- table of job %s\n\n%s", postgres.Roles(), invoice.Name, invoice.Grants())
}

func sqliteSchema(path string) schema {
	return schema{
		up: func(ctx context.Context) error {
			if err := sqlite.Migrate(ctx, path); err != nil {
				return err
			}
			return invoice.MigrateSQLite(ctx, path)
		},
		status: func(ctx context.Context) (steps []step, err error) {
			all, err := sqlite.MigrationStatus(ctx, path)
			for _, m := range all {
				steps = append(steps, step(m))
			}
			return steps, err
		},
		print: func() (string, error) {
			sql, err := sqlite.PrintMigrations()
			return fmt.Sprintf("%s\n-- table of job %s\n\n%s", sql, invoice.Name, invoice.TableSQLite()), err
		},
	}
}

// embedded makes or upgrades the embedded ledger, for commands that write: whoever configured
// nothing has nobody to migrate it for.
func (c *call) embedded(cfg *config.Config) error {
	path, ok := cfg.LedgerFile()
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, migrateTimeout)
	defer cancel()
	if err := sqliteSchema(path).up(ctx); err != nil {
		return fmt.Errorf("preparing ledger.url %s (%s): %w", cfg.Ledger.URL, cfg.Source("ledger.url"), err)
	}
	return nil
}

// withSchema is for ledgers that have a schema.
func (c *call) withSchema(do func(context.Context, schema) error) error {
	cfg, err := c.load(func(cfg *config.Config) error {
		if cfg.Ledger.URL.Scheme() == "memory" {
			return config.Fault{Code: "PO512", Path: "ledger.url", Value: "memory:", Source: cfg.Source("ledger.url"),
				Text: "it has no schema; set ledger.url to sqlite:FILE or postgres://…"}
		}
		return cfg.LedgerFault()
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.ctx, migrateTimeout)
	defer cancel()
	if err := do(ctx, schemaOf(cfg)); err != nil {
		return fmt.Errorf("ledger %s: %w", cfg.Ledger.URL, err)
	}
	return nil
}

// Run makes or upgrades the schema: the ledger's, and the tables of bundled handlers. It
// may run any number of times.
func (migrateUp) Run(c *call) error {
	return c.withSchema(func(ctx context.Context, s schema) error {
		if err := s.up(ctx); err != nil {
			return err
		}
		steps, err := s.status(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.Stdout, "The ledger's schema is version %d; the table invoices is there.\n", steps[len(steps)-1].Version)
		return nil
	})
}

type stepDocument struct {
	Version   int64      `json:"version"`
	Name      string     `json:"name"`
	AppliedAt *time.Time `json:"applied_at"` // null: not yet
}

type statusDocument struct {
	Pending int            `json:"pending"`
	Steps   []stepDocument `json:"steps"`
}

// Run says which steps of the schema are there. Missing ones are a finding.
func (s migrateStatus) Run(c *call) error {
	return c.withSchema(func(ctx context.Context, ledger schema) error {
		steps, err := ledger.status(ctx)
		if err != nil {
			return err
		}
		doc := statusDocument{Steps: []stepDocument{}}
		for _, m := range steps {
			doc.Steps = append(doc.Steps, stepDocument{m.Version, m.Name, instant(m.Applied)})
			if m.Applied.IsZero() {
				doc.Pending++
			}
		}
		if err := show(c, s.asJSON, doc, func(w io.Writer) error { return printSteps(w, doc) }); err != nil {
			return err
		}
		if doc.Pending > 0 {
			return exitError{exitFindings, fmt.Errorf("PO513 %d steps of the schema are missing; worker migrate up makes them", doc.Pending)}
		}
		return nil
	})
}

func printSteps(w io.Writer, doc statusDocument) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, s := range doc.Steps {
		fmt.Fprintf(t, "%d\t%s\t%s\n", s.Version, s.Name, map[bool]string{true: "missing", false: clock(s.AppliedAt)}[s.AppliedAt == nil])
	}
	return t.Flush()
}

// Run prints all the SQL, for those who may not let a program change their database: that
// of the embedded ledger if it is configured, else that of Postgres.
func (m migratePrint) Run(c *call) error {
	cfg, err := c.load((*config.Config).LedgerFault)
	if err != nil {
		return err
	}
	if m.Roles {
		if _, file := cfg.LedgerFile(); file {
			return usagef("PO650 a SQLite ledger (%s, %s) has no roles: whoever may read its file may read all; set ledger.url to postgres://…", cfg.Ledger.URL, cfg.Source("ledger.url"))
		}
		_, err = fmt.Fprint(c.Stdout, roles())
		return err
	}
	sql, err := schemaOf(cfg).print()
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(c.Stdout, sql)
	return err
}
