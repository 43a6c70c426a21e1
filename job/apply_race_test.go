package job

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// TestRunTxLateTogether: two goroutines of a run were given the same answer, and another came before it. What the slower one
// holds is not the call's answer any more: its rows are made of the one whose mark they get.
func TestRunTxLateTogether(t *testing.T) {
	first := ledger.NewID()
	f := &applier{fake: &fake{}}
	f.before = func(n int) error {
		if f.applied[n-1] == first {
			return nil
		}
		if n == 1 {
			f.attempts = append([]*fakeAttempt{{Attempt: ledger.Attempt{ID: first, Call: ledger.CallRef{Name: "ask"}, Route: "only"}, state: ledger.Received,
				evidence: ledger.Evidence{Response: &ledger.Response{Codec: "json", Body: []byte(`"an earlier answer"`)}}}}, f.attempts...)
		}
		return ledger.ErrLate
	}
	j := applying(t, f)
	call := paying(ByName)
	var rows []string
	add := func(out string) ledger.Hook { return func() error { rows = append(rows, out); return nil } }
	quick := true // the other goroutine's whole RunTx, while the slower one stands between its answer and its rows
	out, err := call.RunTx(t.Context(), j, "a", func(out string) ledger.Hook {
		if quick {
			quick = false
			if out, err := call.RunTx(t.Context(), j, "a", add); err != nil || out != "an earlier answer" {
				t.Errorf("the quick one: %q, %v", out, err)
			}
		}
		return add(out)
	})
	want := []string{"an earlier answer", "an earlier answer"} // that it is applied once is the ledger's to know
	if err != nil || out != want[0] || !slices.Equal(rows, want) || f.sends != 1 {
		t.Errorf("%q, %v, rows %q, %d sends", out, err, rows, f.sends)
	}
	if used := j.Result(nil).Used; !slices.Equal(used, []ledger.ID{first}) {
		t.Errorf("the result uses %v, want %v", used, first)
	}
}

// TestRunTxUnsent: an answer for which nothing was sent is on no record, so rows of it would come again with every run.
func TestRunTxUnsent(t *testing.T) {
	f := &applier{fake: &fake{}}
	c := paying(ByName)
	c.Routes = []Route[string, string]{{Name: "only", Provider: "fake", Timeout: time.Minute,
		Do: func(context.Context, *Attempt, string) (string, error) { return "made up", nil }}}
	out, err := c.RunTx(t.Context(), applying(t, f), "a", noWork)
	if class, _ := ClassOf(err); out != "" || err == nil || !strings.HasPrefix(err.Error(), "PO632") || class != Permanent || len(f.applied) != 0 {
		t.Errorf("%q, %v, applied %v", out, err, f.applied)
	}
}
