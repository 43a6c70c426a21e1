package consumer

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/prices"
)

// What nobody can price costs nil, and is warned of once for each model and reason.
func TestPriceWarnsOnce(t *testing.T) {
	var out bytes.Buffer
	c := &Consumer{cfg: Config{}.withDefaults(), said: make(map[string]bool), log: slog.New(slog.NewTextHandler(&out, nil))}
	call := prices.Call{Provider: "openai", Model: "gpt-5-mini", At: prices.AsOf, Usage: prices.Usage{In: 1000, Out: 10}}
	if cost := c.price(call); cost == nil || *cost != 270_000 || out.Len() > 0 {
		t.Errorf("cost %v, log %s", cost, &out)
	}
	for _, model := range []string{"own-7b", "own-7b", "own-13b", "own-7b"} {
		call.Model = model
		if cost := c.price(call); cost != nil {
			t.Errorf("%s costs %d", model, *cost)
		}
	}
	call.Model, call.NoUsage = "gpt-5-mini", true
	if cost := c.price(call); cost != nil {
		t.Errorf("an answer without usage costs %d", *cost)
	}
	text := out.String()
	if strings.Count(text, "\n") != 3 || strings.Count(text, "model=own-7b") != 1 || strings.Count(text, "model=own-13b") != 1 || strings.Count(text, "PO067") != 3 {
		t.Errorf("log:\n%s", text)
	}
}

// stored is a store that has one job.
type stored struct {
	ledger.Store
	job ledger.Job
}

func (s stored) Job(context.Context, ledger.Key) (ledger.Job, error) { return s.job, nil }

// Wasted is what is surplus of this generation, has a known cost, and came before the job was done:
// what came later was told of when it came.
func TestWastedOfARow(t *testing.T) {
	done := time.Unix(1000, 0)
	row := func(surplus bool, generation int, ended time.Time, cost *ledger.Nano) ledger.AttemptRow {
		return ledger.AttemptRow{Surplus: surplus, Generation: generation, EndedAt: ended, Evidence: ledger.Evidence{Cost: cost}}
	}
	c := &Consumer{store: stored{job: ledger.Job{Generation: 2, DoneAt: done, Attempts: []ledger.AttemptRow{
		row(true, 2, done, new(ledger.Nano(1))), row(false, 2, done, new(ledger.Nano(10))), row(true, 1, done, new(ledger.Nano(100))),
		row(true, 2, done.Add(1), new(ledger.Nano(1000))), row(true, 2, done, nil), row(true, 2, done.Add(-1), new(ledger.Nano(10_000))),
	}}}}
	var told ledger.Nano
	c.trace = &tracer{Trace: Trace{Wasted: func(_ string, cost ledger.Nano) { told += cost }}}
	c.wasted(t.Context(), &work{log: slog.New(slog.DiscardHandler)})
	if told != 10_001 {
		t.Errorf("told of %d, want 10001", told)
	}
}
