package app

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/paidonce/paidonce/cmd/worker/config"
	"github.com/paidonce/paidonce/ledger"
)

type budgetsDocument struct {
	Day     string           `json:"day"` // of UTC
	Budgets []budgetDocument `json:"budgets"`
}

type budgetDocument struct {
	Tenant      string `json:"tenant"`
	Job         string `json:"job"`          // "": all of the tenant's
	LimitUSD    string `json:"limit_usd"`    // that of the latest call that was sent under it
	SpentUSD    string `json:"spent_usd"`    // as far as it is known
	ReservedUSD string `json:"reserved_usd"` // for calls without an outcome
	left        ledger.Nano
}

// Run lists what was spent under the limits of a day.
func (b budgetsCommand) Run(c *call) error {
	day, err := dayOf("--day", b.Day, time.Now())
	if err != nil {
		return err
	}
	return c.withLedger(func(ctx context.Context, _ *config.Config, store ledger.Store) error {
		all, err := store.Budgets(ctx, ledger.BudgetFilter{Day: day, Tenant: b.Tenant})
		if err != nil {
			return fmt.Errorf("reading the budgets: %w", err)
		}
		doc := budgetsDocument{Day: day.UTC().Format(time.DateOnly), Budgets: []budgetDocument{}}
		for _, x := range all {
			doc.Budgets = append(doc.Budgets, budgetDocument{Tenant: x.Tenant, Job: x.Action, LimitUSD: x.Limit.String(), SpentUSD: x.Cost.String(),
				ReservedUSD: x.Reserved.String(), left: max(0, x.Limit-x.Cost-x.Reserved)})
		}
		return show(c, b.asJSON, doc, func(w io.Writer) error { return printBudgets(w, doc) })
	})
}

func printBudgets(w io.Writer, d budgetsDocument) error {
	if len(d.Budgets) == 0 {
		_, err := fmt.Fprintf(w, "nothing was sent under a limit on %s\n", d.Day)
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "TENANT\tJOB\tLIMIT USD\tSPENT\tRESERVED\tLEFT")
	for _, b := range d.Budgets {
		job := oneLine(b.Job)
		if job == "" {
			job = "(all)"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", oneLine(b.Tenant), job, b.LimitUSD, b.SpentUSD, b.ReservedUSD, b.left)
	}
	return t.Flush()
}
