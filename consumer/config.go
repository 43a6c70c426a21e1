package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/paidonce/paidonce/broker"
	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/prices"
)

// Config is what a consumer is made of. A zero field has the default that its
// comment names; New reports all problems at once.
type Config struct {
	// Source hands out messages. Required, and closed by whoever opened it, after Run returned.
	Source broker.Source
	// Replies sends answers to those who ask for one by broker.ReplyTo; [Reply] is their form. The adapters of
	// package broker do. nil: nobody is answered.
	Replies broker.Replier
	// Store is the ledger. Required, and closed by whoever opened it, after Run returned.
	Store ledger.Store
	// Publisher sends what handlers ask for with Run.Publish, to the queue of Source. It is closed by whoever opened it, after
	// Run returned. nil: asking is refused, and what other workers asked for is left to them.
	Publisher broker.Publisher
	// Handlers are the jobs this worker knows. Required, at least one.
	Handlers *job.Registry

	// Name names this process in the ledger and in histories; it must be unique among
	// live workers. Default: host name and a random suffix.
	Name string
	// Version is the program's, kept on the worker's row.
	Version string
	// ConfigHash is that of the effective configuration, kept on the worker's row.
	ConfigHash string

	// Workers is how many handlers run at once. Default 64.
	Workers int
	// Lease is how long the ledger waits for a sign of life before this worker's
	// jobs are taken over. It is renewed every third of it, however long a
	// job takes. Default 60 s, at least 1 s.
	Lease time.Duration
	// Visibility is what a delivery's deadline is extended by. 0: by as much as the
	// broker gave at first, so the queue's own setting holds.
	Visibility time.Duration
	// Drain is how long running handlers may go on after Run's context ended.
	// Shortly before its end calls under way are recorded as unknown. Default 25 s.
	Drain time.Duration
	// SettleWindow is how long after its sending a call may still turn up at the provider;
	// a lookup that finds nothing proves nothing before. Default 10 min, or five minutes more
	// than the longest timeout of a route if that is later: a provider's lists lag behind.
	SettleWindow time.Duration
	// Hold is how long an unknown job waits for evidence before its policy
	// applies. At least SettleWindow. Default 15 min, or SettleWindow if that is longer.
	Hold time.Duration
	// MaxRun bounds one run; longer than every route's timeout. Default 1 h.
	MaxRun time.Duration
	// MaxRuns bounds the runs of one job that ended in an error or a crash. Default 10.
	MaxRuns int
	// MaxPanics bounds the panics of one job before it fails as poison. Default 3.
	MaxPanics int
	// Retry is the wait between runs, with jitter. Default 2 s doubling to 15 min.
	Retry Backoff
	// AckBusy acknowledges a duplicate of a running job at once, if the ledger holds the
	// job's input, instead of handing it back until the job is done. A message that was handed out before
	// is handed back all the same, since it may be the job's own; so are all where the broker does not count.
	AckBusy bool
	// MaxBody is the largest message body in bytes, as received and as resolved; larger ones are dead-lettered.
	// Default 1 MiB.
	MaxBody int
	// Resolve reads a body that an extended client for SQS or SNS has put into S3. Its ctx
	// ends with the drain and after 30 s. An error made by job.Fail dead-letters the
	// message; any other gives it back. nil: such messages are dead-lettered.
	Resolve func(ctx context.Context, p Pointer) ([]byte, error)
	// Grace is how long a job that the broker should bring back may stay ready
	// before the ledger runs it all the same. Default 10 min, and
	// longer than the longest wait of Retry.
	Grace time.Duration
	// Tick is how often the ledger is swept and unknown jobs are looked at.
	// Default: a third of Lease, at most 15 s.
	Tick time.Duration

	// Scrub takes the program's own secrets out of a text before it is stored, put on a dead letter or sent as a reply: what
	// handlers, SDKs and providers say in errors and panics may hold one. It must not take out more. Credentials that a guarded
	// request carries are taken out of refusals in any case. nil: texts stay as they are.
	Scrub func(string) string

	// Budgets bound what is spent in a day. Its zero value bounds nothing, and costs nothing.
	Budgets Budgets
	// Prices say what calls cost. Default: the table that this version brings along.
	Prices *prices.Table
	// Wire is the base of guarded requests, as job.RunConfig has it. nil: Go's defaults.
	Wire *http.Transport
	// Trace is told what happens. Its zero value hears nothing.
	Trace Trace
	// Log is the logger. nil: slog.Default().
	Log *slog.Logger
}

// Budgets bound what is spent in a day of UTC, by the ledger's clock at the send gate. A call that has no room left is
// not sent: its job waits, for an hour at most and until the next day, and the run does not count if it paid for nothing. All
// workers should have the same; each goes by its own.
type Budgets struct {
	TenantDay ledger.Nano            // of each tenant; 0: none
	Tenants   map[string]ledger.Nano // of these instead; 0: none
	ActionDay map[string]ledger.Nano // of each tenant's jobs of that name; 0 or not there: none
}

