package simulate

import (
	"flag"
	"fmt"
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

// The same seed is the same history, unless what else runs on the machine made the runtime take the processor from a goroutine
// in the middle of an instant: then another is first. So one of a few more plays has to be the first again. Under the race
// detector the runtime runs goroutines in random order, and what is compared is that both hold what they must.
func TestSame(t *testing.T) {
	for s := range uint64(10) {
		first := play(t, 1000+s, nil, mutant{})
		if raced {
			if again := play(t, 1000+s, nil, mutant{}); len(first.violations)+len(again.violations) > 0 {
				t.Errorf("seed %d: %q %q", 1000+s, first.violations, again.violations)
			}
			continue
		}
		const plays = 8
		var differs string
		for range plays {
			if differs = difference(first.lines, play(t, 1000+s, nil, mutant{}).lines); differs == "" {
				break
			}
		}
		if differs != "" {
			t.Errorf("seed %d is another history in each of %d plays: %s", 1000+s, plays, differs)
		}
	}
}

// difference is the first line in which two histories are not the same.
func difference(one, two []string) string {
	for i := range max(len(one), len(two)) {
		if a, b := append(one, "its end")[min(i, len(one))], append(two, "its end")[min(i, len(two))]; a != b {
			return fmt.Sprintf("line %d is\n%s\nand\n%s", i, a, b)
		}
	}
	return ""
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
