package simulate

import (
	"flag"
	"testing"
	"time"
)

var (
	seeds = flag.Int("seeds", 150, "how many histories to play")
	first = flag.Uint64("seed", 0, "play this one history, and show it")
	from  = flag.Uint64("from", 1, "the first of the histories to play")
)

func TestSeeds(t *testing.T) {
	if *first != 0 {
		o := play(t, *first, nil, mutant{})
		for _, l := range o.lines {
			t.Log(l)
		}
		for _, v := range o.violations {
			t.Error(v)
		}
		return
	}
	began, requests := time.Now(), 0
	bad := 0
	for s := range uint64(*seeds) {
		o := play(t, *from+s, nil, mutant{})
		requests += o.requests
		if len(o.violations) > 0 {
			t.Errorf("seed %d: %q", *from+s, o.violations)
			if bad++; bad > 20 {
				break
			}
		}
	}
	took := time.Since(began)
	t.Logf("%d histories with %d requests in %s: %.0f a minute", *seeds, requests, took.Round(time.Millisecond), float64(*seeds)/took.Minutes())
}

// The same seed is the same history.
func TestSame(t *testing.T) {
	for s := range uint64(25) {
		one, two := play(t, 1000+s, nil, mutant{}), play(t, 1000+s, nil, mutant{})
		for i, l := range one.lines {
			if i >= len(two.lines) || two.lines[i] != l {
				t.Errorf("seed %d differs at line %d of %d and %d:\n%s\n%s", 1000+s, i, len(one.lines), len(two.lines), l, append(two.lines, "")[min(i, len(two.lines))])
				break
			}
		}
	}
}
