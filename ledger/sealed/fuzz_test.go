package sealed

import (
	"bytes"
	"errors"
	"testing"

	"github.com/paidonce/paidonce/ledger"
)

// FuzzOpen: no row makes opening panic, nothing opens but what was sealed for its place, and what is not sealed is
// returned as it is.
func FuzzOpen(f *testing.F) {
	id := ledger.ID{7}
	at := answerPlace("acme", 1, id, "http")
	k, err := ParseKeys("k1:" + secret(1) + ",k2:" + secret(2))
	if err != nil {
		f.Fatal(err)
	}
	whole := k.seal(at, []byte("an answer"))
	for _, n := range []int{len(whole), len(whole) - 1, 30, 14, 12, 11, 10, len(mark), 3, 0} {
		f.Add(whole[:n], []byte("an answer"))
	}
	f.Add(append(bytes.Clone(mark), 255), []byte{})
	f.Add(append(bytes.Clone(mark), 0), []byte{})
	f.Add(append(append(bytes.Clone(mark), 64), bytes.Repeat([]byte("x"), 64)...), mark)
	f.Fuzz(func(t *testing.T, row, body []byte) {
		got, err := k.open(at, row)
		switch {
		case !bytes.HasPrefix(row, mark):
			if err != nil || !bytes.Equal(got, row) {
				t.Fatalf("%q, which is not sealed, reads as %q, %v", row, got, err)
			}
		case err == nil && !bytes.Equal(k.seal(at, got), row):
			t.Fatalf("%q opens as %q, which nobody sealed", row, got)
		case err != nil && (got != nil || !errors.Is(err, ledger.ErrDamaged) && !errors.Is(err, ErrKey)):
			t.Fatalf("%q: %q, %v", row, got, err)
		}
		if back, err := k.open(at, k.seal(at, body)); err != nil || !bytes.Equal(back, body) {
			t.Fatalf("%q comes back as %q, %v", body, back, err)
		}
	})
}

// FuzzParseKeys: a text is a list of keys, or refused without showing any of it.
func FuzzParseKeys(f *testing.F) {
	f.Add("k1:" + secret(1))
	f.Add("# c\nk1:" + secret(1) + " , k2:" + secret(2) + "\n\n")
	f.Add("k1:" + secret(1) + ",k1:" + secret(1))
	f.Add(secret(1) + ":")
	f.Fuzz(func(t *testing.T, text string) {
		k, err := ParseKeys(text)
		if err != nil {
			if k != nil || !errors.Is(err, ErrConfig) || len(err.Error()) > 300 {
				t.Fatalf("%q: %v, %v", text, k, err)
			}
			return
		}
		for _, id := range k.IDs() {
			if !idForm.MatchString(id) {
				t.Fatalf("%q has a key %q", text, id)
			}
		}
	})
}
