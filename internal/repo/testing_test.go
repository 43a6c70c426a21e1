package repo

import (
	"strings"
	"testing"
)

// TestTestingPage: the test that docs/testing.md shows is one that runs, and the report is one that is made.
func TestTestingPage(t *testing.T) {
	page := read(t, "docs/testing.md")
	_, block, opened := strings.Cut(page, "```go\n")
	block, _, closed := strings.Cut(block, "\n```")
	if !opened || !closed || !strings.Contains(read(t, "job/jobtest/example_test.go"), block) {
		t.Errorf("the Go of docs/testing.md is not in the example:\n%s", block)
	}
}
