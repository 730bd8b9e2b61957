#!/usr/bin/env bash
# Regenerates everything that is generated: assembly and manual pages. With
# --check, fails if a committed file differs from the output of its generator.
set -euo pipefail
cd "$(dirname "$0")/.."
go generate ./...
if [ "${1:-}" = --check ]; then
	git diff --exit-code --stat -- '*_amd64.s' '*_arm64.s' docs/man ||
		{ echo "generated files differ from their generators: run make generate and commit" >&2; exit 1; }
fi
