package simulate

import (
	"math"
	"strconv"
	"time"
)

// chance decides everything that a seed decides. It is no sequence but a function of what is asked about, so that the order in which
// goroutines ask at one instant decides nothing, and what is taken out of a history leaves the rest as it is.
type chance uint64

func (c chance) of(what ...string) uint64 {
	h := uint64(c)*0x9e3779b97f4a7c15 + 0xcbf29ce484222325
	for _, w := range what {
		for i := range len(w) {
			h = (h ^ uint64(w[i])) * 0x100000001b3
		}
		h = (h ^ 0xff) * 0x100000001b3
	}
	return mix(h)
}

func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// below is a number from 0 below n.
func (c chance) below(n int, what ...string) int { return int(c.of(what...) % uint64(n)) }

// likely is true with probability p.
func (c chance) likely(p float64, what ...string) bool {
	return float64(c.of(what...))/math.MaxUint64 < p
}

// between is a duration from lo up to hi, to the nanosecond.
func (c chance) between(lo, hi time.Duration, what ...string) time.Duration {
	return lo + time.Duration(c.of(what...)%uint64(hi-lo+1))
}

// jitter is what jitter.Below is decided by: the same for whoever asks at the same instant.
func (c chance) jitter(below int64) int64 {
	return int64(c.of("jitter", strconv.FormatInt(time.Now().UnixNano(), 36), strconv.FormatInt(below, 36)) % uint64(below))
}
