package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/paidonce/paidonce/cmd/worker/config"
	"github.com/paidonce/paidonce/cmd/worker/doctor"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/postgres"
)

type partDocument struct {
	Part string `json:"part"`
	OK   bool   `json:"ok"`
	Text string `json:"text"`
}

type doctorDocument struct {
	Parts    []partDocument   `json:"parts"`
	Findings []doctor.Finding `json:"findings"`
}

// Run reaches every part, creates and changes nothing, and says what is not as it should be.
func (d doctorCommand) Run(c *call) error {
	cfg, err := c.load((*config.Config).LedgerFault, windows, priced)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.ctx, commandTimeout)
	defer cancel()
	doc := c.examine(ctx, cfg)
	if err := show(c, d.asJSON, doc, func(w io.Writer) error { return printDoctor(w, doc) }); err != nil {
		return err
	}
	return diagnosis(doc.Findings)
}

// diagnosis is the command's error: infos alone are none.
func diagnosis(fs []doctor.Finding) error {
	for _, f := range fs {
		if f.Level != doctor.Info {
			return exitError{exitFindings, fmt.Errorf("PO516 %s", tally(fs))}
		}
	}
	return nil
}

// examine asks every part about itself.
func (c *call) examine(ctx context.Context, cfg *config.Config) doctorDocument {
	doc := doctorDocument{Findings: []doctor.Finding{}}
	part := func(name, text string, errs ...error) {
		if err := errors.Join(errs...); err != nil {
			text += ": " + strings.ReplaceAll(err.Error(), "\n", "; ")
		}
		doc.Parts = append(doc.Parts, partDocument{name, errors.Join(errs...) == nil, cfg.Scrub(text)})
	}
	f := doctor.Facts{Windows: windowFacts(cfg), Links: c.links(cfg)}
	f.Ledger = c.ledgerFacts(ctx, cfg)
	part("ledger", aboutLedger(cfg, f.Ledger), f.Ledger.Err, f.Ledger.Schema)
	f.Broker = c.brokerFacts(ctx, cfg)
	if table, err := cfg.PriceTable(); err == nil { // it was read before
		f.Unpriced = unpriced(cfg, table)
	}
	part("broker", aboutBroker(cfg, f.Broker), f.Broker.Err)
	doc.Findings = append(doc.Findings, doctor.Findings(f)...)

	accounts, listening := c.accounts(cfg), free(ctx, cfg)
	part("prices", aboutPrices(cfg))
	part("providers", aboutProviders(cfg), accounts)
	steps := stepAccounts(ctx, cfg)
	part("steps", aboutSteps(cfg), steps)
	part("http", cmp.Or(cfg.HTTP.Listen, "no probes and metrics (http.listen is empty)"), listening)
	for _, e := range unjoin(accounts) {
		doc.Findings = append(doc.Findings, faultFinding(e, "providers", "set the key; worker config show says what is set"))
	}
	for _, e := range unjoin(steps) {
		doc.Findings = append(doc.Findings, faultFinding(e, "steps", "check steps.email and steps.slack, and the network"))
	}
	if listening != nil {
		doc.Findings = append(doc.Findings, faultFinding(listening, "http", "free the port or set another"))
	}
	for i := range doc.Findings {
		doc.Findings[i].Text = cfg.Scrub(doc.Findings[i].Text)
	}
	return doc
}

// faultFinding makes a finding of an error that begins with its code.
func faultFinding(err error, part, fix string) doctor.Finding {
	code, text, _ := strings.Cut(err.Error(), " ")
	return doctor.Finding{Code: code, Level: doctor.Error, Part: part, Text: text, Fix: fix}
}

func windowFacts(cfg *config.Config) doctor.Windows {
	k := cfg.Consumer
	w := doctor.Windows{Lease: k.Lease.Std(), Visibility: k.Visibility.Std(), Drain: k.Drain.Std(), KeyRetention: cfg.Retention.Key.Std()}
	for _, name := range slices.Sorted(maps.Keys(cfg.Jobs)) {
		j := cfg.Jobs[name]
		w.LongestRun = max(w.LongestRun, cmp.Or(j.MaxRun, k.MaxRun).Std())
		w.MaxRuns = max(w.MaxRuns, cmp.Or(j.MaxRuns, k.MaxRuns))
		for _, r := range j.Routes {
			w.LongestRoute = max(w.LongestRoute, r.Timeout.Std())
			if life := j.Lifetime.Std(); life > 0 && life < r.Timeout.Std() {
				w.Brief = append(w.Brief, doctor.Brief{Job: name, Route: r.Name, Lifetime: life, Timeout: r.Timeout.Std()})
			}
		}
	}
	return w
}

