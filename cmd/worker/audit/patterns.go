package audit

import (
	"fmt"
	"time"
)

// The kinds of time patterns, by how long after the paid call before it a repeat was made.
const (
	AtOnce  = "at_once" // within a second
	Soon    = "soon"    // within ten seconds
	Every   = "every"   // a period, again and again for the same call: a redelivery or a schedule
	After   = "after"   // a period, mostly once: a client that stopped waiting, or a redelivery
	Later   = "later"   // at no time in particular
	Untimed = "untimed" // the log does not say when
)

// Pattern is what many repeats have in common in time.
type Pattern struct {
	Kind    string `json:"pattern"`
	Seconds int64  `json:"seconds"` // the period; 0: the kind has none
	Waste
	Text string `json:"text"` // what it looks like
}

// Below onceLimit and soonLimit intervals are not compared with each other; from minuteBins on they are to the minute,
// and from binLimit on they are no pattern.
const (
	onceLimit  = time.Second
	soonLimit  = 10 * time.Second
	minuteBins = time.Hour
	binLimit   = 48 * time.Hour
	bins       = int(minuteBins/time.Second) + int((binLimit-minuteBins)/time.Minute)
)

// Of a period there must be so many repeats, and so many times more than lie before it and behind it in as much time.
const (
	fewest    = 5
	outstands = 4
)

// intervals gathers when repeats were made.
type intervals struct {
	once, soon, later, untimed Waste
	bins                       [bins]interval
}

// interval is repeats that came after about the same time.
type interval struct {
	Waste
	series int64 // those that came after the same time as the repeat before them
}

func binOf(d time.Duration) int {
	if d < minuteBins {
		return int(d / time.Second)
	}
	return int(minuteBins/time.Second) + int((d-minuteBins)/time.Minute)
}

// start is the shortest time of a bin.
func start(bin int) time.Duration {
	if s := int(minuteBins / time.Second); bin >= s {
		return minuteBins + time.Duration(bin-s)*time.Minute
	}
	return time.Duration(bin) * time.Second
}

// add notes a repeat that was made after gap, and the one before it after last; -1: not known.
func (g *intervals) add(gap, last time.Duration, c *call) {
	switch {
	case gap < 0:
		g.untimed.add(c)
	case gap < onceLimit:
		g.once.add(c)
	case gap < soonLimit:
		g.soon.add(c)
	case gap >= binLimit:
		g.later.add(c)
	default:
		b := &g.bins[binOf(gap)]
		b.add(c)
		if last >= 0 && (gap-last).Abs() <= max(2*time.Second, gap/20) {
			b.series++
		}
	}
}

// patterns are all that were found, each repeat in one of them.
func (g *intervals) patterns() []Pattern {
	var all []Pattern
	say := func(kind, text string, w Waste) {
		if w.Repeated > 0 {
			all = append(all, Pattern{Kind: kind, Waste: w, Text: text})
		}
	}
	say(AtOnce, "two workers received it, or it was submitted twice", g.once)
	say(Soon, "a client's own retry", g.soon)
	for {
		from, to, ok := g.period()
		if !ok {
			break
		}
		all = append(all, g.take(from, to))
	}
	for i := range g.bins {
		g.later.join(g.bins[i].Waste)
	}
	say(Later, "no pattern: redrives, re-runs, people asking again", g.later)
	say(Untimed, "the log does not say when", g.untimed)
	return all
}

// period finds the bins in which most repeats lie that outstand the time around them.
func (g *intervals) period() (from, to int, ok bool) {
	var until [bins + 1]int64 // repeats before each bin
	for i := range g.bins {
		until[i+1] = until[i] + g.bins[i].Repeated
	}
	most := int64(fewest - 1)
	for i := binOf(soonLimit); i < bins; i++ {
		end := min(max(binOf(min(start(i)+window(start(i)), binLimit-1)), i+3), bins)
		n := until[end] - until[i]
		if n < most || n < fewest || g.bins[i].Repeated == 0 {
			continue
		}
		near, far := binOf(start(i)/2), binOf(min(2*start(i), binLimit-1))+1
		before, behind := until[i]-until[near], until[far]-until[end]
		if width := seconds(i, end); outstanding(n, width, before, seconds(near, i)) && outstanding(n, width, behind, seconds(end, far)) {
			from, to, ok, most = i, end, true, n
		}
	}
	return from, to, ok
}

