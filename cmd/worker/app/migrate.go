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
)

// migrateTimeout is long: an upgrade may wait for locks and build indexes.
const migrateTimeout = time.Hour

// withSchema is for ledgers that have a schema.
func (c *call) withSchema(do func(ctx context.Context, url string) error) error {
	cfg, err := c.load(func(cfg *config.Config) error {
		if cfg.Ledger.URL.Scheme() == "memory" {
			return config.Fault{Code: "PO512", Path: "ledger.url", Value: "memory:", Source: cfg.Source("ledger.url"),
				Text: "it has no schema; set ledger.url to postgres://…"}
		}
		return cfg.LedgerFault()
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.ctx, migrateTimeout)
	defer cancel()
	if err := do(ctx, cfg.Ledger.URL.Reveal()); err != nil {
		return fmt.Errorf("ledger %s: %w", cfg.Ledger.URL, err)
	}
	return nil
}

// Run makes or upgrades the schema: the ledger's, and the tables of bundled handlers. It
// may run any number of times.
func (migrateUp) Run(c *call) error {
	return c.withSchema(func(ctx context.Context, url string) error {
		if err := postgres.Migrate(ctx, url); err != nil {
			return err
		}
		if err := invoice.Migrate(ctx, url); err != nil {
			return err
		}
		steps, err := postgres.MigrationStatus(ctx, url)
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
	return c.withSchema(func(ctx context.Context, url string) error {
		steps, err := postgres.MigrationStatus(ctx, url)
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

// Run prints all the SQL, for those who may not let a program change their database.
func (migratePrint) Run(c *call) error {
	sql, err := postgres.PrintMigrations()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.Stdout, "%s\n-- table of job %s\n\n%s", sql, invoice.Name, invoice.Table())
	return err
}
