package protocol

import (
	"bufio"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

var (
	deep   = flag.Bool("deep", false, "one fault more in every scenario, and all scenarios for every guard")
	update = flag.Bool("update", false, "write testdata/guards.txt anew")
)

// large are scenarios of which the short form looks only for what breaks without a guard: a third of all worlds.
var large = []string{"replays", "a budget"}

// scenarios are ordered by what they cost.
var scenarios = []Scenario{
	{Name: "input not kept", Copies: 1, MaxRuns: 2, Faults: 1, NoInput: true, Carry: true},
	{Name: "left to the ledger", Copies: 1, MaxRuns: 2, Faults: 1, Carry: true},
	{Name: "a budget of the day", Copies: 1, MaxRuns: 2, Faults: 1, Day: true},
	{Name: "submitted twice", Submits: 2, MaxRuns: 2, Faults: 1},
	{Name: "two inputs for one key", Copies: 2, MaxRuns: 2, Faults: 1, Mismatch: true},
	{Name: "submitted and sent", Copies: 1, Submits: 1, MaxRuns: 2, Faults: 1},
	{Name: "a person, input not kept", Copies: 1, MaxRuns: 2, Faults: 1, Verbs: 1, NoInput: true},
	{Name: "a person", Copies: 1, MaxRuns: 1, Verbs: 2},
	{Name: "a person and replays", Copies: 1, MaxRuns: 1, Reconcilers: 1, Verbs: 1, Replays: 1},
	{Name: "limits", Submits: 1, MaxRuns: 1, Reconcilers: 1, Faults: 1, FreezesAlone: true, Replays: 2, Calls: 2, Lifetime: true, Refuses: true},
	{Name: "rows for an answer", Copies: 1, MaxRuns: 2, Faults: 1, Applies: true},
	{Name: "rows for one of two answers", Submits: 1, MaxRuns: 2, Verbs: 1, Replays: 1, Reconcilers: 1, Applies: true},
	{Name: "retention", Copies: 1, MaxRuns: 1, Reconcilers: 1, Faults: 1, GivesUp: true, Retain: true},
	{Name: "strays", Copies: 1, MaxRuns: 1, Reconcilers: 1, Faults: 1, Strays: true},
	{Name: "two reconcilers", Copies: 1, MaxRuns: 1, Reconcilers: 2, Faults: 1, Asks: true},
	{Name: "two reconcilers that give up", Copies: 1, MaxRuns: 1, Reconcilers: 2, Faults: 1, FreezesAlone: true, GivesUp: true},
	{Name: "a message and its duplicate", Copies: 2, MaxRuns: 2, Faults: 1, Refuses: true},
	{Name: "one message, held", Copies: 1, MaxRuns: 2, Reconcilers: 1, Faults: 1, Asks: true},
	{Name: "replays", Submits: 1, MaxRuns: 2, Reconcilers: 1, Faults: 1, Replays: 1},
	{Name: "a budget", Submits: 1, MaxRuns: 2, Reconcilers: 1, Faults: 1, FreezesAlone: true, Replays: 2, Budget: 2, Refusal: 2, Refuses: true},
}

// implied are guards that no history needs in this model, and why. They are kept for what the model
// leaves out: a row that somebody wrote by hand. TestProtocol does without them, which shows both: a guard
// only forbids, so what holds in every world without it holds in those with it.
var implied = map[string]string{
	"J13/state": "calls are open on running and unknown jobs alone, and the way to unknown changes the fence",
}

// TestProtocol takes every step in every order: the guarantee and the rules beneath it hold in every world,
// without the guards that are said to be implied.
func TestProtocol(t *testing.T) {
	for name := range implied {
		defer Without(name)()
	}
	for _, s := range scenarios {
		if *deep {
			s.Faults++
		} else if slices.Contains(large, s.Name) {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			e := s.Explore()
			t.Logf("%d worlds, %d steps, %d faults at most", e.Worlds, e.Steps, s.Faults)
			if e.Violation != nil {
				t.Errorf("without %v: %v", slices.Sorted(maps.Keys(implied)), e.Violation)
			}
		})
	}
}

// TestSlowSocket shows what the guarantee rests on (README, "not guaranteed"): a process that sleeps between
// its last look at the send window and the first byte, until after the settle window, can pay twice.
func TestSlowSocket(t *testing.T) {
	s := Scenario{Copies: 1, MaxRuns: 2, Reconcilers: 1, Faults: 1, Asks: true, SlowSocket: true, GuaranteeAlone: true}
	e := s.Explore()
	if e.Violation == nil || !strings.Contains(e.Violation.What, "paid twice") {
		t.Fatalf("found %v, want a call that is paid twice", e.Violation)
	}
	t.Log(e.Violation)
}

// TestGuards takes every guard out of the table in turn, and the state that a transition starts from:
// something breaks. What breaks, and where, is in testdata/guards.txt, so that one scenario a guard is enough here.
func TestGuards(t *testing.T) {
	known := readGuards(t)
	found := map[string]string{}
	for _, name := range Guards() {
		if implied[name] != "" {
			continue // TestProtocol
		}
		t.Run(name, func(t *testing.T) {
			defer Without(name)()
			where, what := breaks(known[name])
			if what == "" {
				t.Fatalf("nothing breaks without it, in %q", known[name])
			}
			found[name] = where + ": " + what
			if !*update && found[name] != known[name] {
				t.Errorf("without it: %s; want %s (-update after a change that is meant)", found[name], known[name])
			}
		})
	}
	if *update {
		writeGuards(t, found)
	}
	for name := range known {
		if !slices.Contains(Guards(), name) {
			t.Errorf("testdata/guards.txt names %s, which the table has not", name)
		}
	}
}

// breaks looks for what breaks, in the scenario that line names, or in all.
func breaks(line string) (where, what string) {
	known, _, _ := strings.Cut(line, ": ")
	for _, s := range scenarios {
		if s.Name != known && known != "" && !*deep && !*update {
			continue
		}
		if e := s.Explore(); e.Violation != nil {
			return s.Name, e.Violation.What
		}
	}
	return "", ""
}

const guardsFile = "testdata/guards.txt"

func readGuards(t *testing.T) map[string]string {
	t.Helper()
	f, err := os.Open(guardsFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	known := map[string]string{}
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, line, ok := strings.Cut(s.Text(), "\t"); ok {
			known[name] = line
		}
	}
	return known
}

func writeGuards(t *testing.T, found map[string]string) {
	t.Helper()
	var b strings.Builder
	b.WriteString("# What breaks without each guard, and in which scenario: go test ./internal/protocol -run Guards -update\n")
	for _, name := range slices.Sorted(maps.Keys(found)) {
		fmt.Fprintf(&b, "%s\t%s\n", name, found[name])
	}
	if err := os.WriteFile(guardsFile, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
