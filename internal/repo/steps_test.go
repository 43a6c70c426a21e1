package repo

import (
	"strings"
	"testing"
)

// TestStepsPage: the effect that docs/steps.md shows is the one that an example runs.
func TestStepsPage(t *testing.T) {
	example := read(t, "handlers/effect_example_test.go")
	blocks := strings.Split(read(t, "docs/steps.md"), "```go\n")
	last, _, closed := strings.Cut(blocks[len(blocks)-1], "\n```")
	if !closed || !strings.Contains(last, "func smsStep(") || !strings.Contains(example, last) {
		t.Errorf("the last Go of docs/steps.md is not in the example:\n%s", last)
	}
}
