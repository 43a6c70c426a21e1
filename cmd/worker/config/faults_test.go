package config

import (
	"errors"
	"strings"
	"testing"
)

// Cases 65 and 69: every kind of fault, as it is printed. One case is one file.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name, file string
		env        []string
		flags      []Flag
		want       []string
	}{
		{name: "syntax", file: "ledger: [1\n", want: []string{
			"PO002 (worker.yaml:1:9): not YAML: sequence end token ']' not found"}},
		{name: "twice", file: "http: {}\nhttp: {}\n", want: []string{
			`PO002 (worker.yaml:2:1): not YAML: mapping key "http" already defined at [1:1]`}},
		{name: "two documents", file: "http: {}\n---\nlog: {}\n", want: []string{
			"PO002 (worker.yaml:3:4): a second document begins here; keep one"}},
		{name: "unknown keys", file: "consummer: {lease: 90s}\nconsumer:\n  visibilty: 90s\nlease: 90s\nbroker: {qwertyuiop: 1}\n", want: []string{
			"PO003 consummer (worker.yaml:1:1): unknown key; did you mean consumer?",
			"PO003 consumer.visibilty (worker.yaml:3:3): unknown key; did you mean consumer.visibility?",
			"PO003 lease (worker.yaml:4:1): unknown key; did you mean consumer.lease?",
			"PO003 broker.qwertyuiop (worker.yaml:5:10): unknown key; take it out"}},
		{name: "shapes", file: "ledger: postgres://h/d\nlog: [info]\nhttp: {listen: {port: 1}}\nbroker: {<<: {queue: x}}\njobs: {ticket.summary: {routes: primary}}\n", want: []string{
			"PO004 ledger (worker.yaml:1:9): write its fields below it, one a line",
			"PO004 log (worker.yaml:2:6): write its fields below it, one a line",
			"PO004 http.listen (worker.yaml:3:16): write one value, no list and no fields",
			"PO004 broker << (worker.yaml:4:10): merge keys are not read; write the fields out",
			"PO004 jobs.ticket.summary.routes (worker.yaml:5:33): write a list: [{name: primary, provider: openai, model: gpt-5-mini, timeout: 90s}]"}},
		{name: "values", file: "consumer: {workers: many, ack_busy: yes, lease: 90, drain: 1 minute, hold: -5m}\nlog: {level: loud}\n", want: []string{
			"PO005 consumer.workers many (worker.yaml:1:21): write a whole number",
			"PO005 consumer.ack_busy yes (worker.yaml:1:37): write true or false",
			`PO006 consumer.lease 90 (worker.yaml:1:49): "90" has no unit; write 90s if seconds were meant`,
			`PO006 consumer.drain 1 minute (worker.yaml:1:60): "1 minute" is no duration; write it like 90s, 10m, 1h30m or 30d`,
			`PO006 consumer.hold -5m (worker.yaml:1:76): "-5m" is negative; write a length of time`,
			"PO005 log.level loud (worker.yaml:2:14): write one of debug, info, warn, error"}},
		{name: "empty values", file: "consumer: {lease: , workers: ~}\n", want: []string{
			`PO006 consumer.lease "" (worker.yaml:1:18): it is empty; write it like 90s, 10m, 1h30m or 30d`,
			`PO005 consumer.workers "" (worker.yaml:1:30): write a whole number`}},
		{name: "environment and flags", env: []string{"PAIDONCE_CONSUMER_LEASE=90", "PAIDONCE_JOBS_TICKET_SUMMARY_ROUTES=[{"},
			flags: []Flag{{"--broker", "broker.url", "rabbit"}}, want: []string{
				`PO006 consumer.lease 90 (environment PAIDONCE_CONSUMER_LEASE): "90" has no unit; write 90s if seconds were meant`,
				"PO002 jobs.ticket.summary.routes (environment PAIDONCE_JOBS_TICKET_SUMMARY_ROUTES): not YAML: could not find flow mapping end token '}'",
				"PO008 broker.url (hidden) (flag --broker): write one that begins with amqp:, amqps:, sqs:, memory:"}},
		{name: "money and policy", file: "jobs:\n  ticket.summary: {budget_usd: 1e-3, on_unknown: replay}\n  invoice.extract: {budget_usd: -1}\nbudgets:\n  tenants: {acme: 1e3, globex: {}}\n", want: []string{
			`PO220 jobs.ticket.summary.budget_usd 1e-3 (worker.yaml:2:32): "1e-3" is no amount in dollars: write digits with up to nine decimals, such as 0.25`,
			`PO324 jobs.ticket.summary.on_unknown replay (worker.yaml:2:50): policy "replay" is none of hold, replay:N (N at least 1), fail`,
			"PO007 jobs.invoice.extract.budget_usd -1 (worker.yaml:3:33): a budget cannot be negative; 0 is no budget",
			`PO220 budgets.tenants.acme 1e3 (worker.yaml:5:19): "1e3" is no amount in dollars: write digits with up to nine decimals, such as 0.25`,
			"PO004 budgets.tenants.globex (worker.yaml:5:32): write one value, no list and no fields"}},
		{name: "limits", file: "jobs:\n  ticket.summary: {max_calls: -1, lifetime: 90}\n  invoice.extract: {max_calls: 3000000000, lifetime: 1us}\n  agent.task: {max_calls: many, lifetime: -1h}\n", want: []string{
			`PO006 jobs.ticket.summary.lifetime 90 (worker.yaml:2:45): "90" has no unit; write 90s if seconds were meant`,
			"PO005 jobs.agent.task.max_calls many (worker.yaml:4:27): write a whole number",
			`PO006 jobs.agent.task.lifetime -1h (worker.yaml:4:43): "-1h" is negative; write a length of time`,
			"PO627 jobs.invoice.extract.max_calls 3000000000 (worker.yaml:3:32): write how many calls one job may send in all of its runs, up to 2147483647; 0 is no limit",
			"PO627 jobs.invoice.extract.lifetime 1µs (worker.yaml:3:54): no call could be sent in so short a time; write it like 2h, or 0s for no limit",
			"PO627 jobs.ticket.summary.max_calls -1 (worker.yaml:2:31): write how many calls one job may send in all of its runs, up to 2147483647; 0 is no limit"}},
		{name: "trust absence", file: "jobs:\n  ticket.summary: {routes: [{name: a, provider: anthropic, model: m, timeout: 1s, trust_absence: true}]}\n  invoice.extract: {routes: [{name: a, provider: openai, model: m, timeout: 1s, background: true, trust_absence: true}]}\n", want: []string{
			"PO013 jobs.invoice.extract.routes[0].trust_absence true (worker.yaml:3:29): only OpenAI's stored completions can be listed, and no route in background mode; take it out",
			"PO013 jobs.ticket.summary.routes[0].trust_absence true (worker.yaml:2:28): only OpenAI's stored completions can be listed, and no route in background mode; take it out"}},
		{name: "background", file: "jobs:\n  ticket.summary: {routes: [{name: a, provider: anthropic, model: m, timeout: 1s, background: true}]}\n  agent.task: {routes: [{name: a, provider: openai, model: m, timeout: 1s, background: true}]}\n", want: []string{
			"PO013 jobs.agent.task.routes[0].background true (worker.yaml:3:24): agent.task calls tools and does not use the background mode; take it out",
			"PO013 jobs.ticket.summary.routes[0].background true (worker.yaml:2:28): only OpenAI has a background mode; take it out"}},
		{name: "tenants", file: "budgets: {tenants: 5}\n", env: []string{"PAIDONCE_BUDGETS_TENANT_DAY_USD=much"}, want: []string{
			"PO004 budgets.tenants (worker.yaml:1:20): write dollars for each tenant: {acme: 200, globex: 0.5}",
			`PO220 budgets.tenant_day_usd much (environment PAIDONCE_BUDGETS_TENANT_DAY_USD): "much" is no amount in dollars: write digits with up to nine decimals, such as 0.25`}},
		{name: "addresses", file: "ledger: {url: 'mysql://u:hunter2@h/d'}\nbroker: {url: 'amqp:///vhost'}\nproviders: {openai: {base_url: 'https://h/v1?x=1'}, anthropic: {base_url: localhost}}\n", want: []string{
			"PO008 ledger.url mysql://u:(hidden)@h/d (worker.yaml:1:15): write one that begins with postgres:, postgresql:, sqlite:, memory:",
			"PO008 broker.url amqp:///vhost (worker.yaml:2:15): it names no host; write amqp://host/…",
			"PO008 providers.openai.base_url https://h/v1?x=1 (worker.yaml:3:32): it is no base URL; write scheme, host and path only, such as https://gateway.example/v1/",
			"PO008 providers.anthropic.base_url (hidden) (worker.yaml:3:75): write one that begins with http:, https:"}},
		{name: "jobs", file: "jobs: {ticket.sumary: {}, payroll: {}}\n", want: []string{
			"PO012 jobs.ticket.sumary (worker.yaml:1:8): there is no such job; did you mean ticket.summary?",
			"PO012 jobs.payroll (worker.yaml:1:27): there is no such job; there are agent.task, invoice.extract, ticket.summary"}},
		{name: "routes", file: `jobs:
  ticket.summary:
    routes:
      - {name: a, provider: opnai, model: m, timeout: 5s}
      - {name: a, provider: openai, model: "", timeout: 0s}
  invoice.extract:
    routes:
      - {name: a, provider: openai, timout: 5s}
      - primary
      - {name: b, provider: openai, model: [m], timeout: 5}
`, want: []string{
			"PO003 jobs.invoice.extract.routes[0].timout (worker.yaml:8:37): unknown key; did you mean timeout?",
			"PO013 jobs.invoice.extract.routes[0] (worker.yaml:8:9): the route has no model; it needs name, provider, model and timeout",
			"PO013 jobs.invoice.extract.routes[0] (worker.yaml:8:9): the route has no timeout; it needs name, provider, model and timeout",
			"PO004 jobs.invoice.extract.routes[1] (worker.yaml:9:9): write a route's fields: {name: primary, provider: openai, model: gpt-5-mini, timeout: 90s}",
			"PO004 jobs.invoice.extract.routes[2].model (worker.yaml:10:44): write one value, no list and no fields",
			`PO006 jobs.invoice.extract.routes[2].timeout 5 (worker.yaml:10:58): "5" has no unit; write 5s if seconds were meant`,
			"PO013 jobs.invoice.extract.routes[2] (worker.yaml:10:9): the route has no model; it needs name, provider, model and timeout",
			"PO013 jobs.ticket.summary.routes[0].provider opnai (worker.yaml:4:7): write one of openai, anthropic; did you mean openai?",
			"PO013 jobs.ticket.summary.routes[1].name a (worker.yaml:4:7): two routes of a job cannot have one name",
			"PO013 jobs.ticket.summary.routes[1].model (worker.yaml:4:7): a route needs a model",
			"PO013 jobs.ticket.summary.routes[1].timeout 0s (worker.yaml:4:7): a route needs a timeout; write 90s"}},
		{name: "limits of routes", file: "jobs: {ticket.summary: {routes: [{name: a, provider: openai, model: m, timeout: 5s, at_once: -1}]}}\n", want: []string{
			"PO013 jobs.ticket.summary.routes[0].at_once -1 (worker.yaml:1:33): write a number of attempts; 0 is no bound"}},
		{name: "rates of routes", file: "jobs: {ticket.summary: {routes: [{name: a, provider: openai, model: m, timeout: 5s, per_minute: -5}]}}\n", want: []string{
			"PO013 jobs.ticket.summary.routes[0].per_minute -5 (worker.yaml:1:33): write a number of attempts; 0 is no bound"}},
		{name: "no routes", file: "jobs: {ticket.summary: {routes: []}}\n", want: []string{
			"PO013 jobs.ticket.summary.routes [] (worker.yaml:1:33): a job needs at least one route"}},
		{name: "contradictions", file: "broker: {queue: jobs, dead_letter: jobs}\nretention: {result: 30d, key: 7d}\nhttp: {listen: '8080', debug: '0.0.0.0:6060'}\n", want: []string{
			"PO033 broker.dead_letter jobs (worker.yaml:1:36): it is the queue itself (broker.queue, worker.yaml:1:17): what is set aside would come right back; name another",
			"PO032 retention.key 7d (worker.yaml:2:31): it is shorter than retention.result 30d (worker.yaml:2:21): a key must outlive its result, or a late duplicate is paid again; raise it",
			"PO015 http.listen 8080 (worker.yaml:3:16): write host and port, such as 127.0.0.1:8080",
			"PO035 http.debug 0.0.0.0:6060 (worker.yaml:3:31): profiles show what is in memory and may be served on loopback only; write 127.0.0.1 and a port"}},
		{name: "zeros", file: "consumer: {workers: -1, lease: 0s, visibility: 0s, ack_busy: false}\nretention: {result: 0s}\n", want: []string{
			"PO036 consumer.workers -1 (worker.yaml:1:21): it must be positive; leave it out for the default 64",
			"PO036 consumer.lease 0s (worker.yaml:1:32): it must be positive; leave it out for the default 60s",
			"PO036 retention.result 0s (worker.yaml:2:21): it must be positive; leave it out for the default 30d"}},
		{name: "turns", file: "jobs:\n  agent.task: {max_turns: 0}\n  ticket.summary: {max_turns: 5}\n", env: []string{"PAIDONCE_JOBS_AGENT_TASK_MAX_TURN=5"}, want: []string{
			"PO003 jobs.ticket.summary.max_turns (worker.yaml:3:20): unknown key; did you mean jobs.ticket.summary.max_runs?",
			"PO036 jobs.agent.task.max_turns 0 (worker.yaml:2:27): it must be positive; leave it out for the default 16"}},
		{name: "steps by half", file: "steps: {email: {from: a@b.example}, slack: {base_url: 'http://127.0.0.1:1/api/', channel: '#team'}}\n", want: []string{
			"PO619 steps.email.from a@b.example (worker.yaml:1:23): there is no mail server to send by; set steps.email.smtp_url, or take it out",
			"PO619 steps.slack.base_url http://127.0.0.1:1/api/ (worker.yaml:1:55): nothing is posted without a token; set steps.slack.token, or take it out",
			"PO619 steps.slack.channel #team (worker.yaml:1:91): nothing is posted without a token; set steps.slack.token, or take it out"}},
		{name: "mail without a sender", file: "steps: {email: {smtp_url: 'smtp://mail:1025?starttls=off'}}\n", want: []string{
			`PO619 steps.email.from "" (default): mail needs a sender; write one such as Support <support@acme.example>`}},
		{name: "mail from nobody", file: "steps: {email: {smtp_url: 'smtp://mail:1025?starttls=off', from: support}}\n", want: []string{
			"PO601 steps.email.from support (worker.yaml:1:66): the sender is no mail address; write Support <support@acme.example>"}},
		{name: "mail in plain text", file: "steps: {email: {smtp_url: 'smtp://u:pw@mail:1025?starttls=off', from: a@b.example}, slack: {token: x, base_url: 'slack.com/api'}}\n", want: []string{
			"PO008 steps.slack.base_url (hidden) (worker.yaml:1:113): write one that begins with http:, https:",
			"PO600 steps.email.smtp_url smtp://u:(hidden)@mail:1025?starttls=off (worker.yaml:1:27): a password would go to the mail server in plain text; take ?starttls=off out, or the user and the password"}},
		{name: "mail server of no kind", file: "steps: {email: {smtp_url: 'smtp:mail', from: a@b.example}}\n", want: []string{
			"PO008 steps.email.smtp_url smtp:mail (worker.yaml:1:27): it names no host; write smtp://host/…"}},
		{name: "no queue", file: "broker: {queue: ''}\n", want: []string{`PO034 broker.queue "" (worker.yaml:1:17): the queue needs a name`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := load(t, c.file, c.env, c.flags...)
			if _, ok := errors.AsType[Faults](err); !ok {
				t.Fatalf("error %v, want faults", err)
			}
			got := strings.Split(err.Error(), "\n")
			for i := range max(len(got), len(c.want)) {
				g, w := "(nothing)", "(nothing)"
				if i < len(got) {
					g = got[i]
				}
				if i < len(c.want) {
					w = c.want[i]
				}
				if g != w {
					t.Errorf("fault %d\n got %s\nwant %s", i+1, g, w)
				}
			}
		})
	}
}
