package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
)

// baseline is the system that the others are compared with.
const baseline = "paidonce"

// table is the outcomes of all turns, by system.
type table struct {
	options
	all map[string][]outcome
}

// jobsPerSecond is the rate at which jobs got their results; in a storm, messages their answers.
func (o outcome) jobsPerSecond() float64 { return float64(o.jobs) / o.Done }

// column is one number of the table.
type column struct {
	name string
	of   func(o outcome) float64
	form string
}

// perJob are microseconds of CPU.
func perJob(seconds func(o outcome) float64) func(outcome) float64 {
	return func(o outcome) float64 { return seconds(o) * 1e6 / float64(o.jobs) }
}

var columns = []column{
	{"jobs/s", outcome.jobsPerSecond, "%.0f"},
	{"acked %", func(o outcome) float64 { return 100 * float64(o.Acked) / float64(o.messages) }, "%.1f"},
	{"p50 ms", func(o outcome) float64 { return o.P50 }, "%.1f"},
	{"p99 ms", func(o outcome) float64 { return o.P99 }, "%.1f"},
	{"fsync/job", func(o outcome) float64 { return o.fsyncs / float64(o.jobs) }, "%.3f"},
	{"WAL B/job", func(o outcome) float64 { return o.wal / float64(o.jobs) }, "%.0f"},
	{"pg us", perJob(func(o outcome) float64 { return o.postgres }), "%.0f"},
	{"broker us", perJob(func(o outcome) float64 { return o.broker }), "%.0f"},
	{"worker us", perJob(func(o outcome) float64 { return o.CPU }), "%.0f"},
	{"conns", func(o outcome) float64 { return o.conns }, "%.0f"},
	{"RSS MB", func(o outcome) float64 { return float64(o.Memory) / 1024 }, "%.0f"},
}

var inflightColumns = []column{
	{"RSS MB", func(o outcome) float64 { return float64(o.resident) / 1024 }, "%.1f"},
	{"KiB/call", func(o outcome) float64 { return float64(o.resident-o.idle) / float64(o.jobs) }, "%.2f"},
	{"conns", func(o outcome) float64 { return o.conns }, "%.0f"},
	{"pg ms/s", func(o outcome) float64 { return o.keeping }, "%.2f"},
	{"renewal ms", func(o outcome) float64 { return percentile(o.Renewals, 50) }, "%.2f"},
}

// print writes the medians, and how the baseline compares: how many times the rate of each.
func (t table) print(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	cs := columns
	if t.mode == modeInflight {
		cs = inflightColumns
	}
	fmt.Fprint(w, "\nsystem\t")
	for _, c := range cs {
		fmt.Fprintf(w, "%s\t", c.name)
	}
	fmt.Fprintf(w, "min..max\t%s is\t\n", baseline)
	for _, name := range t.systems {
		fmt.Fprintf(w, "%s\t", name)
		for _, c := range cs {
			fmt.Fprintf(w, c.form+"\t", t.median(name, c.of))
		}
		all := t.values(name, cs[0].of)
		fmt.Fprintf(w, cs[0].form+".."+cs[0].form+"\t%.2fx\t\n", slices.Min(all), slices.Max(all), t.ratio(name, cs[0].of))
	}
	w.Flush()
}

func (t table) values(name string, of func(outcome) float64) []float64 {
	var all []float64
	for _, o := range t.all[name] {
		all = append(all, of(o))
	}
	return all
}

func (t table) median(name string, of func(outcome) float64) float64 {
	return percentile(t.values(name, of), 50)
}

// ratio is the baseline's median over the other's; NaN where one is missing.
func (t table) ratio(name string, of func(outcome) float64) float64 {
	return t.median(baseline, of) / t.median(name, of)
}

// errFloor: a ratio is below what this project allows itself.
var errFloor = errors.New("a number is beyond its floor")

// judge prints the targets that the measurement speaks of, and whether they are met.
func (t table) judge(to io.Writer) error {
	missed := false
	for _, g := range targets {
		got := g.of(t)
		if g.mode != t.mode || g.cloud != nil && *g.cloud != (t.fsync > 0) || math.IsNaN(got) {
			continue
		}
		word := "met"
		switch better := func(limit float64) bool { return g.least && got >= limit || !g.least && got <= limit }; {
		case !better(g.floor):
			word, missed = "BEYOND THE FLOOR", true
		case !better(g.target):
			word = "missed, within the floor"
		}
		fmt.Fprintf(to, "%s: %.3g, target %g, floor %g: %s\n", g.what, got, g.target, g.floor, word)
	}
	if missed && t.check {
		return errFloor
	}
	return nil
}

// target is what a number should be, and must be.
type target struct {
	what          string
	mode          string
	cloud         *bool // only with, or without, the slow disk; nil: both
	least         bool  // at least; else at most
	target, floor float64
	of            func(t table) float64
}

var targets = []target{
	{"drain, cloud: jobs/s against naive", modeDrain, new(true), true, 5, 3, against("naive")},
	{"drain, fast disk: jobs/s against naive", modeDrain, new(false), true, 3, 2, against("naive")},
	{"drain: jobs/s against River with JobCompleteTx", modeDrain, nil, true, 5, 4, against("rivertx")},
	{"drain: jobs/s against River, asynchronous", modeDrain, nil, true, 1, 0.8, against("river")},
	{"drain: fsyncs a job", modeDrain, nil, false, 0.12, 0.2, own("fsync/job")},
	{"drain: Postgres CPU a job against naive", modeDrain, nil, false, 0.35, 0.5,
		func(t table) float64 { return t.ratio("naive", columnNamed("pg us")) }},
	{"storm: messages/s against naive", modeStorm, nil, true, 2.5, 1.5, against("naive")},
	// Of what a worker writes when it joins, ten thousand duplicates have two bytes each.
	{"storm: WAL bytes a duplicate", modeStorm, nil, false, 4, 10, own("WAL B/job")},
	{"rate: ms added at p50, against naive", modeRate, nil, false, 1, 3,
		func(t table) float64 {
			return t.median(baseline, columnNamed("p50 ms")) - t.median("naive", columnNamed("p50 ms"))
		}},
	{"inflight: connections to Postgres", modeInflight, nil, false, 4, 8, own("conns")},
	{"inflight: KiB of memory a call", modeInflight, nil, false, 8, 12, own("KiB/call")},
	{"inflight: ms of a renewal of the lease", modeInflight, nil, false, 1, 20, own("renewal ms")},
}

func against(name string) func(table) float64 {
	return func(t table) float64 { return t.ratio(name, outcome.jobsPerSecond) }
}

func own(name string) func(table) float64 {
	return func(t table) float64 { return t.median(baseline, columnNamed(name)) }
}

func columnNamed(name string) func(outcome) float64 {
	all := slices.Concat(columns, inflightColumns)
	return all[slices.IndexFunc(all, func(c column) bool { return c.name == name })].of
}

// percentile of the values, the nearest one above; NaN of none.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	return s[min(len(s)-1, int(math.Ceil(p/100*float64(len(s))))-1)]
}
