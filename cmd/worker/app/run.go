package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/paidonce/paidonce/cmd/worker/config"
	"github.com/paidonce/paidonce/cmd/worker/doctor"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/consumer/prom"
	"github.com/paidonce/paidonce/ledger"
)

// Run receives and runs jobs until a signal or the end of the context, drains, and
// returns nil.
func (runCommand) Run(c *call) error {
	cfg, err := c.load((*config.Config).LedgerFault, windows, priced, c.accounts)
	if err != nil {
		return err
	}
	log := logger(cfg, c.Stderr)
	for _, w := range cfg.Warnings() {
		log.Warn(w)
	}
	ctx, stop := signal.NotifyContext(c.ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)

	for _, f := range (doctor.Ledger{Memory: cfg.Ledger.URL.Scheme() == "memory"}).Findings() {
		log.Warn(f.Code+" "+f.Text, "fix", f.Fix)
	}
	w, err := c.assemble(cfg, log)
	if err != nil {
		return err
	}
	log.Info("starting", "version", version(), "config_hash", cfg.Hash(), "ledger", cfg.Ledger.URL, "broker", cfg.Broker.URL,
		"queue", cfg.Broker.Queue, "jobs", w.jobs, "workers", cfg.Consumer.Workers)
	var heard sync.WaitGroup
	hctx, done := context.WithCancel(context.WithoutCancel(ctx))
	heard.Go(func() { w.signals(hctx, signals) })
	err = errors.Join(w.serve(ctx), w.close())
	done()
	heard.Wait()
	return err
}

