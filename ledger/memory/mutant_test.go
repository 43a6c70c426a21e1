package memory_test

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/ledger"
)

// mutantVariable tells a process of this test which part of the table to leave out.
const mutantVariable = "LEDGER_MUTANT"

func TestMain(m *testing.M) {
	if name := os.Getenv(mutantVariable); name != "" {
		for _, mu := range mutants() {
			if mu.name == name {
				mu.apply()
			}
		}
	}
	os.Exit(m.Run())
}

// mutant is the table of transitions with one thing wrong.
type mutant struct {
	name  string // transition/guard
	apply func()
}

// mutants leaves out every guard of the table in turn, the state a transition starts
// from among them, and turns around whether the fence grows. They change the table
// itself, which the memory ledger evaluates.
func mutants() []mutant {
	var ms []mutant
	table := ledger.Transitions()
	for i := range table {
		t := &table[i]
		if len(t.From) > 0 {
			ms = append(ms, mutant{t.ID + "/state", func() { t.From = nil }})
		}
		for g := range t.Guards {
			ms = append(ms, mutant{t.ID + "/" + t.Guards[g].Name, func() {
				t.Guards[g].Holds = func(ledger.Facts) bool { return true }
			}})
		}
		if !slices.Contains([]string{"J5", "J20", "J20k"}, t.ID) { // these change no owner
			ms = append(ms, mutant{t.ID + "/fence grows", func() { t.Fence = !t.Fence }})
		}
		if t.To != "" {
			ms = append(ms, mutant{t.ID + "/new state", func() { t.To = other(t.To) }})
		}
	}
	return ms
}

// other is a state that the transition must not lead to.
func other(s ledger.State) ledger.State {
	if s == ledger.Ready {
		return ledger.Running
	}
	return ledger.Ready
}

// TestMutants proves that the suite asserts every guard of the table: with any
// one left out, some case fails.
func TestMutants(t *testing.T) {
	failed := regexp.MustCompile(`--- FAIL: TestLedger/(\S+)|panic: (ledger: the table allows \S+ and \S+)`)
	for _, m := range mutants() {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLedger$", "-test.skip=random", "-test.failfast")
		cmd.Env = append(os.Environ(), mutantVariable+"="+m.name)
		out, err := cmd.CombinedOutput()
		if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
			t.Fatalf("run the suite without %s: %v", m.name, err)
		}
		if err == nil {
			t.Errorf("the suite passes without %s", m.name)
			continue
		}
		why := failed.FindStringSubmatch(string(out))
		if why == nil {
			t.Errorf("without %s the suite ends, but no case fails:\n%s", m.name, out)
			continue
		}
		t.Logf("%-28s %s", m.name, strings.TrimSpace(why[1]+" "+why[2]))
	}
}
