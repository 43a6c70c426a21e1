package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/paidonce/paidonce/broker"
	brokermemory "github.com/paidonce/paidonce/broker/memory"
	"github.com/paidonce/paidonce/broker/rabbitmq"
	"github.com/paidonce/paidonce/broker/sqs"
	"github.com/paidonce/paidonce/cmd/worker/config"
	"github.com/paidonce/paidonce/cmd/worker/doctor"
	"github.com/paidonce/paidonce/consumer"
	"github.com/paidonce/paidonce/consumer/prom"
	"github.com/paidonce/paidonce/handlers/agent"
	"github.com/paidonce/paidonce/handlers/invoice"
	"github.com/paidonce/paidonce/handlers/moderate"
	"github.com/paidonce/paidonce/handlers/provider"
	"github.com/paidonce/paidonce/handlers/summarize"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	ledgermemory "github.com/paidonce/paidonce/ledger/memory"
	"github.com/paidonce/paidonce/ledger/postgres"
	"github.com/paidonce/paidonce/ledger/sealed"
	"github.com/paidonce/paidonce/ledger/sqlite"
)

// bundledRoutes are the jobs of this program with the routes that they bring along.
func bundledRoutes() map[string][]config.Route {
	all := map[string][]config.Route{}
	for name, routes := range map[string][]provider.Route{
		summarize.Name: summarize.Routes, invoice.Name: invoice.Routes, moderate.Name: moderate.Routes, agent.Name: agent.Routes,
	} {
		for _, r := range routes {
			all[name] = append(all[name], config.Route{Name: r.Name, Provider: r.Provider, Model: r.Model, Timeout: config.Duration(r.Timeout)})
		}
	}
	return all
}

// bundledTurns are those of them that take turns, with how many by default.
func bundledTurns() map[string]int { return map[string]int{agent.Name: agent.DefaultMaxTurns} }

func providers() []string { return provider.Names() }

// registry registers the bundled handlers, and the steps that they ask for, as the configuration wants them.
func registry(cfg *config.Config) *job.Registry {
	var reg job.Registry
	var save invoice.Save
	switch {
	case isPostgres(cfg):
		save = invoice.InPostgres
	case isSQLite(cfg):
		save = invoice.InSQLite
	}
	job.Register(&reg, summarize.New(settings(cfg, summarize.Name), effects(cfg, &reg)))
	job.Register(&reg, invoice.New(settings(cfg, invoice.Name), save))
	job.Register(&reg, moderate.New(settings(cfg, moderate.Name)))
	job.Register(&reg, agent.New(settings(cfg, agent.Name), agent.Options{MaxTurns: cfg.Jobs[agent.Name].MaxTurns}))
	return &reg
}

func settings(cfg *config.Config, name string) provider.Settings {
	j := cfg.Jobs[name]
	s := provider.Settings{
		Limits:    job.Limits{USD: j.Budget.Nano, Calls: j.MaxCalls, Lifetime: j.Lifetime.Std()},
		OnUnknown: j.OnUnknown.Policy, MaxRun: j.MaxRun.Std(), MaxRuns: j.MaxRuns,
		OpenAI:    account(cfg.Providers.OpenAI),
		Anthropic: account(cfg.Providers.Anthropic),
	}
	for _, r := range j.Routes {
		s.Routes = append(s.Routes, provider.Route{Name: r.Name, Provider: r.Provider, Model: r.Model, Timeout: r.Timeout.Std(),
			Background: r.Background, TrustAbsence: r.TrustAbsence, AtOnce: r.AtOnce, PerMinute: r.PerMinute})
	}
	return s
}

// budgets are what may be spent in a day.
func budgets(cfg *config.Config) consumer.Budgets {
	b := consumer.Budgets{TenantDay: cfg.Budgets.TenantDay.Nano, Tenants: map[string]ledger.Nano{}, ActionDay: map[string]ledger.Nano{}}
	for tenant, usd := range cfg.Budgets.Tenants.Of {
		b.Tenants[tenant] = usd.Nano
	}
	for name, j := range cfg.Jobs {
		b.ActionDay[name] = j.TenantDay.Nano
	}
	return b
}

func account(a config.Account) provider.Account {
	return provider.Account{BaseURL: a.BaseURL.Reveal(), APIKey: a.APIKey.Reveal()}
}

func isPostgres(cfg *config.Config) bool {
	return strings.HasPrefix(cfg.Ledger.URL.Scheme(), "postgres")
}

