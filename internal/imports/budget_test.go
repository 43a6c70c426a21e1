package imports

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// dependency is one module that this one imports directly.
type dependency struct {
	licence string // as its licence file reads
	why     string // what it saves us, and why the standard library is not enough
}

// budget lists every direct dependency. The default answer to a new one is no
// (CONTRIBUTING.md); whoever adds one adds a line here and defends it.
var budget = map[string]dependency{
	kong:       {"MIT", "the command line: one struct gives flags, environment, help and 'did you mean'; flag has no environment and no reasons"},
	anthropic:  {"Apache-2.0", "handlers use the vendor's SDK unchanged, as users do"},
	openai:     {"Apache-2.0", "handlers use the vendor's SDK unchanged, as users do"},
	backoff:    {"MIT", "reconnects and retries with jitter; small, no dependencies"},
	yaml:       {"MIT", "strict worker.yaml with line, column and excerpt in its errors; viper and koanf read 90 as 90 ns"},
	pgx:        {"MIT", "the Postgres driver: batches, binary arrays, errors that say whether anything was sent"},
	goose:      {"MIT", "migrations in numbered SQL files under a lock, with out-of-order detection"},
	prometheus: {"Apache-2.0", "metrics in the format that everybody scrapes; known to consumer/prom alone"},
	amqp:       {"BSD-2-Clause", "the maintained RabbitMQ client; without its Recovery"},
	aws:        {"Apache-2.0", "credential chain and signing of SQS"},
	smithy:     {"Apache-2.0", "error types of the AWS SDK"},
	gomail:     {"MIT", "mail as it should be: encodings, headers, logins; net/smtp is frozen and writes no messages"},
	slackgo:    {"BSD-2-Clause", "Slack's API and its errors; no retries unless asked for"},
	gosmtp:     {"MIT", "a mail server for tests, with faults that a client library cannot make; in no program"},
	gosasl:     {"MIT", "the logins of that server, by the same author"},
	porcupine:  {"MIT", "decides whether a history is linearizable, fast and proven on others' stores; in no program"},
	sqlite:     {"BSD-3-Clause", "SQLite in pure Go: the embedded ledger needs no cgo and no library of the system"},
}

// permitted are the licences that may be linked into the binary.
var permitted = []string{"Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC"}

type mod struct {
	Path string
	Dir  string
	Main bool
}

// TestBudget compares the modules that our packages import, tests included, with
// the budget.
func TestBudget(t *testing.T) {
	mods := required(t)
	direct := map[string]bool{}
	for _, p := range list(t) {
		for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if m := moduleOf(mods, imp); m != "" {
				direct[m] = true
			}
		}
	}
	for _, m := range slices.Sorted(maps.Keys(direct)) {
		if name := budgetName(m); name == "" {
			t.Errorf("module %s is a new direct dependency: add it to budget in internal/imports/budget_test.go with its licence and a reason, or do without it (CONTRIBUTING.md)", m)
		}
	}
	for name := range budget {
		if !slices.ContainsFunc(mods, func(m mod) bool { return budgetName(m.Path) == name }) {
			t.Errorf("module %s is in the budget but not in go.mod: take its line out", name)
		}
	}
}

// required are the modules that go.mod names. (go list -m all would ask the network
// for the go.mod files of modules that nothing here is built from.)
func required(t *testing.T) []mod {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod edit -json: %v", err)
	}
	var file struct{ Require []mod }
	if err := json.Unmarshal(out, &file); err != nil {
		t.Fatalf("go mod edit -json: reading its answer: %v", err)
	}
	return file.Require
}

// TestLicences reads the licence file of every module that is linked into any of
// our packages or tests, indirect ones included, where the go command keeps them: nobody is asked.
func TestLicences(t *testing.T) {
	type dep struct {
		ImportPath string
		Module     *mod
	}
	seen := map[string]bool{}
	for _, d := range goList[dep](t, "-deps", "-test", "-json=ImportPath,Module", "./...") {
		m := d.Module
		if m == nil || m.Main || seen[m.Path] {
			continue
		}
		seen[m.Path] = true
		got, err := licence(m.Dir)
		if err != nil {
			t.Errorf("module %s: %v", m.Path, err)
			continue
		}
		if !slices.Contains(permitted, got) {
			t.Errorf("module %s is under %q, which is not in the list of permitted licences %v", m.Path, got, permitted)
		}
		if name := budgetName(m.Path); name != "" && budget[name].licence != got {
			t.Errorf("module %s is under %s; the budget says %s", m.Path, got, budget[name].licence)
		}
	}
}

