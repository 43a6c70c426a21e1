package audit_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/cmd/worker/audit"
)

// calls are the lines of one call that is made again after each of the gaps.
func calls(b *strings.Builder, n int, gaps ...time.Duration) {
	at := time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Minute)
	line := func() {
		fmt.Fprintf(b, `{"time":"%s","entity":"%d","input":"x","cost":"0.01"}`+"\n", at.Format(time.RFC3339Nano), n)
	}
	line()
	for _, g := range gaps {
		at = at.Add(g)
		line()
	}
}

type found struct {
	kind    string
	seconds int64
	n       int64
}

func patterns(t *testing.T, text string) (all []found) {
	t.Helper()
	r := run(t, options(), text)
	var sum int64
	for _, p := range r.Patterns {
		all = append(all, found{p.Kind, p.Seconds, p.Repeated})
		sum += p.Repeated
		if p.WastedUSD == nil || int64(*p.WastedUSD) != p.Repeated*10_000_000 || p.Text == "" {
			t.Errorf("pattern %+v, want 0.01 USD for each", p)
		}
	}
	if sum != r.Repeated {
		t.Errorf("the patterns have %d of %d repeats", sum, r.Repeated)
	}
	return all
}

func TestPatterns(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	jitter := func(d time.Duration, most time.Duration) time.Duration {
		return d + time.Duration(rng.Int64N(int64(most)))
	}
	const s, m, h = time.Second, time.Minute, time.Hour
	for name, c := range map[string]struct {
		make func(b *strings.Builder)
		want []found
	}{
		"a visibility timeout": {func(b *strings.Builder) {
			for i := range 20 {
				calls(b, i, jitter(30*s, s), jitter(30*s, s), jitter(30*s, s))
			}
		}, []found{{audit.Every, 30, 60}}},
		"one that is set, and hands out late": {func(b *strings.Builder) {
			for i := range 20 {
				calls(b, i, jitter(45*s, 5*s), jitter(45*s, 5*s))
			}
		}, []found{{audit.Every, 46, 40}}},
		"clocks that differ a little": {func(b *strings.Builder) {
			for i := range 20 {
				calls(b, i, jitter(29900*time.Millisecond, 2*s))
			}
		}, []found{{audit.After, 30, 20}}},
		"all kinds": {func(b *strings.Builder) {
			for i := range 30 {
				calls(b, 10*i, 0)
				calls(b, 10*i+1, jitter(0, s))
				calls(b, 10*i+2, jitter(s, 9*s))
				calls(b, 10*i+3, jitter(30*s, s), jitter(30*s, s))
				calls(b, 10*i+4, jitter(10*m, 2*s))
				calls(b, 10*i+5, jitter(12*h, m))
				calls(b, 10*i+6, jitter(h, 40*h))
				calls(b, 10*i+7, jitter(49*h, 400*h))
				calls(b, 10*i+8)
			}
		}, []found{{audit.AtOnce, 0, 60}, {audit.Soon, 0, 30}, {audit.Every, 30, 60}, {audit.After, 600, 30}, {audit.After, 43200, 30}, {audit.Later, 0, 60}}},
		"people": {func(b *strings.Builder) {
			for i := range 500 {
				calls(b, i, jitter(10*s, h))
			}
		}, []found{{audit.Later, 0, 500}}},
		"people over days": {func(b *strings.Builder) {
			for i := range 60 {
				calls(b, i, jitter(h, 40*h))
			}
		}, []found{{audit.Later, 0, 60}}},
		"too few": {func(b *strings.Builder) {
			for i := range 4 {
				calls(b, i, 30*s)
			}
		}, []found{{audit.Later, 0, 4}}},
		"the last second that is compared": {func(b *strings.Builder) {
			for i := range 10 {
				calls(b, i, 48*h-time.Millisecond)
			}
		}, []found{{audit.After, 48*3600 - 60, 10}}},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			c.make(&b)
			got := patterns(t, b.String())
			if fmt.Sprint(sorted(got)) != fmt.Sprint(sorted(c.want)) {
				t.Errorf("patterns %v, want %v", got, c.want)
			}
		})
	}
}

func sorted(f []found) map[found]bool {
	all := map[found]bool{}
	for _, x := range f {
		all[x] = true
	}
	return all
}

// Repeats of which the log says no time are a pattern of their own, and come after those that have one.
func TestUntimed(t *testing.T) {
	line := `{"input":"x","cost":"0.01"%s}` + "\n"
	got := patterns(t, fmt.Sprintf(line+line+line, `,"ts":"soon"`, `,"ts":1762070400`, `,"ts":"1762070430.5"`))
	if fmt.Sprint(got) != fmt.Sprint([]found{{audit.Later, 0, 1}, {audit.Untimed, 0, 1}}) {
		t.Errorf("%v", got)
	}
}

// A call without a time comes after those that have one, wherever it stands.
func TestOrderUntimed(t *testing.T) {
	r := run(t, options(), `{"input":"x","cost":"7"}`+"\n"+`{"ts":1762070400,"input":"x","cost":"2"}`)
	if *r.WastedUSD != *usd(t, "7") {
		t.Errorf("%v USD wasted, want 7", r.WastedUSD)
	}
}

// Lines may stand in any order: the first by time is not the repeat.
func TestOrder(t *testing.T) {
	r := run(t, options(), `{"ts":"2026-11-02 08:00:31","input":"x","cost":"5"}
{"ts":"2026-11-02 08:00:01","input":"x","cost":"3"}`)
	if *r.WastedUSD != *usd(t, "5") || r.Top[0].FirstAt.Second() != 1 {
		t.Errorf("%+v", r)
	}
}

func TestPeriod(t *testing.T) {
	for d, want := range map[time.Duration]string{time.Second: "1 s", 90 * time.Second: "90 s", time.Minute: "60 s", 10 * time.Minute: "10 min", 12 * time.Hour: "12 h", 61 * time.Minute: "61 min"} {
		if got := audit.Period(d); got != want {
			t.Errorf("%v prints %q, want %q", d, got, want)
		}
	}
}
