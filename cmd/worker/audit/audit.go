// Package audit looks for paid calls that were made more than once in logs of model calls, one JSON object a
// line. It needs nothing of paidonce to have run: it is what a team can use before it adopts anything.
//
// Two calls are the same if job, entity, prompt version and input are. The second and later ones that
// were paid are repeats, and what they cost is wasted. Counts and sums are exact whatever the size of the
// logs; about 200 MB of memory are enough, since paid calls are sorted in a temporary file once
// they no longer fit.
package audit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/paidonce/paidonce/ledger"
)

// Options say how logs are read.
type Options struct {
	Fields Fields
	Price  Price  // for calls whose line has no cost; nil: their cost is not known
	Temp   string // folder of the temporary file; "": the system's
	Top    int    // how many of the worst calls are reported
	Memory int    // bytes of records that are held before they go to the file; 0: 16 MiB

	// Progress is called after every half megabyte or so, and may take its time. nil: nobody asks.
	Progress func(Progress)
}

// Progress is how far an audit is.
type Progress struct {
	Read, Size int64 // bytes of the sources as they are stored; Size 0: not known
	Calls      int64
}

const (
	defaultMemory = 16 << 20
	maxFaults     = 5
	maxNames      = 40
)

// Run reads the sources and reports. An error beside a report says what is missing in it: a source that
// broke off (PO561), or most of the lines (PO565). Without one nothing could be told.
func Run(ctx context.Context, sources []Source, o Options) (*Report, error) {
	a := &auditor{Options: o, sources: sources, sorter: sorter{folder: cmp.Or(o.Temp, os.TempDir()), memory: cmp.Or(o.Memory, defaultMemory)}}
	for _, s := range sources {
		if a.size += s.Size; s.Size == 0 {
			a.size = -1 << 62
		}
	}
	r, err := a.run(ctx)
	return r, errors.Join(err, a.sorter.close())
}

type auditor struct {
	Options
	sources []Source
	size    int64 // below 0: not known
	read    atomic.Int64
	sorter  sorter
}

// tally is what was found in some lines.
type tally struct {
	report       Report // its counts, faults and times
	unidentified spending
	records      []byte
	paths        map[path]int64
	names        []string // fields of the first line that tells of no call, or not what it was about
	namesAt      uint64
}

