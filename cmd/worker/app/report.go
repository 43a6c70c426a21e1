package app

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/paidonce/paidonce/cmd/worker/config"
	"github.com/paidonce/paidonce/ledger"
)

// reportTimeout bounds a report, which may read years.
const reportTimeout = 10 * time.Minute

type reportCommand struct {
	asJSON
	CSV    bool   `name:"csv" help:"A table separated by commas on stdout: a line for each group, none for the total."`
	By     string `help:"A group for each action, tenant, model or day." default:"action" placeholder:"WHAT"`
	Since  string `help:"From this day on (UTC): 2026-11-01, or so long ago, such as 7d." placeholder:"D"`
	Until  string `help:"Up to this day, which counts too; likewise." placeholder:"D"`
	Tenant string `help:"Only this tenant." placeholder:"T"`
	Job    string `help:"Only jobs of this name." placeholder:"NAME"`
}

// Run adds up what was called, spent, avoided and wasted.
func (r reportCommand) Run(c *call) error {
	f, err := r.filter(time.Now())
	if err != nil {
		return err
	}
	cfg, err := c.load(c.shared)
	if err != nil {
		return err
	}
	store, done, err := c.openLedger(cfg)
	if err != nil {
		return err
	}
	defer done()
	ctx, stop := signal.NotifyContext(c.ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if err := store.Ping(ctx); err != nil {
		return fmt.Errorf("the ledger %s is not usable: %w", cfg.Ledger.URL, err)
	}
	costs, err := store.Costs(ctx, f)
	if err != nil {
		return fmt.Errorf("adding up the ledger %s: %w", cfg.Ledger.URL, err)
	}
	doc := newReport(f, costs)
	if doc.Total.Partial && (r.JSON || r.CSV) {
		fmt.Fprintln(c.Stderr, "worker: "+missing(doc))
	}
	if r.CSV {
		return printCSV(c.Stdout, doc)
	}
	return show(c, r.asJSON, doc, func(w io.Writer) error { return printReport(w, doc) })
}

// filter is what the flags ask for.
func (r reportCommand) filter(now time.Time) (f ledger.CostFilter, err error) {
	f = ledger.CostFilter{By: ledger.Grouping(r.By), Tenant: r.Tenant, Action: r.Job}
	if r.CSV && r.JSON {
		return f, usagef("PO502 --csv and --json: leave one of them out")
	}
	if !slices.Contains(ledger.Groupings(), f.By) {
		return f, usagef("PO502 --by %s: there are %v", r.By, ledger.Groupings())
	}
	if f.Since, err = dayOf("--since", r.Since, now); err != nil {
		return f, err
	}
	if f.Until, err = dayOf("--until", r.Until, now); err != nil || f.Until.IsZero() {
		return f, err
	}
	if f.Until.Before(f.Since) {
		return f, usagef("PO502 --until %s is before --since %s", f.Until.Format(time.DateOnly), f.Since.Format(time.DateOnly))
	}
	f.Until = f.Until.AddDate(0, 0, 1)
	return f, nil
}

// dayOf reads a day, in UTC, or how long ago it was; zero for none.
func dayOf(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day, nil
	}
	var ago config.Duration
	if err := ago.UnmarshalText([]byte(text)); err != nil {
		return time.Time{}, usagef("PO502 %s %s: write a day, such as 2026-11-01, or how long ago, such as 7d or 36h", flag, text)
	}
	return ledger.DayOf(now.Add(-ago.Std())), nil
}

// missing says what a report lacks.
func missing(d reportDocument) string {
	return fmt.Sprintf("PO570 the numbers are too small: of what is dated up to %s something is past its retention and gone; later days are whole",
		d.ForgottenUntil.Format("2006-01-02 15:04:05Z"))
}
