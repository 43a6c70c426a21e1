package audit

import (
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// decimal reads a decimal number, with an exponent or without, as a whole number of units of
// 10^-places, rounded half away from zero. No float is on the way: logs of Python and
// JavaScript programs print 1.2e-05 and 0.00012345000000000001. false: it is no number, or
// too large for 64 bits.
func decimal(s string, places int) (int64, bool) {
	digits, neg := strings.CutPrefix(s, "-")
	if !neg {
		digits = strings.TrimPrefix(s, "+")
	}
	exp := 0
	if i := strings.IndexAny(digits, "eE"); i >= 0 {
		var err error
		if exp, err = strconv.Atoi(digits[i+1:]); err != nil || exp < -1000 || exp > 1000 {
			return 0, false
		}
		digits = digits[:i]
	}
	whole, frac, _ := strings.Cut(digits, ".")
	if whole == "" && frac == "" || !allDigits(whole) || !allDigits(frac) {
		return 0, false
	}
	n, ok := shift(whole+frac, len(whole)+exp+places)
	if neg {
		n = -n
	}
	return n, ok
}

// shift is the number whose digits these are and whose point stands after so many of them,
// rounded to a whole one.
func shift(digits string, point int) (n int64, ok bool) {
	for i := range max(point, 0) {
		d := byte('0')
		if i < len(digits) {
			d = digits[i]
		} else if n == 0 {
			return 0, true
		}
		hi, lo := bits.Mul64(uint64(n), 10)
		lo, carry := bits.Add64(lo, uint64(d-'0'), 0)
		if hi+carry != 0 || lo > 1<<63-1 {
			return 0, false
		}
		n = int64(lo)
	}
	if point >= 0 && point < len(digits) && digits[point] >= '5' {
		if n == 1<<63-1 {
			return 0, false
		}
		n++
	}
	return n, true
}

func allDigits(s string) bool {
	return strings.Trim(s, "0123456789") == ""
}

// layouts are the ways to write a time that are read, beside seconds, milliseconds,
// microseconds and nanoseconds since 1970. Without a zone it is UTC.
var layouts = []string{
	time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04:05Z0700", "2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00",
	"2006-01-02 15:04:05 Z0700", "2006-01-02 15:04:05 Z0700 MST", "2006/01/02 15:04:05", "02/Jan/2006:15:04:05 Z0700", time.RFC1123, time.RFC1123Z,
}

// The years in which a time is believed, in nanoseconds since 1970: from 2000 to 2200.
const (
	earliest = 946684800 * int64(time.Second)
	latest   = 7258118400 * int64(time.Second)
)

// instant reads a time, in nanoseconds since 1970. The ranges that a number of seconds,
// milliseconds, microseconds and nanoseconds can be in do not overlap.
func instant(s string) (int64, bool) {
	s = strings.TrimSpace(s)
	for places := 9; places >= 0; places -= 3 {
		if ns, ok := decimal(s, places); ok && ns >= earliest && ns < latest {
			return ns, true
		}
	}
	for _, l := range layouts {
		if t, err := time.Parse(l, s); err == nil && t.Year() >= 2000 && t.Year() < 2200 {
			return t.UnixNano(), true
		}
	}
	return 0, false
}
