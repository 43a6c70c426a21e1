package main

import (
	"math"
	"slices"
	"testing"
)

func TestMessages(t *testing.T) {
	ms, distinct := messages(5000, 1024, 0.1, 1)
	again, _ := messages(5000, 1024, 0.1, 1)
	if !slices.Equal(ms, again) {
		t.Error("the same seed makes other messages")
	}
	seen := map[string]doc{}
	for i, m := range ms {
		key := m.JobKey().String()
		if first, ok := seen[key]; ok && first != m {
			t.Fatalf("message %d has the key of another one and is not equal to it", i)
		}
		seen[key] = m
	}
	if len(seen) != distinct {
		t.Errorf("%d distinct keys, said to be %d", len(seen), distinct)
	}
	if repeated := float64(len(ms)-distinct) / float64(len(ms)); math.Abs(repeated-0.1) > 0.02 {
		t.Errorf("%.3f of the messages repeat a key, want 0.1", repeated)
	}
	if _, distinct := messages(100, 1024, 0, 1); distinct != 100 {
		t.Errorf("%d keys of 100 messages without duplicates", distinct)
	}
}

func TestParse(t *testing.T) {
	o, err := parse(modeDrain, []string{"-cloud", "-sys", "naive,paidonce"})
	if err != nil || o.fsync != 1e6 || o.trip != 5e5 || !slices.Equal(o.systems, []string{"naive", "paidonce"}) {
		t.Errorf("parse: %+v, %v", o, err)
	}
	if _, err := parse(modeDrain, []string{"-sys", "nobody"}); err == nil {
		t.Error("a system that is not there is taken")
	}
	if o, err := parse(modeInflight, []string{"-n", "1000"}); err != nil || o.handlers != 1000 || o.repeated != 0 {
		t.Errorf("parse: %+v, %v", o, err)
	}
}
