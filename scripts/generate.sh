#!/usr/bin/env bash
# Regenerates everything that is generated: assembly and manual pages. With --check, fails if that
# changed a file.
set -euo pipefail
cd "$(dirname "$0")/.."
sums() { find . -path ./.cache -prune -o \( -name '*_amd64.s' -o -name '*_arm64.s' -o -path './docs/man/*' \) -type f -exec sha256sum {} + | sort -k 2; }
before=$(sums)
go generate ./...
if [ "${1:-}" = --check ] && ! diff <(echo "$before") <(sums); then
	echo "these generated files differed from their generators; they are right now: commit them" >&2
	exit 1
fi
