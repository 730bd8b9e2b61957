#!/usr/bin/env bash
# Checks the subjects of the commits after the one that added this file: "package: statement", in at most 72
# characters. A shallow clone is checked as far as it goes. Outside of a clone there is nothing to check.
set -euo pipefail
cd "$(dirname "$0")/.."

[ -e .git ] || exit 0
first=$(git log --diff-filter=A --format=%H -- scripts/subjects.sh | tail -n 1)
git log --no-merges --format='%h %s' "$first..HEAD" | awk '
	{ commit = $1; subject = substr($0, length($1) + 2) }
	length(subject) > 72 { print commit ": the subject has " length(subject) " characters, and may have 72: " subject; bad = 1 }
	subject !~ /^[^ :][^:]*: ./ { print commit ": the subject must be \"package: statement\": " subject; bad = 1 }
	END { exit bad }'
