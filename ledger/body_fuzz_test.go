package ledger_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/paidonce/paidonce/ledger"
)

// FuzzBody: a body is put together from what Split made of it, whatever it looks like, and from nothing else: a row and
// chunks that were damaged are an error, never another body and never a panic.
func FuzzBody(f *testing.F) {
	row, chunks := ledger.Split(bytes.Repeat([]byte("paid once "), 50), 100) // of one chunk: large inputs are slow to change
	f.Add(chunks[0], 100, row, chunks[0])
	f.Add([]byte{}, 0, []byte{}, []byte{})
	f.Add(row, 1000, row, []byte("x"))
	f.Add(row[:20], 1000, row[:8], row)
	f.Fuzz(func(t *testing.T, body []byte, inline int, damaged, chunk []byte) {
		row, chunks := ledger.Split(body, inline)
		_, refers := ledger.Referred(row)
		if refers != (len(chunks) > 0) || refers == (len(body) <= inline && bytes.Equal(row, body)) {
			t.Fatalf("%d bytes with room for %d: a row of %d bytes and %d chunks", len(body), inline, len(row), len(chunks))
		}
		if !refers && !bytes.Equal(row, body) {
			t.Fatalf("the row holds %q of %q", row, body)
		}
		if refers {
			if back, err := ledger.Join(row, chunks); err != nil || !bytes.Equal(back, body) {
				t.Fatalf("%d bytes come back as %d, %v", len(body), len(back), err)
			}
			if back, err := ledger.Join(row, append(chunks, []byte{0})); !errors.Is(err, ledger.ErrDamaged) || back != nil {
				t.Fatalf("with a chunk too many: %d bytes, %v", len(back), err)
			}
		}
		if h, ok := ledger.Referred(damaged); ok {
			back, err := ledger.Join(damaged, [][]byte{chunk})
			if err != nil && !errors.Is(err, ledger.ErrDamaged) || err == nil && !bytes.Equal(back, chunk) {
				t.Fatalf("reference %s: %q, %v", h, back, err)
			}
		}
	})
}
