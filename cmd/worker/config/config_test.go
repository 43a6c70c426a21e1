package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// routes are the known jobs of the tests.
func known() map[string][]Route {
	return map[string][]Route{
		"ticket.summary":  {{Name: "primary", Provider: "openai", Model: "gpt-5-mini", Timeout: Duration(90 * time.Second)}},
		"agent.task":      {{Name: "primary", Provider: "openai", Model: "gpt-5-mini", Timeout: Duration(90 * time.Second)}},
		"invoice.extract": {{Name: "primary", Provider: "openai", Model: "gpt-5-mini", Timeout: Duration(90 * time.Second)}},
	}
}

// load reads a worker.yaml with that text. Its path in faults is worker.yaml.
func load(t *testing.T, text string, env []string, flags ...Flag) (*Config, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	if text != "" {
		if err := os.WriteFile("worker.yaml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Load(Options{Environ: env, Flags: flags, Jobs: known(), Turns: map[string]int{"agent.task": 16}, Providers: []string{"openai", "anthropic"}})
}

func TestDefaults(t *testing.T) {
	c, err := load(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case c.Ledger.URL.Reveal() != "sqlite:paidonce.db",
		c.Broker.URL.Reveal() != "memory:", c.Broker.Queue != "jobs", !c.Broker.Declare,
		c.Consumer.Workers != 64, c.Consumer.Lease.Std() != time.Minute, c.Consumer.SettleWindow.Std() != 10*time.Minute,
		c.Retention.Key.Std() != 400*24*time.Hour, c.HTTP.Listen != "127.0.0.1:8080",
		c.Jobs["agent.task"].MaxTurns != 16, c.Jobs["ticket.summary"].MaxTurns != 0,
		len(c.Jobs["ticket.summary"].Routes) != 1, c.Jobs["ticket.summary"].OnUnknown.String() != "hold":
		t.Errorf("defaults are not those of the documentation: %v", c.Values())
	}
	if s := c.Source("consumer.lease"); s.String() != "default" {
		t.Errorf("source of an untouched setting is %q", s)
	}
}

// The file of the documentation, every section of it.
func TestWholeFile(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "whole.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := load(t, string(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := c.Jobs["ticket.summary"].Routes
	if len(r) != 2 || r[1] != (Route{"fallback", "anthropic", "claude-haiku-4-5", Duration(2 * time.Minute), false, false, 20, 600}) || r[0].AtOnce != 0 || !r[0].Background {
		t.Errorf("routes %v", r)
	}
	if j := c.Jobs["ticket.summary"]; j.OnUnknown.Replays() != 2 || j.Budget.String() != "0.05" || j.MaxCalls != 6 || j.Lifetime.Std() != 12*time.Hour || j.MaxRun.Std() != 20*time.Minute {
		t.Errorf("ticket.summary %+v", j)
	}
	if b := c.Budgets; b.TenantDay.String() != "50" || b.Tenants.String() != "{acme: 200, globex: 0.5}" || c.Jobs["ticket.summary"].TenantDay.String() != "10" {
		t.Errorf("budgets %v, of ticket.summary %v", b, c.Jobs["ticket.summary"].TenantDay)
	}
	if n := c.Jobs["agent.task"].MaxTurns; n != 40 {
		t.Errorf("agent.task has %d turns", n)
	}
	if s := c.Source("jobs.ticket.summary.budget_usd"); !strings.HasPrefix(s.String(), "worker.yaml:") {
		t.Errorf("source of a job's setting is %q", s)
	}
	if len(c.Jobs["invoice.extract"].Routes) != 1 {
		t.Errorf("a job that the file does not name lost its routes: %v", c.Jobs["invoice.extract"])
	}
}

func TestPrecedence(t *testing.T) {
	const file = "broker:\n  queue: from-file\n  region: here\n  url: 'sqs:'\n"
	c, err := load(t, file, []string{"PAIDONCE_BROKER_QUEUE=from-env", "PAIDONCE_LEDGER_URL=", "PAIDONCE_CONSUMER_WORKERS=3"},
		Flag{"--queue", "broker.queue", "from-flag"})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct{ text, source string }{
		"broker.queue":     {"from-flag", "flag --queue"},
		"broker.region":    {"here", "worker.yaml:3:11"},
		"consumer.workers": {"3", "environment PAIDONCE_CONSUMER_WORKERS"},
		"ledger.url":       {"sqlite:paidonce.db", "default"}, // an empty variable is no value
	} {
		for _, v := range c.Values() {
			if v.Path == path && (v.Text != want.text || v.Source.String() != want.source) {
				t.Errorf("%s is %s (%s), want %s (%s)", path, v.Text, v.Source, want.text, want.source)
			}
		}
	}
}

func TestListFromEnvironment(t *testing.T) {
	c, err := load(t, "", []string{"PAIDONCE_JOBS_TICKET_SUMMARY_ROUTES=[{name: a, provider: anthropic, model: m, timeout: 5s}]",
		"PAIDONCE_JOBS_TICKET_SUMMARY_ON_UNKNOWN=fail"})
	if err != nil {
		t.Fatal(err)
	}
	j := c.Jobs["ticket.summary"]
	if len(j.Routes) != 1 || j.Routes[0].Provider != "anthropic" || !j.OnUnknown.Fails() {
		t.Errorf("ticket.summary %+v", j)
	}
}

func TestAnchors(t *testing.T) {
	c, err := load(t, "consumer: {lease: &l 90s, drain: *l}\njobs:\n  ticket.summary: {routes: &r [{name: a, provider: openai, model: m, timeout: 5s}]}\n  invoice.extract: {routes: *r}\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Consumer.Drain.Std() != 90*time.Second || c.Jobs["invoice.extract"].Routes[0].Name != "a" {
		t.Errorf("aliases are not followed: %v", c.Values())
	}
}

func TestMissingFile(t *testing.T) {
	_, err := Load(Options{File: "nowhere.yaml", Jobs: known()})
	if fs, ok := errors.AsType[Faults](err); !ok || fs[0].Error() != "PO001 nowhere.yaml (flag --config): the file cannot be read: no such file or directory" {
		t.Errorf("error %v", err)
	}
}

func TestWarnings(t *testing.T) {
	c, err := load(t, "jobs: {ticket.summary: {budget_usd: 1}}\n", []string{"PAIDONCE_LEDGER_ULR=x", "PAIDONCE_PORT_8080_TCP=tcp://10.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"PO016 environment PAIDONCE_LEDGER_ULR is no setting and is not read; did you mean PAIDONCE_LEDGER_URL?",
		"PO016 environment PAIDONCE_PORT_8080_TCP is no setting and is not read",
	}
	if got := c.Warnings(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("warnings\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What is of SQS alone is refused with another broker, and what SQS cannot do with SQS.
func TestSQSSettings(t *testing.T) {
	for file, want := range map[string]string{
		"broker: {url: 'amqp://h/', endpoint: 'http://h:1', region: x}\n": "PO037 broker.endpoint http://h:1 (worker.yaml:1:38)|PO037 broker.region x (worker.yaml:1:60)",
		"broker: {region: x}\n": "PO037 broker.region x",
		"broker: {url: 'sqs:', endpoint: 'http://h:1', region: x}\nconsumer: {visibility: 17s}\n": "PO038 consumer.visibility 17s (worker.yaml:2:24)",
		"broker: {url: 'sqs:', endpoint: 'http://h:1', region: x}\nconsumer: {visibility: 18s}\n": "",
		"broker: {url: 'sqs:'}\nconsumer: {visibility: 0s}\n":                                     "",
		"broker: {url: 'amqp://h/'}\nconsumer: {visibility: 2s}\n":                                "",
	} {
		_, err := load(t, file, nil)
		if (err == nil) != (want == "") {
			t.Errorf("%s: %v, want %q", file, err, want)
			continue
		}
		for w := range strings.SplitSeq(want, "|") {
			if err != nil && !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v, want %q", file, err, w)
			}
		}
	}
}

func TestUsable(t *testing.T) {
	c, err := load(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if path, ok := c.LedgerFile(); c.LedgerFault() != nil || !ok || path != "paidonce.db" {
		t.Errorf("the default ledger: %v, in %q", c.LedgerFault(), path)
	}
	for _, url := range []string{"sqlite:", "sqlite:x.db?mode=memory", "sqlite://host/x.db"} {
		c, err := load(t, "", []string{"PAIDONCE_LEDGER_URL=" + url})
		if err != nil || c.LedgerFault() == nil || !strings.Contains(c.LedgerFault().Error(), "PO009 ledger.url "+url+" (environment PAIDONCE_LEDGER_URL)") {
			t.Errorf("%s: %v, %v", url, err, c.LedgerFault())
		}
	}
	if c, _ = load(t, "", []string{"PAIDONCE_LEDGER_URL=memory:"}); c.LedgerFault() != nil {
		t.Errorf("memory: is refused: %v", c.LedgerFault())
	}
}
