#!/usr/bin/env bash
# Runs every fuzz target for so many inputs (3000x) or for so long (1m); 50000x is the default.
# A time can end in "context deadline exceeded" when nothing is wrong: the
# go command's own workers lose a race at the end (golang/go#75804). A number cannot.
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
