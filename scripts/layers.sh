#!/usr/bin/env bash
# Holds the import order: a byte walks one way through rooms that each know one
# thing, and no room imports one above it.
set -euo pipefail
cd "$(dirname "$0")/.."
module=$(go list -m)

# package: the packages of this module that it, and what it imports, may reach.
check() {
	local package=$1 allowed=" $2 " bad=""
	for dep in $(go list -deps "./$package" | grep "^$module/" | sed "s|^$module/||"); do
		[ "$dep" = "$package" ] && continue
		case "$allowed" in *" $dep "*) ;; *) bad="$bad $dep" ;; esac
	done
	[ -z "$bad" ] || { echo "import order: $package must not reach:$bad" >&2; exit 1; }
}

base="internal/cpu internal/operr"
check sig "$base internal/kernel/crc"
check xts "$base internal/kernel/aesxts"
check dek "$base internal/kernel/aesxts xts"
check mkey "$base internal/kernel/fused internal/kernel/crc internal/kernel/aesxts sig xts"
check internal/wire "$base internal/kernel/icrc"
check internal/udp "$base"
check roce "$base internal/kernel/icrc internal/wire internal/udp"
check roce/inproc "$base internal/udp"
check roce/rocetest "$base internal/udp roce/inproc"
check internal/pcap "$base internal/kernel/icrc internal/wire internal/udp"
check verbs "$base internal/kernel/fused internal/kernel/crc internal/kernel/aesxts sig xts dek mkey internal/kernel/icrc internal/wire internal/udp roce"
check mkeyio "$base internal/kernel/fused internal/kernel/crc internal/kernel/aesxts sig xts mkey"
