#!/usr/bin/env bash
# Runs every fuzz target. The argument is the number of inputs (3000x) or a time (1m) for each;
# the default is 50000x. With a time, the go command may report "context deadline exceeded"
# although nothing is wrong, because of a race of its workers at the end (golang/go#75804).
set -euo pipefail
cd "$(dirname "$0")/.."
budget=${1:-50000x}
git grep -l '^func Fuzz' -- '*_test.go' | while read -r file; do
	dir=$(dirname "$file")
	grep -oE '^func Fuzz[A-Za-z0-9_]*' "$file" | while read -r _ name; do
		echo "-- $dir $name"
		go test -run '^$' -fuzz "^$name\$" -fuzztime "$budget" "./$dir"
	done
done
