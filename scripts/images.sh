#!/usr/bin/env bash
# usage: images.sh [NAME...]
# Builds container images without a registry, with podman, as any user:
#   softmkey         from scratch: the binary alone, for files and for copies between devices
#   softmkey-debian  also Debian's rdma-core and perftest, for softmkey run; needs mmdebstrap
# Without names it builds both. VERSION is their tag; the default is that of scripts/version.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
release=$(scripts/version.sh)
version=${release% *}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
CGO_ENABLED=0 GOFLAGS= go build -trimpath -buildvcs=false -ldflags "-s -w -buildid= -X 'main.release=$release'" -o "$work/softmkey" ./cmd/softmkey
chmod 755 "$work/softmkey"

# image NAME builds an image from the Containerfile on standard input. The image does not depend
# on the time of the build.
image() {
	podman build -q --timestamp "$SOURCE_DATE_EPOCH" --network none -t "localhost/$1:$(tr + - <<<"${version#v}")" -t "localhost/$1:latest" -f - "$work"
}
[ $# -gt 0 ] || set -- softmkey softmkey-debian
for name; do
	case $name in
	softmkey)
		image softmkey <<-END
			FROM scratch
			COPY softmkey /usr/bin/softmkey
			ENV PATH=/usr/bin
			ENTRYPOINT ["/usr/bin/softmkey"]
		END
		;;
	softmkey-debian)
		mmdebstrap --quiet --variant=apt --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
			--include=ibverbs-providers,ibverbs-utils,rdmacm-utils,perftest bookworm "$work/root.tar"
		scripts/library.sh "$work" "$(go env GOARCH)"
		image softmkey-debian <<-END
			FROM scratch
			ADD root.tar /
			COPY softmkey /usr/bin/softmkey
			COPY libsoftmkey-run.so /usr/lib/softmkey/libsoftmkey-run.so
			CMD ["/bin/bash"]
		END
		rm "$work/root.tar"
		;;
	*)
		echo "image $name: must be softmkey or softmkey-debian" >&2
		exit 2
		;;
	esac
done