func (a *auditor) run(ctx context.Context) (*Report, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	all := &tally{paths: map[path]int64{}}
	broken := a.parse(ctx, func(t *tally) {
		if ctx.Err() != nil {
			return
		}
		if err := a.take(all, t); err != nil {
			cancel(err)
		}
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r := &all.report
	if r.Calls == 0 {
		return nil, cmp.Or(broken, a.nothing(all))
	}
	n := &counting{report: r, top: a.Top, jobs: map[string]*Job{}, price: all.unidentified}
	if err := a.sorter.each(func(rec []byte) error { return errors.Join(n.record(rec), ctx.Err()) }); err != nil {
		return nil, err
	}
	n.finish()
	if r.Distinct == 0 && r.Unidentified > 0 {
		return nil, cmp.Or(broken, a.nothing(all))
	}
	if err := n.total(all); err != nil {
		return nil, err
	}
	if r.BadLines > r.Lines/2 {
		broken = errors.Join(broken, fmt.Errorf("PO565 %d of %d lines cannot be read, so that the report says little", r.BadLines, r.Lines))
	}
	return r, broken
}

// total completes the report.
func (n *counting) total(all *tally) error {
	if n.price.over {
		return errors.New("PO563 the costs add up to more than nine billion dollars; name a field that holds dollars with --cost")
	}
	r := n.report
	r.Calls -= r.LoggedAgain
	r.Patterns = append([]Pattern{}, n.gaps.patterns()...)
	r.Unpriced = n.price.unpriced
	if n.price.paid == 0 || n.price.unpriced < n.price.paid {
		r.SpentUSD = &n.price.usd
	}
	var wasted Waste
	r.Jobs = []Job{}
	for _, j := range n.jobs {
		wasted.join(j.Waste)
		if j.Repeated > 0 {
			r.Jobs = append(r.Jobs, *j)
		}
	}
	if r.Wasted = wasted.Wasted; r.Repeated == 0 {
		r.WastedUSD = new(ledger.Nano)
	}
	slices.SortFunc(r.Jobs, func(a, b Job) int {
		return cmp.Or(cmp.Compare(b.usd(), a.usd()), cmp.Compare(b.Repeated, a.Repeated), cmp.Compare(a.Job, b.Job))
	})
	r.Top, r.TopByCost = append([]Offender{}, r.Top...), append([]Offender{}, r.TopByCost...)
	r.Faults = append([]Fault{}, r.Faults...)
	r.Fields = []Field{}
	for p, calls := range all.paths {
		r.Fields = append(r.Fields, Field{p.part, p.field, calls})
	}
	slices.SortFunc(r.Fields, func(a, b Field) int {
		return cmp.Or(cmp.Compare(a.Part, b.Part), cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Path, b.Path))
	})
	return nil
}

// nothing says why there is nothing to report.
func (a *auditor) nothing(all *tally) error {
	r := &all.report
	switch {
	case r.Lines == 0:
		return errors.New("PO564 the logs are empty")
	case r.BadLines == r.Lines:
		f := r.Faults[0]
		return fmt.Errorf("PO564 no line is a JSON object; line %d of %s: %s. JSON that is indented, or one array in one line, becomes lines by jq -c 'if type == \"array\" then .[] else . end'", f.Line, f.File, f.Text)
	case r.Calls == 0:
		return fmt.Errorf("PO564 no line tells of a model call; name the fields with --input, --model and --cost. Those of the first line are %s", strings.Join(all.names, ", "))
	}
	return fmt.Errorf("PO564 no line says what its call was about; name the fields with --input, or with --entity and --job. Those of the first line are %s", strings.Join(all.names, ", "))
}

// parse reads all sources and gives what is found in each block to take, one after the other. Its error is what
// sources broke off with.
func (a *auditor) parse(ctx context.Context, take func(*tally)) error {
	blocks, tallies := make(chan block), make(chan *tally)
	var broken []error
	var readers, parsers sync.WaitGroup
	readers.Go(func() {
		defer close(blocks)
		for i, s := range a.sources {
			err := s.blocks(ctx, i, &a.read, func(b block) error {
				select {
				case blocks <- b:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			})
			if err != nil {
				broken = append(broken, err)
			}
		}
	})
	for range runtime.GOMAXPROCS(0) {
		parsers.Go(func() {
			for b := range blocks {
				tallies <- a.block(b)
			}
		})
	}
	readers.Go(func() {
		parsers.Wait()
		close(tallies)
	})
	for t := range tallies {
		take(t)
	}
	readers.Wait()
	return errors.Join(broken...)
}

// take adds what was found in a block. The order of blocks makes no difference.
func (a *auditor) take(all, t *tally) error {
	r, o := &all.report, &t.report
	for _, n := range []struct {
		to *int64
		by int64
	}{
		{&r.Calls, o.Calls}, {&r.Failed, o.Failed}, {&r.Unknown, o.Unknown}, {&r.Cached, o.Cached}, {&r.Unidentified, o.Unidentified},
		{&r.Untimed, o.Untimed}, {&r.Lines, o.Lines}, {&r.OtherLines, o.OtherLines}, {&r.BadLines, o.BadLines},
	} {
		*n.to += n.by
	}
	r.FirstAt, r.LastAt = outer(r.FirstAt, o.FirstAt, -1), outer(r.LastAt, o.LastAt, 1)
	all.unidentified.join(t.unidentified)
	for p, n := range t.paths {
		all.paths[p] += n
	}
	r.Faults = append(r.Faults, o.Faults...)
	slices.SortFunc(r.Faults, func(a, b Fault) int { return cmp.Compare(a.place, b.place) })
	r.Faults = r.Faults[:min(len(r.Faults), maxFaults)]
	if t.names != nil && (all.names == nil || t.namesAt < all.namesAt) {
		all.names, all.namesAt = t.names, t.namesAt
	}
	if a.Progress != nil {
		a.Progress(Progress{a.read.Load(), max(a.size, 0), r.Calls})
	}
	return a.sorter.add(t.records)
}

// outer is the earlier of two times (which -1) or the later (1).
func outer(a, b *time.Time, which int) *time.Time {
	if a == nil || b != nil && b.Compare(*a) == which {
		return b
	}
	return a
}

// block reads the lines of a block.
func (a *auditor) block(b block) *tally {
	t := &tally{paths: map[path]int64{}}
	text, line := b.text, b.first
	for ; len(text) > 0; line++ {
		l := text
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			l, text = text[:i], text[i+1:]
		} else {
			text = nil
		}
		if l = element(l); len(l) > 0 {
			a.line(t, l, b.source, line)
		}
	}
	for _, n := range b.long {
		t.report.Lines++
		a.fault(t, b.source, n, fmt.Sprintf("it is longer than %d MB", maxLine>>20))
	}
	return t
}

// element is a line without white space, and without what an array that has an element a line puts around them.
func element(line []byte) []byte {
	line = bytes.TrimSuffix(bytes.TrimSpace(line), []byte(","))
	if string(line) == "[" || string(line) == "]" {
		return nil
	}
	return line
}

// place orders lines as they stand in the sources.
func place(source int, line int64) uint64 { return uint64(source)<<40 | uint64(line) }

func (a *auditor) fault(t *tally, source int, line int64, text string) {
	t.report.BadLines++
	if len(t.report.Faults) < maxFaults || place(source, line) < t.report.Faults[maxFaults-1].place {
		t.report.Faults = append(t.report.Faults, Fault{a.sources[source].Name, line, text, place(source, line)})
	}
}

// line counts one line.
func (a *auditor) line(t *tally, text []byte, source int, line int64) {
	r := &t.report
	r.Lines++
	c, err := a.Fields.parse(text, a.Price)
	if err != nil {
		a.fault(t, source, line, err.Error())
		return
	}
	if t.names == nil && (c == nil || c.identity == identity{}) {
		t.names, t.namesAt = names(text), place(source, line)
	}
	if c == nil {
		r.OtherLines++
		return
	}
	r.Calls++
	for _, p := range c.paths {
		t.paths[p]++
	}
	if c.at == 0 {
		r.Untimed++
	} else {
		r.FirstAt, r.LastAt = outer(r.FirstAt, moment(c.at), -1), outer(r.LastAt, moment(c.at), 1)
	}
	switch {
	case c.outcome == failed:
		r.Failed++
	case c.outcome == unknown:
		r.Unknown++
	case c.outcome == cached:
		r.Cached++
	case c.identity == identity{}:
		r.Unidentified++
		t.unidentified.add(c.cost)
	default:
		t.records = encode(t.records, c, place(source, line))
	}
}

// names are the fields of a line.
func names(line []byte) []string {
	d, err := read(line)
	if err != nil {
		return nil
	}
	all := slices.Sorted(maps.Keys(d.top))
	all = all[:min(len(all), maxNames)]
	for i, n := range all {
		all[i] = strings.Map(func(r rune) rune {
			if unicode.IsPrint(r) {
				return r
			}
			return unicode.ReplacementChar
		}, n)
	}
	return all
}