// outstanding reports whether n repeats in width seconds are more than what the others, in a room of so many seconds,
// would come to; where there is no room there is nothing to compare with.
func outstanding(n, width, others, room int64) bool {
	return room == 0 || n*room > outstands*others*width+(fewest-1)*room
}

// window is how far repeats with a period may lie apart, three bins at least. A wide one would make a period
// of a few that lie together by chance.
func window(period time.Duration) time.Duration {
	return max(min(period/20, time.Minute), period/100)
}

// seconds is how long the bins are together.
func seconds(from, to int) int64 { return int64((start(to) - start(from)) / time.Second) }

// take takes a period and the tail behind it (a message that is visible again waits for a worker)
// out of the bins.
func (g *intervals) take(from, to int) Pattern {
	var all interval
	median, half := from, int64(0)
	for i := from; i < to; i++ {
		half += g.bins[i].Repeated
	}
	n := half
	for i := from; i < to; i++ {
		if half -= 2 * g.bins[i].Repeated; half <= 0 {
			median = i
			break
		}
	}
	tail := to
	for tail < bins && start(tail) < start(from)*3/2 && g.bins[tail].Repeated*20 >= n {
		tail++
	}
	for i := from; i < tail; i++ {
		all.join(g.bins[i].Waste)
		all.series += g.bins[i].series
		g.bins[i] = interval{}
	}
	p := Pattern{Kind: After, Seconds: int64(start(median) / time.Second), Waste: all.Waste}
	for _, k := range known {
		if k.period >= start(from) && k.period < start(to) {
			p.Seconds = int64(k.period / time.Second)
			break
		}
	}
	if all.series*10 >= all.Repeated {
		p.Kind = Every
	}
	p.Text = explain(p.Kind, time.Duration(p.Seconds)*time.Second)
	return p
}

// known are the periods that people and programs set, and what more there is to say of some.
var known = []struct {
	period time.Duration
	every  string // in place of the usual text; "" is that
	after  string
}{
	{30 * time.Second, "redelivery: the visibility timeout is 30 s, SQS's default", "redelivery: 30 s is SQS's default visibility timeout"},
	{time.Minute, "", ""},
	{90 * time.Second, "", ""},
	{2 * time.Minute, "", ""},
	{3 * time.Minute, "", ""},
	{5 * time.Minute, "", ""},
	{10 * time.Minute, "", "a client stopped waiting (the SDKs of OpenAI and Anthropic do then), or a visibility timeout"},
	{15 * time.Minute, "", ""},
	{20 * time.Minute, "", ""},
	{30 * time.Minute, "redelivery: RabbitMQ's consumer_timeout is 30 min; or a visibility timeout", "redelivery: 30 min is RabbitMQ's default consumer_timeout; or a visibility timeout"},
	{time.Hour, "something that runs every hour; or a visibility timeout of 1 h", ""},
	{2 * time.Hour, "", ""},
	{6 * time.Hour, "", ""},
	{12 * time.Hour, "redelivery: SQS hides a message for 12 h at most", "redelivery: SQS hides a message for 12 h at most"},
	{24 * time.Hour, "something that runs every day", "something that runs every day"},
}

// explain says what a period looks like.
func explain(kind string, period time.Duration) string {
	for _, k := range known {
		switch {
		case k.period != period:
		case kind == Every && k.every != "":
			return k.every
		case kind == After && k.after != "":
			return k.after
		}
	}
	if kind == Every {
		return fmt.Sprintf("redelivery: the visibility timeout, or a lease, is %s", Period(period))
	}
	return fmt.Sprintf("a client stopped waiting and asked again, or a visibility timeout of %s", Period(period))
}

// Period prints a period as people say it: "30 s", "10 min", "12 h".
func Period(d time.Duration) string {
	switch {
	case d >= time.Hour && d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d >= 2*time.Minute && d%time.Minute == 0:
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%d s", d/time.Second)
}
