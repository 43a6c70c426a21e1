package simulate

import (
	"flag"
	"os"
	"runtime"
	"testing"
	"time"
)

var (
	seeds = flag.Int("seeds", 150, "how many histories to play")
	one   = flag.Uint64("seed", 0, "play this one history, and show it")
	from  = flag.Uint64("from", 1, "the first of the histories to play")
)

// One processor: goroutines that can run at the same instant run in an order that the runtime does not choose anew each time.
func TestMain(m *testing.M) {
	flag.Parse()
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}

// The five guarantees hold in every history.
func TestSeeds(t *testing.T) {
	if *one != 0 {
		o := play(t, *one, nil, mutant{})
		t.Log(o.report(*one))
		for _, v := range o.violations {
			t.Error(v)
		}
		return
	}
	began, requests, faults := time.Now(), 0, 0
	for s := *from; s < *from+uint64(*seeds) && !t.Failed(); s++ {
		o := play(t, s, nil, mutant{})
		requests, faults = requests+o.requests, faults+len(o.misfortunes)+len(o.plan.events)
		if len(o.violations) > 0 {
			small, _ := shrink(t, s, mutant{}, o)
			t.Errorf("%s\nplay the whole of it: go test ./internal/simulate -run TestSeeds -v -seed %d", small.report(s), s)
		}
	}
	took := time.Since(began)
	t.Logf("%d histories with %d requests and %d faults in %s: %.0f a minute", *seeds, requests, faults, took.Round(time.Millisecond), float64(*seeds)/took.Minutes())
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
