// Package progtest builds the programs that tests start as processes of their own.
package progtest

import (
	"fmt"
	"os/exec"
)

// Build builds the main package pkg, as go build in the folder dir names it, into the file
// bin. It has no race detector, even where the test has one: with it the workers are so slow
// that deliveries lapse, which is another test.
func Build(dir, pkg, bin string) error { return build(dir, "-o", bin, pkg) }

// BuildAsReleased is Build without what a debugger needs.
func BuildAsReleased(dir, pkg, bin string) error {
	return build(dir, "-ldflags", "-s -w", "-o", bin, pkg)
}

func build(dir string, args ...string) error {
	// No tables for debuggers, as in make test: a sixth of what there is to compile.
	args = append([]string{"build", "-gcflags=all=-dwarf=false"}, args...)
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %v: %w\n%s", args, err, out)
	}
	return nil
}
