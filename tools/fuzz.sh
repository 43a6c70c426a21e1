#!/usr/bin/env bash
# fuzz.sh TIME: gives every fuzz test that much time (20s, 5m), one after the
# other. What it finds stays as a file under testdata and is from then on a
# case of go test; commit it with the fix. Making an input smaller is given little time: by default it would take
# a minute, and large seeds would be all that is tried.
set -euo pipefail
cd "$(dirname "$0")/.."

GO=${GO:-go}
time=${1:?fuzz.sh TIME, such as 20s}
found=0
for file in $(grep -rlE '^func Fuzz[A-Z]' --include='*_test.go' . | sort); do
	for name in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$file"); do
		found=$((found + 1))
		echo "$name in $(dirname "$file")"
		"$GO" test -run='^$' -fuzz="^$name\$" -fuzztime="$time" -fuzzminimizetime=1s "$(dirname "$file")"
	done
done
[ "$found" -gt 0 ] || { echo 'fuzz.sh: found no fuzz test' >&2; exit 1; }
echo "$found fuzz tests, $time each: nothing found"
