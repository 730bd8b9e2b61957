#!/usr/bin/env bash
# Runs every fuzz target. The argument is the number of inputs (3000x) or a time (1m) for each;
# the default is 50000x. With a time, the go command may report "context deadline exceeded"
# although nothing is wrong, because of a race of its workers at the end (golang/go#75804).
#
# The go command makes each input that reaches new code smaller, for up to a minute, and does
# not count these runs: a target with goroutines, which reach more code in one run than in the
# next, stands still for seconds then. A limit of 100 runs leaves the time to new inputs.
set -euo pipefail
cd "$(dirname "$0")/.."
budget=${1:-50000x}
git grep -l '^func Fuzz' -- '*_test.go' | while read -r file; do
	dir=$(dirname "$file")
	grep -oE '^func Fuzz[A-Za-z0-9_]*' "$file" | while read -r _ name; do
		echo "-- $dir $name"
		go test -run '^$' -fuzz "^$name\$" -fuzztime "$budget" -fuzzminimizetime 100x "./$dir"
	done
done
