package ledger

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Nano is money: billionths of a US dollar. Money is never a float; nine decimal
// places hold the price of a single token of the cheapest model exactly.
// An amount that nobody knows is a nil *Nano, never zero.
type Nano int64

// USD is one dollar.
const USD Nano = 1_000_000_000

// String prints decimal dollars without trailing zeros: "0.001234", "12", "-0.5".
func (n Nano) String() string {
	sign, u := "", uint64(n)
	if n < 0 {
		sign, u = "-", -u // two's complement: right for the smallest value too
	}
	whole, frac := u/uint64(USD), u%uint64(USD)
	if frac == 0 {
		return sign + strconv.FormatUint(whole, 10)
	}
	return sign + strconv.FormatUint(whole, 10) + "." + strings.TrimRight(fmt.Sprintf("%09d", frac), "0")
}

// MarshalText prints the amount as String does, so JSON shows it as a string.
func (n Nano) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (n *Nano) UnmarshalText(b []byte) error {
	v, err := ParseUSD(string(b))
	if err == nil {
		*n = v
	}
	return err
}

// ParseUSD reads decimal dollars with up to nine decimal places ("0.25"). It
// refuses exponents, signs other than a leading minus, and what does not fit.
func ParseUSD(s string) (Nano, error) {
	digits, neg := strings.CutPrefix(s, "-")
	whole, frac, dotted := strings.Cut(digits, ".")
	if whole == "" || len(frac) > 9 || (dotted && frac == "") || !allDigits(whole) || !allDigits(frac) {
		return 0, fmt.Errorf("PO220 %q is no amount in dollars: write digits with up to nine decimals, such as 0.25", s)
	}
	w, err := strconv.ParseInt(whole, 10, 64)
	f, _ := strconv.ParseInt((frac + "000000000")[:9], 10, 64)
	if err != nil || w > (math.MaxInt64-f)/int64(USD) {
		return 0, fmt.Errorf("PO220 %q dollars is out of range", s)
	}
	v := Nano(w*int64(USD) + f)
	if neg {
		v = -v
	}
	return v, nil
}

func allDigits(s string) bool {
	for _, c := range s {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}
