package config

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var coded = regexp.MustCompile(`^PO[0-9]{3} `)

// FuzzLoad: no file and no variable makes loading panic. Either there are faults, each with its code, or the configuration
// prints and hashes, and of its secrets nothing is printed.
func FuzzLoad(f *testing.F) {
	whole, err := os.ReadFile(filepath.Join("testdata", "whole.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{string(whole), secretFile, "", "consumer: {lease: 90}", "jobs: {ticket.summary: {routes: [{name: a}]}}",
		"a: &a [*a]", "a: &a {b: *a}\nledger: *a", "<<: {ledger: 1}", "---\n---\n", "ledger: &l {url: *l}", "? [a]\n: b", "consumer: {max_runs: 99999999999999999999}",
		"budgets: {tenants: {acme: 1e400, ? : 2}}", "ledger: !!binary AA==", "\x00", "\ufeffledger:\n\turl: x", "providers: {openai: {api_key: |\n  a\n  b\n}}",
		"jobs: {agent.task: {max_turns: -1}}", "log: {level: [debug]}", "x: !!float .inf", "- a\n- b", "broker: {url: 'amqps://u:p%zz@h'}"} {
		f.Add(text, "", "")
	}
	f.Add("", "CONSUMER_LEASE", "90")
	f.Add("", "JOBS_TICKET_SUMMARY_ROUTES", "[{name: a, provider: openai, model: m, timeout: 1s}]")
	f.Add("", "BUDGETS_TENANTS", "{acme: 1}")
	f.Add("", "LEDGER_ENCRYPTION_KEYS", "k1:"+plantedKey)
	at := filepath.Join(f.TempDir(), "worker.yaml") // each fuzzing process has its own
	f.Fuzz(func(t *testing.T, file, name, value string) {
		if err := os.WriteFile(at, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		const key = "sk-planted-by-the-fuzzer"
		c, err := Load(Options{File: at, Environ: []string{envPrefix + name + "=" + value, "PAIDONCE_PROVIDERS_ANTHROPIC_API_KEY=" + key},
			Jobs: known(), Turns: map[string]int{"agent.task": 16}, Providers: []string{"openai", "anthropic"}})
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				if !coded.MatchString(line) || strings.ContainsFunc(strings.TrimSuffix(line, "\n"), unicode.IsControl) {
					t.Fatalf("no fault in one line, with its code: %q of %q", line, err)
				}
			}
		}
		var b strings.Builder
		if perr := c.Print(&b); perr != nil || len(c.Hash()) != 12 {
			t.Fatalf("%v, hash %q", perr, c.Hash())
		}
		shown := fmt.Sprint(b.String(), c.JSON(), err)
		if !strings.Contains(file+name+value, key) && strings.Contains(shown, key) {
			t.Fatalf("the secret is shown: %s", shown)
		}
	})
}