func isSQLite(cfg *config.Config) bool {
	_, ok := cfg.LedgerFile()
	return ok
}

// openTimeout bounds the first connection of a command. It is longer than the three tries that
// the SQS adapter makes of a request, so that a worker whose broker does not answer starts and waits.
const openTimeout = 25 * time.Second

// openLedger opens the configured ledger, behind its keys. The caller calls the returned function when
// nothing uses it any more.
func (c *call) openLedger(cfg *config.Config) (ledger.Store, func(), error) {
	keys, err := cfg.LedgerKeys()
	if err != nil {
		return nil, nil, err
	}
	store, done, err := c.openStore(cfg)
	if err != nil {
		return nil, nil, err
	}
	return sealed.Wrap(store, keys), done, nil
}

// bare is the ledger itself, for what only one kind of it can do.
func bare(s ledger.Store) ledger.Store {
	if w, ok := s.(*sealed.Store); ok {
		return w.Unwrap()
	}
	return s
}

func (c *call) openStore(cfg *config.Config) (ledger.Store, func(), error) {
	if cfg.Ledger.URL.Scheme() == "memory" {
		if c.Ledger == nil {
			c.Ledger = ledgermemory.New()
		}
		return c.Ledger, func() {}, nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, openTimeout)
	defer cancel()
	if path, ok := cfg.LedgerFile(); ok {
		l, err := sqlite.Open(ctx, path)
		if err != nil {
			return nil, nil, fmt.Errorf("opening ledger.url %s (%s): %w", cfg.Ledger.URL, cfg.Source("ledger.url"), err)
		}
		return l, l.Close, nil
	}
	l, err := postgres.Open(ctx, cfg.Ledger.URL.Reveal(), postgres.Options{})
	if err != nil {
		return nil, nil, fmt.Errorf("opening ledger.url %s (%s): %w", cfg.Ledger.URL, cfg.Source("ledger.url"), err)
	}
	return l, l.Close, nil
}

// shared refuses a ledger that nobody but this process can see.
func (c *call) shared(cfg *config.Config) error {
	if cfg.Ledger.URL.Scheme() == "memory" && c.Ledger == nil {
		return config.Fault{Code: "PO504", Path: "ledger.url", Value: "memory:", Source: cfg.Source("ledger.url"),
			Text: "it lives inside the process of one `worker run`, and this command would look into an empty one; set ledger.url to the ledger that the workers use"}
	}
	return cfg.LedgerFault()
}

// sharedBroker refuses a broker that nobody but this process can see.
func (c *call) sharedBroker(cfg *config.Config) error {
	if cfg.Broker.URL.Scheme() == "memory" && c.Queue == nil {
		return config.Fault{Code: "PO504", Path: "broker.url", Value: "memory:", Source: cfg.Source("broker.url"),
			Text: "it lives inside the process of one `worker run`, and what this command sends would reach nobody; set broker.url to the broker that the workers use"}
	}
	return nil
}

// queue is an open broker.
type queue struct {
	broker.Source
	broker.Publisher
	broker.DeadLetters
	broker.Replier
	fifo     bool               // the order of a group keeps what is behind it from being received
	ready    func() error       // why it is not connected, or nil
	metrics  func() prom.Broker // nil: it counts nothing
	describe func(context.Context) doctor.Broker
	close    func(context.Context) error
}

