package app

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/paidonce/paidonce/cmd/worker/config"
	"github.com/paidonce/paidonce/ledger"
)

type unknownDocument struct {
	Unknown []unknownJob `json:"unknown"` // those that are unknown for longest first
	Summary struct {
		Jobs        int    `json:"jobs"`
		Calls       int    `json:"calls"`
		ReservedUSD string `json:"reserved_usd"` // what the calls may have cost, as far as that was held back
	} `json:"summary"`
	reserved ledger.Nano
}

type unknownJob struct {
	Key         string            `json:"key"`
	Job         string            `json:"job"`
	Tenant      string            `json:"tenant"`
	Since       *time.Time        `json:"since"`
	Age         string            `json:"age"` // of since, such as 2h5m
	ReservedUSD string            `json:"reserved_usd"`
	LastLook    string            `json:"last_look"` // what was found the last time; "": nobody looked yet
	Calls       []attemptDocument `json:"calls"`     // those that are open
}

// check refuses filters that make no sense.
func (f unknownFilter) check() error {
	if f.Limit < 1 {
		return usagef("PO502 --limit %d: ask for at least one job", f.Limit)
	}
	if f.OlderThan < 0 {
		return usagef("PO502 --older-than %s: write a time that has passed, such as 2h", f.OlderThan)
	}
	return nil
}

// jobs are those that are meant, the oldest unknown first.
func (f unknownFilter) jobs(ctx context.Context, store ledger.Store) ([]ledger.Job, error) {
	var keys []ledger.Key
	for j, err := range store.Jobs(ctx, ledger.Filter{Tenant: f.Tenant, Action: f.Job, State: ledger.Unknown, Limit: f.Limit}) {
		if err != nil {
			return nil, fmt.Errorf("listing unknown jobs: %w", err)
		}
		keys = append(keys, j.Key)
	}
	var jobs []ledger.Job
	for _, k := range keys {
		j, err := find(ctx, store, k.Text)
		if err != nil {
			return nil, err
		}
		if j.State == ledger.Unknown && time.Since(unknownSince(j)) >= f.OlderThan {
			jobs = append(jobs, j)
		}
	}
	slices.SortStableFunc(jobs, func(a, b ledger.Job) int { return unknownSince(a).Compare(unknownSince(b)) })
	return jobs, nil
}

// unknownSince is when the job became unknown, by its history.
func unknownSince(j ledger.Job) time.Time {
	since := j.UpdatedAt
	for _, e := range j.History {
		if e.To == ledger.Unknown && e.From != ledger.Unknown {
			since = e.At
		}
	}
	return since
}

// Run lists what nobody knows, with the evidence there is.
func (u unknownCommand) Run(c *call) error {
	if err := u.check(); err != nil {
		return err
	}
	return c.withLedger(func(ctx context.Context, cfg *config.Config, store ledger.Store) error {
		doc, err := unknowns(ctx, cfg, store, u.unknownFilter)
		if err != nil {
			return err
		}
		return show(c, u.asJSON, doc, func(w io.Writer) error { return printUnknown(w, doc) })
	})
}

func unknowns(ctx context.Context, cfg *config.Config, store ledger.Store, f unknownFilter) (unknownDocument, error) {
	doc := unknownDocument{Unknown: []unknownJob{}}
	doc.Summary.ReservedUSD = ledger.Nano(0).String()
	jobs, err := f.jobs(ctx, store)
	for _, j := range jobs {
		h, _ := registry(cfg).Lookup(j.Action)
		x := unknownJob{Key: j.Key.Text, Job: j.Action, Tenant: j.Key.Tenant, Since: instant(unknownSince(j)),
			Age: time.Since(unknownSince(j)).Round(time.Second).String(), Calls: []attemptDocument{}}
		var reserved ledger.Nano
		for _, a := range j.Attempts {
			if a.State == ledger.Sent {
				x.Calls = append(x.Calls, attempt(a))
				reserved += a.Reserve
			}
		}
		if n := len(j.History); n > 0 && j.History[n-1].Looks > 0 {
			x.LastLook = h.ShownText(j.History[n-1].Reason)
		}
		x.ReservedUSD = reserved.String()
		doc.Unknown = append(doc.Unknown, x)
		doc.reserved += reserved
		doc.Summary.Jobs++
		doc.Summary.Calls += len(x.Calls)
		doc.Summary.ReservedUSD = doc.reserved.String()
	}
	return doc, err
}

func printUnknown(w io.Writer, d unknownDocument) error {
	if len(d.Unknown) == 0 {
		_, err := fmt.Fprintln(w, "no unknown jobs")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "KEY\tUNKNOWN FOR\tAT RISK USD\tCALL\tSENT\tEVIDENCE")
	for _, j := range d.Unknown {
		key, age, risk := oneLine(j.Key), j.Age, j.ReservedUSD
		for _, a := range j.Calls {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s %s/%s\t%s\t%s\n", key, age, risk, oneLine(a.Call), oneLine(a.Provider), oneLine(a.Model), clock(a.SentAt), evidenceOf(a, j.LastLook))
			key, age, risk = "", "", ""
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d jobs with %d calls that may have been paid, $%s at most as far as it was reckoned.\n", d.Summary.Jobs, d.Summary.Calls, d.Summary.ReservedUSD)
	return err
}

// evidenceOf is what can be looked for at the provider, and what a look found.
func evidenceOf(a attemptDocument, look string) string {
	var parts []string
	for _, p := range []struct{ name, id string }{{"request", a.ProviderRequestID}, {"object", a.ObjectID}, {"client request", a.ClientRequestID}} {
		if p.id != "" {
			parts = append(parts, p.name+" "+oneLine(p.id))
		}
	}
	if a.Class != "" {
		parts = append(parts, oneLine(a.Class))
	}
	if look != "" {
		parts = append(parts, oneLine(look))
	}
	return strings.Join(parts, ", ")
}

// many resolves all unknown jobs that the filters name, or says which these are.
func (r resolveCommand) many(c *call) error {
	switch {
	case r.Key != "":
		return usagef("PO502 name a key, or say which unknown jobs with --job, --tenant, --older-than or --all; not both")
	case r.Result != "":
		return usagef("PO502 --result answers one call of one job: name its key")
	}
	if err := r.check(); err != nil {
		return err
	}
	return c.withLedger(func(ctx context.Context, cfg *config.Config, store ledger.Store) error {
		if r.DryRun {
			doc, err := unknowns(ctx, cfg, store, r.unknownFilter)
			if err != nil {
				return err
			}
			fmt.Fprintln(c.Stdout, "Nothing is changed. These would be resolved:")
			return printUnknown(c.Stdout, doc)
		}
		jobs, err := r.jobs(ctx, store)
		if err != nil {
			return err
		}
		left := 0
		for _, j := range jobs {
			fmt.Fprintln(c.Stdout, j.Key.Text)
			r.Key = j.Key.Text
			if err := r.one(ctx, c, cfg, store, j); err != nil {
				fmt.Fprintln(c.Stdout, err)
				left++
			}
		}
		fmt.Fprintf(c.Stdout, "%d unknown jobs resolved, %d left.\n", len(jobs)-left, left)
		if left > 0 {
			return fmt.Errorf("PO522 %d of %d unknown jobs were not resolved; the lines above say why", left, len(jobs))
		}
		return nil
	})
}
