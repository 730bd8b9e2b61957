#!/usr/bin/env bash
# Runs every fuzz target. The argument is the number of inputs (3000x) or a time (1m) for each;
# the default is 50000x. With a time, the go command may report "context deadline exceeded"
# although nothing is wrong, because of a race of its workers at the end (golang/go#75804).
#
# The tests of a package are built once, for all of its targets. A new input goes to the package's
# testdata/fuzz if the target fails, and otherwise to the go command's cache of fuzzing.
#
# The go command makes each input that reaches new code smaller, for up to a minute, and does
# not count these runs: a target with goroutines, which reach more code in one run than in the
# next, stands still for seconds then. A limit of 100 runs leaves the time to new inputs.
set -euo pipefail
cd "$(dirname "$0")/.."
budget=${1:-50000x}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
for dir in $(grep -rl --include='*_test.go' --exclude-dir=.cache '^func Fuzz' . | xargs -n 1 dirname | sort -u); do
	go -C "$dir" test -c -fuzz . -o "$work/test" . # interop is a module of its own
	for name in $(grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go | sed 's/^func //'); do
		echo "-- $dir $name"
		(cd "$dir" && "$work/test" -test.run '^$' -test.fuzz "^$name\$" -test.fuzztime "$budget" -test.fuzzminimizetime 100x \
			-test.fuzzcachedir "$(go env GOCACHE)/fuzz/$(go list)") >"$work/out" 2>&1 || { failed=1; cat "$work/out"; }
	done
done
exit $failed
