package main

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestPercentile(t *testing.T) {
	for _, c := range []struct {
		values []float64
		p      float64
		want   float64
	}{
		{[]float64{3, 1, 2}, 50, 2},
		{[]float64{4, 3, 1, 2}, 50, 2},
		{[]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 99, 10},
		{[]float64{7}, 50, 7},
	} {
		if got := percentile(c.values, c.p); got != c.want {
			t.Errorf("percentile %g of %v is %g, want %g", c.p, c.values, got, c.want)
		}
	}
	if !math.IsNaN(percentile(nil, 50)) {
		t.Error("nothing has a median")
	}
}

// turnAt is a turn of 100 jobs at a rate.
func turnAt(rate float64, fsyncs float64) outcome {
	return outcome{jobs: 100, messages: 100, report: report{Calls: 100, Done: 100 / rate}, fsyncs: fsyncs, postgres: 1}
}

func TestJudge(t *testing.T) {
	o := options{mode: modeDrain, systems: []string{"paidonce", "naive", "river"}, check: true}
	for _, c := range []struct {
		name         string
		ours, fsyncs float64
		want         string
		err          error
	}{
		{"all is well", 3000, 12, "against naive: 3, target 3, floor 2: met", nil},
		{"less than hoped for", 2500, 12, "against naive: 2.5, target 3, floor 2: missed, within the floor", nil},
		{"too slow", 1900, 12, "against naive: 1.9, target 3, floor 2: BEYOND THE FLOOR", errFloor},
		{"too many fsyncs", 3000, 25, "fsyncs a job: 0.25, target 0.12, floor 0.2: BEYOND THE FLOOR", errFloor},
	} {
		t.Run(c.name, func(t *testing.T) {
			ours := turnAt(c.ours, c.fsyncs)
			ours.postgres = 0.3
			var text strings.Builder
			err := table{o, map[string][]outcome{"paidonce": {ours}, "naive": {turnAt(1000, 50)}, "river": {turnAt(1900, 2)}}}.judge(&text)
			if !errors.Is(err, c.err) || !strings.Contains(text.String(), c.want) {
				t.Errorf("%v, want %v and %q\n%s", err, c.err, c.want, text.String())
			}
			if strings.Contains(text.String(), "JobCompleteTx") || strings.Contains(text.String(), "cloud") {
				t.Errorf("a target of something that was not measured:\n%s", text.String())
			}
		})
	}
}

func TestPrint(t *testing.T) {
	var text strings.Builder
	table{options{mode: modeDrain, systems: []string{"paidonce", "naive"}}, map[string][]outcome{
		"paidonce": {turnAt(300, 0), turnAt(200, 0), turnAt(100, 0)}, "naive": {turnAt(50, 0), turnAt(100, 0), turnAt(150, 0)}}}.print(&text)
	for _, want := range []string{"200", "100..300", "2.00x", "50..150"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %s in\n%s", want, text.String())
		}
	}
}
