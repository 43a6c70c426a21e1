package simulate

import (
	"flag"
	"os"
	"runtime"
	"testing"
	"time"
)

var (
	seeds = flag.Int("seeds", 50, "how many histories to play")
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
	began, requests, faults, ends := time.Now(), 0, 0, map[string]int{}
	for s := *from; s < *from+uint64(*seeds) && !t.Failed(); s++ {
		o := play(t, s, nil, mutant{})
		requests, faults = requests+o.requests, faults+len(o.misfortunes)+len(o.plan.events)
		for what, n := range o.ends {
			ends[what] += n
		}
		if len(o.violations) > 0 {
			small, _ := shrink(t, s, mutant{}, o)
			t.Errorf("%s\nplay the whole of it: go test ./internal/simulate -run TestSeeds -v -seed %d", small.report(s), s)
		}
	}
	took := time.Since(began)
	t.Logf("%d histories with %d requests and %d faults in %s: %.0f a minute", *seeds, requests, faults, took.Round(time.Millisecond), float64(*seeds)/took.Minutes())
	t.Logf("what became of jobs, and by which rules: %v", ends)
}

// The same seed is the same history. Under the race detector it is nearly the same: there the runtime runs goroutines in
// random order, and what is compared is that both hold what they must.
func TestSame(t *testing.T) {
	for s := range uint64(10) {
		one, two := play(t, 1000+s, nil, mutant{}), play(t, 1000+s, nil, mutant{})
		if raced {
			if len(one.violations)+len(two.violations) > 0 {
				t.Errorf("seed %d: %q %q", 1000+s, one.violations, two.violations)
			}
			continue
		}
		for i, l := range one.lines {
			if i >= len(two.lines) || two.lines[i] != l {
				t.Errorf("seed %d differs at line %d of %d and %d:\n%s\n%s", 1000+s, i, len(one.lines), len(two.lines), l, append(two.lines, "")[min(i, len(two.lines))])
				break
			}
		}
	}
}

// Histories are about something: jobs end in every way, are held, replayed, and are decided about by a person.
func TestVariety(t *testing.T) {
	got := map[string]int{}
	for s := range uint64(30) {
		for what, n := range play(t, 2000+s, nil, mutant{}).ends {
			got[what] += n
		}
	}
	t.Log(got)
	for _, what := range []string{"done", "failed", "cancelled", "J3", "J4", "J8", "J9", "J13", "J16", "J18", "J18r", "held", "step"} {
		if got[what] == 0 {
			t.Errorf("there is no %s in any history: %v", what, got)
		}
	}
}
