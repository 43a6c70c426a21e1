package audit

import (
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"
)

// FuzzDecimal compares with arithmetic of any size.
func FuzzDecimal(f *testing.F) {
	for _, s := range []string{"0.001234", "1.2e-05", "0.00012345000000000001", "-3", "+7", "1e9", ".5", "5.", "", ".", "1e", "0x10", "9223372036.854775807", "9223372036.854775808", "0.0000000005", "0.00000000049", "1E+2", "00012", "1_000", "Inf", "9.9999999999", "1e-1000", "0e999", "9223372036854775807.5"} {
		f.Add(s, uint8(9))
		f.Add(s, uint8(0))
	}
	f.Fuzz(func(t *testing.T, s string, p uint8) {
		places := int(p % 10)
		got, ok := decimal(s, places)
		if strings.Trim(s, "0123456789.eE+-") != "" || len(s) > 100 {
			if ok && len(s) <= 100 {
				t.Errorf("%q reads as %d", s, got)
			}
			return
		}
		if i := strings.IndexAny(s, "eE"); i >= 0 {
			if n, err := strconv.Atoi(s[i+1:]); err != nil || n < -1000 || n > 1000 {
				if ok {
					t.Errorf("%q, with an exponent beyond a thousand, reads as %d", s, got)
				}
				return
			}
		}
		want, good := reference(s, places)
		if ok != good || ok && got != want {
			t.Errorf("decimal(%q, %d) = %d, %v; want %d, %v", s, places, got, ok, want, good)
		}
	})
}

// reference is decimal by math/big: half away from zero.
func reference(s string, places int) (int64, bool) {
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return 0, false
	}
	r.Mul(r, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(places)), nil)))
	half := big.NewRat(int64(r.Sign()), 2)
	r.Add(r, half)
	n := new(big.Int).Quo(r.Num(), r.Denom())
	if n.Cmp(big.NewInt(0).Neg(big.NewInt(1<<63-1))) < 0 || !n.IsInt64() {
		return 0, false
	}
	return n.Int64(), true
}

func TestInstant(t *testing.T) {
	want := time.Date(2026, 11, 2, 8, 0, 0, 500_000_000, time.UTC).UnixNano()
	for _, s := range []string{"2026-11-02T08:00:00.5Z", "2026-11-02T10:00:00.500+02:00", "2026-11-02T10:00:00.500+0200", "2026-11-02T08:00:00.5", "2026-11-02 08:00:00.5", "2026-11-02 08:00:00,500",
		"2026-11-02 08:00:00.500+00:00", "2026-11-02 08:00:00.5 +0000 UTC", "1793606400.5", "1793606400500", "1793606400500000", "1793606400500000000", "1.7936064005e9", " 1793606400.5 "} {
		if got, ok := instant(s); !ok || got != want {
			t.Errorf("%q = %v, %v; want %v", s, time.Unix(0, got).UTC(), ok, time.Unix(0, want).UTC())
		}
	}
	for _, s := range []string{"02/Nov/2026:08:00:00 +0000", "Mon, 02 Nov 2026 08:00:00 GMT", "2026/11/02 08:00:00"} {
		if got, ok := instant(s); !ok || got != want-500_000_000 {
			t.Errorf("%q = %v, %v", s, time.Unix(0, got).UTC(), ok)
		}
	}
	for _, s := range []string{"", "0", "-1", "2026", "now", "1999-12-31T00:00:00Z", "9999-12-31T00:00:00Z", "1e30", "12:00", "99999999999"} {
		if got, ok := instant(s); ok {
			t.Errorf("%q = %v, want none", s, time.Unix(0, got).UTC())
		}
	}
}

// Sums that do not fit are noticed, in whatever order they come.
func TestSpending(t *testing.T) {
	var a, b, all spending
	for range 80_000 {
		a.add(maxCost)
	}
	for range 20_000 {
		b.add(maxCost)
	}
	a.add(-1)
	all.join(b)
	if all.join(spending{}); all.over || all != b {
		t.Errorf("%+v, want %+v", all, b)
	}
	all.join(a)
	if !all.over || all.paid != 100_001 || all.unpriced != 1 {
		t.Errorf("%+v, want it to be over", all)
	}
	for range 20_000 {
		a.add(maxCost)
	}
	if !a.over {
		t.Errorf("%+v, want it to be over", a)
	}
	n := counting{report: &Report{}, jobs: map[string]*Job{}, price: a}
	if err := n.total(&tally{}); err == nil {
		t.Error("a sum that does not fit is reported")
	}
}