func (c *call) openBroker(cfg *config.Config, log *slog.Logger) (*queue, error) {
	if cfg.Broker.URL.Scheme() == "memory" {
		if c.Queue == nil {
			c.Queue = brokermemory.New(brokermemory.Options{})
		}
		return &queue{Source: c.Queue.Source(), Publisher: c.Queue, DeadLetters: c.Queue, Replier: c.Queue, ready: func() error { return nil },
			describe: func(context.Context) doctor.Broker { return doctor.Broker{Memory: true} }, close: func(context.Context) error { return nil }}, nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, openTimeout)
	defer cancel()
	if cfg.Broker.URL.Scheme() == "sqs" {
		return openSQS(ctx, cfg, log)
	}
	b, err := rabbitmq.Open(ctx, rabbitmq.Config{
		URL: cfg.Broker.URL.Reveal(), Queue: cfg.Broker.Queue, DeadLetter: cfg.Broker.DeadLetter, Declare: cfg.Broker.Declare,
		Prefetch: min(cfg.Consumer.Workers, 65535), Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("opening broker.url %s (%s): %w", cfg.Broker.URL, cfg.Source("broker.url"), err)
	}
	return &queue{Source: b, Publisher: b, DeadLetters: b, Replier: b, ready: func() error { s := b.State(); return connected(s.Connected, s.LastError) }, close: b.Close,
		metrics: func() prom.Broker { return rabbitMetrics(b.State()) },
		describe: func(ctx context.Context) doctor.Broker {
			d, err := b.Describe(ctx)
			return doctor.Broker{RabbitMQ: &d, Err: err}
		}}, nil
}

func openSQS(ctx context.Context, cfg *config.Config, log *slog.Logger) (*queue, error) {
	b, err := sqs.Open(ctx, sqs.Config{
		Queue: cfg.Broker.Queue, DeadLetter: cfg.Broker.DeadLetter, Endpoint: cfg.Broker.Endpoint.Reveal(), Region: cfg.Broker.Region,
		Declare: cfg.Broker.Declare, Visibility: cfg.Consumer.Visibility.Std(), Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("opening broker.queue %s (%s) at SQS: %w", cfg.Broker.Queue, cfg.Source("broker.queue"), err)
	}
	return &queue{Source: b, Publisher: b, DeadLetters: b, Replier: b, fifo: strings.HasSuffix(cfg.Broker.Queue, ".fifo"),
		ready: func() error { s := b.State(); return connected(s.Connected, s.LastError) }, close: b.Close,
		metrics: func() prom.Broker { return sqsMetrics(b.State()) },
		describe: func(ctx context.Context) doctor.Broker {
			d, err := b.Describe(ctx)
			return doctor.Broker{SQS: &d, Err: err}
		}}, nil
}

// consumerConfig turns the configuration into the consumer's, without the parts that
// have to be opened.
func consumerConfig(cfg *config.Config) consumer.Config {
	k := cfg.Consumer
	return consumer.Config{
		Handlers: registry(cfg), Version: version(), ConfigHash: cfg.Hash(),
		Workers: k.Workers, Lease: k.Lease.Std(), Visibility: k.Visibility.Std(), Drain: k.Drain.Std(),
		SettleWindow: ifSet(cfg, "consumer.settle_window", k.SettleWindow), Hold: ifSet(cfg, "consumer.hold", k.Hold),
		MaxRun: k.MaxRun.Std(), MaxRuns: k.MaxRuns, AckBusy: k.AckBusy, Budgets: budgets(cfg), Scrub: cfg.Scrub,
	}
}

// ifSet is a window that somebody set, and 0 for one that nobody did: package consumer makes
// its default fit the routes.
func ifSet(cfg *config.Config, path string, d config.Duration) time.Duration {
	if cfg.Source(path) == (config.Source{Kind: "default"}) {
		return 0
	}
	return d.Std()
}

// windows lets package consumer check its part of the configuration, and says where
// the values that it names were set.
func windows(cfg *config.Config) error {
	if cfg.Broken("jobs.") || cfg.Broken("steps.") {
		return nil // reported already, and handlers cannot be made of it
	}
	cc := consumerConfig(cfg)
	cc.Source, cc.Store = brokermemory.New(brokermemory.Options{}), ledgermemory.New()
	_, err := consumer.New(cc)
	var all []error
	for _, e := range unjoin(err) {
		all = append(all, fmt.Errorf("%w%s", e, settingsNamed(cfg, e.Error())))
	}
	return errors.Join(all...)
}

// settingsNamed lists the settings of the consumer that a text names, and their sources.
func settingsNamed(cfg *config.Config, text string) string {
	var named []string
	for _, v := range cfg.Values() {
		name, ok := strings.CutPrefix(v.Path, "consumer.")
		if ok && containsWord(text, name) {
			named = append(named, v.Path+" "+v.Source.String())
		}
	}
	if len(named) == 0 {
		return ""
	}
	return " (" + strings.Join(named, ", ") + ")"
}

// unjoin undoes errors.Join.
func unjoin(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// containsWord reports whether the name stands in the text by itself: max_run is not in
// max_runs.
func containsWord(text, name string) bool {
	inside := func(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }
	return slices.Contains(strings.FieldsFunc(text, func(r rune) bool { return !inside(r) }), name)
}

// connected says why a broker is not connected just now.
func connected(ok bool, last string) error {
	if ok {
		return nil
	}
	return fmt.Errorf("not connected: %s", cmp.Or(last, "connecting"))
}

func jobNames() []string { return slices.Sorted(maps.Keys(bundledRoutes())) }
