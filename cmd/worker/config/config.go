// Package config reads worker.yaml, the environment and flags into one checked
// configuration, and knows where each of its values came from.
//
// The struct below is the one description of it: paths, environment names, defaults
// and kinds are read from its tags. Every fault is found in one go, each with a
// code, the value, where it was set, and what to do.
package config

import (
	"slices"
	"strings"
)

// Config is the effective configuration.
type Config struct {
	Ledger    Ledger         `conf:"ledger"`
	Broker    Broker         `conf:"broker"`
	Consumer  Consumer       `conf:"consumer"`
	Retention Retention      `conf:"retention"`
	Providers Providers      `conf:"providers"`
	Budgets   Budgets        `conf:"budgets"`
	Prices    string         `conf:"prices"` // a file, over the built-in table; "": that alone
	Steps     Steps          `conf:"steps"`
	Jobs      map[string]Job `conf:"jobs"` // one for every known job
	HTTP      HTTP           `conf:"http"`
	Log       Log            `conf:"log"`

	settings []setting
	sources  map[string]Source
	warnings []string
	faults   Faults
}

// Ledger says where the ledger is.
type Ledger struct {
	URL        URL        `conf:"url" default:"sqlite:paidonce.db" schemes:"postgres,postgresql,sqlite,memory"`
	Encryption Encryption `conf:"encryption"`
}

// Encryption has the keys that bodies in the ledger are sealed with, in the form of sealed.ParseKeys: none in
// both, and they are not.
type Encryption struct {
	Keys Secret `conf:"keys"`
	File string `conf:"file"` // that holds them; not beside Keys
}

// Broker says where messages come from.
type Broker struct {
	URL        URL    `conf:"url" default:"memory:" schemes:"amqp,amqps,sqs,memory"`
	Queue      string `conf:"queue" default:"jobs"`
	DeadLetter string `conf:"dead_letter"` // "": the queue's name and .dead; at SQS where its redrive policy sends
	Endpoint   URL    `conf:"endpoint" schemes:"http,https"`
	Region     string `conf:"region"`
	Declare    bool   `conf:"declare" default:"true"`
	Replies    bool   `conf:"replies" default:"true"` // to messages that name a queue for the answer
}

// Consumer has the windows and limits of package consumer, under the same names.
type Consumer struct {
	Workers      int      `conf:"workers" default:"64"`
	Lease        Duration `conf:"lease" default:"60s"`
	Visibility   Duration `conf:"visibility" default:"0s"` // 0: the queue's own
	Drain        Duration `conf:"drain" default:"25s"`
	SettleWindow Duration `conf:"settle_window" default:"10m"`
	Hold         Duration `conf:"hold" default:"15m"`
	MaxRuns      int      `conf:"max_runs" default:"10"`
	MaxRun       Duration `conf:"max_run" default:"1h"`
	AckBusy      bool     `conf:"ack_busy" default:"false"`
}

// Retention says how long results and keys are kept.
type Retention struct {
	Result Duration `conf:"result" default:"30d"`
	Key    Duration `conf:"key" default:"400d"`
}

// Providers are the accounts at model providers.
type Providers struct {
	OpenAI    Account `conf:"openai"`
	Anthropic Account `conf:"anthropic"`
}

// Account is one of them. Empty fields are the SDK's own defaults.
type Account struct {
	BaseURL URL    `conf:"base_url" schemes:"http,https"`
	APIKey  Secret `conf:"api_key"`
}

// Steps are the accounts for side effects.
type Steps struct {
	Email Email `conf:"email"`
	Slack Slack `conf:"slack"`
}

// Email is where mail is handed in, and whom it is from; empty: no mail is sent.
type Email struct {
	SMTPURL URL    `conf:"smtp_url" schemes:"smtp,smtps"`
	From    string `conf:"from"`
}

// Slack is a workspace.
type Slack struct {
	BaseURL URL    `conf:"base_url" schemes:"http,https"` // "": Slack's own
	Token   Secret `conf:"token"`                         // "": nothing is posted
	Channel string `conf:"channel"`                       // for whom names none of his own
}

// Budgets bound what is spent in a day of UTC; jobs.<name>.tenant_day_usd bounds that of one job.
type Budgets struct {
	TenantDay USD     `conf:"tenant_day_usd" default:"0"` // of each tenant; 0: no bound
	Tenants   Tenants `conf:"tenants"`                    // of these instead
}

// Job overrides what a handler brings along.
type Job struct {
	Routes    []Route  `conf:"routes"`
	OnUnknown Policy   `conf:"on_unknown" default:"hold"`
	Budget    USD      `conf:"budget_usd" default:"0"`
	TenantDay USD      `conf:"tenant_day_usd" default:"0"`
	MaxCalls  int      `conf:"max_calls" default:"0"` // sent by one job, in all of its runs; 0: no bound
	Lifetime  Duration `conf:"lifetime" default:"0s"` // of one job; calls are sent until it is over. 0: no bound
	MaxRun    Duration `conf:"max_run" default:"0s"`  // 0: the consumer's
	MaxRuns   int      `conf:"max_runs" default:"0"`  // 0: the consumer's
	MaxTurns  int      `conf:"max_turns"`             // of jobs that take turns; the others have no such setting
}

// Route is one way to a model.
type Route struct {
	Name       string   `conf:"name"`
	Provider   string   `conf:"provider"`
	Model      string   `conf:"model"`
	Timeout    Duration `conf:"timeout"`
	Background bool     `conf:"background" optional:"true"` // OpenAI's background mode: a lost answer is found by its id
	// What OpenAI's store does not list after settle_window counts as never made, and is made. Off: it is held.
	TrustAbsence bool `conf:"trust_absence" optional:"true"`
	AtOnce       int  `conf:"at_once" optional:"true"`    // attempts of one worker under way at a time; 0: no bound
	PerMinute    int  `conf:"per_minute" optional:"true"` // attempts that one worker begins a minute; 0: no bound
}

// HTTP says where the worker listens.
type HTTP struct {
	Listen string `conf:"listen" default:"127.0.0.1:8080"` // probes and metrics; "": nowhere
	Debug  string `conf:"debug"`                           // pprof, loopback only; "": nowhere
}

// Log says what is logged and how.
type Log struct {
	Level  string `conf:"level" default:"info" enum:"debug,info,warn,error"`
	Format string `conf:"format" default:"auto" enum:"auto,json,text"` // auto: text on a terminal
}

// Warnings are what is suspicious and no fault.
func (c *Config) Warnings() []string { return c.warnings }

// Broken reports whether a setting whose path begins so has a fault, so that what is built on
// it should not be checked further.
func (c *Config) Broken(prefix string) bool {
	return slices.ContainsFunc(c.faults, func(f Fault) bool { return strings.HasPrefix(f.Path, prefix) })
}

// Source says where the setting at a path, such as consumer.lease, came from.
func (c *Config) Source(path string) Source { return c.sources[path] }
