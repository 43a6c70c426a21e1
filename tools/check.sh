#!/usr/bin/env bash
# Everything that can be said about the sources without running them. Goes on
# after a finding, so that one run shows all of them.
set -u
cd "$(dirname "$0")/.."

GO=${GO:-go}
bad=0

# step NAME COMMAND...: a finding is a non-zero exit.
step() {
	local name=$1 out rc=0
	shift
	out=$("$@" 2>&1) || rc=$?
	if [ "$rc" = 0 ]; then
		printf 'ok    %s\n' "$name"
	else
		bad=1
		printf 'FAIL  %s (exit %s)\n%s\n' "$name" "$rc" "$out"
	fi
}

# empty COMMAND...: a finding is any output.
empty() {
	local out
	out=$("$@" 2>&1) || { printf '%s\n' "$out"; return 1; }
	[ -z "$out" ] || { printf '%s\n' "$out"; return 1; }
}

sources() {
	if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
		git ls-files -co --exclude-standard '*.go'
	else
		find . -name '*.go'
	fi | while read -r f; do [ ! -e "$f" ] || echo "$f"; done
}

formatted() {
	local files
	files=$(gofmt -l $(sources)) || return 1
	[ -z "$files" ] || { printf 'not formatted; make fmt rewrites them:\n%s\n' "$files"; return 1; }
}

in_bench() { (cd bench && "$@"); }

command -v "$GO" >/dev/null || { echo "make check needs Go 1.26 or newer: https://go.dev/dl" >&2; exit 1; }

linter=$(mktemp -d)
trap 'rm -rf "$linter"' EXIT
step 'gofmt' formatted
step 'build staticcheck' "$GO" build -gcflags=all=-dwarf=false -modfile=tools/go.mod -o "$linter/staticcheck" honnef.co/go/tools/cmd/staticcheck
# As make test compiles, so that what it needs is there.
export GOFLAGS="${GOFLAGS:-} ${RACE:--race}"
step 'go vet' "$GO" vet ./...
step 'go fix -diff' empty "$GO" fix -diff ./...
step 'staticcheck' "$linter/staticcheck" ./...
# The benchmarks are a module of their own: users and make test do without the systems that they compare.
step 'bench: go vet' "$GO" -C bench vet ./...
step 'bench: go fix -diff' empty "$GO" -C bench fix -diff ./...
step 'bench: staticcheck' in_bench "$linter/staticcheck" ./...
step 'bench: its arithmetic' "$GO" -C bench test ./...
# Without the detector: they only read files, and take a third of the time.
step 'import rules, dependency budget, licences' "$GO" test -race=false -count=1 ./internal/imports
step 'file sizes, documentation, error codes, compose file' "$GO" test -race=false -count=1 ./internal/repo
exit "$bad"
