#!/bin/sh
# usage: library.sh DIR [ARCH]
# Builds libsoftmkey-run.so, which softmkey run loads into programs, into DIR. ARCH is amd64 or arm64, with
# Debian's names of the compilers; without it, cc compiles for this machine, and if there is no cc, nothing is
# built: softmkey run works without the library. CC names another compiler.
set -eu
source=$(dirname "$0")/../internal/base/assist/library
case ${2:-} in
'') cc=${CC:-cc} ;;
amd64) cc=${CC:-x86_64-linux-gnu-gcc} ;;
arm64) cc=${CC:-aarch64-linux-gnu-gcc} ;;
*) echo "library.sh: architecture $2: must be amd64 or arm64" >&2; exit 2 ;;
esac
if [ -z "${2:-}" ]; then
	[ "$(uname -s)" = Linux ] || exit 0
	if ! command -v "$cc" >/dev/null; then
		echo "library.sh: there is no C compiler ($cc): softmkey run does its work without libsoftmkey-run.so, and answers programs that spin later" >&2
		exit 0
	fi
fi
mkdir -p "$1"
"$cc" -std=gnu11 -O2 -g0 -Wall -Wextra -fPIC -fvisibility=hidden -ffile-prefix-map="$source=." -shared -s -nostdlib -Wl,-z,lazy -Wl,--build-id=none \
	-o "$1/libsoftmkey-run.so" "$source/softmkey-run.c"
