package jobtest

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/paidonce/paidonce/job"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/memory"
)

// The rows that a handler commits for an answer are points of a run, and there once at its end.
func TestCrashAroundRowsForAnAnswer(t *testing.T) {
	call, rows := sortCall(), 0
	def := job.Def[ticket, sorted]{Name: "ticket.sort", Uses: job.Uses(call),
		Handle: func(ctx context.Context, j *job.Run, m ticket) (sorted, error) {
			return memory.RunTx(ctx, j, call, m, func(ctx context.Context, out sorted) error {
				memory.Then(ctx, func() { rows++ })
				return nil
			})
		}}
	whens := map[string]bool{}
	CrashEverywhere(t, def, in, func(t testing.TB, e End[sorted]) {
		whens[e.When] = true
		if e.State != ledger.Done || e.Sends["sort"] != 1 || rows != 1 {
			t.Errorf("%s: the end is %s, sends %v, %d rows", e.When, e.State, e.Sends, rows)
		}
		rows = 0
	}, model)
	for _, w := range []string{"the worker dies before the rows for the answer to call sort are committed",
		"the worker dies after the rows for the answer to call sort are committed, before the handler goes on"} {
		if !whens[w] {
			t.Errorf("nothing happened as %q; there are %v", w, slices.Sorted(maps.Keys(whens)))
		}
	}
}
