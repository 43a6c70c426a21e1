package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Files that are too large, or never end, are refused, and what nests deeply breaks nothing.
func TestHostileFiles(t *testing.T) {
	large := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(large, []byte("# "+strings.Repeat("x", maxFile)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{large, "/dev/zero"} {
		_, err := Load(Options{File: file, Jobs: known(), Providers: []string{"openai", "anthropic"}})
		if err == nil || !strings.Contains(err.Error(), "PO001") || !strings.Contains(err.Error(), "larger than") {
			t.Errorf("%s: %v", file, err)
		}
		c, err := load(t, "", []string{"PAIDONCE_LEDGER_ENCRYPTION_FILE=" + file})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.LedgerKeys(); err == nil || !strings.Contains(err.Error(), "PO040") || !strings.Contains(err.Error(), "larger than") {
			t.Errorf("keys in %s: %v", file, err)
		}
	}
	for name, text := range map[string]string{
		"lists":   strings.Repeat("[", 20_000),
		"objects": strings.Repeat("{a: ", 5_000),
		"aliases": "a: &a [x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\nd: &d [*c, *c, *c, *c]\ne: &e [*d, *d, *d, *d]\nledger: *e\n",
		"itself":  "ledger: &l {url: *l}\n",
	} {
		if _, err := load(t, text, nil); err == nil || !strings.HasPrefix(err.Error(), "PO0") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