// accounts checks that whoever is asked can know who asks. The SDKs find keys in
// variables of their own, too.
func (c *call) accounts(cfg *config.Config) error {
	var errs []error
	for name, a := range map[string]struct {
		config.Account
		env []string
	}{
		"openai":    {cfg.Providers.OpenAI, []string{"OPENAI_API_KEY", "OPENAI_BASE_URL"}},
		"anthropic": {cfg.Providers.Anthropic, []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE", "ANTHROPIC_FEDERATION_RULE_ID", "ANTHROPIC_BASE_URL"}},
	} {
		known := a.APIKey.Reveal() != "" || a.BaseURL.Reveal() != "" // a gateway may ask for no key
		for _, e := range a.env {
			known = known || c.environment(e) != ""
		}
		if job := usedBy(cfg, name); job != "" && !known {
			errs = append(errs, config.Fault{Code: "PO014", Path: "providers." + name + ".api_key", Source: cfg.Source("providers." + name + ".api_key"),
				Text: fmt.Sprintf("it is empty, and so is %s: every call of %s would be refused; set one of the two", a.env[0], job)})
		}
	}
	return errors.Join(errs...)
}

// usedBy is a job with a route to the provider, or "".
func usedBy(cfg *config.Config, provider string) string {
	for _, name := range jobNames() {
		for _, r := range cfg.Jobs[name].Routes {
			if r.Provider == provider {
				return name
			}
		}
	}
	return ""
}

// worker is everything that `run` runs, opened.
type worker struct {
	cfg      *config.Config
	log      *slog.Logger
	jobs     []string
	store    ledger.Store
	queue    *queue
	consumer *consumer.Consumer
	metrics  *prom.Metrics
	registry *prometheus.Registry
	http     *probes
	closeAll []func(context.Context) error // in the order of opening
	hurried  context.Context               // ended by the second signal
	hurry    context.CancelCauseFunc
}

// assemble opens and connects the parts. What it opened it closes when it fails.
func (c *call) assemble(cfg *config.Config, log *slog.Logger) (w *worker, err error) {
	w = &worker{cfg: cfg, log: log, registry: prometheus.NewRegistry()}
	w.hurried, w.hurry = context.WithCancelCause(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if err = c.embedded(cfg); err != nil {
		return w, err
	}
	closeStore := func() {}
	if w.store, closeStore, err = c.openLedger(cfg); err != nil {
		return w, err
	}
	w.closeAll = append(w.closeAll, func(context.Context) error { closeStore(); return nil })
	pctx, cancel := context.WithTimeout(c.ctx, openTimeout)
	defer cancel()
	if err = w.store.Ping(pctx); err != nil {
		return w, fmt.Errorf("the ledger %s is not usable (worker migrate up makes its schema): %w", cfg.Ledger.URL, err)
	}
	if w.queue, err = c.openBroker(cfg, log); err != nil {
		return w, err
	}
	w.closeAll = append(w.closeAll, w.queue.close)

	cc := consumerConfig(cfg)
	if cc.Prices, err = cfg.PriceTable(); err != nil {
		return w, err
	}
	if c.throughLedger(cfg) {
		cc.Tick = time.Second // jobs come by the ledger alone, and nobody wants to wait for them
	}
	w.jobs = cc.Handlers.Names()
	w.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	w.metrics = prom.New(w.registry, w.jobs, models(cfg), prom.Build{Version: version(), ConfigHash: cfg.Hash()})
	if w.queue.metrics != nil {
		prom.WatchBroker(w.registry, w.queue.metrics)
	}
	cc.Source, cc.Store, cc.Log, cc.Trace = w.queue, w.store, log, w.metrics.Trace()
	cc.Publisher = w.queue.Publisher
	if c.throughLedger(cfg) { // else a message would be gone with this process
		cc.Publisher = embedded{newIntake(w.store, cc.Handlers, log), w.queue.Publisher}
	}
	if w.consumer, err = consumer.New(cc); err != nil {
		return w, err
	}
	w.http, err = listen(w)
	return w, err
}

func models(cfg *config.Config) (ms []prom.Model) {
	for name, j := range cfg.Jobs {
		for _, r := range j.Routes {
			ms = append(ms, prom.Model{Job: name, Provider: r.Provider, Model: r.Model})
		}
	}
	return ms
}

// closeTimeout bounds the end of each part, hurriedTimeout that after a second signal.
const (
	closeTimeout   = 25 * time.Second // an open poll of SQS lasts 20 s
	hurriedTimeout = 3 * time.Second
)

var errHurried = errors.New("a second signal was received")

// close closes what was opened, last things first. A second signal shortens it.
func (w *worker) close() error {
	var errs []error
	for i := len(w.closeAll) - 1; i >= 0; i-- {
		errs = append(errs, w.closePart(w.closeAll[i]))
	}
	return errors.Join(errs...)
}

func (w *worker) closePart(end func(context.Context) error) error {
	if w.hurried.Err() != nil {
		ctx, cancel := context.WithTimeoutCause(context.Background(), hurriedTimeout, errHurried)
		defer cancel()
		return end(ctx)
	}
	ctx, cancel := context.WithTimeout(w.hurried, closeTimeout)
	defer cancel()
	return end(ctx)
}

// serve runs the consumer, the probes and the gauges until ctx ends and the drain is
// over.
func (w *worker) serve(ctx context.Context) error {
	var background sync.WaitGroup
	bctx, done := context.WithCancel(context.WithoutCancel(ctx))
	background.Go(func() { w.http.serve(bctx) })
	background.Go(func() { w.watch(bctx) })
	background.Go(func() { w.inspect(bctx) })
	pctx, rest := context.WithCancel(ctx) // a drain has no time for it
	background.Go(func() { w.purges(pctx) })
	err := w.consumer.Run(ctx)
	if err != nil {
		err = fmt.Errorf("worker ended: %w", err)
	} else {
		w.log.Info("drained")
	}
	done()
	rest()
	background.Wait()
	return err
}

// signals says what a signal does. The second one ends the drain, and what it leaves to be closed.
func (w *worker) signals(ctx context.Context, signals <-chan os.Signal) {
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case s := <-signals:
			if n == 1 {
				w.log.Info("signal received; draining", "signal", s.String(), "drain", w.cfg.Consumer.Drain.String())
				continue
			}
			w.log.Warn("second signal received; the drain ends now", "signal", s.String())
			w.consumer.Hurry()
			w.hurry(errHurried)
		}
	}
}

// gaugeEvery is how often the ledger is asked how many jobs are unknown.
const gaugeEvery = 15 * time.Second

// maintainEvery is how often a store is asked to prepare for the days to come.
const maintainEvery = 24 * time.Hour

// watch keeps the gauges that only the ledger knows, and has its store maintained.
func (w *worker) watch(ctx context.Context) {
	for maintained := (time.Time{}); ; {
		if time.Since(maintained) > maintainEvery {
			maintained = time.Now()
			w.maintain(ctx)
		}
		qctx, cancel := context.WithTimeout(ctx, checkTimeout)
		counts, err := w.store.Unknowns(qctx)
		cancel()
		if err == nil {
			w.metrics.Unknown(counts)
		} else if ctx.Err() == nil {
			w.log.Warn("unknown jobs not counted", "error", err)
		}
		w.countOutbox(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(gaugeEvery):
		}
	}
}

// countOutbox keeps the gauge of messages that no broker has yet.
func (w *worker) countOutbox(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	n, err := w.store.CountMessages(ctx)
	if err == nil {
		w.metrics.Outbox(n)
	} else if ctx.Err() == nil {
		w.log.Warn("outbox not counted", "error", err)
	}
}

func (w *worker) maintain(ctx context.Context) {
	store, ok := bare(w.store).(interface{ Maintain(context.Context) error })
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	if err := store.Maintain(ctx); err != nil && ctx.Err() == nil {
		w.log.Warn("ledger not maintained; it is tried again tomorrow", "error", err)
	}
}