func (c *call) ledgerFacts(ctx context.Context, cfg *config.Config) (f doctor.Ledger) {
	f.Memory = cfg.Ledger.URL.Scheme() == "memory"
	store, done, err := c.openLedger(cfg)
	if err != nil {
		f.Err = err
		return f
	}
	defer done()
	if err := store.Ping(ctx); errors.Is(err, ledger.ErrSchema) {
		f.Schema = err
	} else {
		f.Err = err
	}
	if p, ok := bare(store).(*postgres.Ledger); ok && f.Err == nil {
		d, err := p.Describe(ctx)
		f.Server, f.Err = &d, err
	}
	if w, ok := bare(store).(waiter); ok && f.Err == nil && f.Schema == nil {
		f.Unhandled, f.Err = w.Waiting(ctx)
		reg := registry(cfg)
		f.Registered = reg.Names()
		f.Unhandled = slices.DeleteFunc(f.Unhandled, func(c ledger.WaitingCount) bool { _, ok := reg.Lookup(c.Action); return ok })
	}
	return f
}

// waiter is a ledger that other programs fill too.
type waiter interface {
	Waiting(ctx context.Context) ([]ledger.WaitingCount, error)
}

// brokerFacts describes the broker without making any queue.
func (c *call) brokerFacts(ctx context.Context, cfg *config.Config) doctor.Broker {
	look := *cfg
	look.Broker.Declare = false
	q, err := c.openBroker(&look, logger(cfg, io.Discard))
	if err != nil {
		return doctor.Broker{Declare: cfg.Broker.Declare, Err: err}
	}
	f := q.describe(ctx)
	f.Declare = cfg.Broker.Declare
	cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	_ = q.close(cctx) // it held nothing
	return f
}

func aboutLedger(cfg *config.Config, l doctor.Ledger) string {
	text := cfg.Ledger.URL.String()
	if d := l.Server; d != nil {
		text += fmt.Sprintf(", Postgres %s, synchronous_commit %s, %d replicas", d.Version, d.SynchronousCommit, d.Standbys)
	}
	return text
}

func aboutBroker(cfg *config.Config, b doctor.Broker) string {
	text := cfg.Broker.URL.String()
	if d := b.RabbitMQ; d != nil && b.Err == nil {
		text += ", RabbitMQ " + d.Version
		if d.Queue.Exists {
			text += fmt.Sprintf(", %s queue %s with %d messages and %d consumers", d.Queue.Type, d.Queue.Name, d.Queue.Messages, d.Queue.Consumers)
		}
		if d.DeadLetter.Exists {
			text += fmt.Sprintf(", %d dead letters in %s", d.DeadLetter.Messages, d.DeadLetter.Name)
		}
	}
	if d := b.SQS; d != nil && b.Err == nil {
		text += fmt.Sprintf(", %s queue %s, visibility %s, set aside after %d receives to %s", map[bool]string{true: "FIFO", false: "standard"}[d.FIFO],
			d.URL, d.Visibility, d.MaxReceives, cmp.Or(d.Dead.URL, "nowhere"))
	}
	return text
}

// aboutProviders says what is set for each provider that a job uses. None is called.
func aboutProviders(cfg *config.Config) string {
	var all []string
	for _, name := range providers() {
		if job := usedBy(cfg, name); job != "" {
			a := map[string]config.Account{"openai": cfg.Providers.OpenAI, "anthropic": cfg.Providers.Anthropic}[name]
			all = append(all, fmt.Sprintf("%s at %s", name, cmp.Or(a.BaseURL.String(), "its own address")))
		}
	}
	return strings.Join(all, ", ")
}

// free reports whether http.listen can be listened on, or a worker answers there already.
func free(ctx context.Context, cfg *config.Config) error {
	if cfg.HTTP.Listen == "" {
		return nil
	}
	l, err := net.Listen("tcp", cfg.HTTP.Listen)
	if err == nil {
		return l.Close()
	}
	if livez(ctx, cfg.HTTP.Listen) {
		return nil
	}
	return listenFault(cfg, "http.listen", cfg.HTTP.Listen, err)
}

// livez reports whether a worker lives at the address.
func livez(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/livez", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func printDoctor(w io.Writer, d doctorDocument) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, p := range d.Parts {
		fmt.Fprintf(t, "%s\t%s\t%s\n", p.Part, map[bool]string{true: "ok", false: "not ok"}[p.OK], oneLine(p.Text))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, f := range d.Findings {
		fmt.Fprintln(w, strings.ReplaceAll(f.String(), "\n", "; "))
	}
	_, err := fmt.Fprintln(w, tally(d.Findings))
	return err
}

// tally counts findings by level.
func tally(fs []doctor.Finding) string {
	n := map[doctor.Level]int{}
	for _, f := range fs {
		n[f.Level]++
	}
	return fmt.Sprintf("errors: %d, warnings: %d, infos: %d", n[doctor.Error], n[doctor.Warning], n[doctor.Info])
}

// inspect logs what there is to say of the queue, once the broker has said what it is like.
func (w *worker) inspect(ctx context.Context) {
	for {
		dctx, cancel := context.WithTimeout(ctx, commandTimeout)
		f := w.queue.describe(dctx)
		cancel()
		if f.Err == nil {
			f.Declare = w.cfg.Broker.Declare
			for _, x := range doctor.Queue(f, windowFacts(w.cfg)) {
				if x.Level != doctor.Info {
					w.log.Warn(x.Code+" "+x.Text, "fix", x.Fix)
				}
			}
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(gaugeEvery):
		}
	}
}
