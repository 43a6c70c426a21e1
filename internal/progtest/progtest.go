// Package progtest builds the programs that tests start as processes of their own.
package progtest

import (
	"fmt"
	"os/exec"
	"runtime/debug"
)

// Build builds the main package pkg, as go build in the folder dir names it, into the file bin: with the race detector
// if this test has it. So races within the processes are found too, and all packages
// are compiled in one way: the vendors' SDKs take minutes for each.
func Build(dir, pkg, bin string) error {
	args := []string{"build", "-o", bin}
	if Raced() {
		args = append(args, "-race")
	}
	return run(dir, append(args, pkg)...)
}

// BuildAsReleased builds it without the race detector, whose memory is another, and without
// what a debugger needs.
func BuildAsReleased(dir, pkg, bin string) error {
	return run(dir, "build", "-ldflags", "-s -w", "-o", bin, pkg)
}

// Race is what the race detector prints when it finds one.
const Race = "WARNING: DATA RACE"

// Raced reports whether this program has the race detector.
func Raced() bool {
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key == "-race" {
			return s.Value == "true"
		}
	}
	return false
}

func run(dir string, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %v: %w\n%s", args, err, out)
	}
	return nil
}
