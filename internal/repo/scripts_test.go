package repo

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestScripts: what is meant to be run can be run. LocalStack goes on without a script
// that has no run bit.
func TestScripts(t *testing.T) {
	found := 0
	for _, path := range files(t) {
		hook := strings.HasPrefix(path, "localstack/init/")
		if !hook && !strings.HasSuffix(path, ".sh") && path != ".ci/run" {
			continue
		}
		found++
		info, err := os.Stat(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode()&0o111 != 0o111 {
			t.Errorf("%s has mode %v: set the run bit (git update-index --chmod=+x)", path, info.Mode())
		}
		if !regexp.MustCompile(`^#!(/bin/sh|/usr/bin/env bash)\n`).MatchString(read(t, path)) {
			t.Errorf("%s does not begin with the line that names its shell", path)
		}
		if hook && !strings.HasSuffix(path, ".sh") {
			t.Errorf("%s does not end in .sh: LocalStack would not run it", path)
		}
		if !regexp.MustCompile(`(?m)^set -eu`).MatchString(read(t, path)) && path != "tools/check.sh" {
			t.Errorf("%s goes on after an error: set -eu", path)
		}
	}
	if found < 3 {
		t.Errorf("found %d scripts; the check proves nothing", found)
	}
}

// TestComposeProofSaysWhatItNeeds: without an engine the proof fails, with words.
func TestComposeProofSaysWhatItNeeds(t *testing.T) {
	for name, c := range map[string]struct{ docker, want string }{
		"no docker":  {"", "needs docker with its compose plugin"},
		"no compose": {"[ \"$1\" != compose ]", "needs docker with its compose plugin"},
		"no engine":  {"[ \"$1\" != info ]", "no Docker engine answers"},
		"up fails":   {"echo called: $*; case $* in *version*|info|*down*) ;; *) exit 1 ;; esac", "down --volumes"},
	} {
		t.Run(name, func(t *testing.T) {
			bin := t.TempDir()
			for _, tool := range []string{"bash", "dirname"} {
				path, err := exec.LookPath(tool)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(path, filepath.Join(bin, tool)); err != nil {
					t.Fatal(err)
				}
			}
			if c.docker != "" {
				if err := os.WriteFile(filepath.Join(bin, "docker"), []byte("#!/bin/sh\n"+c.docker+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), filepath.Join(root, "tools/e2e-compose.sh"))
			cmd.Env = []string{"PATH=" + bin}
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.want) {
				t.Errorf("%v, want an error and %q\n%s", err, c.want, out)
			}
		})
	}
}
