#!/usr/bin/env bash
# usage: release.sh [--check]
# Builds a release in dist/: static binaries for Linux, .deb and .rpm, archives for macOS and Windows
# (the file commands), a bill of materials for each binary (CycloneDX), and SHA256SUMS. VERSION is
# its version, such as v0.1.0; the default is that of scripts/version.sh. The files depend on the commit, the version,
# and the versions of Debian's C compilers (gcc, gcc-aarch64-linux-gnu) only: --check builds them a second time in
# another folder and compares. TARGETS chooses
# systems, such as "linux/amd64 windows/amd64".
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
export LC_ALL=C TZ=UTC

commit=$(git rev-parse HEAD)
read -r version _ < <(scripts/version.sh)
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.]+)?$ ]] || { echo "VERSION $version: must be such as v0.1.0 or v0.1.0-rc.1" >&2; exit 2; }
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
targets=${TARGETS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64}

if [ "${1:-}" = --check ]; then
	[ -z "$(git status --porcelain)" ] || { echo "--check compares with a clone: commit your changes first" >&2; exit 2; }
	"$0"
	other=$(mktemp -d)
	trap 'rm -rf "$other"' EXIT
	git clone -q "$root" "$other/a folder"
	git -C "$other/a folder" checkout -q "$commit"
	VERSION=$version "$other/a folder/scripts/release.sh"
	diff -r dist "$other/a folder/dist"
	echo "both builds are equal, byte by byte"
	exit
fi

rm -rf dist
mkdir -p dist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build() { # GOOS/GOARCH OUT
	CGO_ENABLED=0 GOOS=${1%/*} GOARCH=${1#*/} GOFLAGS= go build -trimpath -buildvcs=false \
		-ldflags "-s -w -buildid= -X 'main.release=$(VERSION=$version scripts/version.sh)'" -o "$2" ./cmd/softmkey
}
build "$(go env GOHOSTOS)/$(go env GOHOSTARCH)" "$work/host"
# The bill of materials contains the hash of the tool that wrote it, so this tool must be built
# reproducibly, too.
go -C tools build -trimpath -buildvcs=false -o "$work/" github.com/goreleaser/nfpm/v2/cmd/nfpm github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod
go -C tools build -trimpath -buildvcs=false -o "$work/" ./zip
# Debian's changelog has the release alone: CHANGELOG.md has the rest.
printf 'softmkey (%s) stable; urgency=medium\n\n  * See /usr/share/doc/softmkey/CHANGELOG.md.\n\n -- softmkey authors <softmkey@users.noreply.github.com>  %s\n' \
	"${version#v}" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$work/changelog.gz"
for target in $targets; do
	os=${target%/*} arch=${target#*/}
	name=softmkey_${version#v}_${os}_$arch
	suffix=
	[ "$os" != windows ] || suffix=.exe
	build "$target" "$work/softmkey$suffix"
	mkdir "$work/$name"
	if [ "$os" = windows ]; then
		cp "$work/softmkey.exe" LICENSE README.md "$work/$name"
	else
		scripts/stage.sh "$work/softmkey" "$work/$name" "$work/host"
		[ "$os" != linux ] || scripts/library.sh "$work/$name/lib/softmkey" "$arch"
		cp LICENSE README.md "$work/$name"
	fi
	find "$work/$name" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	if [ "$os" = windows ]; then
		"$work/zip" "$SOURCE_DATE_EPOCH" "$work" "$name" "dist/$name.zip"
	else
		tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw --mtime="@$SOURCE_DATE_EPOCH" -cf - "$name" | gzip -9n >"dist/$name.tar.gz"
	fi
	"$work/cyclonedx-gomod" bin -json -std -noserial -version "$version" "$work/softmkey$suffix" |
		sed "s/^\( *\"timestamp\": \)\".*\"/\1\"$(date -u -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)\"/" >"dist/$name.cdx.json"
	if [ "$os" = linux ]; then
		sed -e "s|\${ARCH}|$arch|; s|\${VERSION}|${version#v}|; s|\${STAGE}|$work/$name|; s|\${WORK}|$work|" scripts/nfpm.yaml >"$work/nfpm.yaml"
		for kind in deb rpm; do
			"$work/nfpm" package -f "$work/nfpm.yaml" -p $kind -t "dist/softmkey_${version#v}_$arch.$kind"
		done
	fi
	rm -rf "$work/softmkey$suffix"
done
(cd dist && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS)
ls -l dist
