package app

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/paidonce/paidonce/cmd/worker/config"
	"github.com/paidonce/paidonce/cmd/worker/doctor"
	"github.com/paidonce/paidonce/prices"
)

type priceDocument struct {
	Provider     string            `json:"provider"`
	Model        string            `json:"model"`
	From         string            `json:"from"`
	Above        int64             `json:"above"`
	Input        string            `json:"input"` // decimal dollars per million tokens, as all of these
	CacheRead    string            `json:"cache_read"`
	CacheWrite   string            `json:"cache_write"`
	CacheWrite1h string            `json:"cache_write_1h"`
	Output       string            `json:"output"`
	Reasoning    string            `json:"reasoning"`
	Factors      map[string]string `json:"factors"` // decimal, by term
	Source       string            `json:"source"`
}

type pricesDocument struct {
	Currency    string          `json:"currency"`
	Tokens      int             `json:"tokens"`        // that a price is for
	BuiltinAsOf string          `json:"builtin_as_of"` // when the built-in prices were read
	Prices      []priceDocument `json:"prices"`
}

type pricesCheckDocument struct {
	File     string            `json:"file"` // "": the built-in table alone
	Prices   int               `json:"prices"`
	Models   int               `json:"models"`
	Unpriced []doctor.Unpriced `json:"unpriced"`
}

// Run prints the table that workers use.
func (p pricesListCommand) Run(c *call) error {
	cfg, err := c.load(priced)
	if err != nil {
		return err
	}
	table, err := cfg.PriceTable()
	if err != nil {
		return exitError{exitUsage, err}
	}
	doc := pricesDocument{Currency: "USD", Tokens: 1_000_000, BuiltinAsOf: prices.AsOf.Format(time.DateOnly), Prices: []priceDocument{}}
	for _, p := range table.Prices() {
		doc.Prices = append(doc.Prices, priceRow(p))
	}
	return show(c, p.asJSON, doc, func(w io.Writer) error { return printPrices(w, doc) })
}

// Run says what is wrong with a file of prices, and which routes would have none.
func (p pricesCheckCommand) Run(c *call) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	if p.File != "" {
		cfg.Prices = p.File
	}
	table, err := cfg.PriceTable()
	if err != nil {
		return exitError{exitUsage, err}
	}
	doc := pricesCheckDocument{File: cfg.Prices, Unpriced: unpriced(cfg, table)}
	models := map[string]bool{}
	for _, p := range table.Prices() {
		models[p.Provider+" "+p.Model] = true
		doc.Prices++
	}
	doc.Models = len(models)
	err = show(c, p.asJSON, doc, func(w io.Writer) error {
		for _, u := range doc.Unpriced {
			fmt.Fprintln(w, u)
		}
		_, err := fmt.Fprintf(w, "%d prices of %d models (%s)\n", doc.Prices, doc.Models, aboutPrices(cfg))
		return err
	})
	if err == nil && len(doc.Unpriced) > 0 {
		err = exitError{exitFindings, fmt.Errorf("PO560 routes without a price: %d; what is sent there has no cost on record", len(doc.Unpriced))}
	}
	return err
}

// priced checks the configured file of prices.
func priced(cfg *config.Config) error {
	_, err := cfg.PriceTable()
	return err
}

// unpriced lists the routes whose calls would have no cost today.
func unpriced(cfg *config.Config, table *prices.Table) []doctor.Unpriced {
	all := []doctor.Unpriced{}
	for _, job := range jobNames() {
		for _, r := range cfg.Jobs[job].Routes {
			if err := table.Has(r.Provider, r.Model, time.Now()); err != nil {
				all = append(all, doctor.Unpriced{Job: job, Route: r.Name, Provider: r.Provider, Model: r.Model, Why: err.Error(), Limits: limitsInUSD(cfg, job)})
			}
		}
	}
	return all
}

// limitsInUSD are the settings that bound what a job may spend, with their values.
func limitsInUSD(cfg *config.Config, job string) string {
	var all []string
	add := func(path string, usd config.USD) {
		if usd.Nano > 0 {
			all = append(all, path+" "+usd.String())
		}
	}
	add("jobs."+job+".budget_usd", cfg.Jobs[job].Budget)
	add("jobs."+job+".tenant_day_usd", cfg.Jobs[job].TenantDay)
	add("budgets.tenant_day_usd", cfg.Budgets.TenantDay)
	for _, tenant := range slices.Sorted(maps.Keys(cfg.Budgets.Tenants.Of)) {
		add("budgets.tenants of "+tenant, cfg.Budgets.Tenants.Of[tenant])
	}
	return strings.Join(all, ", ")
}

// aboutPrices says where the prices come from.
func aboutPrices(cfg *config.Config) string {
	text := "built-in, as of " + prices.AsOf.Format(time.DateOnly)
	if cfg.Prices != "" {
		text = cfg.Prices + ", over what is " + text
	}
	return text
}

func priceRow(p prices.Price) priceDocument {
	d := priceDocument{Provider: p.Provider, Model: p.Model, From: p.From.Format(time.DateOnly), Above: p.Above,
		Input: p.Input.String(), CacheRead: p.CacheRead.String(), CacheWrite: p.CacheWrite.String(), CacheWrite1h: p.CacheWrite1h.String(),
		Output: p.Output.String(), Reasoning: p.Reasoning.String(), Factors: map[string]string{}, Source: p.Source}
	for term, f := range p.Factors {
		d.Factors[term] = f.String()
	}
	return d
}

func printPrices(w io.Writer, d pricesDocument) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "PROVIDER\tMODEL\tFROM\tABOVE\tINPUT\tCACHE READ\tWRITE\tWRITE 1H\tOUTPUT\tREASONING\tTIMES\tSOURCE")
	for _, p := range d.Prices {
		above := ""
		if p.Above > 0 {
			above = fmt.Sprint(p.Above)
		}
		var times []string
		for _, term := range slices.Sorted(maps.Keys(p.Factors)) {
			times = append(times, term+" "+p.Factors[term])
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", p.Provider, p.Model, p.From, above, p.Input, p.CacheRead, p.CacheWrite, p.CacheWrite1h,
			p.Output, p.Reasoning, strings.Join(times, ", "), p.Source)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nUS dollars per million tokens; built-in prices as of %s\n", d.BuiltinAsOf)
	return err
}