// of are the limits of a tenant's jobs of that name.
func (b Budgets) of(tenant, action string) ledger.DayLimits {
	d := ledger.DayLimits{Tenant: b.TenantDay, Action: b.ActionDay[action]}
	if own, ok := b.Tenants[tenant]; ok {
		d.Tenant = own
	}
	return d
}

// listingLag is how late a call may turn up in a provider's list after it ended.
const listingLag = 5 * time.Minute

// Backoff is the wait between runs: First, doubling up to Ceil, each with up to a
// quarter of jitter.
type Backoff struct{ First, Ceil time.Duration }

// withDefaults returns a copy in which every zero field has its default.
func (c Config) withDefaults() Config {
	c.Name = cmp.Or(c.Name, processName())
	c.Workers = cmp.Or(c.Workers, 64)
	c.Lease = cmp.Or(c.Lease, time.Minute)
	c.Drain = cmp.Or(c.Drain, 25*time.Second)
	c.SettleWindow = cmp.Or(c.SettleWindow, max(10*time.Minute, c.longestRoute()+listingLag))
	c.Hold = cmp.Or(c.Hold, max(15*time.Minute, c.SettleWindow))
	c.MaxRun = cmp.Or(c.MaxRun, time.Hour)
	c.MaxRuns = cmp.Or(c.MaxRuns, 10)
	c.MaxPanics = cmp.Or(c.MaxPanics, 3)
	c.Retry.First = cmp.Or(c.Retry.First, 2*time.Second)
	c.Retry.Ceil = cmp.Or(c.Retry.Ceil, 15*time.Minute)
	c.MaxBody = cmp.Or(c.MaxBody, 1<<20)
	c.Grace = cmp.Or(c.Grace, max(10*time.Minute, 2*c.Retry.Ceil))
	c.Tick = cmp.Or(c.Tick, min(c.Lease/3, 15*time.Second))
	if c.Scrub == nil {
		c.Scrub = func(s string) string { return s }
	}
	c.Log = cmp.Or(c.Log, slog.Default())
	if c.Prices == nil {
		c.Prices = prices.Builtin()
	}
	return c
}

// longestRoute is the longest timeout of any route of any handler.
func (c Config) longestRoute() (longest time.Duration) {
	if c.Handlers == nil {
		return 0
	}
	for _, name := range c.Handlers.Names() {
		h, _ := c.Handlers.Lookup(name)
		longest = max(longest, h.LongestRoute())
	}
	return longest
}

func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	return host + "-" + ledger.NewID().String()[:8]
}

// validate returns every problem of an effective configuration.
func (c Config) validate() error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	if c.Source == nil {
		bad("PO020 consumer: Source is missing")
	}
	if c.Store == nil {
		bad("PO020 consumer: Store is missing")
	}
	if c.Handlers == nil || len(c.Handlers.Names()) == 0 {
		bad("PO021 consumer: no handler is registered; use job.Register")
	}
	if c.Workers < 1 {
		bad("PO022 workers %d: at least one handler must be able to run", c.Workers)
	}
	if c.Lease < time.Second {
		bad("PO023 lease %s is too short to be renewed in time; set at least 1s", c.Lease)
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"drain", c.Drain}, {"settle_window", c.SettleWindow}, {"hold", c.Hold}, {"max_run", c.MaxRun},
		{"retry first", c.Retry.First}, {"tick", c.Tick}, {"grace", c.Grace}} {
		if d.d <= 0 {
			bad("PO024 %s %s must be positive", d.name, d.d)
		}
	}
	if c.Visibility < 0 || (c.Visibility > 0 && c.Visibility < time.Second) {
		bad("PO025 visibility %s is too short to be extended in time; set at least 1s, or 0 for the queue's own", c.Visibility)
	}
	if c.Hold < c.SettleWindow {
		bad("PO026 hold %s is shorter than settle_window %s: a policy could act while the call may still land; raise hold", c.Hold, c.SettleWindow)
	}
	if c.Retry.Ceil < c.Retry.First || c.MaxRuns < 1 || c.MaxPanics < 1 || c.MaxBody < 1 {
		bad("PO027 retry %s to %s, max_runs %d, max_panics %d, max_body %d: each must be positive, and the first wait not above the last",
			c.Retry.First, c.Retry.Ceil, c.MaxRuns, c.MaxPanics, c.MaxBody)
	}
	if c.Handlers != nil {
		errs = append(errs, c.Handlers.Check())
	}
	return errors.Join(append(errs, c.validateRoutes()...)...)
}

func (c Config) validateRoutes() (errs []error) {
	if c.Handlers == nil {
		return nil
	}
	for _, name := range c.Handlers.Names() {
		h, _ := c.Handlers.Lookup(name)
		longest, run := h.LongestRoute(), cmp.Or(h.MaxRun(), c.MaxRun)
		if longest >= run {
			errs = append(errs, fmt.Errorf("PO028 job %s: a route's timeout %s is not shorter than max_run %s: the run would end before its call; raise max_run", name, longest, run))
		}
		if longest > c.SettleWindow {
			errs = append(errs, fmt.Errorf("PO031 job %s: settle_window %s is shorter than a route's timeout %s: a call could be taken as never done while the provider still works on it, and be paid twice; raise settle_window", name, c.SettleWindow, longest))
		}
	}
	return errs
}
