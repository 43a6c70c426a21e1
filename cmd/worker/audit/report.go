package audit

import (
	"cmp"
	"encoding/hex"
	"math"
	"slices"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// Report is what the logs tell. Calls = Distinct + Repeated + Failed + Unknown + Cached + Unidentified.
type Report struct {
	Calls    int64 `json:"calls"`
	Distinct int64 `json:"distinct"` // paid calls that differ in job, entity, prompt version or input
	Repeated int64 `json:"repeated"` // paid calls that had been made and paid before
	Wasted
	SpentUSD *ledger.Nano `json:"spent_usd"` // for all paid calls whose cost is known; null: for none it is
	Unpriced int64        `json:"unpriced"`  // paid calls whose cost is not known

	Failed       int64 `json:"failed"`       // refused, or gone wrong for certain
	Unknown      int64 `json:"unknown"`      // ended without an answer; may have been charged for
	Cached       int64 `json:"cached"`       // answered out of a cache
	Unidentified int64 `json:"unidentified"` // paid calls of which the line says neither entity nor input
	Untimed      int64 `json:"untimed"`      // calls of which the line says no time that can be read
	LoggedAgain  int64 `json:"logged_again"` // lines about a call that another line tells of; not in Calls

	Lines      int64 `json:"lines"`
	OtherLines int64 `json:"other_lines"` // JSON, but about no call
	BadLines   int64 `json:"bad_lines"`   // that could not be read

	FirstAt *time.Time `json:"first_at"`
	LastAt  *time.Time `json:"last_at"`

	Patterns  []Pattern  `json:"patterns"`
	Jobs      []Job      `json:"jobs"`        // with repeats, those that wasted most first
	Top       []Offender `json:"top"`         // calls that were repeated most
	TopByCost []Offender `json:"top_by_cost"` // calls whose repeats cost most
	Fields    []Field    `json:"fields"`      // that were used
	Faults    []Fault    `json:"faults"`      // the first lines that could not be read
}

// Wasted is what repeats cost.
type Wasted struct {
	WastedUSD      *ledger.Nano `json:"wasted_usd"`      // null: of none of them the cost is known
	WastedUnpriced int64        `json:"wasted_unpriced"` // repeats whose cost is not known
	WastedTokens   int64        `json:"wasted_tokens"`   // in and out, as far as the log has them
}

// Waste is some repeats and what they cost.
type Waste struct {
	Repeated int64 `json:"repeated"`
	Wasted
}

func (w *Waste) add(c *call) {
	w.Repeated++
	w.WastedTokens += max(c.tokens, 0)
	if c.cost < 0 {
		w.WastedUnpriced++
		return
	}
	if w.WastedUSD == nil {
		w.WastedUSD = new(ledger.Nano)
	}
	*w.WastedUSD += ledger.Nano(c.cost)
}

func (w *Waste) join(o Waste) {
	w.Repeated += o.Repeated
	w.WastedTokens += o.WastedTokens
	w.WastedUnpriced += o.WastedUnpriced
	if o.WastedUSD != nil {
		w.WastedUSD = new(*o.WastedUSD + w.usd())
	}
}

// usd is what is known to be wasted.
func (w *Wasted) usd() ledger.Nano {
	if w.WastedUSD == nil {
		return 0
	}
	return *w.WastedUSD
}

// Job is the repeats of a kind of work.
type Job struct {
	Job   string `json:"job"`   // "" where lines do not say it
	Calls int64  `json:"calls"` // that were paid and say what they are about
	Waste
}

// OtherJobs is the name under which jobs are taken together when there are too many to keep apart:
// whatever the field holds then, it is no kind of work.
const OtherJobs = "(others)"

const maxJobs = 10_000

// Offender is a call that was paid more than once.
type Offender struct {
	Hash   string `json:"hash"` // of job, entity, prompt version and input
	Job    string `json:"job"`
	Entity string `json:"entity"`
	Count  int64  `json:"count"` // times that it was paid
	Waste
	FirstAt *time.Time `json:"first_at"`
	LastAt  *time.Time `json:"last_at"`
}

// Field is a field that lines were read by.
type Field struct {
	Part  string `json:"part"` // time, job, entity, prompt…
	Path  string `json:"path"`
	Calls int64  `json:"calls"` // that have it
}

// Fault is a line that could not be read. Its text is not shown: it may hold a secret.
type Fault struct {
	File string `json:"file"`
	Line int64  `json:"line"`
	Text string `json:"text"`

	place uint64
}

// counting goes through the records in order and counts them.
type counting struct {
	report *Report
	top    int
	price  spending
	gaps   intervals
	jobs   map[string]*Job

	cur  call  // the first paid call of those that are being counted
	size int64 // how many there are; 0: before the first
	last call
	gap  time.Duration // between the last two; -1: not known
	Waste
	answers [64]uint64 // the last answers, to know a line about the same call again
	next    int
}

// spending adds up what was paid.
type spending struct {
	paid, unpriced int64
	usd            ledger.Nano
	over           bool // it does not fit
}

func (s *spending) add(cost int64) {
	s.paid++
	switch {
	case cost < 0:
		s.unpriced++
	case int64(s.usd) > math.MaxInt64-cost:
		s.over = true
	default:
		s.usd += ledger.Nano(cost)
	}
}

func (s *spending) join(o spending) {
	over := s.over || o.over || int64(s.usd) > math.MaxInt64-int64(o.usd)
	*s = spending{s.paid + o.paid, s.unpriced + o.unpriced, s.usd + o.usd, over}
}

// record counts one record.
func (n *counting) record(rec []byte) error {
	c, _ := decode(rec)
	if n.size == 0 || c.identity != n.cur.identity {
		n.finish()
		n.cur, n.size, n.gap, n.Waste = c, 0, -1, Waste{}
		n.answers, n.next = [64]uint64{}, 0
	} else if c.answer != 0 && slices.Contains(n.answers[:], c.answer) {
		n.report.LoggedAgain++
		return nil
	}
	n.answers[n.next%len(n.answers)] = c.answer
	n.next++
	n.price.add(c.cost)
	n.job(c.job).Calls++
	if n.size++; n.size > 1 {
		n.repeat(&c)
	}
	n.last = c
	return nil
}

func (n *counting) repeat(c *call) {
	gap := time.Duration(-1)
	if c.at != 0 && n.last.at != 0 {
		gap = time.Duration(c.at - n.last.at)
	}
	n.gaps.add(gap, n.gap, c)
	n.gap = gap
	n.Waste.add(c)
	n.job(c.job).add(c)
}

func (n *counting) job(name string) *Job {
	j, ok := n.jobs[name]
	if !ok && len(n.jobs) >= maxJobs {
		name = OtherJobs
		j, ok = n.jobs[name]
	}
	if !ok {
		j = &Job{Job: name}
		n.jobs[name] = j
	}
	return j
}

// finish ends the calls that are being counted.
func (n *counting) finish() {
	if n.size == 0 {
		return
	}
	n.report.Distinct++
	if n.size == 1 {
		return
	}
	n.report.Repeated += n.size - 1
	o := Offender{Hash: hex.EncodeToString(n.cur.identity[:]), Job: n.cur.job, Entity: n.cur.entity, Count: n.size,
		Waste: n.Waste, FirstAt: moment(n.cur.at), LastAt: moment(n.last.at)}
	keep(&n.report.Top, n.top, o, byCount)
	keep(&n.report.TopByCost, n.top, o, byCost)
}

// keep puts an offender into a list of the first few.
func keep(list *[]Offender, most int, o Offender, order func(a, b Offender) int) {
	i, _ := slices.BinarySearchFunc(*list, o, order)
	if i < most {
		*list = slices.Insert(*list, i, o)
		*list = (*list)[:min(len(*list), most)]
	}
}

func byCount(a, b Offender) int {
	return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(b.usd(), a.usd()), cmp.Compare(a.Hash, b.Hash))
}

func byCost(a, b Offender) int {
	return cmp.Or(cmp.Compare(b.usd(), a.usd()), byCount(a, b))
}

func moment(ns int64) *time.Time {
	if ns == 0 {
		return nil
	}
	return new(time.Unix(0, ns).UTC())
}
