package job

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// keys are printed into a golden file: stored keys must stay findable for ever.
var keys = []Key{
	K("acme", "invoice.extract", "9821"),
	K("acme", "invoice.extract", "9821").Rev(3).Prompt("p7"),
	K("acme", "invoice.extract", "9821").Prompt("p7.1"),
	K("acme", "invoice.extract", "9821", "page", "2").Rev(0),
	K("acme", "invoice.extract", "9821", "v3", "p7"),
	K("acme", "invoice.extract", "9821:v3"),
	K("acme", "invoice.extract", "98%21", "a b\tc\n", "\x7f"),
	K("a:b", "c", "d"),
	K("a", "b:c", "d"),
	K("v1", "p2", "v"),
	K("acme", "ä.ö", "日本 語"),
	K("acme", "x", "%3A"),
	K("acme", "x", "p", "v", "value", "page"),
}

func TestKeyGolden(t *testing.T) {
	var b bytes.Buffer
	seen := map[string]bool{}
	for _, k := range keys {
		if err := k.Check(); err != nil {
			t.Errorf("%s: %v", k, err)
		}
		if seen[k.String()] {
			t.Errorf("%s is printed by two keys", k)
		}
		seen[k.String()] = true
		fmt.Fprintln(&b, k)
	}
	golden(t, "keys.txt", b.Bytes())
}

func TestKeyRefused(t *testing.T) {
	for name, k := range map[string]Key{
		"none":       {},
		"no tenant":  K("", "a", "e"),
		"no action":  K("t", "", "e"),
		"no entity":  K("t", "a"),
		"empty part": K("t", "a", "e", ""),
		"not UTF-8":  K("t", "a", "\xff"),
		"zero byte":  K("t", "a", "a\x00b"),
		"a time":     K("t", "a", "2026-01-02T03:04:05.678Z"),
		"rev":        K("t", "a", "e").Rev(-1),
		"prompt":     K("t", "a", "e").Prompt("7"),
		"prompt too": K("t", "a", "e").Prompt("p7:v3"),
		"prompt x":   K("t", "a", "e").Prompt("px"),
		"too long":   K("t", "a", strings.Repeat("x", MaxKey)),
		"escaped":    K("t", "a", strings.Repeat(":", (MaxKey-len("t:a:"))/3+1)),
	} {
		err := k.Check()
		if err == nil || !strings.Contains(err.Error(), "PO301") {
			t.Errorf("%s (%s): %v, want PO301", name, k, err)
		}
	}
	if err := K("t", "a", strings.Repeat("x", MaxKey-len("t:a:"))).Check(); err != nil {
		t.Errorf("the longest key: %v", err)
	}
	if err := K("t", "a", "").Rev(-1).Check(); !strings.Contains(err.Error(), "part 3") {
		t.Errorf("the first mistake is not the one that is shown: %v", err)
	}
}

// Keys are the same that print the same.
func TestKeySame(t *testing.T) {
	some := append(slices.Clone(keys), K("acme", "invoice.extract", "9821").Rev(3), K("acme", "invoice.extract", "9821").Rev(4), Key{})
	for i, a := range some {
		for k, b := range some {
			if a.same(b) != (i == k) {
				t.Errorf("%s and %s are the same: %v", a, b, a.same(b))
			}
		}
	}
}

// FuzzKey: two keys print the same only if they are the same, and the tenant can
// be read back from what is printed.
func FuzzKey(f *testing.F) {
	f.Add("acme:x", "y", "acme", "x:y", 3, false)
	f.Add("a", "v3", "a", "", 3, true)
	f.Add("a", "%763", "a", "v3", 0, true)
	f.Add("a", "p7", "a", "x", 7, true)
	f.Fuzz(func(t *testing.T, t1, e1, t2, e2 string, rev int, named bool) {
		a := K(t1, "act", strings.Split(e1, "/")...)
		b := K(t2, "act", strings.Split(e2, "/")...)
		if named {
			b = b.Rev(rev).Prompt(fmt.Sprint("p", rev))
			a = a.Prompt("p7")
		}
		if a.Check() != nil || b.Check() != nil {
			return
		}
		if (a.String() == b.String()) != a.same(b) {
			t.Fatalf("%q %q %q and %q %q %q print %s and %s", a.parts, a.rev, a.prompt, b.parts, b.rev, b.prompt, a, b)
		}
		if strings.ContainsAny(a.String(), " \t\r\n\x00") {
			t.Fatalf("%q is not one word", a.String())
		}
		lk, err := ParseKey(a.String())
		if err != nil || lk != a.Ledger() || lk.Tenant != t1 {
			t.Fatalf("%s reads back as %+v, %v; want %+v", a, lk, err, a.Ledger())
		}
	})
}

func TestParseKey(t *testing.T) {
	for _, s := range []string{"", "acme", "acme:", ":x", "ac%me:x", "ac%4:x", "%zz:x"} {
		if k, err := ParseKey(s); err == nil {
			t.Errorf("%q reads as %+v", s, k)
		}
	}
}
