package repo

import (
	"strings"
	"testing"
)

// TestWorkerPage: the worker that docs/worker.md shows is one that runs.
func TestWorkerPage(t *testing.T) {
	_, block, opened := strings.Cut(read(t, "docs/worker.md"), "```go\n")
	block, _, closed := strings.Cut(block, "\n```")
	if !opened || !closed || !strings.Contains(block, "func runWorker(") || !strings.Contains(read(t, "handlers/worker_example_test.go"), block) {
		t.Errorf("the Go of docs/worker.md is not in the example:\n%s", block)
	}
}
