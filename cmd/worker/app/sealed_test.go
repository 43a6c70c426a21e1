package app

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/internal/modelserver"
)

const (
	sealKey    = "cGxhbnRlZCBwbGFudGVkIHBsYW50ZWQgcGxhbnRlZCE="
	newSealKey = "YW5vdGhlciBvbmUsIGFsc28gb2YgMzIgYnl0ZXMuLi4="
)

// TestEncryption: the file of the ledger has no body in clear, a new key reads what the old one sealed, and
// without keys nothing is shown.
func TestEncryption(t *testing.T) {
	w := plain(t)
	with := func(keys string) { w.env = append(w.env, "PAIDONCE_LEDGER_ENCRYPTION_KEYS="+keys) }
	w.models(modelserver.Options{Generate: func(modelserver.Request) string {
		return `{"number":"R-17","currency":"EUR","total_cents":11900,"supplier":"Initech","date":"2026-03-01"}`
	}})
	with("k1:" + sealKey)
	w.must(invoiceDoc, "submit", "--job", "invoice.extract")
	with("k2:" + newSealKey + ",k1:" + sealKey)
	r := w.start()
	w.until(invoiceKey, "done")
	r.stop()
	for _, name := range []string{"paidonce.db", "paidonce.db-wal"} {
		b, err := os.ReadFile(name)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, clear := range []string{"Invoice 17", "HTTP/1.1 200"} {
			if i := bytes.Index(b, []byte(clear)); i >= 0 {
				t.Errorf("%s holds %q: %.200q", name, clear, b[max(0, i-50):i+100])
			}
		}
	}
	if shown := w.must("", "jobs", "show", invoiceKey); !strings.Contains(shown, "Initech") {
		t.Errorf("shown as\n%s", shown)
	}
	if got := w.must("", "jobs", "show", invoiceKey, "--answer", "1"); !strings.Contains(got, "Initech") {
		t.Errorf("the answer is shown as\n%s", got)
	}
	with("k1:" + sealKey)
	w.refused(exitFailed, "", []string{"jobs", "show", invoiceKey}, "PO217", "its key is k2")
	with("")
	w.refused(exitFailed, "", []string{"jobs", "show", invoiceKey}, "PO217", "its key is k2")
	with("k1:" + sealKey[:20])
	w.refused(exitUsage, "", []string{"jobs", "show", invoiceKey}, "PO040 ledger.encryption.keys", "(k1) is not 32 bytes")
}
