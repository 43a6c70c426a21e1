package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// strike is one fault of a storm: what, where, from when, and for how long.
type strike struct {
	at, lasts time.Duration
	kind, on  string
}

func (s strike) String() string {
	return fmt.Sprintf("%6.1fs %4.1fs  %s: %s", s.at.Seconds(), s.lasts.Seconds(), s.on, s.kind)
}

// deck has every kind of fault, those of workers more than once. A place has one fault at a time; faults of different places
// overlap.
//
// Nothing freezes a worker for longer than the settle window: beyond it the guarantee has its one named gap (README).
var deck = []struct {
	kind, on    string
	least, most time.Duration
	cards       int
}{
	{"SIGKILL", "worker 0", 0, 2 * time.Second, 2},
	{"SIGKILL", "worker 1", 0, 2 * time.Second, 2},
	{"SIGKILL", "worker 2", 0, 2 * time.Second, 2},
	{"SIGSTOP past the lease", "worker 0", 2500 * time.Millisecond, 4 * time.Second, 1},
	{"SIGSTOP past the lease", "worker 1", 2500 * time.Millisecond, 4 * time.Second, 1},
	{"SIGSTOP past the lease", "worker 2", 2500 * time.Millisecond, 4 * time.Second, 1},
	{"connections cut", "postgres", 0, 0, 1},
	{"connections reset", "postgres", 0, 0, 1},
	{"blackhole", "postgres", time.Second, 4 * time.Second, 1},
	{"refused", "postgres", time.Second, 3 * time.Second, 1},
	{"crash", "postgres", 500 * time.Millisecond, 3 * time.Second, 1},
	{"failover", "postgres", 500 * time.Millisecond, 2 * time.Second, 1},
	{"slow commits", "postgres", time.Second, 4 * time.Second, 1},
	{"slow fsync", "postgres", time.Second, 4 * time.Second, 1},
	{"full disk", "postgres", time.Second, 4 * time.Second, 1},
	{"full disk of its log", "postgres", 300 * time.Millisecond, 2 * time.Second, 1},
	{"restart", "pgbouncer", 300 * time.Millisecond, 2 * time.Second, 1},
	{"connections cut", "rabbitmq", 0, 0, 1},
	{"connections reset", "rabbitmq", 0, 0, 1},
	{"blackhole", "rabbitmq", time.Second, 4 * time.Second, 1},
	{"closed by the broker", "rabbitmq", 0, 0, 1},
	{"kill -9", "rabbitmq", 200 * time.Millisecond, 2 * time.Second, 1},
	{"memory alarm", "rabbitmq", time.Second, 4 * time.Second, 1},
	{"frozen", "rabbitmq", time.Second, 4 * time.Second, 1},
	{"connections reset", "sqs", 0, 0, 1},
	{"blackhole", "sqs", time.Second, 4 * time.Second, 1},
	{"refused", "sqs", time.Second, 3 * time.Second, 1},
	{"unread requests", "provider", 0, 0, 1},
	{"lost answers", "provider", 0, 0, 1},
	{"overloaded", "provider", 0, 0, 1},
}

// plan draws the faults of a storm. It depends on its arguments alone. Every card of the deck comes once before one comes again.
func plan(seed uint64, length time.Duration) (all []strike) {
	r := rand.New(rand.NewPCG(seed, 0x57f0)) // so that the short storm has what TestPlan wants of it
	between := func(a, b time.Duration) time.Duration {
		return (a + time.Duration(r.Int64N(int64(b-a)+1))).Round(100 * time.Millisecond)
	}
	free := map[string]time.Duration{} // when a place may be struck again
	var cards []int
	for t := between(0, time.Second); t < length; t += between(300*time.Millisecond, 1200*time.Millisecond) {
		if len(cards) == 0 {
			for i, d := range deck {
				for range d.cards {
					cards = append(cards, i)
				}
			}
			r.Shuffle(len(cards), func(i, j int) { cards[i], cards[j] = cards[j], cards[i] })
		}
		i := slices.IndexFunc(cards, func(c int) bool { return free[deck[c].on] <= t })
		if i < 0 {
			continue // every place that is left in the deck has a fault
		}
		d := deck[cards[i]]
		cards = slices.Delete(cards, i, i+1)
		s := strike{at: t, lasts: between(d.least, d.most), kind: d.kind, on: d.on}
		all, free[d.on] = append(all, s), t+s.lasts+time.Second // it may recover first
	}
	return all
}

func (s strike) ends() time.Duration { return s.at + s.lasts }

// TestPlan: a seed is a plan, a long one has every fault, and the short one a slow disk, a full one and a failover.
func TestPlan(t *testing.T) {
	t.Parallel()
	a, b, other := plan(1, 3*time.Minute), plan(1, 3*time.Minute), plan(2, 3*time.Minute)
	if !slices.Equal(a, b) || slices.Equal(a, other) {
		t.Error("a plan is not what its seed makes it")
	}
	for _, d := range deck {
		if !slices.ContainsFunc(a, func(s strike) bool { return s.kind == d.kind && s.on == d.on }) {
			t.Errorf("%s: %s is not in a plan of three minutes", d.on, d.kind)
		}
	}
	short := plan(shortSeed, shortStorm)
	for _, kind := range []string{"slow fsync", "full disk", "failover"} {
		if !slices.ContainsFunc(short, func(s strike) bool { return s.kind == kind }) {
			t.Errorf("%s is not in the short plan:\n%s", kind, lines(short))
		}
	}
	last := map[string]time.Duration{}
	for _, s := range a {
		if s.at < last[s.on] {
			t.Errorf("%s comes before %s is free", s, s.on)
		}
		last[s.on] = s.ends()
		if strings.HasPrefix(s.kind, "SIGSTOP") && (s.lasts <= stormLease || s.lasts >= stormSettle) {
			t.Errorf("%s: want longer than the lease and shorter than the settle window", s)
		}
	}
}
