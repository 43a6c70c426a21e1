package consumer

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/prices"
)

// What nobody can price costs nil, and is warned of once for each model.
func TestPriceWarnsOnce(t *testing.T) {
	var out bytes.Buffer
	c := &Consumer{cfg: Config{}.withDefaults(), log: slog.New(slog.NewTextHandler(&out, nil))}
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
