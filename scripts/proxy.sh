#!/usr/bin/env bash
# usage: proxy.sh DIR
# Makes a module proxy of the committed tree in the folder DIR, with the files that proxy.golang.org
# will have after the tag, so that go install can be tried before the tag exists:
#   GOPROXY=file://DIR,https://proxy.golang.org GONOSUMDB=github.com/softmkey/softmkey \
#     go install github.com/softmkey/softmkey/cmd/softmkey@latest
# VERSION names the version; the default is the last tag of git. The zip is made, and checked, by the
# Go project's own golang.org/x/mod/zip.
set -euo pipefail
dir=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")/.."
version=${VERSION:-$(git describe --tags --match 'v[0-9]*' --abbrev=0 2>/dev/null || echo v0.1.0)}
to=$dir/github.com/softmkey/softmkey/@v
mkdir -p "$to"
git show HEAD:go.mod >"$to/$version.mod"
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
git archive HEAD | tar -x -C "$tree"
go -C tools run ./modzip "$tree" "$version" >"$to/$version.zip"
printf '{"Version":"%s","Time":"%s","Origin":{"VCS":"git","Hash":"%s"}}\n' "$version" "$(TZ=UTC git log -1 --date=format-local:%FT%TZ --format=%cd)" "$(git rev-parse HEAD)" >"$to/$version.info"
echo "$version" >"$to/list"
