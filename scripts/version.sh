#!/bin/sh
# Prints the version and the commit of this tree: those of `softmkey version`. VERSION chooses another version. A commit
# without a tag has the version of the last tag, or v0.1.0, and what makes it a later one: v0.1.0+12.g0123456789ab.
set -eu
cd "$(dirname "$0")/.."
commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
if [ -z "${VERSION:-}" ]; then
	VERSION=$(git describe --tags --match 'v[0-9]*' --abbrev=0 2>/dev/null || echo v0.1.0)
	if ! git describe --tags --match 'v[0-9]*' --exact-match >/dev/null 2>&1; then
		VERSION=$VERSION+$(git rev-list --count HEAD 2>/dev/null || echo 0).g$commit
	fi
fi
echo "$VERSION $commit"
