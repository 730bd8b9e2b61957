#!/usr/bin/env bash
# Runs every fuzz target for the time given (default 1m).
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-1m}
git grep -l '^func Fuzz' -- '*_test.go' | while read -r file; do
	dir=$(dirname "$file")
	grep -oE '^func Fuzz[A-Za-z0-9_]*' "$file" | while read -r _ name; do
		echo "-- $dir $name"
		go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "./$dir"
	done
done