// weights are how many modules of others may be linked into a package and all that it needs. What a dependency brings along
// counts: whoever raises a number says why in the commit.
var weights = map[string]int{
	"job": 0, "consumer": 0, "submit": 0, "ledger/memory": 0, "ledger/sealed": 0, "broker/memory": 0, "handlers/webhook": 0,
	"ledger/postgres": 10, "ledger/sqlite": 8, "cmd/worker": 69,
}

// TestWeight counts the modules that come with what users link.
func TestWeight(t *testing.T) {
	for _, rel := range slices.Sorted(maps.Keys(weights)) {
		type dep struct{ Module *mod }
		linked := map[string]bool{}
		for _, d := range goList[dep](t, "-deps", "-json=Module", "./"+rel) {
			if m := d.Module; m != nil && !m.Main {
				linked[m.Path] = true
			}
		}
		if n := len(linked); n > weights[rel] {
			t.Errorf("%s links %d modules, at most %d are meant: %v", rel, n, weights[rel], slices.Sorted(maps.Keys(linked)))
		} else if n < weights[rel] {
			t.Errorf("%s links %d modules: lower its number from %d", rel, n, weights[rel])
		}
	}
}

func TestLicenceFails(t *testing.T) {
	for text, want := range map[string]string{
		"GNU AFFERO GENERAL PUBLIC LICENSE Version 3":                             "unknown",
		"Mozilla Public License Version 2.0":                                      "unknown",
		"all rights reserved":                                                     "unknown",
		"Redistribution and use in source and binary forms … Neither the name of": "BSD-3-Clause",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "LICENSE"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := licence(dir); err != nil || got != want {
			t.Errorf("licence of %q = %q, %v; want %q", text, got, err, want)
		}
	}
	if got, err := licence(t.TempDir()); err == nil {
		t.Errorf("a module without a licence file reads as %q, want an error", got)
	}
}

// licence names the licence in the module's folder by the words that only it has.
func licence(dir string) (string, error) {
	for _, pattern := range []string{"LICENSE*", "LICENCE*", "COPYING*"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(files) == 0 {
			continue
		}
		b, err := os.ReadFile(files[0])
		if err != nil {
			return "", fmt.Errorf("reading its licence: %w", err)
		}
		text := strings.Join(strings.Fields(string(b)), " ")
		has := func(s string) bool { return strings.Contains(text, s) }
		switch {
		case has("GENERAL PUBLIC LICENSE") || has("Mozilla Public"):
			return "unknown", nil // also where a permissive one stands beside it
		case has("Apache License"):
			return "Apache-2.0", nil
		case has("Redistribution and use in source and binary forms") && has("Neither the name"):
			return "BSD-3-Clause", nil
		case has("Redistribution and use in source and binary forms"):
			return "BSD-2-Clause", nil
		case has("Permission is hereby granted, free of charge"):
			return "MIT", nil
		case has("Permission to use, copy, modify, and"):
			return "ISC", nil
		}
		return "unknown", nil
	}
	return "", fmt.Errorf("no licence file in %s", filepath.Base(dir))
}

// moduleOf finds the module of an import path: the longest that is a prefix.
func moduleOf(mods []mod, imp string) string {
	best := ""
	for _, m := range mods {
		if !m.Main && (imp == m.Path || strings.HasPrefix(imp, m.Path+"/")) && len(m.Path) > len(best) {
			best = m.Path
		}
	}
	return best
}

// budgetName is the budget's line for a module; families that are released in many
// modules (the AWS SDK) have one line.
func budgetName(path string) string {
	for name := range budget {
		if path == name || name == aws && strings.HasPrefix(path, name+"/") {
			return name
		}
	}
	return ""
}
