package audit_test

import (
	"bytes"
	"testing"

	"github.com/paidonce/paidonce/cmd/worker/audit"
)

func BenchmarkRun(b *testing.B) {
	var text bytes.Buffer
	if err := audit.Sample(&text, 20_000, 1); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := audit.Run(b.Context(), []audit.Source{log("a", text.String())}, options()); err != nil {
			b.Fatal(err)
		}
	}
}
