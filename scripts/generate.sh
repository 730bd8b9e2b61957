#!/usr/bin/env bash
# Regenerates everything that is generated: assembly and manual pages. With --check, generates the
# assembly in a copy, and fails if it differs; the tests of cmd/softmkey check the manual pages.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" != --check ]; then
	exec go generate ./...
fi
copy=.cache/generate
rm -rf $copy
mkdir -p $copy/internal/base
cp go.mod $copy
cp -r internal/base/kernel $copy/internal/base
(cd $copy && go generate ./...)
if ! diff -rq internal/base/kernel $copy/internal/base/kernel; then
	echo "these files differ from what their generators write: run make generate" >&2
	exit 1
fi
